//! Write sets as transactions of the cluster.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_kv::operation::Op;
use frond_kv::{Committed, Direction, Error, KEY_BYTES_MAX, Operations, Result, TreeId};
use tikv::{Timestamp, TimestampExt, TransactionClient};

use crate::client::bound::half_open;
use crate::client::connection::{Calls, Kind, options, patiently};
use crate::client::counters::Slot;
use crate::client::failure::{self, CommitFailure};
use crate::client::held_keys::Holder;
use crate::client::overlay::{Change, Overlay, TreeKey, value_after};
use crate::client::shared::Shared;
use crate::client::snapshot::{Base, Snapshot};
use crate::client::stamps::{self, InFlightEntry, STAMPS_MAX};
use crate::client::value::{PART_BYTES, Place, WHOLE_BYTES_MAX, read_record, record, whole};

/// TiKV takes no longer keys; some bytes are left for what it adds.
const STORED_KEY_BYTES_MAX: usize = 7 << 10;
/// A write set that is not based on a snapshot is tried so often.
const BLIND_ATTEMPTS_MAX: u32 = 200;
/// Range deletes of write sets with nothing else are committed in parts of so many keys.
const DELETES_AT_ONCE: usize = 1000;
/// A range delete beside other operations may remove so many keys.
const DELETES_MAX: usize = 20_000;
/// Parts of large values that are written with one transaction.
const PARTS_AT_ONCE: usize = 8;
/// The longest wait of a commit for locks of other transactions.
const BLOCKED_MAX: Duration = Duration::from_secs(10);

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
        while let Some((key, _)) = cursor.next()? {
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
        let (mut from, to) = {
            let (lower, upper) = half_open(
                Bound::Included(lower),
                upper.map_or(Bound::Unbounded, Bound::Excluded),
            );
            let keys = &shared.keys;
            let upper = upper.map_or_else(|| keys.tree(tree).1, |upper| keys.value(tree, &upper));
            (keys.value(tree, &lower), upper)
        };
        let prefix = shared.keys.value_prefix_len();
        loop {
            let base = Snapshot::new(shared);
            let range = (from.clone(), to.clone());
            let part = (shared.regions).clip(&shared.connection, range, Direction::Forward)?;
            let found = base
                .base
                .scan_keys(&part.0, &part.1, DELETES_MAX as u32 + 1)?;
            if found.len() <= DELETES_MAX {
                if part.1 == to {
                    break;
                }
                from = part.1;
                continue;
            }
            for keys in found[..DELETES_MAX].chunks(DELETES_AT_ONCE) {
                let mut part = Operations::default();
                keys.iter()
                    .for_each(|key| part.delete(tree, &key[prefix..]));
                commit(shared, &mut part, None, true)?;
            }
            from.clone_from(&found[DELETES_MAX]);
        }
    }
    Ok(())
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
                && let Some((key, _)) = cursor.next()?
            {
                part.delete(tree, key);
                last = key.to_vec();
            }
            if part.is_empty() {
                break;
            }
            let is_last = part.len() < DELETES_AT_ONCE;
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
    let at = base.at()?;
    let committed = Committed {
        first_stamp: stamped.as_ref().map(|stamped| stamped.first),
    };
    if overlay.is_empty() {
        return Ok(committed);
    }
    // Conflicts are judged by old versions, too.
    base.check_kept()?;
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
            (Err(failure::conflict(&shared.keys, &key)), true)
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
    let client = shared.connection.client().clone();
    shared.connection.spawn(async move {
        let until = || Instant::now() + Duration::from_secs(60);
        while was_committed(&client, &key, at, until()).await.is_err() {}
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
        check_key(&stored_key, key)?;
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
            let slots = base.scan_raw(&lower, &upper, u32::MAX, Direction::Forward)?;
            let mine = slots.into_iter().map(|(key, _)| key);
            let is_of =
                |stored: &Vec<u8>| keys.split_counter(stored).is_some_and(|(of, _)| of == key);
            mutations.deletes.extend(mine.filter(is_of));
        }
        let is_new = base.is_presumed(&stored_key);
        match value {
            Some(value) if value.len() > WHOLE_BYTES_MAX => {
                put_in_parts(
                    shared,
                    &mut mutations,
                    (*tree, key),
                    stored_key,
                    &value,
                    (at, place),
                );
                place += 1;
                if is_new {
                    mutations.inserts.extend(mutations.puts.pop());
                }
            }
            Some(value) if is_new => mutations.inserts.push((stored_key, whole(&value))),
            Some(value) => mutations.puts.push((stored_key, whole(&value))),
            None => mutations.deletes.push(stored_key),
        }
    }
    for (tree, key) in overlay.guards() {
        if !overlay.changes().contains_key(&(*tree, key.clone())) {
            let stored_key = keys.value(*tree, key);
            check_key(&stored_key, key)?;
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

fn check_key(stored: &[u8], key: &[u8]) -> Result<()> {
    if stored.len() > STORED_KEY_BYTES_MAX {
        Err(Error::TooLarge {
            what: "key",
            bytes: key.len(),
            limit: STORED_KEY_BYTES_MAX.min(KEY_BYTES_MAX) - (stored.len() - key.len()),
        })
    } else {
        Ok(())
    }
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
            Some(pair) => base.whole(*tree, vec![pair])?.pop().map(|(_, value)| value),
            None => None,
        };
        values.insert((*tree, *key), value);
    }
    Ok(values)
}

fn put_in_parts(
    shared: &Shared,
    mutations: &mut Mutations,
    (tree, key): (TreeId, &[u8]),
    stored_key: Vec<u8>,
    value: &[u8],
    (at, place): (u64, u32),
) {
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
    mutations.puts.push((stored_key, place.to_value()));
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
    let client = connection.client().clone();
    let deadline = connection
        .deadline()
        .max(Instant::now() + connection.request_timeout());
    let blocked_until = deadline.min(Instant::now() + BLOCKED_MAX);
    let slot_key = primary.unwrap_or_else(|| shared.keys.record(slot.writer));
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
            match transaction.commit().await {
                Ok(seen_from) => {
                    return Outcome::Committed(seen_from.map_or(at, |at| at.version()));
                }
                Err(error) => match failure::of_commit(&error, at) {
                    // The first phase can be repeated.
                    CommitFailure::Blocked(_) if Instant::now() + pause < blocked_until => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_millis(500));
                    }
                    failure => break failure,
                },
            }
        };
        match failure {
            CommitFailure::Unknown(text) => {
                match was_committed(&client, &slot_key, at, patience).await {
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
    client: &TransactionClient,
    key: &[u8],
    at: u64,
    deadline: Instant,
) -> Result<(bool, u64)> {
    let (stored, now) = patiently(deadline, None, || {
        let (client, key) = (client.clone(), key.to_vec());
        async move {
            let now: Timestamp = client.current_timestamp().await?;
            let stored = client.snapshot(now, options()).get(key).await?;
            Ok((stored, now.version()))
        }
    })
    .await?;
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
