//! Replica sets, the oplog and clusters.

use crate::commands::spec::Command;

pub mod append_oplog_note;
pub mod apply_ops;
pub mod default_rw_concern;
pub mod oplog_size;
pub mod repl_set_config;
pub mod repl_set_open_channel;
pub mod repl_set_status;
mod repl_set_step_up;
pub mod sharding;

pub static COMMANDS: &[&dyn Command] = &[
    &append_oplog_note::AppendOplogNote,
    &apply_ops::ApplyOps,
    &default_rw_concern::GetDefaultRwConcern,
    &default_rw_concern::SetDefaultRwConcern,
    &oplog_size::ReplSetResizeOplog,
    &repl_set_config::ReplSetGetConfig,
    &repl_set_config::ReplSetInitiate,
    &repl_set_config::ReplSetReconfig,
    &repl_set_open_channel::ReplSetOpenChannel,
    &repl_set_status::ReplSetFreeze,
    &repl_set_status::ReplSetGetStatus,
    &repl_set_status::ReplSetMaintenance,
    &repl_set_status::ReplSetStepDown,
    &repl_set_step_up::ReplSetStepUp,
    &sharding::BALANCER_START,
    &sharding::BALANCER_STATUS,
    &sharding::BALANCER_STOP,
    &sharding::ENABLE_SHARDING,
    &sharding::FLUSH_ROUTER_CONFIG,
    &sharding::GET_SHARD_MAP,
    &sharding::IS_DB_GRID,
    &sharding::LIST_SHARDS,
    &sharding::SHARD_COLLECTION,
];
