//! Collections, indexes, plans and transactions over ordered trees of bytes.
#![forbid(unsafe_code)]

mod aggregate;
mod capped;
pub mod catalog;
mod context;
mod distinct;
mod error;
pub mod exec;
mod explain;
mod find;
mod hash;
pub mod index;
pub mod keyspace;
mod large;
mod merge;
mod namespace;
pub mod offline;
pub mod options;
pub mod plan;
mod queries;
pub mod reference;
mod spill;
mod stats;
mod store;
mod text;
mod verify;
pub mod views;
pub mod write;

pub use aggregate::{AggregateRequest, StageFigures};
pub use catalog::{
    CreateIndexesInfo, DropInfo, IndexChange, IndexChanged, IndexSelector, ResolvedView, TailSignal,
};
pub use context::{OpContext, Progress};
pub use error::{Error, Result};
pub use exec::cursor::QueryCursor;
pub use explain::{Purpose, Verbosity};
pub use find::{CountRequest, FindRequest};
pub use hash::{CollectionHash, DatabaseHash};
pub use index::ttl::TtlPass;
pub use keyspace::{Durability, Engine, EngineOptions, EngineStats};
pub use large::LargeDocuments;
pub use merge::merge_operator;
pub use namespace::{Namespace, check_database_name};
pub use options::NaturalOrder;
pub use plan::Hint;
pub use plan::explain::Task;
pub use queries::{QueryLimit, QuerySettings};
pub use stats::{CollectionStats, DatabaseStats};
pub use store::{
    CollectionInfo, CollectionKind, DatabaseInfo, DocumentStore, ResumedBuild, StorageOptions,
    StoreOptions,
};
pub use verify::{IndexReport, VerifyReport};
pub use write::WriteError;
pub use write::delete::DeleteRequest;
pub use write::find_and_modify::{FindAndModifyOutcome, FindAndModifyRequest};
pub use write::insert::{InsertOptions, InsertOutcome};
pub use write::update::{UpdateOutcome, UpdateRequest};
