//! Write sets as transactions of the cluster.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_kv::operation::Op;
use frond_kv::{Committed, Direction, Error, Operations, Result, TreeId};
use tikv::{Timestamp, TimestampExt};

use crate::client::connection::{Calls, Kind, options, read_options};
use crate::client::counters::Slot;
use crate::client::failure::{self, CommitFailure, Fault};
use crate::client::held_keys::Holder;
use crate::client::overlay::{Change, Overlay, TreeKey, value_after};
use crate::client::reach::{Reach, Request};
use crate::client::shared::Shared;
use crate::client::snapshot::{Base, Snapshot};
use crate::client::stamps::{self, InFlightEntry, STAMPS_MAX};
use crate::client::unchanged;
use crate::client::value::{PART_BYTES, Place, WHOLE_BYTES_MAX, read_record, record};
use crate::client::value::{whole, whole_of_long, with_tail};

/// A write set that is not based on a snapshot is tried so often.
const BLIND_ATTEMPTS_MAX: u32 = 200;
/// Range deletes of write sets with nothing else are committed in parts of this many keys.
const DELETES_AT_ONCE: usize = 1000;
/// A part ends earlier when its keys reach this many bytes.
const DELETE_BYTES_AT_ONCE: usize = 8 << 20;
/// A range delete beside other operations removes at most this many keys.
const DELETES_MAX: usize = 20_000;
/// These keys, long ones included, have at most this many bytes: they are in memory until the commit.
const WHOLE_KEYS_BYTES_MAX: usize = 160 << 20;
/// In their stored form they have at most this many bytes. The client library sends all keys of a transaction with each of its batches.
const STORED_KEYS_BYTES_MAX: usize = 4 << 20;
/// Long keys that are read with one request when a range is deleted.
const LONG_KEYS_AT_ONCE: usize = 64;
/// Parts of large values that are written with one transaction.
const PARTS_AT_ONCE: usize = 8;
/// The longest wait of a commit for locks of other transactions.
const BLOCKED_MAX: Duration = Duration::from_secs(10);

/// The pause between attempts to find out how a commit has ended.
const OUTCOME_PAUSE: Duration = Duration::from_millis(500);

/// The keys of one commit in the cluster.
struct Mutations {
    /// Parts of large values, in groups. They are written first, and are invisible until the value refers to them.
    parts: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Puts of keys that must be absent, which the first phase checks.
    inserts: Vec<(Vec<u8>, Vec<u8>)>,
    deletes: Vec<Vec<u8>>,
    locks: Vec<Vec<u8>>,
}

/// The outcome of an attempt.
enum Outcome {
    /// With the timestamp after which others see it, or a later one.
    Committed(u64),
    Failed(CommitFailure),
    /// Nothing was committed, and the cluster answers again.
    TryAgain,
    /// Nothing was committed, for a reason that may pass.
    NotCommitted(String),
}

/// Commits a write set on the snapshot that it is based on, if any.
pub(crate) fn commit(
    shared: &Arc<Shared>,
    set: &mut Operations,
    base: Option<Snapshot>,
    needs_lease: bool,
) -> Result<Committed> {
    set.take_failure()?;
    shared.held.check(set.guarded_keys(), None)?;
    if set.frees_space() {
        shorten_ranges(shared, set)?;
    }
    let is_based =
        |base: &Snapshot| set.guarded_keys().next().is_some() || base.base.has_presumed();
    if let Some(base) = base.filter(is_based) {
        let mut overlay = Overlay::default();
        let stamped = stamp(shared, set, Some(&base))?;
        add(&mut overlay, set, &base)?;
        return commit_on(shared, &base.base, &overlay, stamped, needs_lease);
    }
    let only_ranges = |op| matches!(op, Op::DeleteRange { .. });
    if !set.is_empty() && set.iter().all(only_ranges) {
        return delete_ranges(shared, set);
    }
    let mut attempts = 0;
    loop {
        // Each attempt has stamps of its own: others may have changed the same keys since the last one.
        let mut copy = Operations::default();
        let attempt = match set.stamps() {
            0 => &*set,
            _ => {
                copy.append(set);
                &copy
            }
        };
        let base = Snapshot::new(shared);
        let mut stamped = None;
        let attempt = match attempt.stamps() {
            0 => attempt,
            _ => {
                stamped = stamp(shared, &mut copy, Some(&base))?;
                &copy
            }
        };
        let mut overlay = Overlay::default();
        add(&mut overlay, attempt, &base)?;
        match commit_on(shared, &base.base, &overlay, stamped, needs_lease) {
            Err(Error::Conflict { .. })
                if attempts < BLIND_ATTEMPTS_MAX
                    && (!needs_lease || shared.slots.allows(base.timestamp()?)) =>
            {
                attempts += 1;
                std::thread::sleep(Duration::from_millis(u64::from(attempts.min(20))));
            }
            done => return done,
        }
    }
}

/// Adds the operations of a write set to the changes of a snapshot.
pub(crate) fn add(overlay: &mut Overlay, set: &Operations, base: &Snapshot) -> Result<()> {
    let operator = base.base.shared.merge.clone();
    overlay.add(set, &*operator, |so_far, tree, lower, upper| {
        let snapshot = Snapshot {
            base: base.base.clone(),
            own: Some(Arc::new(so_far.clone())),
        };
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let low = Bound::Included(lower);
        let mut cursor = snapshot.cursor(tree, low, upper, Direction::Forward)?;
        let mut keys = Vec::new();
        let mut bytes = 0;
        while let Some((key, _)) = cursor.next()? {
            bytes += key.len();
            if bytes > WHOLE_KEYS_BYTES_MAX {
                return Err(Error::TooLarge {
                    what: "range delete, in bytes of keys,",
                    bytes,
                    limit: WHOLE_KEYS_BYTES_MAX,
                });
            }
            if keys.len() == DELETES_MAX {
                return Err(Error::TooLarge {
                    what: "range delete, in keys,",
                    bytes: keys.len() + 1,
                    limit: DELETES_MAX,
                });
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    })
}

/// The stamps of a commit.
pub(crate) struct Stamped {
    first: u64,
    entry: InFlightEntry,
}

/// Makes the keys of stamped puts. Returns their stamps.
///
/// They are made of the timestamp of `base`, the snapshot of an operation that has just begun, if no reader in the order of stamps
/// can be beyond it; or else of a new one. A transaction has no such snapshot: who looks for changes from some time on expects those
/// of transactions that are committed later. Whoever changes the same keys later begins after this commit, and so has a later
/// stamp.
pub(crate) fn stamp(
    shared: &Arc<Shared>,
    set: &mut Operations,
    base: Option<&Snapshot>,
) -> Result<Option<Stamped>> {
    let needed = set.stamps();
    if needed == 0 {
        return Ok(None);
    }
    if needed > STAMPS_MAX {
        return Err(Error::TooLarge {
            what: "commit, in entries of the oplog,",
            bytes: needed as usize,
            limit: STAMPS_MAX as usize,
        });
    }
    if let Some(base) = base
        && let at = base.timestamp()?
        && let Some(first) = stamps::first(at)
        && let Some(entry) = InFlightEntry::begin_at(&shared.in_flight, at)
    {
        set.add_stamps(first);
        return Ok(Some(Stamped { first, entry }));
    }
    let entry = InFlightEntry::begin(&shared.in_flight, &shared.connection);
    let first = loop {
        // With too many timestamps in one millisecond, one of the next is needed.
        match stamps::first(shared.connection.timestamp()?.version()) {
            Some(first) => break first,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    set.add_stamps(first);
    Ok(Some(Stamped { first, entry }))
}

/// Deletes what range deletes have above the limit, the first keys first, before the rest is committed with the other operations.
/// A write set that frees space allows that: what it deletes is not needed, whether it is committed or not.
fn shorten_ranges(shared: &Arc<Shared>, set: &Operations) -> Result<()> {
    for op in set.iter() {
        let Op::DeleteRange { tree, lower, upper } = op else {
            continue;
        };
        let bounds = (lower, upper);
        let (mut from, to) = shared.keys.range(tree, lower, upper);
        loop {
            let base = Snapshot::new(shared);
            let found = base.base.scan_keys(&from, &to, DELETES_MAX as u32 + 1)?;
            let fitting = deletes_that_fit(&found);
            let is_all = found.len() <= fitting;
            // Long keys together may be too large for one commit.
            if is_all && !found.iter().any(|key| shared.keys.is_long(key)) {
                break;
            }
            for keys in found[..fitting].chunks(DELETES_AT_ONCE) {
                delete_stored(shared, &base.base, tree, keys, bounds)?;
            }
            if is_all {
                break;
            }
            from.clone_from(&found[fitting]);
        }
    }
    Ok(())
}

/// Deletes some stored keys. Of long keys, which are read for that, only those between the bounds.
fn delete_stored(
    shared: &Arc<Shared>,
    base: &Base,
    tree: TreeId,
    stored: &[Vec<u8>],
    (lower, upper): (&[u8], Option<&[u8]>),
) -> Result<()> {
    let keys = &shared.keys;
    let is_long = |key: &&Vec<u8>| keys.is_long(key);
    let mut part = Operations::default();
    for key in stored.iter().filter(|key| !is_long(key)) {
        part.delete(tree, &key[keys.value_prefix_len()..]);
    }
    let long: Vec<Vec<u8>> = stored.iter().filter(is_long).cloned().collect();
    for long in long.chunks(LONG_KEYS_AT_ONCE) {
        for row in base.get_raw(long)? {
            for (key, _) in base.rows(tree, vec![row])? {
                if key.as_slice() >= lower && upper.is_none_or(|upper| key.as_slice() < upper) {
                    part.delete(tree, &key);
                }
            }
            if part.bytes() >= DELETE_BYTES_AT_ONCE {
                commit(shared, &mut part, None, true)?;
                part = Operations::default();
            }
        }
    }
    if part.is_empty() {
        return Ok(());
    }
    commit(shared, &mut part, None, true).map(drop)
}

/// The number of keys that a commit may delete, of those that a range has.
fn deletes_that_fit(found: &[Vec<u8>]) -> usize {
    let mut bytes = 0;
    let mut fits = |key: &Vec<u8>| {
        bytes += key.len();
        bytes <= STORED_KEYS_BYTES_MAX
    };
    let few = found.iter().take(DELETES_MAX);
    few.take_while(|key| fits(key)).count().max(1)
}

/// Deletes ranges, some keys at a time.
fn delete_ranges(shared: &Arc<Shared>, set: &Operations) -> Result<Committed> {
    for op in set.iter() {
        let Op::DeleteRange { tree, lower, upper } = op else {
            continue;
        };
        let upper = upper.map_or(Bound::Unbounded, Bound::Excluded);
        let mut from = lower.to_vec();
        loop {
            let base = Snapshot::new(shared);
            let low = Bound::Included(from.as_slice());
            let mut cursor = base.cursor(tree, low, upper, Direction::Forward)?;
            let mut part = Operations::default();
            let mut last = Vec::new();
            while part.len() < DELETES_AT_ONCE
                && part.bytes() < DELETE_BYTES_AT_ONCE
                && let Some((key, _)) = cursor.next()?
            {
                part.delete(tree, key);
                last = key.to_vec();
            }
            if part.is_empty() {
                break;
            }
            let is_last = part.len() < DELETES_AT_ONCE && part.bytes() < DELETE_BYTES_AT_ONCE;
            commit(shared, &mut part, None, true)?;
            if is_last {
                break;
            }
            from = last;
        }
    }
    Ok(Committed::default())
}

/// Commits changes on a snapshot.
pub(crate) fn commit_on(
    shared: &Arc<Shared>,
    base: &Base,
    overlay: &Overlay,
    stamped: Option<Stamped>,
    needs_lease: bool,
) -> Result<Committed> {
    let committed = Committed {
        first_stamp: stamped.as_ref().map(|stamped| stamped.first),
    };
    if overlay.is_empty() {
        base.at()?;
        return Ok(committed);
    }
    // Conflicts are judged by old versions, too.
    base.check_kept()?;
    // TiKV knows transactions by their timestamps, and that of the past may have served already: the commit takes a new one.
    let now = if base.is_past {
        Some(unchanged::move_to_now(shared, base, overlay)?)
    } else {
        None
    };
    let base = now.as_ref().unwrap_or(base);
    let at = base.at()?;
    let (connection, keys) = (&shared.connection, &shared.keys);
    let Some(mut slot) = shared.slots.take(connection, keys, at, needs_lease)? else {
        // The server may not make the commit. The caller tries again when it has a lease.
        Calls::count(&connection.calls.conflicts);
        return Err(try_again());
    };
    let prepared = prepare(shared, base, overlay, at, &slot);
    let (mut mutations, added) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            shared.slots.give_back(slot);
            return Err(error);
        }
    };
    let Some(transaction) = base.transaction.lock().take() else {
        shared.slots.give_back(slot);
        // A timestamp serves for one commit.
        return Err(try_again());
    };
    let parts = std::mem::take(&mut mutations.parts);
    if let Err(error) = parts
        .into_iter()
        .try_for_each(|group| put_group(shared, group))
    {
        shared.slots.give_back(slot);
        return Err(error);
    }
    let slot_key = mutations.puts.first().map(|(key, _)| key.clone());
    let outcome = send(shared, transaction, mutations, at, &slot);
    let (result, is_known) = match outcome {
        Ok(Outcome::Committed(seen_from)) => {
            slot.added.extend(added);
            slot.not_before = seen_from;
            (Ok(committed), true)
        }
        Ok(Outcome::TryAgain) => (Err(try_again()), true),
        Ok(Outcome::Failed(CommitFailure::Conflict(key))) => {
            Calls::count(&shared.connection.calls.conflicts);
            let concerned = overlay.changes().keys().chain(overlay.guards());
            (Err(failure::conflict(&shared.keys, &key, concerned)), true)
        }
        Ok(Outcome::Failed(CommitFailure::Blocked(text)) | Outcome::NotCommitted(text)) => {
            (Err(Error::Unavailable(text)), true)
        }
        Ok(Outcome::Failed(CommitFailure::Unknown(text))) => {
            Calls::count(&shared.connection.calls.unknown);
            (Err(Error::OutcomeUnknown(text)), false)
        }
        Err(error) => (Err(Error::OutcomeUnknown(error.to_string())), false),
    };
    match (is_known, stamped, slot_key) {
        (true, ..) => shared.slots.give_back(slot),
        // Readers in the order of stamps wait until it is known.
        (false, Some(stamped), Some(key)) => await_outcome(shared, stamped.entry, key, at),
        (false, ..) => {}
    }
    result
}

/// Of a commit that did not take place, and may on a new snapshot.
fn try_again() -> Error {
    Error::Conflict {
        tree: TreeId(0),
        key: Vec::new(),
        held: false,
    }
}

/// Keeps a commit under way until it is known how it has ended.
fn await_outcome(shared: &Arc<Shared>, entry: InFlightEntry, key: Vec<u8>, at: u64) {
    let reach = shared.connection.reach().clone();
    shared.connection.spawn(async move {
        let until = || Instant::now() + Duration::from_secs(60);
        while was_committed(&reach, &key, at, until()).await.is_err() {
            tokio::time::sleep(OUTCOME_PAUSE).await;
        }
        drop(entry);
    });
}

/// The sum that the slot has added to each counter after the commit.
type Added = HashMap<TreeKey, Vec<u8>>;

/// Turns changes into what is written: messages are applied, large values divided, deltas of counters go to the slot.
fn prepare(
    shared: &Arc<Shared>,
    base: &Base,
    overlay: &Overlay,
    at: u64,
    slot: &Slot,
) -> Result<(Mutations, Added)> {
    let (keys, operator) = (&shared.keys, &*shared.merge);
    let mut added = Added::new();
    let mut mutations = Mutations {
        parts: Vec::new(),
        puts: Vec::with_capacity(overlay.changes().len() + 2),
        inserts: Vec::new(),
        deletes: Vec::new(),
        locks: Vec::new(),
    };
    // The first put is the primary key.
    let slot_record = keys.record(slot.writer);
    mutations.puts.push((slot_record, record(at, &[])));
    let merged = overlay
        .changes()
        .iter()
        .filter_map(|(key, change)| match change {
            Change::Merge(deltas) => Some((key, deltas)),
            _ => None,
        });
    let mut to_read = Vec::new();
    for (of, deltas) in merged {
        let (tree, key) = (of.0, of.1.as_slice());
        if !shared.is_counter(tree, key) {
            to_read.push((tree, key));
            continue;
        }
        if keys.long().is_long(key) {
            return Err(Error::TooLarge {
                what: "key",
                bytes: key.len(),
                limit: keys.long().head_bytes(),
            });
        }
        let before = slot.added.get(of).map(Vec::as_slice);
        let all: Vec<&[u8]> = before
            .into_iter()
            .chain(deltas.iter().map(|delta| &**delta))
            .collect();
        let sum = operator.combine_all(tree, key, &all);
        let sum = sum.map_err(|malformed| Error::CorruptMessage {
            tree,
            key: key.to_vec(),
            what: malformed.0,
        })?;
        let slot_key = keys.counter(tree, key, slot.writer);
        mutations.puts.push((slot_key, record(at, &sum)));
        added.insert(of.clone(), sum);
    }
    let snapshot_values = values_of(base, &to_read)?;
    let mut place = 0;
    for ((tree, key), change) in overlay.changes() {
        let stored_key = keys.value(*tree, key);
        let value = match change {
            Change::Merge(_) if shared.is_counter(*tree, key) => continue,
            Change::Merge(_) => {
                let before = snapshot_values
                    .get(&(*tree, key.as_slice()))
                    .cloned()
                    .flatten();
                value_after(operator, *tree, key, before, change)?.map(Arc::from)
            }
            Change::Put(value) => Some(value.clone()),
            Change::Delete => None,
        };
        if shared.is_counter(*tree, key) {
            // The value replaces what was added so far.
            let (lower, upper) = keys.counter_range(*tree, key);
            let slots = base.all_keys(&lower, &upper)?.into_iter();
            let is_of =
                |stored: &Vec<u8>| keys.split_counter(stored).is_some_and(|(of, _)| of == key);
            mutations.deletes.extend(slots.filter(is_of));
        }
        let Some(value) = value else {
            mutations.deletes.push(stored_key);
            continue;
        };
        let is_new = base.is_presumed(&stored_key);
        let is_long = keys.is_long(&stored_key);
        let value = if is_long {
            with_tail(keys.long().tail(key), &value).into()
        } else {
            value
        };
        if value.len() > WHOLE_BYTES_MAX {
            put_in_parts(
                shared,
                &mut mutations,
                *tree,
                stored_key,
                &value,
                (at, place),
            );
            place += 1;
        } else if is_long {
            mutations.puts.push((stored_key, whole_of_long(&value)));
        } else {
            mutations.puts.push((stored_key, whole(&value)));
        }
        if is_new {
            mutations.inserts.extend(mutations.puts.pop());
        }
    }
    for (tree, key) in overlay.guards() {
        if !overlay.changes().contains_key(&(*tree, key.clone())) {
            let stored_key = keys.value(*tree, key);
            if base.is_presumed(&stored_key) {
                // A lock does not check that the key is absent.
                return Err(try_again());
            }
            mutations.locks.push(stored_key);
        }
    }
    for (tree, is_created) in overlay.trees() {
        let entry = keys.tree_entry(*tree);
        if *is_created {
            mutations.puts.push((entry, vec![1]))
        } else {
            mutations.deletes.push(entry);
            let dropped = keys.dropped_entry(*tree);
            mutations.puts.push((dropped, at.to_be_bytes().to_vec()));
        }
    }
    Ok((mutations, added))
}

/// Keys with their values, if they have some.
type Values<'a> = HashMap<(TreeId, &'a [u8]), Option<Vec<u8>>>;

/// The committed values of some keys.
fn values_of<'a>(base: &Base, wanted: &[(TreeId, &'a [u8])]) -> Result<Values<'a>> {
    let keys = &base.shared.keys;
    let stored: Vec<Vec<u8>> = wanted
        .iter()
        .map(|(tree, key)| keys.value(*tree, key))
        .collect();
    if stored.is_empty() {
        return Ok(HashMap::new());
    }
    let mut found = base.get_raw(&stored)?;
    let mut values = HashMap::with_capacity(wanted.len());
    for ((tree, key), stored_key) in wanted.iter().zip(stored) {
        let value = match found.remove_entry(&stored_key) {
            Some(pair) => {
                let mut values = base.values(*tree, vec![pair])?;
                values.pop().map(|(_, value)| value)
            }
            None => None,
        };
        values.insert((*tree, *key), value);
    }
    Ok(values)
}

fn put_in_parts(
    shared: &Shared,
    mutations: &mut Mutations,
    tree: TreeId,
    stored_key: Vec<u8>,
    value: &[u8],
    (at, place): (u64, u32),
) {
    let is_long = shared.keys.is_long(&stored_key);
    let key = &stored_key[shared.keys.value_prefix_len()..];
    let parts = value.chunks(PART_BYTES);
    let place = Place {
        at,
        place,
        parts: parts.len() as u16,
    };
    let keys = place.keys(&shared.keys, tree);
    let pairs: Vec<_> = keys.zip(parts.map(<[u8]>::to_vec)).collect();
    // First whose parts they are, so that the collector finds none without that.
    let owner = shared.keys.owner(tree, at, place.place);
    let owned = (owner, [&[0], key].concat());
    mutations.parts.push(vec![owned]);
    let groups = pairs.chunks(PARTS_AT_ONCE).map(<[_]>::to_vec);
    mutations.parts.extend(groups);
    mutations.puts.push((stored_key, place.to_value(is_long)));
}

/// Writes some parts of a large value. If a later step fails, the collector removes them.
fn put_group(shared: &Arc<Shared>, group: Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let connection = &shared.connection;
    let group: Arc<[(Vec<u8>, Vec<u8>)]> = group.into();
    connection.read(Kind::Commit, move |client| {
        let group = group.clone();
        async move {
            let mut transaction = client.begin_with_options(options()).await?;
            for (key, value) in group.iter().cloned() {
                transaction.put(key, value).await?;
            }
            transaction.commit().await.map(drop)
        }
    })
}

/// Sends a transaction, and finds out how it has ended.
fn send(
    shared: &Arc<Shared>,
    transaction: tikv::Transaction,
    mutations: Mutations,
    at: u64,
    slot: &Slot,
) -> Result<Outcome> {
    let connection = &shared.connection;
    // The first phase, the timestamp, the second phase.
    for _ in 0..3 {
        Calls::count(&connection.calls.round_trips);
    }
    let primary = mutations.puts.first().map(|(key, _)| key.clone());
    let reach = connection.reach().clone();
    let deadline = connection
        .deadline()
        .max(Instant::now() + connection.request_timeout());
    let blocked_until = deadline.min(Instant::now() + BLOCKED_MAX);
    let slot_key = primary.unwrap_or_else(|| shared.keys.record(slot.writer));
    let sent = mutations
        .puts
        .iter()
        .map(|(key, value)| key.len() + value.len());
    let limit = reach.transaction_limit(sent.sum());
    let patience = Instant::now() + Duration::from_secs(60);
    connection.finish(async move {
        let mut transaction = transaction;
        let filled: tikv::Result<()> = async {
            for (key, value) in mutations.puts {
                transaction.put(key, value).await?;
            }
            for (key, value) in mutations.inserts {
                transaction.insert(key, value).await?;
            }
            for key in mutations.deletes {
                transaction.delete(key).await?;
            }
            transaction.lock_keys(mutations.locks).await
        }
        .await;
        if let Err(error) = filled {
            return Outcome::NotCommitted(error.to_string());
        }
        let mut pause = Duration::from_millis(5);
        let failure = loop {
            // A commit that is dropped is not begun again, only looked up: its second phase was sent before, or is never sent.
            match tokio::time::timeout(limit, transaction.commit()).await {
                Err(_) => {
                    reach.note_failed_commit(Fault::Slow, &slot_key);
                    break CommitFailure::Unknown("it was not answered in time".to_owned());
                }
                Ok(Ok(seen_from)) => {
                    return Outcome::Committed(seen_from.map_or(at, |at| at.version()));
                }
                Ok(Err(error)) => match failure::of_commit(&error, at) {
                    // The first phase can be repeated.
                    CommitFailure::Blocked(_) if Instant::now() + pause < blocked_until => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_millis(500));
                    }
                    failure => {
                        reach.note_failed_commit(failure::of_read(&error), &slot_key);
                        break failure;
                    }
                },
            }
        };
        match failure {
            CommitFailure::Unknown(text) => {
                match was_committed(&reach, &slot_key, at, patience).await {
                    Ok((true, now)) => Outcome::Committed(now),
                    Ok((false, _)) => Outcome::TryAgain,
                    Err(error) => {
                        Outcome::Failed(CommitFailure::Unknown(format!("{text}; then {error}")))
                    }
                }
            }
            failure => {
                // The locks of the first phase are removed behind the caller's back; others would wait for them.
                tokio::spawn(async move {
                    let _ = tokio::time::timeout_at(patience.into(), transaction.rollback()).await;
                });
                Outcome::Failed(failure)
            }
        }
    })
}

/// Whether a transaction was committed, and the timestamp at which that was seen: its slot's record says so, and has no other writer. Reading it ends a transaction that is half done.
async fn was_committed(
    reach: &Arc<Reach>,
    key: &[u8],
    at: u64,
    deadline: Instant,
) -> Result<(bool, u64)> {
    let request = Request {
        kind: Kind::Get,
        key: Some(key.to_vec()),
        deadline,
    };
    let read = reach.patiently(&request, |client| {
        let key = key.to_vec();
        async move {
            let now: Timestamp = client.current_timestamp().await?;
            let stored = client.snapshot(now, read_options()).get(key).await?;
            Ok((stored, now.version()))
        }
    });
    let (stored, now) = read.await?;
    let stored = stored.as_deref().and_then(read_record);
    Ok((stored.is_some_and(|(last, _)| last == at), now))
}

/// The keys that a transaction takes when it stages a write set.
pub(crate) fn hold(
    shared: &Shared,
    set: &Operations,
    holder: &Arc<Holder>,
) -> Result<Vec<TreeKey>> {
    let wanted: Vec<TreeKey> = set
        .guarded_keys()
        .map(|(tree, key)| (tree, key.to_vec()))
        .collect();
    shared.held.hold(wanted.clone(), holder)?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletes_beside_other_operations_are_bounded_in_keys_and_bytes() {
        let cases = [
            (0, 10, 1),
            (10, 10, 10),
            (DELETES_MAX, 30, DELETES_MAX),
            (DELETES_MAX + 1, 30, DELETES_MAX),
            (DELETES_MAX, 4 << 10, 1024),
            (3, 8 << 20, 1),
        ];
        for (keys, bytes, fitting) in cases {
            let found = vec![vec![0; bytes]; keys];
            assert_eq!(deletes_that_fit(&found), fitting, "{keys} of {bytes} bytes");
        }
    }
}
