//! One Sysbench transaction: 18 operations on one collection, each timed and its answer checked.

use std::time::{Duration, Instant};

use super::kind::{Kind, OPERATIONS, POINTS};
use crate::documents::sysbench::{C_CHARACTERS, Documents, random_c};
use crate::random::SplitMix64;
use crate::system::{Ids, Operation, Transactions};
use frond_bson::Doc;
use frond_client::{Collection, Error, Result};

pub const RANGE: u32 = 100;

/// The collections that transactions run on.
pub struct Dataset {
    pub collections: Vec<(Collection, Documents)>,
    /// Documents of each: their ids are 1 to this.
    pub documents: u32,
    /// Documents of a range that other threads may have deleted and not inserted again yet. `None`
    /// takes any answer, as from a server that stores nothing.
    pub missing_allowed: Option<u64>,
}

impl Dataset {
    /// Documents of a range: fewer than 100 only if a collection has fewer.
    fn range(&self) -> u32 {
        RANGE.min(self.documents)
    }

    /// Documents that an operation missed, if that is allowed.
    fn missing(&self, kind: Kind, found: u64) -> Result<u64> {
        let Some(allowed) = self.missing_allowed else {
            return Ok(0);
        };
        let range = u64::from(self.range());
        let (expected, found, allowed) = match kind {
            // A `k` is 1 or more, so that the sum says something about how many there were.
            Kind::Sum => (range, found.min(range), allowed),
            kind if kind.is_range() => (range, found, allowed),
            // Lost to another thread, which a thread that is alone cannot have.
            _ => (1, found, allowed.min(1)),
        };
        match expected.checked_sub(found) {
            Some(missing) if missing <= allowed => Ok(missing),
            _ => Err(Error::Wrong(format!(
                "{}: {found} documents instead of {expected}",
                kind.name()
            ))),
        }
    }
}

/// Documents that were not found, since another thread was replacing them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Races(pub [u64; 5]);

impl Races {
    pub const NAMES: [&str; 5] = [
        "lookups",
        "documents of ranges",
        "updates",
        "deletes",
        "inserts",
    ];

    fn count(&mut self, kind: Kind, documents: u64) {
        let name = match kind {
            Kind::Point => 0,
            kind if kind.is_range() => 1,
            Kind::UpdateK | Kind::UpdateC => 2,
            Kind::Delete => 3,
            _ => 4,
        };
        self.0[name] += documents;
    }

    pub fn add(&mut self, other: &Races) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Durations of a transaction and its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    pub operations: [(Kind, Duration); OPERATIONS],
    /// From the first byte sent to the last one received.
    pub whole: Duration,
    pub races: Races,
}

pub struct Worker<'a> {
    dataset: &'a Dataset,
    random: SplitMix64,
    document: Vec<u8>,
    c: [u8; C_CHARACTERS],
}

impl<'a> Worker<'a> {
    /// A thread with random numbers of its own.
    pub fn new(dataset: &'a Dataset, random: SplitMix64) -> Self {
        Worker {
            dataset,
            random,
            document: Vec::new(),
            c: [0; C_CHARACTERS],
        }
    }

    pub fn transaction<T: Transactions + ?Sized>(&mut self, session: &mut T) -> Result<Timings> {
        let dataset = self.dataset;
        let chosen = self.random.below(dataset.collections.len() as u64) as usize;
        let Some((collection, documents)) = dataset.collections.get(chosen) else {
            return Err(Error::Settings("no collection to work on".to_owned()));
        };
        let mut timings = Timings {
            operations: [(Kind::Point, Duration::ZERO); OPERATIONS],
            whole: Duration::ZERO,
            races: Races::default(),
        };
        let (started, mut done) = (Instant::now(), 0);
        let mut run = |operation: Operation<'_>| -> Result<()> {
            let kind = Kind::from(&operation);
            let began = Instant::now();
            let found = session.operate(collection, &operation)?;
            let now = Instant::now();
            if let Some(slot) = timings.operations.get_mut(done) {
                *slot = (kind, now - began);
            }
            done += 1;
            timings.whole = now - started;
            timings.races.count(kind, dataset.missing(kind, found)?);
            Ok(())
        };
        for _ in 0..POINTS {
            run(Operation::Point(self.id()))?;
        }
        for range in [
            Operation::Range,
            Operation::Sum,
            Operation::Ordered,
            Operation::Distinct,
        ] {
            run(range(self.ids()))?;
        }
        run(Operation::UpdateK(self.id()))?;
        let id = self.id();
        let c = random_c(&mut self.random, &mut self.c);
        run(Operation::UpdateC(id, c))?;
        let id = self.id();
        self.document.clear();
        documents.append_random(id, &mut self.random, &mut self.document);
        run(Operation::Delete(id))?;
        run(Operation::Insert(Doc::from_trusted(&self.document)))?;
        Ok(timings)
    }

    fn id(&mut self) -> i32 {
        1 + self.random.below(u64::from(self.dataset.documents)) as i32
    }

    /// The ids of a random range.
    fn ids(&mut self) -> Ids {
        let range = self.dataset.range();
        let last_start = self.dataset.documents - range + 1;
        let first = 1 + self.random.below(u64::from(last_start)) as i32;
        first..=first + range as i32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use crate::sysbench::kind::KINDS;
    use frond_bson::DocBuf;
    use std::collections::{BTreeMap, BTreeSet};

    /// A server in a map.
    #[derive(Default)]
    struct FakeServer {
        documents: BTreeMap<(String, i32), DocBuf>,
        calls: Vec<Kind>,
        collections: BTreeSet<String>,
        /// Documents missing from the result of each range.
        hides: u64,
    }

    impl FakeServer {
        fn with(dataset: &Dataset) -> FakeServer {
            let mut played = FakeServer::default();
            for (collection, documents) in &dataset.collections {
                for number in 0..u64::from(dataset.documents) {
                    let key = (collection.name.clone(), number as i32 + 1);
                    played.documents.insert(key, document(documents, number));
                }
            }
            played
        }
    }

    impl Transactions for FakeServer {
        fn operate(&mut self, collection: &Collection, operation: &Operation<'_>) -> Result<u64> {
            self.calls.push(Kind::from(operation));
            let name = &collection.name;
            self.collections.insert(name.clone());
            let key = |id: &i32| (name.clone(), *id);
            let found = |ids: &Ids| {
                let found = self.documents.range(key(ids.start())..=key(ids.end()));
                (found.count() as u64).saturating_sub(self.hides)
            };
            let changes = match operation {
                Operation::Point(id) => return Ok(found(&(*id..=*id))),
                Operation::Range(ids) | Operation::Ordered(ids) | Operation::Distinct(ids) => {
                    return Ok(found(ids));
                }
                Operation::Sum(ids) => return Ok(found(ids) * 7),
                Operation::UpdateK(id) => self.documents.contains_key(&key(id)),
                Operation::UpdateC(id, c) => {
                    assert_eq!(c.len(), C_CHARACTERS);
                    self.documents.contains_key(&key(id))
                }
                Operation::Delete(id) => self.documents.remove(&key(id)).is_some(),
                Operation::Insert(doc) => {
                    let doc = Doc::validate(doc.as_bytes()).unwrap();
                    let key = key(&doc.get_i32("_id").unwrap());
                    self.documents.insert(key, doc.to_owned()).is_none()
                }
            };
            Ok(u64::from(changes))
        }
    }

    fn dataset(documents: u32, missing_allowed: Option<u64>) -> Dataset {
        let collection = |number: u32| Collection {
            database: "test".to_owned(),
            name: format!("sbtest{number}"),
        };
        Dataset {
            collections: (1..=3)
                .map(|n| (collection(n), Documents::new(1, n, documents)))
                .collect(),
            documents,
            missing_allowed,
        }
    }

    #[test]
    fn a_transaction_is_that_of_the_seed() {
        for documents in [1, 40, 100, 150] {
            let dataset = dataset(documents, Some(0));
            let mut played = FakeServer::with(&dataset);
            let mut worker = Worker::new(&dataset, SplitMix64::new(1, 1));
            let mut seen = BTreeSet::new();
            for _ in 0..30 {
                let timings = worker.transaction(&mut played).unwrap();
                let mut expected = vec![Kind::Point; 10];
                expected.extend(&KINDS[1..]);
                assert_eq!(played.calls, expected);
                assert_eq!(played.collections.len(), 1, "one collection each");
                seen.extend(std::mem::take(&mut played.collections));
                played.calls.clear();
                let kinds: Vec<Kind> = timings.operations.iter().map(|(kind, _)| *kind).collect();
                assert_eq!(kinds, expected);
                let sum: Duration = timings.operations.iter().map(|(_, time)| time).sum();
                assert!(sum <= timings.whole, "{timings:?}");
                assert_eq!(timings.races.total(), 0);
            }
            assert_eq!(seen.len(), 3, "each collection has its turn");
            assert_eq!(played.documents.len(), 3 * documents as usize);
        }
    }

    #[test]
    fn documents_that_other_threads_took_are_counted_and_others_are_errors() {
        // (documents hidden in a range, allowed, what comes of it)
        for (hides, allowed, expected) in [
            (0, Some(0), Some(0)),
            (1, Some(0), None),
            // The sum hides one that is missing behind the others.
            (1, Some(16), Some(10 + 3)),
            (17, Some(16), None),
            (100, None, Some(0)),
        ] {
            let dataset = dataset(500, allowed);
            let mut played = FakeServer::with(&dataset);
            played.hides = hides;
            let mut worker = Worker::new(&dataset, SplitMix64::new(1, 1));
            let result = worker.transaction(&mut played);
            let races = result.as_ref().ok().map(|timings| timings.races.total());
            assert_eq!(races, expected, "{hides} hidden, {allowed:?} allowed");
            if let Err(error) = result {
                assert!(error.to_string().contains("instead of"), "{error}");
            }
        }
    }

    #[test]
    fn a_lost_race_for_a_document_is_counted() {
        let dataset = dataset(1, Some(4));
        let mut played = FakeServer::default();
        let mut worker = Worker::new(&dataset, SplitMix64::new(1, 1));
        let first = worker.transaction(&mut played).unwrap().races;
        assert_eq!(first.0, [10, 4, 2, 1, 0]);
        let mut sum = first;
        sum.add(&first);
        assert_eq!(sum.total(), 2 * first.total());
    }
}
