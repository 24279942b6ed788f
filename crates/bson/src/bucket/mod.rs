//! Buckets of time series: the documents in which MongoDB keeps the measurements, column by column.
//!
//! ```text
//! {_id, control: {version, min, max, count}, meta, data: {time: …, a: …, b: …}}
//! ```
//!
//! In version 1 a column is a document that has the values under the numbers of their measurements. In versions 2 (sorted
//! by time) and 3 (not sorted) it is binary of subtype 7, see `column`. Whatever the bytes are, reading them neither
//! panics nor takes more memory than a multiple of their length. Buckets are written in version 1.

mod column;
mod error;
mod pack;
mod simple8b;
mod state;
#[cfg(test)]
mod tests;
mod unpack;

pub use error::{BucketError, ColumnFault, Fault};
pub use pack::{PackError, Packer, Spans};
pub use unpack::{MEASUREMENTS_MAX, Measurements, Series, is_bucket};
