//! Entries of documents, in one commit.

use std::sync::Arc;

use frond_error::ErrorCode;

use super::Waiting;
use crate::catalog::{Catalog, Collection, Uuid};
use crate::oplog::{self, Copied, CopiedEntries, Log};
use crate::write::Retry;
use crate::write::copied::Touched;
use crate::write::staging::{Buffers, Group, Staged, Staging};
use frond_oplog::entry::{Kind, RawEntry, set_pre_image};
use frond_storage::error::{Result, command};
use frond_storage::namespace::Namespace;

/// The entries of a commit, and what they are about.
struct Part {
    collection: Arc<Collection>,
    documents: usize,
    bytes: usize,
}

/// Commits some of the entries, from the first one on. Returns how many.
///
/// # Errors
/// As [`super::Follower::apply`].
pub(super) fn commit(catalog: &Catalog, waiting: &[Waiting], values: &[u8]) -> Result<usize> {
    let value = |one: &Waiting| values.get(one.value.clone()).unwrap_or_default();
    let mut retry = Retry::new(catalog);
    loop {
        let mut parts: Vec<Part> = Vec::new();
        let mut entries: Vec<(u64, &[u8], RawEntry<'_>, usize)> = Vec::with_capacity(waiting.len());
        for one in waiting {
            let value = value(one);
            let entry = RawEntry::read(value)?;
            let part = match entry.kind() {
                Kind::Noop => usize::MAX,
                _ => part_of(catalog, &mut parts, &entry)?,
            };
            if let Some(part) = parts.get_mut(part) {
                part.documents += 1;
                part.bytes += value.len();
            }
            entries.push((one.ts, value, entry, part));
        }
        // Transactions hold gates in the same order.
        let mut gates: Vec<&Collection> = parts.iter().map(|part| &*part.collection).collect();
        gates.sort_unstable_by_key(|collection| collection.uuid);
        match holding(catalog, &gates, &mut || {
            commit_parts(catalog, &parts, &entries)
        }) {
            // A definition has changed.
            None => {}
            Some(Err(error)) => retry.after(error)?,
            Some(done) => return done,
        }
    }
}

/// Runs something while the definitions of collections cannot change. `None`, without running it, if one has changed.
fn holding<R>(
    catalog: &Catalog,
    collections: &[&Collection],
    run: &mut dyn FnMut() -> R,
) -> Option<R> {
    match collections.split_first() {
        None => Some(run()),
        Some((first, rest)) => catalog.commit_on(first, || holding(catalog, rest, run))?,
    }
}

/// The part for the collection of an entry.
fn part_of(catalog: &Catalog, parts: &mut Vec<Part>, entry: &RawEntry<'_>) -> Result<usize> {
    let uuid = entry.uuid();
    let is_same = |part: &Part| uuid == Some(&part.collection.uuid);
    if let Some(at) = parts.iter().rposition(is_same) {
        return Ok(at);
    }
    parts.push(Part {
        collection: collection_of(catalog, entry.ns(), uuid)?,
        documents: 0,
        bytes: 0,
    });
    Ok(parts.len() - 1)
}

/// The collection of an entry. Its name is that of its time, which may have changed; the identity has not.
pub(super) fn collection_of(
    catalog: &Catalog,
    ns: &str,
    uuid: Option<&Uuid>,
) -> Result<Arc<Collection>> {
    let missing = || {
        command(
            ErrorCode::DataCorruptionDetected,
            format!(
                "this standby differs from its primary: the collection {ns} is not there; start it anew from a copy"
            ),
        )
    };
    let uuid = uuid.ok_or_else(missing)?;
    // That of a command is no name of a collection.
    let named = Namespace::parse(ns).ok();
    named
        .and_then(|ns| catalog.collection(&ns))
        .filter(|named| named.uuid == *uuid)
        .or_else(|| catalog.by_uuid(uuid))
        .ok_or_else(missing)
}

fn commit_parts(
    catalog: &Catalog,
    parts: &[Part],
    entries: &[(u64, &[u8], RawEntry<'_>, usize)],
) -> Result<usize> {
    let Some((first, ..)) = entries.first() else {
        return Ok(0);
    };
    let copied = Arc::new(Copied::new(*first));
    let catalog = &catalog.copying(copied.clone());
    let trees = catalog.oplog().trees().ok_or_else(oplog::is_off)?;
    let mut buffers: Vec<Buffers> = parts.iter().map(|_| Buffers::default()).collect();
    let snapshot = catalog.snapshot()?;
    let mut stagings = Vec::with_capacity(parts.len());
    for (part, buffers) in parts.iter().zip(&mut buffers) {
        let staging = Staging::in_group(catalog, &part.collection, snapshot.clone(), buffers);
        stagings.push(staging.expecting(part.documents, part.bytes)?);
    }
    let mut touched = Touched::default();
    let mut given = CopiedEntries::default();
    for (ts, value, entry, part) in entries {
        let Some(offset) = copied.offset(*ts) else {
            break;
        };
        copied.set_place(offset, 0);
        let mut keeps_pre_image = false;
        if let Some(staging) = stagings.get_mut(*part) {
            if staging.is_full() || staging.stage_copied(entry, &mut touched)? == Staged::NextCommit
            {
                break;
            }
            keeps_pre_image =
                entry.kind() != Kind::Insert && staging.collection().settings.keeps_pre_images();
        }
        let value = given.add(offset, entry.ns(), value);
        if keeps_pre_image {
            set_pre_image(value);
        }
    }
    let taken = given.len();
    if taken == 0 {
        // The first entry cannot have to wait for another one.
        return Err(frond_storage::error::corrupt(
            "an entry of the oplog that does not fit into a commit",
        ));
    }
    copied.fill(given);
    let mut group = Group::new(catalog);
    for staging in stagings {
        group.add(staging)?;
    }
    let log = Log::new(trees, false).copying_here(copied);
    group.commit(&log)?;
    Ok(taken)
}
