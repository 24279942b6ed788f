//! `frond export` and `frond import`: files of JSON, CSV, TSV and BSON dumps.

mod archive;
mod buckets;
mod choice;
mod columns;
mod crc64;
mod dates;
mod dump;
mod export;
mod files_of;
mod import;
mod job;
mod json;
mod options;
mod replay;
mod restore;
mod sink;
mod table;

pub use archive::{Reader, Writer};
pub use dump::Metadata;
pub use export::run as export;
pub use files_of::Output;
pub use import::run as import;
pub use json::Documents;
pub use options::{ExportOptions, ImportOptions};
pub use table::Rows;
