//! The commands. Each one, or a few that belong together, is a file: its specification, its implementation, and its tests.
//! [`COMMANDS`] lists them.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use frond_bson::DocBuf;

use crate::authorization::{Needs, Requested};
use crate::state::Server;

pub mod abort_transaction;
pub mod absent;
mod access_fields;
pub mod aggregate;
pub mod append_oplog_note;
pub mod apply_ops;
mod asked_names;
pub mod authenticate;
pub mod backup_stream;
pub mod build_info;
pub mod bulk_write;
pub mod clone_collection_as_capped;
pub mod cluster_parameters;
pub mod coll_mod;
mod coll_mod_index;
pub mod coll_stats;
pub mod commit_transaction;
pub mod compact;
pub mod configure_fail_point;
pub mod conn_pool_stats;
pub mod connection_status;
pub mod convert_to_capped;
pub mod count;
pub mod create;
pub mod create_backup;
pub mod create_indexes;
pub mod create_role;
pub mod create_user;
pub mod current_op;
pub mod data_size;
pub mod db_hash;
pub mod db_stats;
pub mod default_rw_concern;
pub mod delete;
pub mod diagnostic_history;
pub mod distinct;
pub mod drop;
pub mod drop_database;
pub mod drop_indexes;
pub mod drop_role;
pub mod drop_user;
pub mod end_sessions;
pub mod explain;
pub mod features;
pub mod file_md5;
pub mod find;
pub mod find_and_modify;
pub mod fsync;
pub mod get_cmd_line_opts;
pub mod get_diagnostic_data;
pub mod get_last_error;
pub mod get_log;
pub mod get_more;
pub mod get_prev_error;
pub mod hello;
pub mod host_info;
pub mod insert;
pub mod invalidate_user_cache;
pub mod kill_all_sessions;
pub mod kill_all_sessions_by_pattern;
pub mod kill_cursors;
pub mod kill_op;
pub mod kill_sessions;
pub mod list_collections;
pub mod list_commands;
pub mod list_databases;
pub mod list_indexes;
pub mod lock_info;
pub mod log_rotate;
pub mod logout;
pub mod map_reduce;
pub mod merge_authz_collections;
pub mod old_scripts;
pub mod oplog_size;
pub mod parameters;
mod password;
pub mod ping;
pub mod plan_cache;
pub mod privileges_of_role;
pub mod profile;
pub mod query_settings;
pub mod re_index;
pub mod refresh_sessions;
pub mod rename_collection;
pub mod repl_set_config;
pub mod repl_set_status;
mod repl_set_step_up;
pub mod reset_error;
mod role_checks;
pub mod roles_info;
pub mod roles_of_role;
pub mod roles_of_user;
pub mod rotate_certificates;
pub mod sasl;
pub mod server_status;
pub mod set_feature_compatibility_version;
pub mod sharding;
pub mod shutdown;
pub mod spec;
pub mod start_session;
mod statement_record;
pub mod top;
pub mod truncate_capped;
pub mod update;
pub mod update_role;
pub mod update_user;
pub mod users_info;
pub mod validate;
pub mod validate_db_metadata;
pub mod watch;
pub mod whatsmyuri;
mod write;

pub use spec::{Command, InTransactions, Spec, Traits};

#[cfg(test)]
mod needs_tests;
#[cfg(test)]
mod options_tests;

/// Every command.
pub static COMMANDS: &[&dyn Command] = &[
    &abort_transaction::AbortTransaction,
    &aggregate::Aggregate,
    &append_oplog_note::AppendOplogNote,
    &apply_ops::ApplyOps,
    &authenticate::Authenticate,
    &create_backup::BackupStart,
    &create_backup::BackupStatus,
    &create_backup::BackupThrottle,
    &build_info::BuildInfo,
    &bulk_write::BulkWrite,
    &truncate_capped::Captrunc,
    &clone_collection_as_capped::CloneCollectionAsCapped,
    &coll_mod::CollMod,
    &coll_stats::CollStats,
    &commit_transaction::CommitTransaction,
    &compact::Compact,
    &configure_fail_point::ConfigureFailPoint,
    &conn_pool_stats::ConnPoolStats,
    &connection_status::ConnectionStatus,
    &convert_to_capped::ConvertToCapped,
    &count::Count,
    &create::Create,
    &create_backup::CreateBackup,
    &create_indexes::CreateIndexes,
    &create_role::CreateRole,
    &create_user::CreateUser,
    &current_op::CurrentOp,
    &data_size::DataSize,
    &db_hash::DbHash,
    &db_stats::DbStats,
    &delete::Delete,
    &distinct::Distinct,
    &drop::Drop,
    &drop_role::DropAllRolesFromDatabase,
    &drop_user::DropAllUsersFromDatabase,
    &drop_database::DropDatabase,
    &drop_indexes::DropIndexes,
    &drop_role::DropRole,
    &drop_user::DropUser,
    &truncate_capped::EmptyCapped,
    &end_sessions::EndSessions,
    &old_scripts::Eval,
    &explain::Explain,
    &features::Features,
    &file_md5::FileMd5,
    &find::Find,
    &find_and_modify::FindAndModify,
    &fsync::Fsync,
    &fsync::FsyncUnlock,
    &get_cmd_line_opts::GetCmdLineOpts,
    &cluster_parameters::GetClusterParameter,
    &default_rw_concern::GetDefaultRwConcern,
    &get_diagnostic_data::GetDiagnosticData,
    &diagnostic_history::GetDiagnosticHistory,
    &get_last_error::GetLastError,
    &get_log::GetLog,
    &get_more::GetMore,
    &authenticate::GetNonce,
    &get_prev_error::GetPrevError,
    &privileges_of_role::GRANT,
    &roles_of_role::GRANT,
    &roles_of_user::GRANT,
    &old_scripts::Group,
    &hello::Hello,
    &host_info::HostInfo,
    &insert::Insert,
    &invalidate_user_cache::InvalidateUserCache,
    &kill_all_sessions::KillAllSessions,
    &kill_all_sessions_by_pattern::KillAllSessionsByPattern,
    &kill_cursors::KillCursors,
    &kill_op::KillOp,
    &kill_sessions::KillSessions,
    &list_collections::ListCollections,
    &list_commands::ListCommands,
    &list_databases::ListDatabases,
    &list_indexes::ListIndexes,
    &lock_info::LockInfo,
    &log_rotate::LogRotate,
    &logout::Logout,
    &map_reduce::MapReduce,
    &merge_authz_collections::MergeAuthzCollections,
    &parameters::GetParameter,
    &parameters::SetParameter,
    &ping::Ping,
    &plan_cache::PlanCacheClear,
    &plan_cache::PlanCacheClearFilters,
    &plan_cache::PlanCacheListFilters,
    &plan_cache::PlanCacheListPlans,
    &plan_cache::PlanCacheListQueryShapes,
    &plan_cache::PlanCacheSetFilter,
    &profile::Profile,
    &re_index::ReIndex,
    &refresh_sessions::RefreshSessions,
    &query_settings::RemoveQuerySettings,
    &rename_collection::RenameCollection,
    &repl_set_status::ReplSetFreeze,
    &repl_set_config::ReplSetGetConfig,
    &repl_set_status::ReplSetGetStatus,
    &repl_set_config::ReplSetInitiate,
    &repl_set_status::ReplSetMaintenance,
    &repl_set_step_up::ReplSetStepUp,
    &repl_set_config::ReplSetReconfig,
    &oplog_size::ReplSetResizeOplog,
    &repl_set_status::ReplSetStepDown,
    &reset_error::ResetError,
    &privileges_of_role::REVOKE,
    &roles_of_role::REVOKE,
    &roles_of_user::REVOKE,
    &roles_info::RolesInfo,
    &rotate_certificates::RotateCertificates,
    &sasl::SaslContinue,
    &sasl::SaslStart,
    &server_status::ServerStatus,
    &cluster_parameters::SetClusterParameter,
    &default_rw_concern::SetDefaultRwConcern,
    &query_settings::SetQuerySettings,
    &set_feature_compatibility_version::SetFeatureCompatibilityVersion,
    &sharding::BALANCER_START,
    &sharding::BALANCER_STATUS,
    &sharding::BALANCER_STOP,
    &sharding::ENABLE_SHARDING,
    &sharding::FLUSH_ROUTER_CONFIG,
    &sharding::GET_SHARD_MAP,
    &sharding::IS_DB_GRID,
    &sharding::LIST_SHARDS,
    &sharding::SHARD_COLLECTION,
    &shutdown::Shutdown,
    &start_session::StartSession,
    &top::Top,
    &update::Update,
    &update_role::UpdateRole,
    &update_user::UpdateUser,
    &users_info::UsersInfo,
    &validate::Validate,
    &validate_db_metadata::ValidateDbMetadata,
    &configure_fail_point::WaitForFailPoint,
    &whatsmyuri::WhatsMyUri,
];

/// A command and its index in the table, by any of its names.
pub fn find(name: &str) -> Option<(usize, &'static dyn Command)> {
    static BY_NAME: LazyLock<HashMap<&'static str, (usize, &'static dyn Command)>> =
        LazyLock::new(|| {
            let mut by_name = HashMap::new();
            for (at, command) in COMMANDS.iter().enumerate() {
                for name in command.spec().names {
                    by_name.insert(*name, (at, *command));
                }
            }
            by_name
        });
    BY_NAME.get(name).copied()
}

/// Whether a command, by its index in the table, is refused to those who are not logged in.
pub fn requires_login(server: &Server, index: usize) -> bool {
    // Whether a command is open to anyone does not depend on its fields.
    static OPEN: OnceLock<Vec<bool>> = OnceLock::new();
    let is_open = |command: &&dyn Command| {
        let name = command.spec().name();
        let mut body = DocBuf::new();
        body.push(name, 1);
        let request = Requested {
            server,
            name,
            db: "admin",
            body: &body,
            sequences: &[],
            user: None,
        };
        matches!(command.needs(&request), Ok(Needs::Anyone))
    };
    let open = OPEN.get_or_init(|| COMMANDS.iter().map(is_open).collect());
    open.get(index) != Some(&true)
}

/// The proper name of a command.
pub fn proper_name(command: &dyn Command) -> &'static str {
    command.spec().name()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::metrics::Class;

    #[test]
    fn every_command_is_named_once_and_described() {
        let mut seen = HashSet::new();
        for command in COMMANDS {
            let spec = command.spec();
            assert!(!spec.names.is_empty());
            assert!(
                !spec.doc.is_empty() && spec.doc.ends_with('.'),
                "{}",
                spec.doc
            );
            for name in spec.names {
                assert!(seen.insert(*name), "{name} is there twice");
                assert!(find(name).is_some());
            }
            for field in spec.unsupported_fields {
                assert!(!spec.has_field(field), "{field}");
            }
        }
        assert!(find("Ping").is_none(), "names are compared exactly");
    }

    #[test]
    fn facts_about_writes_fit_together() {
        for command in COMMANDS {
            let spec = command.spec();
            let name = spec.name();
            if spec.class == Class::Write {
                assert!(spec.writes && spec.retryable, "{name}");
                assert_eq!(spec.in_transactions, InTransactions::Always, "{name}");
            } else {
                assert!(!spec.retryable && !spec.profiles_statements, "{name}");
            }
            if spec.counts_shapes {
                assert_eq!((spec.class, spec.writes), (Class::Read, false), "{name}");
            }
            // What has a kind of its own is a statement on documents.
            if spec.kind != "command" {
                assert!(matches!(spec.class, Class::Read | Class::Write), "{name}");
            }
        }
    }
}
