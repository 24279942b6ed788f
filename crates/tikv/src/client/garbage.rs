//! The garbage collector: deletes what no snapshot can see any more.
//!
//! One server of a deployment runs it now and then, with the oldest timestamp that any server still reads at. Before that
//! timestamp, the *safepoint*,
//! - TiKV keeps only the last version of each key. It deletes old versions itself, once PD has the safepoint. All locks of
//!   transactions that began before are resolved first.
//! - the keys of dropped trees are deleted, with their counters and the parts of their large values;
//! - the parts of values that were replaced, or never committed, are deleted;
//! - what gone instances of servers have added to counters is folded into one key.
//!
//! Several deployments, TiDB, or a backup may use the same cluster. Each registers the timestamp that it needs with PD, and the safepoint
//! is the least of them. Each server of Frond has an entry of its own (`registration.rs`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use frond_kv::{Direction, Error, Interrupt, Result, TreeId};
use tikv::{Timestamp, TimestampExt};

use crate::client::connection::{Connection, Kind, PHYSICAL_SHIFT};
use crate::client::failure::malformed;
use crate::client::instances::Instance;
use crate::client::keys::Writer;
use crate::client::registration::is_refusal;
use crate::client::shared::Shared;
use crate::client::snapshot::Base;
use crate::client::value::{self, Place, Stored, read_record, record};
use crate::collected::Collected;

/// Keys deleted by one transaction.
const KEYS_AT_ONCE: usize = 2000;
/// Keys of one page of a scan.
const PAGE: u32 = 4096;
/// An entry of a server is as old as its last renewal, so the safepoint of TiKV is behind that of a run by so much.
const LAG: Duration = Duration::from_secs(60);
/// The service that moves the safepoint has this name in PD, on every server.
const COLLECTOR: &[u8] = b"gc_worker";
/// The records of an instance are kept for so long after it was fenced: a commit that it has begun before meets them.
const RECORDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Attempts to change keys that others change as well.
const ATTEMPTS_MAX: u32 = 20;

impl Collected {
    pub(crate) fn add(&mut self, run: &Collected) {
        self.safepoint = run.safepoint;
        self.moved_to = run.moved_to;
        self.was_moved = run.was_moved;
        self.trees += run.trees;
        self.values += run.values;
        self.counters += run.counters;
        self.instances += run.instances;
    }
}

/// See [`crate::Cluster::collect_garbage`].
pub(crate) fn collect(shared: &Arc<Shared>, safepoint: u64, live: &[u32]) -> Result<Collected> {
    // The versions before that are deleted already.
    let safepoint = safepoint.max(shared.registration.lost_before());
    let past = Base::past(shared, safepoint);
    // The entry of this server covers the past from here on, so PD's safepoint cannot pass it.
    past.check_kept()?;
    let mut collected = Collected {
        safepoint,
        ..Collected::default()
    };
    let moved = move_safepoint(shared, safepoint);
    if let Ok(to) = moved {
        collected.moved_to = to;
        let lag = (LAG.as_millis() as u64) << PHYSICAL_SHIFT;
        collected.was_moved = to.saturating_add(lag) >= safepoint;
    }
    dropped_trees(shared, &past, &mut collected)?;
    large_values(shared, &past, &mut collected)?;
    instances(shared, safepoint, live, &mut collected)?;
    moved?;
    Ok(collected)
}

/// Moves the safepoint of TiKV to what all users of the cluster need. Returns it.
fn move_safepoint(shared: &Arc<Shared>, safepoint: u64) -> Result<u64> {
    let connection = &shared.connection;
    let pd = connection.pd().clone();
    let needed = connection.wait(Kind::Region, async move {
        match pd.need(COLLECTOR, i64::MAX, safepoint).await {
            // PD of 2025 and later answers a safepoint before its own with an error.
            Err(text) if is_refusal(&text) => {
                pd.safepoint().await.map(|now| now.max(safepoint + 1))
            }
            told => told,
        }
    })?;
    let needed = needed.map_err(Error::Unavailable)?;
    if needed > safepoint {
        // The entry of this server has not held it.
        shared.registration.note_refusal(safepoint, needed);
        return Ok(needed);
    }
    // It resolves the locks of transactions that began before.
    connection.read(Kind::Collector, move |client| async move {
        client.gc(Timestamp::from_version(needed)).await
    })?;
    Ok(needed)
}

/// All keys of a range in a snapshot, page by page.
fn each_page(
    base: &Base,
    (mut lower, upper): (Vec<u8>, Vec<u8>),
    keys_only: bool,
    mut page: impl FnMut(Vec<(Vec<u8>, Vec<u8>)>) -> Result<()>,
) -> Result<()> {
    loop {
        Interrupt::check_current()?;
        let found = if keys_only {
            let keys = base.scan_keys(&lower, &upper, PAGE)?;
            keys.into_iter().map(|key| (key, Vec::new())).collect()
        } else {
            base.scan_raw(&lower, &upper, PAGE, Direction::Forward)?
        };
        let is_last = found.len() < PAGE as usize;
        if let Some((last, _)) = found.last() {
            lower = last.clone();
            lower.push(0);
        }
        page(found)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Deletes the keys of trees whose drop every snapshot sees.
fn dropped_trees(shared: &Arc<Shared>, past: &Base, collected: &mut Collected) -> Result<()> {
    let keys = &shared.keys;
    let mut dropped = Vec::new();
    each_page(past, keys.dropped_entries(), false, |page| {
        let trees = page.iter().filter_map(|(key, _)| keys.split_entry(key));
        dropped.extend(trees);
        Ok(())
    })?;
    for tree in dropped {
        let entry = keys.dropped_entry(tree);
        // Another run may have done it since. A tree that is there again keeps its keys.
        let there = Base::new(shared).get_raw(&[entry.clone(), keys.tree_entry(tree)])?;
        if !there.contains_key(&entry) || there.contains_key(&keys.tree_entry(tree)) {
            continue;
        }
        for range in [keys.tree(tree), keys.all_counters(tree), keys.parts(tree)] {
            delete_range(shared, range)?;
        }
        delete(shared, vec![entry])?;
        collected.trees += 1;
    }
    Ok(())
}

/// Deletes a range that is not read or written any more.
fn delete_range(shared: &Arc<Shared>, range: (Vec<u8>, Vec<u8>)) -> Result<()> {
    let (lower, upper) = range.clone();
    // TiKV removes whole files and old versions. What it may leave is deleted key by key.
    shared.connection.read(Kind::Collector, move |client| {
        let range = lower.clone()..upper.clone();
        async move { client.unsafe_destroy_range(range).await }
    })?;
    each_page(&Base::new(shared), range, true, |page| {
        let keys: Vec<Vec<u8>> = page.into_iter().map(|(key, _)| key).collect();
        delete(shared, keys)
    })
}

/// Deletes some keys, some at a time.
fn delete(shared: &Arc<Shared>, keys: Vec<Vec<u8>>) -> Result<()> {
    for keys in keys.chunks(KEYS_AT_ONCE) {
        change(shared, |_| {
            Ok(Changes {
                puts: Vec::new(),
                deletes: keys.to_vec(),
            })
        })?;
    }
    Ok(())
}

/// A part of a large value: its tree, its place, and its own number.
type PartOf = (TreeId, u64, u32);

/// Deletes the parts of values that no snapshot sees.
fn large_values(shared: &Arc<Shared>, past: &Base, collected: &mut Collected) -> Result<()> {
    let keys = &shared.keys;
    let mut groups: BTreeMap<PartOf, Vec<Vec<u8>>> = BTreeMap::new();
    each_page(past, keys.all_parts(), true, |page| {
        let is_last = page.len() < PAGE as usize;
        let last = page.last().and_then(|(key, _)| keys.split_part(key));
        for (key, _) in page {
            let Some((tree, at, place, _)) = keys.split_part(&key) else {
                continue;
            };
            if at < collected.safepoint {
                groups.entry((tree, at, place)).or_default().push(key);
            }
        }
        // The last value of a page may go on in the next one.
        let mut rest = BTreeMap::new();
        if let Some((tree, at, place, _)) = last.filter(|_| !is_last) {
            rest = groups.split_off(&(tree, at, place));
        }
        let whole = std::mem::replace(&mut groups, rest);
        collected.values += unseen(shared, past, whole)?;
        Ok(())
    })
}

/// Deletes those of some groups of parts that no value refers to. Returns how many groups.
fn unseen(
    shared: &Arc<Shared>,
    past: &Base,
    groups: BTreeMap<PartOf, Vec<Vec<u8>>>,
) -> Result<u64> {
    let keys = &shared.keys;
    if groups.is_empty() {
        return Ok(0);
    }
    let owner_keys: Vec<Vec<u8>> = groups
        .keys()
        .map(|(tree, at, place)| keys.owner(*tree, *at, *place))
        .collect();
    let owners = past.get_raw(&owner_keys)?;
    // An earlier run may have deleted them, which the past does not show.
    let there = Base::new(shared).get_raw(&owner_keys)?;
    let value_key = |group: &PartOf, owner_key: &Vec<u8>| -> Option<Vec<u8>> {
        there.get(owner_key)?;
        let owner = owners.get(owner_key)?.get(1..)?;
        Some(keys.stored_value(group.0, owner))
    };
    let value_keys: Vec<Option<Vec<u8>>> = groups
        .keys()
        .zip(&owner_keys)
        .map(|(group, owner_key)| value_key(group, owner_key))
        .collect();
    let wanted: Vec<Vec<u8>> = value_keys.iter().flatten().cloned().collect();
    let values = past.get_raw(&wanted)?;
    let mut deleted = Vec::new();
    let mut count = 0;
    for (((_, at, place), parts), value_key) in groups.into_iter().zip(value_keys) {
        let Some(value_key) = value_key else {
            continue;
        };
        let stored = values.get(&value_key).cloned().and_then(value::read);
        let is_seen = matches!(
            stored,
            Some(Stored::InParts(Place { at: seen, place: number, .. })) if (seen, number) == (at, place)
        );
        if !is_seen {
            deleted.extend(parts);
            count += 1;
        }
    }
    delete(shared, deleted)?;
    Ok(count)
}

/// Folds what gone instances have added to counters, and deletes their records later.
fn instances(
    shared: &Arc<Shared>,
    safepoint: u64,
    live: &[u32],
    collected: &mut Collected,
) -> Result<()> {
    let keys = &shared.keys;
    let now = Base::new(shared);
    let now_ms = now.at()? >> PHYSICAL_SHIFT;
    let mut gone: HashMap<u32, Instance> = HashMap::new();
    each_page(&now, keys.instances(), false, |page| {
        for (key, stored) in page {
            let known = (keys.split_entry(&key), Instance::read(&stored));
            let (Some(TreeId(instance)), Some(known)) = known else {
                continue;
            };
            let is_over = known.fenced_at > 0 && known.fenced_at < safepoint;
            if is_over && instance != shared.slots.instance() && !live.contains(&instance) {
                gone.insert(instance, known);
            }
        }
        Ok(())
    })?;
    if gone.is_empty() {
        return Ok(());
    }
    if let Some((tree, _)) = &shared.counters {
        let mut theirs: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
        each_page(&now, keys.all_counters(*tree), true, |page| {
            for (stored_key, _) in page {
                if let Some((key, writer)) = keys.split_counter(&stored_key)
                    && gone.contains_key(&writer.instance)
                {
                    theirs.entry(key.to_vec()).or_default().push(stored_key);
                }
            }
            Ok(())
        })?;
        for (key, theirs) in theirs {
            for theirs in theirs.chunks(KEYS_AT_ONCE) {
                fold(shared, *tree, &key, theirs)?;
                collected.counters += theirs.len() as u64;
            }
        }
    }
    for (instance, known) in gone {
        let fenced_ms = known.fenced_at >> PHYSICAL_SHIFT;
        if fenced_ms + RECORDS_KEPT.as_millis() as u64 > now_ms {
            continue;
        }
        let writers = (0..known.slots).map(|slot| Writer { instance, slot });
        let mut records: Vec<Vec<u8>> = writers.map(|writer| keys.record(writer)).collect();
        // The last one, so that a run that fails is repeated.
        records.push(keys.instance(instance));
        delete(shared, records)?;
        collected.instances += 1;
    }
    Ok(())
}

/// Adds the parts of a counter in some keys to the part without a slot.
fn fold(shared: &Arc<Shared>, tree: TreeId, key: &[u8], theirs: &[Vec<u8>]) -> Result<()> {
    let nobody = Writer {
        instance: 0,
        slot: 0,
    };
    let folded = shared.keys.counter(tree, key, nobody);
    change(shared, |base| {
        let mut wanted = theirs.to_vec();
        wanted.push(folded.clone());
        let stored = base.get_raw(&wanted)?;
        let mut added = Vec::with_capacity(stored.len());
        for stored in stored.values() {
            let (_, added_by_one) = read_record(stored).ok_or_else(|| malformed(tree, key))?;
            added.push(added_by_one);
        }
        let sum = shared.merge.combine_all(tree, key, &added);
        let sum = sum.map_err(|malformed| Error::CorruptMessage {
            tree,
            key: key.to_vec(),
            what: malformed.0,
        })?;
        Ok(Changes {
            puts: vec![(folded.clone(), record(base.at()?, &sum))],
            deletes: theirs.to_vec(),
        })
    })
}

/// The write set of a transaction of the collector.
struct Changes {
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    deletes: Vec<Vec<u8>>,
}

/// Commits changes that depend on a snapshot only. Tries again after a conflict.
fn change(shared: &Arc<Shared>, changes: impl Fn(&Base) -> Result<Changes>) -> Result<()> {
    let connection: &Connection = &shared.connection;
    let mut pause = Duration::from_millis(5);
    for _ in 0..ATTEMPTS_MAX {
        let base = Base::new(shared);
        base.at()?;
        let Changes { puts, deletes } = changes(&base)?;
        if puts.is_empty() && deletes.is_empty() {
            return Ok(());
        }
        let Some(mut transaction) = base.transaction.lock().take() else {
            break;
        };
        let done: tikv::Result<()> = connection.finish(async move {
            for (key, value) in puts {
                transaction.put(key, value).await?;
            }
            for key in deletes {
                transaction.delete(key).await?;
            }
            let done = transaction.commit().await;
            if done.is_err() {
                let _ = tokio::time::timeout(Duration::from_secs(2), transaction.rollback()).await;
            }
            done.map(drop)
        })?;
        // If it failed, or was committed without an answer, the next attempt does it again. That does no harm: what was added to a
        // counter is gone then from the keys that are read.
        if done.is_ok() {
            return Ok(());
        }
        Interrupt::check_current()?;
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
    Err(Error::Unavailable(
        "the garbage collector meets other commits again and again".to_owned(),
    ))
}
