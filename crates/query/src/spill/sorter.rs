//! External merge sort of records by keys that compare as bytes: in memory within a budget, else with runs on
//! disk.

use super::{BLOCK_BYTES, Budget, File, put, take};
use frond_bson::DocBuf;
use frond_error::Result;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Runs that are merged at once; each holds one block in memory.
const FAN_IN: usize = 32;

/// The overhead of an entry, in bytes.
const ENTRY_BYTES: usize = 64;

/// A record to be sorted.
pub trait Record: Send + Sized {
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

/// Takes records in any order and returns them in the order of their keys; records with equal keys keep their
/// order.
pub struct Sorter<T> {
    budget: Budget,
    /// The limit of records to return.
    limit: usize,
    entries: Entries<T>,
    arrivals: u64,
    bytes: usize,
    runs: Runs,
}

/// What is in memory: a list, or the first records seen so far, the last of them on top.
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
            budget,
            limit: limit.unwrap_or(usize::MAX),
            entries: match limit {
                None => Entries::All(Vec::new()),
                Some(_) => Entries::First(BinaryHeap::new()),
            },
            arrivals: 0,
            bytes: 0,
            runs: Runs::default(),
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// 292 beyond the budget if nothing may be written; those of files.
    pub fn push(&mut self, key: Vec<u8>, record: T) -> Result<()> {
        let entry = Entry {
            key,
            number: self.arrivals,
            record,
        };
        self.arrivals += 1;
        let bytes = entry.bytes();
        match &mut self.entries {
            Entries::All(list) => list.push(entry),
            Entries::First(heap) => {
                if heap.len() >= self.limit {
                    match heap.peek() {
                        Some(last) if entry < *last => {}
                        _ => return Ok(()),
                    }
                    if let Some(gone) = heap.pop() {
                        self.bytes = self.bytes.saturating_sub(gone.bytes());
                    }
                }
                heap.push(entry);
            }
        }
        self.bytes += bytes;
        if self.bytes > self.budget.bytes_max {
            self.spill()?;
        }
        Ok(())
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
        self.bytes = 0;
        match &mut self.entries {
            Entries::All(list) => {
                list.sort_unstable();
                std::mem::take(list)
            }
            Entries::First(heap) => std::mem::take(heap).into_sorted_vec(),
        }
    }

    /// Writes the records in memory as a run.
    fn spill(&mut self) -> Result<()> {
        let bytes = self.bytes;
        let entries = self.take_sorted();
        let file = match &mut self.runs.file {
            Some(file) => file,
            empty => empty.insert(self.budget.file()?),
        };
        let mut run = RunWriter::new(file);
        for entry in entries {
            run.push(&entry.key, &entry.record)?;
        }
        let places = run.finish()?;
        self.runs.places.push(places);
        self.budget.note(bytes);
        Ok(())
    }

    /// The records in order.
    ///
    /// # Errors
    /// Those of files.
    pub fn finish(mut self) -> Result<Sorted<T>> {
        if self.runs.places.is_empty() {
            let limit = self.limit;
            let sorted = self.take_sorted().into_iter();
            return Ok(Sorted(Inner::Memory(sorted, limit)));
        }
        self.spill()?;
        let mut runs = self.runs;
        while runs.places.len() > FAN_IN {
            runs = merged::<T>(runs, self.limit, &self.budget)?;
        }
        Ok(Sorted(Inner::Runs(Merge::new(runs)?, self.limit)))
    }
}

/// Merges the runs into fewer ones, in a new file.
fn merged<T: Record>(runs: Runs, limit: usize, budget: &Budget) -> Result<Runs> {
    let mut file = budget.file()?;
    let mut merged = Vec::new();
    let mut old = runs.file;
    // Adjacent runs are merged, so that equal keys stay in order.
    for group in runs.places.chunks(FAN_IN) {
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
    block: Vec<u8>,
    at: usize,
}

impl<T: Record> Merge<T> {
    fn new(runs: Runs) -> Result<Merge<T>> {
        let readers = runs.places.into_iter().map(|places| RunReader {
            places: places.into_iter(),
            block: Vec::new(),
            at: 0,
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
        if self.at >= self.block.len() {
            let Some(place) = self.places.next() else {
                return Ok(None);
            };
            self.block = file.read(place)?;
            self.at = 0;
        }
        let mut rest = self.block.get(self.at..).unwrap_or_default();
        let key = take(&mut rest)?.to_vec();
        let record = T::read(take(&mut rest)?)?;
        self.at = self.block.len() - rest.len();
        Ok(Some((key, record)))
    }
}

/// Records in order.
pub struct Sorted<T>(Inner<T>);

enum Inner<T> {
    Memory(std::vec::IntoIter<Entry<T>>, usize),
    Runs(Merge<T>, usize),
}

impl<T: Record> Sorted<T> {
    /// The next record and its key.
    ///
    /// # Errors
    /// Those of files.
    #[expect(clippy::should_implement_trait, reason = "it can fail")]
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, T)>> {
        let left = match &mut self.0 {
            Inner::Memory(_, left) | Inner::Runs(_, left) => left,
        };
        if *left == 0 {
            return Ok(None);
        }
        *left -= 1;
        match &mut self.0 {
            Inner::Memory(entries, _) => Ok(entries.next().map(|entry| (entry.key, entry.record))),
            Inner::Runs(merge, _) => merge.next(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::Files;
    use super::*;
    use frond_bson::doc;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};
    use std::sync::Arc;
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
