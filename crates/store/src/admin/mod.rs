//! Administration: databases, collections and indexes listed, created, changed, dropped, measured, and checked.

pub mod backup;
mod capped;
mod collections;
mod compact;
mod counts;
mod damage;
mod discarded;
mod hash;
mod index_filters;
mod indexes;
mod keys;
pub mod offline;
mod partitions;
mod plan_cache;
mod profile;
mod stats;
mod verify;

pub use collections::{CollectionInfo, CollectionKind, DatabaseInfo};
pub use compact::CompactionEstimate;
pub use counts::CatalogCounts;
pub use damage::DamagedBlock;
pub use discarded::{DiscardedDocument, DiscardedEntries};
pub use hash::{CollectionHash, DatabaseHash};
pub use indexes::ResumedBuild;
pub use plan_cache::{CachedPlan, ShapeExample};
pub use stats::{CollectionStats, DatabaseStats};
pub use verify::{IndexReport, VerifyReport};
