//! The requests that find the size of a tree: see `sizes.rs`.

use std::sync::Arc;

use frond_kv::{Direction, Result, TreeId};

use crate::client::connection::Kind;
use crate::client::pd_http::{RegionStats, region_stats};
use crate::client::shared::Shared;
use crate::client::sizes::Measured;
use crate::client::snapshot::Base;
use crate::client::value;
use crate::tree_size::TreeSize;

/// Rows that are read of a tree.
const ROWS_MAX: usize = 256;
/// Large rows are limited by their bytes.
const BYTES_MAX: usize = 1 << 20;
/// Rows that are read if their size is not known.
const ROWS_OF_UNKNOWN_SIZE: usize = 32;

/// See [`crate::Cluster::tree_size`].
pub(crate) fn tree_size(shared: &Arc<Shared>, tree: TreeId, rows: u64) -> Result<TreeSize> {
    let measured = match shared.tree_sizes.get(tree) {
        Some(known) => known,
        None => {
            let measured = measure(shared, tree)?;
            shared.tree_sizes.set(tree, measured);
            measured
        }
    };
    Ok(measured.estimate(rows))
}

fn measure(shared: &Arc<Shared>, tree: TreeId) -> Result<Measured> {
    let (lower, upper) = shared.keys.tree(tree);
    let limit = match shared.row_bytes.get(tree) {
        0 => ROWS_OF_UNKNOWN_SIZE,
        bytes => (BYTES_MAX / bytes).clamp(2, ROWS_MAX),
    };
    let base = Base::new(shared);
    let stored = base.scan_raw(&lower, &upper, limit as u32, Direction::Forward)?;
    let prefix = shared.keys.value_prefix_len();
    let mut measured = Measured {
        rows: stored.len() as u64,
        is_all: stored.len() < limit,
        ..Measured::default()
    };
    for (key, value) in &stored {
        measured.key_bytes += key.len().saturating_sub(prefix) as u64;
        measured.bytes += value::bytes(value) as u64;
    }
    measured.bytes += measured.key_bytes;
    if measured.is_all {
        return Ok(measured);
    }
    let range = || (lower.clone(), upper.clone());
    let first_region = |direction| (shared.regions).clip(&shared.connection, range(), direction);
    let (_, first_end) = first_region(Direction::Forward)?;
    let (last_begin, _) = first_region(Direction::Backward)?;
    measured.around = stats(shared, range())?;
    if first_end < last_begin {
        measured.within = stats(shared, (first_end, last_begin))?;
    }
    Ok(measured)
}

/// PD's statistics of a range; none if it does not answer, which makes the estimate less exact.
fn stats(shared: &Shared, (lower, upper): (Vec<u8>, Vec<u8>)) -> Result<RegionStats> {
    let pd = shared.connection.pd().clone();
    let found = (shared.connection).wait(Kind::Region, region_stats(pd, lower, upper))?;
    Ok(found.unwrap_or_default())
}
