//! One Sysbench transaction: 18 operations on one collection, each timed and its answer checked.

use std::time::{Duration, Instant};

use super::kind::{KINDS, Kind, OPERATIONS, POINTS};
use crate::documents::sysbench::{C_CHARACTERS, Documents, random_c};
use crate::random::SplitMix64;
use crate::system::Transactions;
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
}

/// Operations that found nothing, since another thread was replacing the document.
#[derive(Clone, Copy, Debug)]
pub enum Race {
    Lookup,
    /// Documents that ranges did not find.
    Range,
    Update,
    Delete,
    /// An `_id` that another thread had inserted.
    Insert,
}

/// How many there were of each [`Race`].
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

    fn count(&mut self, race: Race, documents: u64) {
        self.0[race as usize] += documents;
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
        let mut clock = Clock::start();
        let mut races = Races::default();

        for _ in 0..POINTS {
            let id = self.id();
            let found = session.point(collection, id)?;
            races.count(Race::Lookup, one(dataset, Kind::Point, found)?);
            clock.done(Kind::Point);
        }
        for kind in [Kind::Range, Kind::Sum, Kind::Ordered, Kind::Distinct] {
            let ids = self.ids();
            clock.begin();
            let found = match kind {
                Kind::Range => session.range(collection, ids)?,
                // A `k` is 1 or more, so that the sum says something about how many there were.
                Kind::Sum => {
                    let most = u64::from(dataset.range());
                    u64::try_from(session.sum(collection, ids)?).map_or(0, |sum| sum.min(most))
                }
                Kind::Ordered => session.ordered(collection, ids)?,
                _ => session.distinct(collection, ids)?,
            };
            clock.done(kind);
            let missing = missing(dataset, kind, u64::from(dataset.range()), found)?;
            races.count(Race::Range, missing);
        }

        let id = self.id();
        clock.begin();
        let found = session.update_k(collection, id)?;
        clock.done(Kind::UpdateK);
        races.count(Race::Update, one(dataset, Kind::UpdateK, found)?);

        let id = self.id();
        let c = random_c(&mut self.random, &mut self.c);
        clock.begin();
        let found = session.update_c(collection, id, c)?;
        clock.done(Kind::UpdateC);
        races.count(Race::Update, one(dataset, Kind::UpdateC, found)?);

        let id = self.id();
        self.document.clear();
        documents.append_random(id, &mut self.random, &mut self.document);
        clock.begin();
        let found = session.delete(collection, id)?;
        clock.done(Kind::Delete);
        let inserted = session.insert(collection, frond_bson::Doc::from_trusted(&self.document))?;
        clock.done(Kind::Insert);
        races.count(Race::Delete, one(dataset, Kind::Delete, found)?);
        races.count(Race::Insert, one(dataset, Kind::Insert, inserted)?);
        Ok(clock.end(races))
    }

    fn id(&mut self) -> i32 {
        1 + self.random.below(u64::from(self.dataset.documents)) as i32
    }

    /// The ids of a random range.
    fn ids(&mut self) -> std::ops::RangeInclusive<i32> {
        let range = self.dataset.range();
        let last_start = self.dataset.documents - range + 1;
        let first = 1 + self.random.below(u64::from(last_start)) as i32;
        first..=first + range as i32 - 1
    }
}

/// Number of missing documents where one was expected.
fn one(dataset: &Dataset, kind: Kind, found: u64) -> Result<u64> {
    match dataset.missing_allowed {
        None => Ok(0),
        // Lost to another thread, which a thread that is alone cannot have.
        Some(allowed) => missing_of(kind, 1, found, allowed.min(1)),
    }
}

/// Number of missing documents of a range.
fn missing(dataset: &Dataset, kind: Kind, expected: u64, found: u64) -> Result<u64> {
    match dataset.missing_allowed {
        None => Ok(0),
        Some(allowed) => missing_of(kind, expected, found, allowed),
    }
}

fn missing_of(kind: Kind, expected: u64, found: u64, allowed: u64) -> Result<u64> {
    match expected.checked_sub(found) {
        Some(missing) if missing <= allowed => Ok(missing),
        _ => Err(Error::Wrong(format!(
            "{}: {found} documents instead of {expected}",
            kind.name()
        ))),
    }
}

/// Times operations one after the other.
struct Clock {
    started: Instant,
    began: Instant,
    operations: [(Kind, Duration); OPERATIONS],
    done: usize,
}

impl Clock {
    fn start() -> Clock {
        let now = Instant::now();
        Clock {
            started: now,
            began: now,
            operations: [(KINDS[0], Duration::ZERO); OPERATIONS],
            done: 0,
        }
    }

    /// An operation begins now, and not when the last one was done.
    fn begin(&mut self) {
        self.began = Instant::now();
    }

    fn done(&mut self, kind: Kind) {
        let now = Instant::now();
        if let Some(slot) = self.operations.get_mut(self.done) {
            *slot = (kind, now - self.began);
        }
        self.done += 1;
        self.began = now;
    }

    fn end(self, races: Races) -> Timings {
        Timings {
            operations: self.operations,
            whole: self.began - self.started,
            races,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{Doc, DocBuf};
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::RangeInclusive;

    use crate::documents::Source;

    /// A server in a map.
    #[derive(Default)]
    struct FakeServer {
        documents: BTreeMap<(String, i32), DocBuf>,
        calls: Vec<&'static str>,
        collections: BTreeSet<String>,
        /// Documents missing from the result of each range.
        hides: u64,
    }

    impl FakeServer {
        fn with(dataset: &Dataset) -> FakeServer {
            let mut played = FakeServer::default();
            for (collection, documents) in &dataset.collections {
                for number in 0..u64::from(dataset.documents) {
                    let mut bytes = Vec::new();
                    documents.append(number, &mut bytes);
                    let doc = Doc::validate(&bytes).unwrap().to_owned();
                    let key = (collection.name.clone(), number as i32 + 1);
                    played.documents.insert(key, doc);
                }
            }
            played
        }

        fn call(&mut self, name: &'static str, collection: &Collection) {
            self.calls.push(name);
            self.collections.insert(collection.name.clone());
        }

        fn found(&self, collection: &Collection, ids: RangeInclusive<i32>) -> u64 {
            let name = &collection.name;
            let range = (name.clone(), *ids.start())..=(name.clone(), *ids.end());
            (self.documents.range(range).count() as u64).saturating_sub(self.hides)
        }

        fn change(&mut self, collection: &Collection, id: i32, c: Option<&str>) -> u64 {
            let Some(old) = self.documents.get_mut(&(collection.name.clone(), id)) else {
                return 0;
            };
            let mut new = DocBuf::new();
            new.push("_id", id);
            new.push("k", old.get_i32("k").unwrap() + i32::from(c.is_none()));
            new.push("c", c.unwrap_or(old.get_str("c").unwrap()));
            *old = new;
            1
        }
    }

    impl Transactions for FakeServer {
        fn point(&mut self, collection: &Collection, id: i32) -> Result<u64> {
            self.call("point", collection);
            Ok(self.found(collection, id..=id))
        }

        fn range(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
            self.call("range", collection);
            Ok(self.found(collection, ids))
        }

        fn sum(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<i64> {
            self.call("sum", collection);
            Ok(self.found(collection, ids) as i64 * 7)
        }

        fn ordered(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
            self.call("ordered", collection);
            Ok(self.found(collection, ids))
        }

        fn distinct(&mut self, collection: &Collection, ids: RangeInclusive<i32>) -> Result<u64> {
            self.call("distinct", collection);
            Ok(self.found(collection, ids))
        }

        fn update_k(&mut self, collection: &Collection, id: i32) -> Result<u64> {
            self.call("update_k", collection);
            Ok(self.change(collection, id, None))
        }

        fn update_c(&mut self, collection: &Collection, id: i32, c: &str) -> Result<u64> {
            self.call("update_c", collection);
            assert_eq!(c.len(), C_CHARACTERS);
            Ok(self.change(collection, id, Some(c)))
        }

        fn delete(&mut self, collection: &Collection, id: i32) -> Result<u64> {
            self.call("delete", collection);
            let gone = self.documents.remove(&(collection.name.clone(), id));
            Ok(u64::from(gone.is_some()))
        }

        fn insert(&mut self, collection: &Collection, document: &Doc) -> Result<u64> {
            self.call("insert", collection);
            let document = Doc::validate(document.as_bytes()).unwrap();
            let key = (collection.name.clone(), document.get_i32("_id").unwrap());
            let there = self.documents.insert(key, document.to_owned());
            Ok(u64::from(there.is_none()))
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
                let mut expected = vec!["point"; 10];
                expected.extend(["range", "sum", "ordered", "distinct"]);
                expected.extend(["update_k", "update_c", "delete", "insert"]);
                assert_eq!(played.calls, expected);
                assert_eq!(played.collections.len(), 1, "one collection each");
                seen.extend(std::mem::take(&mut played.collections));
                played.calls.clear();
                let kinds: Vec<Kind> = timings.operations.iter().map(|(kind, _)| *kind).collect();
                assert!(kinds[..10].iter().all(|kind| *kind == Kind::Point));
                assert_eq!(kinds[10..], KINDS[1..]);
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
