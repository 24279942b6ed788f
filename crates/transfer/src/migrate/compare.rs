//! Comparing collections of both sides by hashes of ranges, and repairing what differs.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, OwnedValue, doc};
use frond_client::{Client, Collection, CursorRequest};
use xxhash_rust::xxh3::xxh3_128;

use super::apply;
use crate::error::{Error, Result};
use crate::inventory::Listed;
use crate::node::Node;
use crate::progress::Progress;
use crate::ranges::{self, Range};
use crate::stop::Signals;
use crate::write;

/// Documents of the source that are compared as one range.
const SEGMENT: usize = 20_000;

/// Documents in one batch.
const BATCH: u32 = 5_000;

/// Attempts to compare documents before they count as different: while the source changes, both sides are read at
/// different moments.
const LOOKS: u32 = 5;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Collections of different documents that are named in the report.
const NAMED: usize = 5;

/// Hashes of documents with their `_id`s.
#[derive(Default)]
struct Hashes {
    /// `{_id: …}` of each document, one after another.
    ids: write::Run,
    hashes: Vec<u128>,
}

impl Hashes {
    fn push(&mut self, document: &Doc) {
        let id = write::id_of(document).unwrap_or_default();
        self.ids.push(&id);
        self.hashes.push(xxh3_128(document.as_bytes()));
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.hashes.clear();
    }

    /// One number for all documents, whatever their order.
    fn sum(&self) -> u128 {
        self.hashes
            .iter()
            .fold(0, |sum, hash| sum.wrapping_add(*hash))
    }

    fn last(&self) -> Option<OwnedValue> {
        let id = self.ids.get(self.ids.len().checked_sub(1)?)?;
        id.get("_id").map(|id| id.to_owned())
    }

    /// The `_id`s of documents that are not the same at both sides.
    fn differences(&self, other: &Hashes) -> Vec<DocBuf> {
        if self.hashes.len() == other.hashes.len() && self.sum() == other.sum() {
            return Vec::new();
        }
        let mut unseen: HashMap<&[u8], u128> = HashMap::with_capacity(other.hashes.len());
        for (id, hash) in other.ids.iter().zip(&other.hashes) {
            unseen.insert(id.as_bytes(), *hash);
        }
        let mut found = Vec::new();
        for (id, hash) in self.ids.iter().zip(&self.hashes) {
            if unseen.remove(id.as_bytes()) != Some(*hash) {
                found.push(id.to_owned());
            }
        }
        found.extend(
            unseen
                .into_keys()
                .map(|id| Doc::from_trusted(id).to_owned()),
        );
        found
    }
}

/// The result of the comparison of a range or a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Documents of the source.
    pub documents: u64,
    /// The sum of the hashes of the source's documents.
    pub hash: u128,
    /// The `_id`s of documents that differ, as `{_id: …}`.
    pub different: Vec<DocBuf>,
}

impl Found {
    fn add(&mut self, mut other: Found) {
        self.documents += other.documents;
        self.hash = self.hash.wrapping_add(other.hash);
        self.different.append(&mut other.different);
    }
}

fn read_all(
    client: &mut Client,
    collection: &Collection,
    filter: &Doc,
    sort: Option<&Doc>,
    each: &mut dyn FnMut(&Doc) -> Result<()>,
) -> Result<()> {
    // The client knows its own errors only.
    let mut problem = None;
    let mut each = |document: &Doc| match each(document) {
        Ok(()) => Ok(()),
        Err(error) => {
            problem = Some(error);
            Err(frond_client::Error::Stopped)
        }
    };
    let request = CursorRequest {
        collection,
        filter,
        projection: None,
        sort,
        limit: 0,
        batch: BATCH,
        tailable: false,
    };
    let read = (|| {
        let mut cursor = client.open_find(&request, &mut each)?;
        while cursor.is_open() {
            client.more(&mut cursor, None, &mut each)?;
        }
        Ok(())
    })();
    match problem {
        Some(error) => Err(error),
        None => read,
    }
}

fn compare_range(
    source: &mut Client,
    target: &mut Client,
    collection: &Collection,
    range: &Range,
    progress: &Progress,
) -> Result<Found> {
    let mut found = Found::default();
    let (mut ours, mut theirs) = (Hashes::default(), Hashes::default());
    let mut after: Option<OwnedValue> = None;
    let sort = doc! { "_id": 1 };
    let sort = range.is_by_id().then_some(sort.as_doc());
    let mut segment = |ours: &mut Hashes, to: Option<OwnedValue>| -> Result<()> {
        theirs.clear();
        let after_value = after.as_ref().map(|after| after.as_value());
        let to_value = to.as_ref().map(|to| to.as_value());
        let filter = range.between(after_value.as_ref(), to_value.as_ref());
        read_all(target, collection, &filter, None, &mut |document| {
            theirs.push(document);
            Ok(())
        })?;
        found.add(Found {
            documents: ours.hashes.len() as u64,
            hash: ours.sum(),
            different: ours.differences(&theirs),
        });
        progress.add(ours.hashes.len() as u64);
        ours.clear();
        after = to;
        Ok(())
    };
    read_all(
        source,
        collection,
        &range.filter(None),
        sort,
        &mut |document| {
            ours.push(document);
            if sort.is_some() && ours.hashes.len() >= SEGMENT {
                let last = ours.last();
                segment(&mut ours, last)?;
            }
            Ok(())
        },
    )?;
    segment(&mut ours, None)?;
    Ok(found)
}

/// The treatment of documents that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDifference {
    /// Look again, and count those that differ still.
    LookAgain,
    /// Copy them from the source.
    Repair,
}

/// Both sides, by several threads.
pub struct Comparison<'a> {
    pub source: &'a Node,
    pub target: &'a Node,
    /// The options of the user.
    pub signals: Option<&'a Signals>,
    pub progress: &'a Progress,
    pub jobs: usize,
}

impl Comparison<'_> {
    /// Compares collections, given with about how many documents they have.
    pub fn run(
        &self,
        collections: &[(Listed, u64)],
        then: OnDifference,
    ) -> Result<Vec<(Collection, Found)>> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let mut work = Vec::new();
        for (at, (listed, documents)) in collections.iter().enumerate() {
            if listed.is_view {
                continue;
            }
            let mut ranges = ranges::divide(
                &mut source,
                &listed.collection,
                *documents,
                listed.is_ordered,
            )?;
            if !listed.is_ordered {
                // Documents of other classes may be at the target, and may have come to the source.
                ranges::complete(&mut ranges);
                for client in [&mut source, &mut target] {
                    ranges::keep_known(client, &listed.collection, &mut ranges)?;
                }
            }
            work.extend(ranges.into_iter().map(|range| (at, range)));
        }
        let work = Mutex::new(work);
        let found: Mutex<Vec<Found>> = Mutex::new(vec![Found::default(); collections.len()]);
        let thread = || -> Result<()> {
            let mut source = self.source.connect()?;
            let mut target = self.target.connect()?;
            loop {
                if let Some(signals) = self.signals {
                    signals.check()?;
                }
                let Some((at, range)) = work.lock().unwrap_or_else(|e| e.into_inner()).pop() else {
                    return Ok(());
                };
                let Some((listed, _)) = collections.get(at) else {
                    continue;
                };
                let collection = &listed.collection;
                let mut part =
                    compare_range(&mut source, &mut target, collection, &range, self.progress)?;
                match then {
                    OnDifference::Repair => {
                        apply::refetch(&mut source, &mut target, collection, &part.different)?;
                    }
                    OnDifference::LookAgain => {
                        part.different =
                            still_different(&mut source, &mut target, collection, part.different)?;
                    }
                }
                if let Some(found) = found.lock().unwrap_or_else(|e| e.into_inner()).get_mut(at) {
                    found.add(part);
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.jobs.max(1)).map(|_| scope.spawn(thread)).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| {
                        Err(Error::Data(
                            "a thread of the comparison has died".to_owned(),
                        ))
                    })
                })
                .collect::<Result<Vec<()>>>()
        })?;
        let found = found.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(collections
            .iter()
            .zip(found)
            .filter(|((listed, _), _)| !listed.is_view)
            .map(|((listed, _), found)| (listed.collection.clone(), found))
            .collect())
    }
}

/// Looks at documents again, as they may have changed between the two reads.
fn still_different(
    source: &mut Client,
    target: &mut Client,
    collection: &Collection,
    mut different: Vec<DocBuf>,
) -> Result<Vec<DocBuf>> {
    for look in 0..LOOKS {
        if different.is_empty() {
            break;
        }
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        let mut left = Vec::new();
        for ids in different.chunks(apply::FETCH) {
            let mut ours = Hashes::default();
            let mut theirs = Hashes::default();
            let filter = apply::any_of(ids);
            for (client, hashes) in [(&mut *source, &mut ours), (&mut *target, &mut theirs)] {
                read_all(client, collection, &filter, None, &mut |document| {
                    hashes.push(document);
                    Ok(())
                })?;
            }
            left.extend(ours.differences(&theirs));
        }
        different = left;
    }
    Ok(different)
}

/// A line for each collection, and an error if any differs.
pub fn report(results: &[(Collection, Found)], quiet: bool) -> Result<()> {
    let mut differ = Vec::new();
    for (collection, found) in results {
        if found.different.is_empty() {
            if !quiet {
                eprintln!(
                    "  {collection}: {} documents, equal, hash {:032x}",
                    found.documents, found.hash
                );
            }
            continue;
        }
        let named: Vec<String> = found
            .different
            .iter()
            .take(NAMED)
            .map(|id| format!("{id:?}"))
            .collect();
        differ.push(format!(
            "{collection}: {} documents differ, such as {}",
            found.different.len(),
            named.join(", ")
        ));
    }
    if differ.is_empty() {
        return Ok(());
    }
    Err(Error::Differs(differ.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_whatever_the_order() {
        let hashes = |documents: &[DocBuf]| {
            let mut hashes = Hashes::default();
            documents.iter().for_each(|document| hashes.push(document));
            hashes
        };
        let ours = hashes(&[
            doc! { "_id": 1 },
            doc! { "_id": 2, "a": 1 },
            doc! { "_id": 3 },
        ]);
        let same = hashes(&[
            doc! { "_id": 3 },
            doc! { "_id": 1 },
            doc! { "_id": 2, "a": 1 },
        ]);
        assert!(ours.differences(&same).is_empty());
        let other = hashes(&[
            doc! { "_id": 1.0 },
            doc! { "_id": 2, "a": 1_i64 },
            doc! { "_id": 3 },
        ]);
        let mut found = ours.differences(&other);
        found.sort_by_key(|id| format!("{id:?}"));
        assert_eq!(
            found,
            [doc! { "_id": 1.0 }, doc! { "_id": 1 }, doc! { "_id": 2 }]
        );
    }
}
