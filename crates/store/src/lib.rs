//! Collections, indexes, plans and transactions over ordered trees of bytes.
#![forbid(unsafe_code)]

mod admin;
mod aggregate;
pub mod catalog;
mod change_stream;
mod cluster_time;
mod coordination;
pub mod encryption;
pub mod exec;
mod explain;
mod find;
mod index_build;
mod maintenance;
mod member_log;
mod memory;
mod op_stats;
pub mod oplog;
mod own_files;
pub mod plan;
mod queries;
pub mod reference;
mod requests;
mod server_configuration;
mod signal;
mod spill;
mod store;
mod transaction;
pub mod views;
#[cfg(test)]
mod waiting;
pub mod write;

pub use admin::{
    CachedPlan, CatalogCounts, CollectionHash, CollectionInfo, CollectionKind, CollectionStats,
    CompactionEstimate, DamagedBlock, DatabaseHash, DatabaseInfo, DatabaseStats, DiscardedDocument,
    DiscardedEntries, IndexReport, ResumedBuild, ShapeExample, VerifyReport, backup, offline,
};
pub use aggregate::{AggregateRequest, StageStats};
pub use catalog::{
    CatalogChange, CreateIndexesInfo, DropInfo, ExecutedStatements, IndexChange, IndexChanged,
    IndexFilter, IndexNamed, IndexSelector, IndexState, LastWritten, PartitionSelector,
    ResolvedView, SessionHistory, SessionKey, StatementId, ViewChange, noting_changes,
};
pub use change_stream::is_change_stream;
pub use cluster_time::ClusterTime;
pub use coordination::{ServerInfo, SharedOptions};
pub use exec::cursor::QueryCursor;
pub use exec::operator::Flow;
pub use explain::{Purpose, Task, Verbosity};
pub use find::{CountRequest, FindRequest};
pub use frond_storage::context::{OpContext, OthersFirst, Progress, Waiting};
pub use frond_storage::environment::{environment, request_ms};
pub use frond_storage::error::{Error, Result};
pub use frond_storage::keyspace::{
    Activity, ActivityEvent, ClusterOptions, ClusterRequests, ClusterStats, Damage, DamagePlace,
    DiskSpace, Durability, Engine, EngineOptions, EngineStats, EventListener, FlushPause,
    Interrupt, KeptVersions, LogCut, LogRecovery, MemberLog, MemoryBudget, MemoryUse, NoListener,
    Reencryption, Reservation, Wait, WaitFor, Waits, default_disk_reserve, disk,
};
pub use frond_storage::merge::merge_operator;
pub use frond_storage::namespace::{Namespace, check_database_name};
pub use frond_storage::options::NaturalOrder;
pub use frond_storage::plan_rules::{AllowedIndex, AllowedIndexes, PlanRules};
#[doc(hidden)]
pub use frond_storage::points::{ActsAtPoints, at_points};
pub use frond_storage::record::LargeDocuments;
pub use frond_storage::record::fast_update::FastUpdateStats;
pub use frond_storage::scripts::{
    allow_internal_stages, check as check_request, disabled as scripts_disabled, script_host,
};
pub use frond_storage::{index, keyspace, options};
pub use maintenance::{Expiring, TtlBacklog, TtlBatch, TtlLimits, TtlPass};
pub use op_stats::{
    OpStats, PlanHashes, ShownPlan, UsedPlan, update as update_op_stats, watch, watch_part,
};
pub use oplog::{Oplog, OplogSettings, Trimmed};
pub use plan::Hint;
pub use queries::{QueryLimit, QuerySettings};
pub use requests::scripted;
pub use server_configuration::{
    FEATURE_COMPATIBILITY_ID, FEATURE_COMPATIBILITY_VERSION, SERVER_CONFIGURATION,
};
pub use signal::TailSignal;
pub use store::{DocumentStore, StorageOptions, StoreOptions};
pub use transaction::{SnapshotReads, Transaction};
pub use write::WriteError;
pub use write::delete::DeleteRequest;
pub use write::fast::SENT;
pub use write::find_and_modify::{FindAndModifyOutcome, FindAndModifyRequest};
pub use write::insert::{InsertOptions, InsertOutcome, InsertRecording};
pub use write::recording::Recording;
pub use write::update::{UpdateOutcome, UpdateRequest};
