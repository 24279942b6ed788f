//! The state of the server and of its data, which these commands only read.

use crate::commands::spec::Command;

pub mod build_info;
pub mod coll_stats;
pub mod conn_pool_stats;
pub mod current_op;
pub mod data_size;
pub mod db_hash;
pub mod db_stats;
pub mod diagnostic_history;
pub mod features;
pub mod get_cmd_line_opts;
pub mod get_diagnostic_data;
pub mod get_log;
pub mod hello;
pub mod host_info;
pub mod lock_info;
pub mod ping;
pub mod profile;
pub mod server_status;
pub mod top;
pub mod validate;
pub mod validate_db_metadata;
pub mod whatsmyuri;

pub static COMMANDS: &[&dyn Command] = &[
    &build_info::BuildInfo,
    &coll_stats::CollStats,
    &conn_pool_stats::ConnPoolStats,
    &current_op::CurrentOp,
    &data_size::DataSize,
    &db_hash::DbHash,
    &db_stats::DbStats,
    &diagnostic_history::GetDiagnosticHistory,
    &features::Features,
    &get_cmd_line_opts::GetCmdLineOpts,
    &get_diagnostic_data::GetDiagnosticData,
    &get_log::GetLog,
    &hello::Hello,
    &host_info::HostInfo,
    &lock_info::LockInfo,
    &ping::Ping,
    &profile::Profile,
    &server_status::ServerStatus,
    &top::Top,
    &validate::Validate,
    &validate_db_metadata::ValidateDbMetadata,
    &whatsmyuri::WhatsMyUri,
];
