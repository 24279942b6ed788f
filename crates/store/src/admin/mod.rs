//! Administration: databases, collections and indexes listed, created, changed, dropped, measured, and checked.

pub mod backup;
mod capped;
mod collections;
mod counts;
mod damage;
mod hash;
mod indexes;
pub mod offline;
mod profile;
mod stats;
mod ttl;
mod verify;

pub use collections::{CollectionInfo, CollectionKind, DatabaseInfo};
pub use counts::CatalogCounts;
pub use damage::DamagedBlock;
pub use hash::{CollectionHash, DatabaseHash};
pub use indexes::ResumedBuild;
pub use stats::{CollectionStats, DatabaseStats};
pub use ttl::TtlPass;
pub use verify::{IndexReport, VerifyReport};
