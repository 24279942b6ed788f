//! A consistent view of the cluster.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use frond_kv::{Direction, Error, Result, TreeId};
use parking_lot::Mutex;
use tikv::{Timestamp, TimestampExt};

use crate::client::bound::just_above;
use crate::client::connection::{Kind, read_options};
use crate::client::failure::malformed;
use crate::client::overlay::{Change, Overlay, apply, value_after};
use crate::client::shared::Shared;
use crate::client::stamps::InFlightEntry;
use crate::client::value::{self, Stored, read_record};

/// Additions to counters, by their keys.
pub(crate) type Additions = HashMap<Vec<u8>, Vec<Arc<[u8]>>>;

/// The most keys that one request reads, and the most of trees whose rows were not met yet.
const KEYS_AT_ONCE: usize = 2048;
const UNKNOWN_KEYS_AT_ONCE: usize = 1024;
/// A request for keys should not get more bytes, judged by the rows that were met before.
const BATCH_BYTES: usize = 16 << 20;
/// The most rows of one request for a range. TiKV reserves memory for as many rows as a request names.
const ROWS_AT_ONCE: u32 = 4096;
/// Parts of large values that are read with one request.
const PARTS_AT_ONCE: usize = 8;
/// Values that were read ahead are dropped when they have this many bytes, before others are added.
const FETCHED_BYTES_MAX: usize = 16 << 20;

/// A consistent view of all trees: what was committed before it was taken, and what its transaction has written.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) base: Arc<Base>,
    /// Writes of the transaction of the snapshot.
    pub(crate) own: Option<Arc<Overlay>>,
}

/// A timestamp of the cluster.
pub(crate) struct Base {
    pub(crate) shared: Arc<Shared>,
    /// Or why there is none.
    pub(crate) at: Result<u64, Failed>,
    /// The transaction that began with this timestamp, for the one commit that may be based on it.
    pub(crate) transaction: Mutex<Option<tikv::Transaction>>,
    /// Whether it was taken of a timestamp that was given out before.
    pub(crate) is_past: bool,
    fetched: Mutex<Fetched>,
    /// Stored keys that are taken for absent without a look-up. The commit fails if one is there.
    presumed: Mutex<HashSet<Vec<u8>>>,
    /// Protects the versions that it reads from garbage collection.
    _live: InFlightEntry,
}

/// Why a snapshot could not be taken.
#[derive(Debug, Clone)]
pub(crate) enum Failed {
    Interrupted { timed_out: bool },
    Closed(String),
    Unavailable(String),
}

impl Failed {
    fn from_error(error: &Error) -> Failed {
        match error {
            Error::Interrupted { timed_out } => Failed::Interrupted {
                timed_out: *timed_out,
            },
            Error::Closed(text) => Failed::Closed(text.clone()),
            Error::Unavailable(text) => Failed::Unavailable(text.clone()),
            other => Failed::Unavailable(other.to_string()),
        }
    }

    pub(crate) fn error(&self) -> Error {
        match self.clone() {
            Failed::Interrupted { timed_out } => Error::Interrupted { timed_out },
            Failed::Closed(text) => Error::Closed(text),
            Failed::Unavailable(text) => Error::Unavailable(text),
        }
    }
}

/// Values that were read ahead, by their keys.
#[derive(Default)]
struct Fetched {
    values: HashMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

/// Keys with their values, as they are stored.
pub(crate) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Base {
    pub(crate) fn new(shared: &Arc<Shared>) -> Base {
        let live = InFlightEntry::begin(&shared.snapshots, &shared.connection);
        let begun = shared.connection.begin();
        let at = begun
            .as_ref()
            .map(|begun| begun.start_timestamp().version());
        Base {
            shared: shared.clone(),
            at: at.map_err(Failed::from_error),
            transaction: Mutex::new(begun.ok()),
            is_past: false,
            fetched: Mutex::default(),
            presumed: Mutex::default(),
            _live: live,
        }
    }

    /// A moment in the past. Its versions are kept as long as it lives, if they are there.
    pub(crate) fn past(shared: &Arc<Shared>, at: u64) -> Base {
        Base {
            shared: shared.clone(),
            at: Ok(at),
            transaction: Mutex::new(None),
            is_past: true,
            fetched: Mutex::default(),
            presumed: Mutex::default(),
            _live: InFlightEntry::needing(&shared.snapshots, at),
        }
    }

    /// Fails unless the versions that it sees were there until now.
    pub(crate) fn check_kept(&self) -> Result<()> {
        let shared = &self.shared;
        (shared.registration).check(&shared.connection, self.at()?)
    }

    pub(crate) fn at(&self) -> Result<u64> {
        self.at.as_ref().copied().map_err(Failed::error)
    }

    fn timestamp(&self) -> Result<Timestamp> {
        Ok(Timestamp::from_version(self.at()?))
    }

    /// Reads some keys as they are stored, with as few requests as their sizes allow.
    pub(crate) fn get_raw(&self, keys: &[Vec<u8>]) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
        let mut found = HashMap::with_capacity(keys.len());
        let mut rest = keys;
        let mut most = KEYS_AT_ONCE;
        while !rest.is_empty() {
            let wanted = &rest[..rest.len().min(most)];
            let count = keys_at_once(self.row_bytes(wanted)).min(wanted.len());
            let pairs = match self.get_some(&rest[..count]) {
                // The rows are larger than was known.
                Err(Error::TooLarge { .. }) if count > 1 => {
                    most = count / 2;
                    continue;
                }
                pairs => pairs?,
            };
            let bytes: usize = pairs.iter().map(|(_, value)| value.len()).sum();
            if bytes > BATCH_BYTES {
                most = keys_at_once(Some(bytes / pairs.len())).max(1);
            }
            self.note_row_bytes(&pairs);
            found.extend(pairs);
            rest = &rest[count..];
        }
        self.check_kept()?;
        Ok(found)
    }

    /// The size of the rows of the trees of some keys, as far as it is known: that of the tree with the largest ones. `None` if rows of
    /// one of the trees were not met yet.
    fn row_bytes(&self, keys: &[Vec<u8>]) -> Option<usize> {
        let shared = &self.shared;
        let trees = keys
            .iter()
            .map(|key| shared.keys.split(key).map(|(tree, _)| tree));
        let (mut last, mut largest) = (None, 0);
        // Other keys have small values, or are asked for by few.
        for tree in trees.flatten() {
            if last != Some(tree) {
                last = Some(tree);
                match shared.row_bytes.get(tree) {
                    0 => return None,
                    bytes => largest = bytes.max(largest),
                }
            }
        }
        Some(largest)
    }

    /// Notes how large rows are, if they are of one tree. Only cursors, which meet more of its rows, find out that they are smaller.
    fn note_row_bytes(&self, pairs: &Pairs) {
        let shared = &self.shared;
        let tree = |pair: &(Vec<u8>, Vec<u8>)| shared.keys.split(&pair.0).map(|(tree, _)| tree);
        let Some(first) = pairs.first().and_then(tree) else {
            return;
        };
        if pairs.iter().all(|pair| tree(pair) == Some(first)) {
            let bytes = |(key, stored): &(Vec<u8>, Vec<u8>)| key.len() + value::bytes(stored);
            let mean = pairs.iter().map(bytes).sum::<usize>() / pairs.len();
            if mean > shared.row_bytes.get(first) {
                shared.row_bytes.set(first, mean);
            }
        }
    }

    /// Reads some keys with one request.
    fn get_some(&self, keys: &[Vec<u8>]) -> Result<Pairs> {
        let at = self.timestamp()?;
        let first = keys.first().cloned();
        let keys: Arc<[Vec<u8>]> = keys.into();
        (self.shared.connection).read_at(Kind::Get, first, move |client| {
            let keys = keys.clone();
            async move {
                let mut snapshot = client.snapshot(at, read_options());
                if let [key] = &*keys {
                    let value = snapshot.get(key.clone()).await?;
                    return Ok(value
                        .map(|value| (key.clone(), value))
                        .into_iter()
                        .collect());
                }
                let pairs = snapshot.batch_get(keys.iter().cloned()).await?;
                Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect())
            }
        })
    }

    /// The first keys of a range and their values, as they are stored, at most `limit`.
    pub(crate) fn scan_raw(
        &self,
        lower: &[u8],
        upper: &[u8],
        limit: u32,
        direction: Direction,
    ) -> Result<Pairs> {
        let at = self.timestamp()?;
        self.scan(lower, upper, limit, direction, |range, rows| {
            let connection = &self.shared.connection;
            let first = Some(range.0.clone());
            connection.read_at(Kind::Scan, first, move |client| {
                let (lower, upper) = range.clone();
                async move {
                    let mut snapshot = client.snapshot(at, read_options());
                    let collect = |pair: tikv::KvPair| (pair.0.into(), pair.1);
                    Ok(match direction {
                        Direction::Forward => {
                            let pairs = snapshot.scan(lower..upper, rows).await?;
                            pairs.map(collect).collect()
                        }
                        Direction::Backward => {
                            let pairs = snapshot.scan_reverse(lower..upper, rows).await?;
                            pairs.map(collect).collect()
                        }
                    })
                }
            })
        })
    }

    /// The first keys of a range, at most `limit`.
    pub(crate) fn scan_keys(&self, lower: &[u8], upper: &[u8], limit: u32) -> Result<Vec<Vec<u8>>> {
        let at = self.timestamp()?;
        let keys = self.scan(lower, upper, limit, Direction::Forward, |range, rows| {
            let connection = &self.shared.connection;
            let first = Some(range.0.clone());
            connection.read_at(Kind::Scan, first, move |client| {
                let (lower, upper) = range.clone();
                async move {
                    let mut snapshot = client.snapshot(at, read_options());
                    let keys = snapshot.scan_keys(lower..upper, rows).await?;
                    Ok(keys.map(|key| (Vec::from(key), Vec::new())).collect())
                }
            })
        })?;
        Ok(keys.into_iter().map(|(key, _)| key).collect())
    }

    /// All keys of a range that has not many.
    pub(crate) fn all_keys(&self, lower: &[u8], upper: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.scan_keys(lower, upper, u32::MAX)
    }

    /// The first rows of a range, in pages. Each page is a request to one region, if it is known where that ends, and names a small
    /// number of rows.
    fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        limit: u32,
        direction: Direction,
        page: impl Fn((Vec<u8>, Vec<u8>), u32) -> Result<Pairs>,
    ) -> Result<Pairs> {
        let shared = &self.shared;
        let mut rows = Pairs::new();
        let mut rest = (lower.to_vec(), upper.to_vec());
        let (mut left, mut most) = (limit, ROWS_AT_ONCE);
        while rest.0 < rest.1 && left > 0 {
            let part = (shared.regions).clip(&shared.connection, rest.clone(), direction)?;
            let wanted = left.min(most);
            let found = match page(part.clone(), wanted) {
                // The rows are larger than those that were met before.
                Err(Error::TooLarge { .. }) if wanted > 1 => {
                    most = wanted / 2;
                    continue;
                }
                found => found?,
            };
            let count = found.len() as u32;
            let last = found.last().filter(|_| count >= wanted);
            rest = match (last, direction) {
                (Some((key, _)), Direction::Forward) => (just_above(key), rest.1),
                (Some((key, _)), Direction::Backward) => (rest.0, key.clone()),
                (None, Direction::Forward) => (part.1, rest.1),
                (None, Direction::Backward) => (rest.0, part.0),
            };
            left = left.saturating_sub(count);
            rows.extend(found);
        }
        self.check_kept()?;
        Ok(rows)
    }

    /// The values of some stored keys.
    pub(crate) fn values(&self, tree: TreeId, stored: Pairs) -> Result<Pairs> {
        let keys = &self.shared.keys;
        let mut pairs = self.whole(tree, stored)?;
        for (key, value) in &mut pairs {
            if keys.is_long(key) {
                let (_, rest) = value::split_tail(value).ok_or_else(|| self.broken(tree, key))?;
                let behind = value.len() - rest.len();
                value.drain(..behind);
            }
        }
        Ok(pairs)
    }

    /// The whole keys within the tree and the values of some stored rows, in the same order.
    pub(crate) fn rows(&self, tree: TreeId, stored: Pairs) -> Result<Pairs> {
        let keys = &self.shared.keys;
        let prefix = keys.value_prefix_len();
        let mut pairs = self.whole(tree, stored)?;
        for (key, value) in &mut pairs {
            if keys.is_long(key) {
                let (tail, rest) =
                    value::split_tail(value).ok_or_else(|| self.broken(tree, key))?;
                *key = keys.long().whole(&key[prefix..], tail);
                let behind = value.len() - rest.len();
                value.drain(..behind);
            } else {
                key.drain(..prefix);
            }
        }
        Ok(pairs)
    }

    /// Of a stored key whose value cannot be read.
    fn broken(&self, tree: TreeId, key: &[u8]) -> Error {
        malformed(
            tree,
            self.shared.keys.split(key).map_or(&[], |(_, key)| key),
        )
    }

    /// The values of some stored forms, those of long keys with the tails: reads the parts of those that are in parts.
    fn whole(&self, tree: TreeId, stored: Pairs) -> Result<Pairs> {
        let keys = &self.shared.keys;
        let broken = |key: &[u8]| self.broken(tree, key);
        let mut places = Vec::new();
        let mut pairs = Vec::with_capacity(stored.len());
        for (key, stored) in stored {
            let value = match value::read(stored) {
                Some(Stored::Whole(value)) => value,
                Some(Stored::InParts(place)) => {
                    places.push((pairs.len(), place));
                    Vec::new()
                }
                None => return Err(broken(&key)),
            };
            pairs.push((key, value));
        }
        if places.is_empty() {
            return Ok(pairs);
        }
        for (at, place) in places {
            let wanted: Vec<Vec<u8>> = place.keys(keys, tree).collect();
            for some in wanted.chunks(PARTS_AT_ONCE) {
                let parts = self.get_raw(some)?;
                for key in some {
                    let Some(part) = parts.get(key) else {
                        return Err(broken(&pairs[at].0));
                    };
                    pairs[at].1.extend_from_slice(part);
                }
            }
        }
        Ok(pairs)
    }

    /// The committed value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let stored_key = self.shared.keys.value(tree, key);
        if self.is_presumed(&stored_key) {
            return Ok(None);
        }
        if let Some(fetched) = self.fetched.lock().values.get(&stored_key) {
            return Ok(fetched.clone());
        }
        let found = self.get_raw(std::slice::from_ref(&stored_key))?;
        let mut pairs = self.values(tree, found.into_iter().collect())?;
        let value = pairs.pop().map(|(_, value)| value);
        if !self.shared.is_counter(tree, key) {
            return Ok(value);
        }
        let added = self.added(tree, Some(key))?;
        let deltas = added.into_values().next().unwrap_or_default();
        if deltas.is_empty() {
            Ok(value)
        } else {
            apply(&*self.shared.merge, tree, key, value.as_deref(), &deltas)
        }
    }

    /// The additions to one counter of a tree, or to all.
    pub(crate) fn added(&self, tree: TreeId, key: Option<&[u8]>) -> Result<Additions> {
        let keys = &self.shared.keys;
        let (mut lower, upper) = match key {
            Some(key) => keys.counter_range(tree, key),
            None => keys.all_counters(tree),
        };
        let mut added: Additions = HashMap::new();
        const AT_ONCE: u32 = 1024;
        loop {
            let pairs = self.scan_raw(&lower, &upper, AT_ONCE, Direction::Forward)?;
            let more = pairs.len() == AT_ONCE as usize;
            for (stored_key, record) in pairs {
                let of = keys.split_counter(&stored_key);
                let (Some((of, _)), Some((_, delta))) = (of, read_record(&record)) else {
                    return Err(malformed(tree, &stored_key));
                };
                if key.is_none_or(|key| key == of) {
                    added.entry(of.to_vec()).or_default().push(delta.into());
                }
                lower = stored_key;
            }
            if !more {
                return Ok(added);
            }
            lower.push(0);
        }
    }

    /// Whether a stored key is taken for absent.
    pub(crate) fn is_presumed(&self, stored_key: &[u8]) -> bool {
        let presumed = self.presumed.lock();
        !presumed.is_empty() && presumed.contains(stored_key)
    }

    /// Whether the commit has to be based on this snapshot.
    pub(crate) fn has_presumed(&self) -> bool {
        !self.presumed.lock().is_empty()
    }

    /// Reads some keys ahead.
    fn prefetch(&self, wanted: &[(TreeId, &[u8])]) -> Result<()> {
        let shared = &self.shared;
        let plain = wanted
            .iter()
            .filter(|(tree, key)| !shared.is_counter(*tree, key));
        let mut keys: Vec<(TreeId, Vec<u8>)> = {
            let fetched = self.fetched.lock();
            plain
                .map(|(tree, key)| (*tree, shared.keys.value(*tree, key)))
                .filter(|(_, key)| !fetched.values.contains_key(key))
                .collect()
        };
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < 2 {
            // A look-up does as well.
            return Ok(());
        }
        let stored: Vec<Vec<u8>> = keys.iter().map(|(_, key)| key.clone()).collect();
        let mut found = self.get_raw(&stored)?;
        for same in keys.chunk_by(|a, b| a.0 == b.0) {
            let Some((tree, _)) = same.first() else {
                continue;
            };
            let take = |(_, key): &(TreeId, Vec<u8>)| {
                let value = found.remove(key)?;
                Some((key.clone(), value))
            };
            let pairs = self.values(*tree, same.iter().filter_map(take).collect())?;
            let mut fetched = self.fetched.lock();
            if fetched.bytes > FETCHED_BYTES_MAX {
                *fetched = Fetched::default();
            }
            for (_, key) in same {
                fetched.values.insert(key.clone(), None);
            }
            for (key, value) in pairs {
                fetched.bytes += key.len() + value.len();
                fetched.values.insert(key, Some(value));
            }
        }
        Ok(())
    }
}

/// The most keys of one request, for rows of about `row_bytes` bytes.
fn keys_at_once(row_bytes: Option<usize>) -> usize {
    match row_bytes {
        None => UNKNOWN_KEYS_AT_ONCE,
        Some(bytes) => (BATCH_BYTES / bytes.max(1)).clamp(1, KEYS_AT_ONCE),
    }
}

impl Snapshot {
    /// A time of the oplog's clock for this snapshot, from which any server takes the same one ([`crate::Cluster::snapshot_at`]).
    /// `None` if PD has given out too many timestamps in that millisecond: then another snapshot has one.
    ///
    /// # Errors
    /// Why there is no snapshot.
    pub fn stamp(&self) -> Result<Option<u64>> {
        Ok(crate::client::stamps::of_snapshot(self.base.at()?))
    }

    pub(crate) fn new(shared: &Arc<Shared>) -> Snapshot {
        Snapshot {
            base: Arc::new(Base::new(shared)),
            own: None,
        }
    }

    /// Its timestamp.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there was none to be had.
    pub fn timestamp(&self) -> Result<u64> {
        self.base.at()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let own = self.own.as_ref().and_then(|own| own.get(tree, key));
        let base = match own {
            Some(Change::Put(value)) => return Ok(Some(value.to_vec())),
            Some(Change::Delete) => return Ok(None),
            None | Some(Change::Merge(_)) => self.base.get(tree, key)?,
        };
        match own {
            Some(change) => value_after(&*self.base.shared.merge, tree, key, base, change),
            None => Ok(base),
        }
    }

    /// Reads some keys with one request, so that the next reads of these keys find them in memory.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn prefetch(&self, keys: &[(TreeId, &[u8])]) -> Result<()> {
        self.base.prefetch(keys)
    }

    /// Takes some keys for absent: look-ups find nothing and take no request. A commit that puts one of them and is based on this
    /// snapshot fails with [`Error::Conflict`] if it is there, which its first phase checks. A caller that decides by their absence has to
    /// put them in that commit.
    pub fn presume_absent(&self, keys: &[(TreeId, &[u8])]) {
        let shared = &self.base.shared;
        let plain = keys
            .iter()
            .filter(|(tree, key)| !shared.is_counter(*tree, key))
            .map(|(tree, key)| shared.keys.value(*tree, key));
        self.base.presumed.lock().extend(plain);
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn contains(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        Ok(self.get(tree, key)?.is_some())
    }

    /// Whether a tree exists.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn has_tree(&self, tree: TreeId) -> Result<bool> {
        let own = self.own.as_ref().and_then(|own| own.trees().get(&tree));
        if let Some(is_created) = own {
            return Ok(*is_created);
        }
        let entry = self.base.shared.keys.tree_entry(tree);
        Ok(!self.base.get_raw(&[entry])?.is_empty())
    }

    /// All trees, in the order of their ids.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn trees(&self) -> Result<Vec<TreeId>> {
        let keys = &self.base.shared.keys;
        let (mut lower, upper) = keys.tree_entries();
        let mut trees = Vec::new();
        loop {
            let pairs = self
                .base
                .scan_raw(&lower, &upper, 1024, Direction::Forward)?;
            let Some((last, _)) = pairs.last() else {
                return Ok(trees);
            };
            lower = last.clone();
            lower.push(0);
            trees.extend(pairs.iter().filter_map(|(key, _)| keys.split_entry(key)));
        }
    }

    /// The last key of a tree; empty if it has none.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn last_key(&self, tree: TreeId) -> Result<Vec<u8>> {
        let (low, high) = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = self.cursor(tree, low, high, Direction::Backward)?;
        cursor.expect_few();
        Ok(cursor
            .next()?
            .map_or_else(Vec::new, |(key, _)| key.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_keys_is_bounded_in_keys_and_bytes() {
        let cases = [
            (None, 1024),
            (Some(0), 2048),
            (Some(100), 2048),
            (Some(8 << 10), 2048),
            (Some(16 << 10), 1024),
            (Some(1 << 20), 16),
            (Some(100 << 20), 1),
        ];
        for (row_bytes, keys) in cases {
            assert_eq!(keys_at_once(row_bytes), keys, "{row_bytes:?}");
        }
    }
}
