//! Documents: queries, writes and cursors.

use crate::commands::spec::Command;

pub mod aggregate;
mod aggregation;
pub mod backup_stream;
pub mod buckets;
pub mod bulk_write;
pub mod count;
pub mod delete;
pub mod distinct;
pub mod explain;
mod explanation;
pub mod find;
pub mod find_and_modify;
mod forward;
pub mod get_more;
pub mod insert;
pub mod kill_cursors;
pub mod map_reduce;
pub mod update;
pub mod watch;

pub static COMMANDS: &[&dyn Command] = &[
    &aggregate::Aggregate,
    &bulk_write::BulkWrite,
    &count::Count,
    &delete::Delete,
    &distinct::Distinct,
    &explain::Explain,
    &find::Find,
    &find_and_modify::FindAndModify,
    &get_more::GetMore,
    &insert::Insert,
    &kill_cursors::KillCursors,
    &map_reduce::MapReduce,
    &update::Update,
];
