//! External merge sort of records by keys that compare as bytes: in memory within a budget, else with runs on
//! disk.

use super::{BLOCK_BYTES, Budget, File, Spill, put, take};
use crate::memory::{Fit, StageMemory};
use frond_bson::DocBuf;
use frond_error::Result;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Runs that are merged at once; each holds one block in memory, and the next record.
const FAN_IN: usize = 32;
/// The least of them.
const FAN_IN_MIN: usize = 4;

/// The overhead of an entry, in bytes.
const ENTRY_BYTES: usize = 64;

/// A record to be sorted.
pub trait Record: Send + Sized + 'static {
    /// Bytes that the record takes in memory.
    fn memory_bytes(&self) -> usize;

    /// Appends the encoded record.
    fn write(&self, out: &mut Vec<u8>);

    /// Decodes a record.
    ///
    /// # Errors
    /// For malformed bytes.
    fn read(bytes: &[u8]) -> Result<Self>;
}

impl Record for DocBuf {
    fn memory_bytes(&self) -> usize {
        self.len_bytes()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &[u8]) -> Result<DocBuf> {
        Ok(DocBuf::from_vec_trusted(bytes.to_vec()))
    }
}

/// A record with its key and its sequence number, which keeps the sort stable.
struct Entry<T> {
    key: Vec<u8>,
    number: u64,
    record: T,
}

impl<T: Record> Entry<T> {
    fn bytes(&self) -> usize {
        self.key.len() + self.record.memory_bytes() + ENTRY_BYTES
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Entry<T>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Entry<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Entry<T>) -> Ordering {
        (&self.key, self.number).cmp(&(&other.key, other.number))
    }
}

/// The first bytes of a key, as a number that compares as they do.
pub fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Sorts entries. Small ones are compared and moved in their place: the beginning of the key and the position. Each entry is
/// moved once, as in `slice::sort_by_cached_key`.
fn sort_entries<T>(list: &mut [Entry<T>]) {
    let prefixes = list.iter().map(|entry| key_prefix(&entry.key));
    let mut order: Vec<(u64, usize)> = prefixes.zip(0..).collect();
    order.sort_unstable_by(|(a, at), (b, other)| {
        a.cmp(b).then_with(|| list.get(*at).cmp(&list.get(*other)))
    });
    for place in 0..order.len() {
        let from_of =
            |order: &[(u64, usize)], place: usize| order.get(place).map_or(0, |one| one.1);
        let mut from = from_of(&order, place);
        // The entry that was there has been moved on.
        while from < place {
            from = from_of(&order, from);
        }
        if let Some((_, moved)) = order.get_mut(place) {
            *moved = from;
        }
        list.swap(place, from);
    }
}

/// Takes records in any order and returns them in the order of their keys; records with equal keys keep their
/// order.
pub struct Sorter<T> {
    budget: Budget,
    /// The limit of records to return.
    limit: usize,
    entries: Entries<T>,
    arrivals: u64,
    held: StageMemory,
    /// Bytes of the largest entry so far.
    largest: usize,
    runs: Runs,
}

/// Records in memory: a list, or the first records so far as a heap with the last of them on top.
enum Entries<T> {
    All(Vec<Entry<T>>),
    First(BinaryHeap<Entry<T>>),
}

/// Sorted runs in one file: the places of their blocks.
#[derive(Default)]
struct Runs {
    file: Option<File>,
    places: Vec<Vec<u64>>,
}

impl<T: Record> Sorter<T> {
    /// A sorter that gives the first `limit` records, all without a limit.
    pub fn new(budget: Budget, limit: Option<usize>) -> Sorter<T> {
        Sorter {
            held: budget.held(),
            budget,
            limit: limit.unwrap_or(usize::MAX),
            entries: match limit {
                None => Entries::All(Vec::new()),
                Some(_) => Entries::First(BinaryHeap::new()),
            },
            arrivals: 0,
            largest: 0,
            runs: Runs::default(),
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// 292 beyond the budget, 146 beyond what others leave, if nothing may be written; those of files.
    pub fn push(&mut self, key: Vec<u8>, record: T) -> Result<()> {
        let entry = Entry {
            key,
            number: self.arrivals,
            record,
        };
        self.arrivals += 1;
        let bytes = entry.bytes();
        self.largest = self.largest.max(bytes);
        match &mut self.entries {
            Entries::All(list) => list.push(entry),
            Entries::First(heap) => {
                if heap.len() >= self.limit {
                    match heap.peek() {
                        Some(last) if entry < *last => {}
                        _ => return Ok(()),
                    }
                    if let Some(gone) = heap.pop() {
                        self.held.remove(gone.bytes());
                    }
                }
                heap.push(entry);
            }
        }
        match self.held.add(bytes) {
            Fit::Fits => Ok(()),
            fit if self.budget.space.is_none() => Err(self.budget.refused(fit)),
            _ => self.spill(),
        }
    }

    /// Whether a record with this key may be within the limit.
    pub fn wants(&self, key: &[u8]) -> bool {
        match &self.entries {
            Entries::First(heap) if heap.len() >= self.limit => {
                heap.peek().is_some_and(|last| key < &*last.key)
            }
            _ => true,
        }
    }

    /// Records that were added.
    pub fn pushed(&self) -> u64 {
        self.arrivals
    }

    /// The records in memory, in order.
    fn take_sorted(&mut self) -> Vec<Entry<T>> {
        match &mut self.entries {
            Entries::All(list) => {
                sort_entries(list);
                std::mem::take(list)
            }
            Entries::First(heap) => std::mem::take(heap).into_sorted_vec(),
        }
    }

    /// Writes the records in memory as a run.
    fn spill(&mut self) -> Result<()> {
        let bytes = self.held.bytes();
        let entries = self.take_sorted();
        self.runs.add(&self.budget, entries.into_iter())?;
        self.budget.note(bytes);
        self.held.clear();
        Ok(())
    }

    /// Number of runs that can be merged at once.
    fn fan_in(&mut self) -> usize {
        let each = BLOCK_BYTES + 2 * self.largest;
        let most = self.budget.bytes_max.max(FAN_IN * BLOCK_BYTES) / each;
        for runs in [FAN_IN, FAN_IN / 2, FAN_IN / 4] {
            if runs <= most && self.held.add(runs * each) == Fit::Fits {
                return runs;
            }
            self.held.clear();
        }
        // Large records.
        let runs = most.clamp(2, FAN_IN_MIN);
        self.held.add_always(runs * each);
        runs
    }

    /// The records in order.
    ///
    /// # Errors
    /// Those of files.
    pub fn finish(mut self) -> Result<Sorted<T>> {
        let records = if self.runs.places.is_empty() {
            Records::Memory(self.take_sorted().into_iter())
        } else {
            self.spill()?;
            let fan_in = self.fan_in();
            let mut runs = self.runs;
            while runs.places.len() > fan_in {
                runs = merged::<T>(runs, fan_in, self.limit, &self.budget)?;
            }
            Records::Runs(Merge::new(runs)?)
        };
        let result = Arc::new(SharedResult(Mutex::new(Inner {
            records,
            left: self.limit,
            held: self.held,
            budget: self.budget,
        })));
        let inner = result.lock();
        let weak: Weak<SharedResult<T>> = Arc::downgrade(&result);
        inner.budget.spilled.add_result(weak);
        drop(inner);
        Ok(Sorted(result))
    }
}

/// Merges the runs into fewer ones, in a new file.
fn merged<T: Record>(runs: Runs, fan_in: usize, limit: usize, budget: &Budget) -> Result<Runs> {
    let mut file = budget.file()?;
    let mut merged = Vec::new();
    let mut old = runs.file;
    // Adjacent runs are merged, so that equal keys stay in order.
    for group in runs.places.chunks(fan_in) {
        let mut merge = Merge::<T>::new(Runs {
            file: old.take(),
            places: group.to_vec(),
        })?;
        let mut run = RunWriter::new(&mut file);
        let mut left = limit;
        while left > 0
            && let Some((key, record)) = merge.next()?
        {
            run.push(&key, &record)?;
            left -= 1;
        }
        merged.push(run.finish()?);
        old = merge.file;
    }
    Ok(Runs {
        file: Some(file),
        places: merged,
    })
}

struct RunWriter<'f> {
    file: &'f mut File,
    block: Vec<u8>,
    record: Vec<u8>,
    places: Vec<u64>,
}

impl<'f> RunWriter<'f> {
    fn new(file: &'f mut File) -> RunWriter<'f> {
        RunWriter {
            file,
            block: Vec::new(),
            record: Vec::new(),
            places: Vec::new(),
        }
    }

    fn push<T: Record>(&mut self, key: &[u8], record: &T) -> Result<()> {
        put(&mut self.block, key);
        self.record.clear();
        record.write(&mut self.record);
        put(&mut self.block, &self.record);
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.places.push(self.file.append(&self.block)?);
            self.block.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u64>> {
        self.flush()?;
        Ok(self.places)
    }
}

/// The next records of the runs. The smallest goes first from the heap, and of equal keys that of the
/// earliest run: its number stands in for that of the record.
struct Merge<T> {
    file: Option<File>,
    readers: Vec<RunReader>,
    heads: BinaryHeap<Reverse<Entry<T>>>,
}

struct RunReader {
    places: std::vec::IntoIter<u64>,
    /// The place of the block.
    place: Option<u64>,
    /// Empty if it was released.
    block: Vec<u8>,
    /// The next record in the block, and the block's length.
    at: usize,
    len: usize,
}

impl<T: Record> Merge<T> {
    fn new(runs: Runs) -> Result<Merge<T>> {
        let readers = runs.places.into_iter().map(|places| RunReader {
            places: places.into_iter(),
            place: None,
            block: Vec::new(),
            at: 0,
            len: 0,
        });
        let mut merge = Merge {
            file: runs.file,
            readers: readers.collect(),
            heads: BinaryHeap::new(),
        };
        for run in 0..merge.readers.len() {
            merge.refill(run)?;
        }
        Ok(merge)
    }

    /// Pushes the next record of a run to the heap.
    fn refill(&mut self, run: usize) -> Result<()> {
        let (Some(reader), Some(file)) = (self.readers.get_mut(run), &mut self.file) else {
            return Ok(());
        };
        if let Some((key, record)) = reader.next(file)? {
            let number = run as u64;
            self.heads.push(Reverse(Entry {
                key,
                number,
                record,
            }));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, T)>> {
        let Some(Reverse(head)) = self.heads.pop() else {
            return Ok(None);
        };
        self.refill(usize::try_from(head.number).unwrap_or(usize::MAX))?;
        Ok(Some((head.key, head.record)))
    }
}

impl RunReader {
    fn next<T: Record>(&mut self, file: &mut File) -> Result<Option<(Vec<u8>, T)>> {
        if self.at >= self.len {
            self.place = self.places.next();
            let Some(place) = self.place else {
                self.block = Vec::new();
                return Ok(None);
            };
            self.block = file.read(place)?;
            (self.at, self.len) = (0, self.block.len());
        } else if let Some(place) = self.place.filter(|_| self.block.is_empty()) {
            self.block = file.read(place)?;
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let key = take(&mut rest)?.to_vec();
        let record = T::read(take(&mut rest)?)?;
        self.at = self.block.len() - rest.len();
        Ok(Some((key, record)))
    }
}

pub struct Sorted<T>(Arc<SharedResult<T>>);

/// Sorted records that go to disk while their reader is idle. The lock is free unless that happens.
struct SharedResult<T>(Mutex<Inner<T>>);

struct Inner<T> {
    records: Records<T>,
    left: usize,
    held: StageMemory,
    budget: Budget,
}

enum Records<T> {
    Memory(std::vec::IntoIter<Entry<T>>),
    Runs(Merge<T>),
}

impl<T> SharedResult<T> {
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // A reader that panicked leaves the records as they were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for SharedResult<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedResult").finish_non_exhaustive()
    }
}

impl<T: Record> Spill for SharedResult<T> {
    fn spill(&self) -> Result<()> {
        let Inner {
            records,
            held,
            budget,
            ..
        } = &mut *self.lock();
        match records {
            Records::Memory(_) if budget.space.is_none() => return Ok(()),
            Records::Memory(entries) => {
                let mut runs = Runs::default();
                runs.add(budget, entries.as_slice().iter())?;
                *records = Records::Runs(Merge::new(runs)?);
                budget.note(held.bytes());
            }
            Records::Runs(_) => {}
        }
        if let Records::Runs(merge) = records {
            held.clear();
            held.add_always(merge.release_blocks());
        }
        Ok(())
    }
}

impl Runs {
    /// Writes sorted entries as a run.
    fn add<T: Record, E: std::borrow::Borrow<Entry<T>>>(
        &mut self,
        budget: &Budget,
        entries: impl Iterator<Item = E>,
    ) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(budget.file()?),
        };
        let mut run = RunWriter::new(file);
        for entry in entries {
            let entry = entry.borrow();
            run.push(&entry.key, &entry.record)?;
        }
        let places = run.finish()?;
        self.places.push(places);
        Ok(())
    }
}

impl<T: Record> Merge<T> {
    /// Drops the blocks, which are read again when they are needed. Returns about how many bytes it still holds.
    fn release_blocks(&mut self) -> usize {
        for reader in &mut self.readers {
            reader.block = Vec::new();
        }
        self.heads.iter().map(|Reverse(head)| head.bytes()).sum()
    }
}

impl<T: Record> Sorted<T> {
    /// The next record and its key.
    ///
    /// # Errors
    /// Those of files.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, T)>> {
        let Inner {
            records,
            left,
            held,
            ..
        } = &mut *self.0.lock();
        if *left == 0 {
            return Ok(None);
        }
        *left -= 1;
        match records {
            Records::Memory(entries) => {
                let entry = entries.next();
                if let Some(entry) = &entry {
                    held.remove(entry.bytes());
                }
                Ok(entry.map(|entry| (entry.key, entry.record)))
            }
            Records::Runs(merge) => merge.next(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::Files;
    use super::*;
    use crate::memory::testing::Pool;
    use frond_bson::doc;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};
    use std::sync::atomic::Ordering;

    type Records = Vec<(Vec<u8>, DocBuf)>;

    fn sort(records: &Records, budget: Budget, limit: Option<usize>) -> Result<Records> {
        let mut sorter = Sorter::new(budget, limit);
        for (key, record) in records {
            sorter.push(key.clone(), record.clone())?;
        }
        let mut sorted = sorter.finish()?;
        let mut found = Vec::new();
        while let Some(next) = sorted.next()? {
            found.push(next);
        }
        Ok(found)
    }

    #[test]
    fn entries_are_sorted_by_key_and_number() {
        let mut random = SmallRng::seed_from_u64(8);
        for round in 0..200 {
            let mut list: Vec<Entry<DocBuf>> = (0..random.random_range(0..300))
                .map(|number| Entry {
                    key: (0..random.random_range(0..12))
                        .map(|at| match at {
                            0..8 if round % 2 == 0 => 7,
                            _ => random.random_range(0..3u8),
                        })
                        .collect(),
                    number,
                    record: doc! {"n": number as i64},
                })
                .collect();
            sort_entries(&mut list);
            assert!(list.is_sorted());
            let mut numbers: Vec<u64> = list.iter().map(|entry| entry.number).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..list.len() as u64));
            for entry in &list {
                assert_eq!(entry.record, doc! {"n": entry.number as i64});
            }
        }
    }

    #[test]
    fn runs_give_what_memory_gives() {
        let mut random = SmallRng::seed_from_u64(7);
        for round in 0..60 {
            let count = random.random_range(0..2000);
            let records: Records = (0..count)
                .map(|n: u32| {
                    let key = vec![random.random_range(0..20u8); random.random_range(0..3)];
                    (key, doc! {"n": i64::from(n)})
                })
                .collect();
            let limit = (round % 3 == 0).then(|| random.random_range(0..500));
            let mut expected = records.clone();
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            expected.truncate(limit.unwrap_or(usize::MAX));

            let in_memory = Budget::in_memory("$sort", usize::MAX);
            assert_eq!(sort(&records, in_memory, limit).unwrap(), expected);
            let files = Arc::new(Files::default());
            // So small that there are many runs, which are merged in several passes.
            let budget = files.budget("$sort", random.random_range(0..3000));
            let spilled = budget.spilled.clone();
            assert_eq!(sort(&records, budget, limit).unwrap(), expected, "{round}");
            assert_eq!(files.open.load(Ordering::Relaxed), 0, "files are gone");
            assert_eq!(spilled.times() > 0, files.made.load(Ordering::Relaxed) > 0);
        }
    }

    /// Each sort could hold its 100 MiB, however many there were.
    #[test]
    fn sorts_beyond_the_memory_for_all_spill_sooner() {
        let records: Records = (0..20_000u32)
            .map(|n| {
                let key = n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
                (key, doc! {"n": i64::from(n), "text": "x".repeat(100)})
            })
            .collect();
        let mut expected = records.clone();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        let pool = Pool::with_bytes(3 << 20);
        let left = || pool.left.load(Ordering::Relaxed);
        let files = Arc::new(Files::default());
        let budget = |files: &Arc<Files>| Budget {
            memory: Some(Arc::new(pool.clone())),
            ..files.budget("$sort", 100 << 20)
        };
        let mut sorters: Vec<_> = (0..4).map(|_| Sorter::new(budget(&files), None)).collect();
        for (key, record) in &records {
            for sorter in &mut sorters {
                sorter.push(key.clone(), record.clone()).unwrap();
            }
        }
        let spilled = sorters
            .iter()
            .filter(|sorter| sorter.budget.spilled.times() > 0);
        assert!(spilled.count() >= 3);
        for sorter in sorters {
            let mut sorted = sorter.finish().unwrap();
            for wanted in &expected {
                assert_eq!(sorted.next().unwrap().as_ref(), Some(wanted));
            }
            assert_eq!(sorted.next().unwrap(), None);
        }
        assert_eq!(left(), 3 << 20);
        // One that may not write fails, and gives back what it has.
        let pushed = |sorter: &mut Sorter<DocBuf>| {
            let mut pushes = records
                .iter()
                .map(|(key, doc)| sorter.push(key.clone(), doc.clone()));
            pushes.find_map(Result::err)
        };
        let mut sorter = Sorter::new(
            Budget {
                space: None,
                ..budget(&files)
            },
            None,
        );
        let error = pushed(&mut sorter).unwrap();
        assert_eq!(error.code(), frond_error::ErrorCode::ExceededMemoryLimit);
        drop(sorter);
        assert_eq!(left(), 3 << 20);
    }

    #[test]
    fn results_go_to_disk_while_their_reader_is_idle() {
        let mut records: Records = (0..3000u32)
            .map(|n| (n.to_be_bytes().to_vec(), doc! {"n": i64::from(n)}))
            .collect();
        for (bytes_max, pauses) in [(1 << 20, 1), (1 << 20, 5), (20_000, 7)] {
            records.reverse();
            let files = Arc::new(Files::default());
            let pool = Pool::with_bytes(2 << 20);
            let budget = Budget {
                memory: Some(Arc::new(pool.clone())),
                ..files.budget("$sort", bytes_max)
            };
            let spilled = budget.spilled.clone();
            let mut sorter = Sorter::new(budget, None);
            for (key, record) in &records {
                sorter.push(key.clone(), record.clone()).unwrap();
            }
            let mut sorted = sorter.finish().unwrap();
            for n in 0..3000u32 {
                if n % (3000 / pauses) == 100 {
                    spilled.spill_results().unwrap();
                    let left = pool.left.load(Ordering::Relaxed);
                    assert!(left > (2 << 20) - (8 << 10), "{left}");
                    assert!(files.open.load(Ordering::Relaxed) > 0);
                }
                let (key, _) = sorted.next().unwrap().unwrap();
                assert_eq!(key, n.to_be_bytes());
            }
            assert_eq!(sorted.next().unwrap(), None);
            drop(sorted);
            spilled.spill_results().unwrap();
            assert_eq!(files.open.load(Ordering::Relaxed), 0);
            assert_eq!(pool.left.load(Ordering::Relaxed), 2 << 20);
        }
    }

    #[test]
    fn without_a_place_to_write_the_budget_is_the_end() {
        let records: Records = vec![(vec![1; 1000], DocBuf::new()); 10];
        let error = sort(&records, Budget::in_memory("$sort", 5000), None).unwrap_err();
        assert_eq!(error.code().code(), 292);
        // A limit keeps within it.
        let first = sort(&records, Budget::in_memory("$sort", 5000), Some(3)).unwrap();
        assert_eq!(first.len(), 3);
    }
}
