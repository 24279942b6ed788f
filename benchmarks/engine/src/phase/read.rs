//! Phases that read, and verify the results.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{Bench, on_threads};
use crate::engine::Reader;
use crate::error::{During, Error, Result};
use crate::record::{Latencies, Record, latencies};
use crate::usage::Usage;
use crate::workload::{
    Content, PRIMARY, Random, SECONDARIES, SECONDARY_KEY_BYTES, absent_primary_key,
    absent_secondary_key, document_of, primary_key, value,
};

/// Entries of a short scan.
const SCAN_ENTRIES: u64 = 100;
/// One entry of this many is compared in full; of the others only the order and the document number.
const CHECK_EVERY: u64 = 16;
/// A part of the time of a phase that is spent on the same work before, without measuring.
const WARM_UP: u32 = 5;

/// The results of the readers of a phase.
struct Done {
    latencies: Latencies,
    entries: u64,
}

impl Bench {
    /// Calls `read` for the time of a phase, on each of `threads`, and records it. It returns entries.
    fn read_phase(
        &self,
        phase: &str,
        threads: usize,
        read: impl Fn(&mut dyn Reader, &mut Random) -> Result<u64> + Sync,
    ) -> Result<()> {
        self.read_for(threads, self.limits.phase / WARM_UP, &read)?;
        let before = self.meter.now();
        let done = self.read_for(threads, self.limits.phase, &read)?;
        let used = self.meter.since(before);
        let mut record = self.record(phase, threads);
        let ops = done.latencies.len() as f64;
        record.set("ops_per_s", ops / used.elapsed_s);
        record.set("entries_per_op", done.entries as f64 / ops);
        record.set_latencies(&done.latencies);
        set_costs(&mut record, used, ops);
        self.keep(&record)
    }

    fn read_for(
        &self,
        threads: usize,
        time: Duration,
        read: &(impl Fn(&mut dyn Reader, &mut Random) -> Result<u64> + Sync),
    ) -> Result<Done> {
        let start = Instant::now();
        let work = |thread: usize| -> Result<Done> {
            let mut reader = self.engine.reader()?;
            let mut random = Random::new(time.as_nanos() as u64 + thread as u64);
            let mut done = Done {
                latencies: latencies(),
                entries: 0,
            };
            let mut begin = Instant::now();
            while begin - start < time {
                done.entries += read(&mut *reader, &mut random)?;
                let end = Instant::now();
                done.latencies
                    .saturating_record((end - begin).as_nanos() as u64);
                begin = end;
            }
            Ok(done)
        };
        let mut sum = Done {
            latencies: latencies(),
            entries: 0,
        };
        for done in on_threads(threads, work)? {
            sum.latencies
                .add(&done.latencies)
                .during("adding latencies")?;
            sum.entries += done.entries;
        }
        Ok(sum)
    }

    /// Random reads of documents, each compared with the written value.
    pub fn point_reads(&self, threads: usize) -> Result<()> {
        let content = &self.content;
        self.read_phase("point-primary", threads, |reader, random| {
            let document = some_document(content, random);
            let mut right = false;
            reader.get(PRIMARY, &primary_key(document), &mut |bytes| {
                right = bytes == value(document, content.generation(document));
            })?;
            if right {
                return Ok(1);
            }
            Err(Error::Wrong(format!("the value of document {document}")))
        })
    }

    /// Random reads of keys that are not there, among keys that are.
    pub fn absent_reads(&self, threads: usize) -> Result<()> {
        let documents = self.content.documents;
        let absent = |found: bool, document: u64| {
            if found {
                return Err(Error::Wrong(format!("an absent key near {document}")));
            }
            Ok(1)
        };
        self.read_phase("absent-primary", threads, |reader, random| {
            // Below the last one, so that it is within the range of the keys.
            let document = random.below(documents.max(2) - 1);
            let found = reader.get(PRIMARY, &absent_primary_key(document), &mut |_| {})?;
            absent(found, document)
        })?;
        self.read_phase("absent-secondary", threads, |reader, random| {
            let document = random.below(documents);
            let key = absent_secondary_key(random, document);
            absent(reader.get(1, &key, &mut |_| {})?, document)
        })
    }

    /// Scans of 100 entries from random keys on, on each secondary table.
    pub fn scans(&self, threads: usize) -> Result<()> {
        for table in 1..=SECONDARIES {
            self.scans_of(&format!("scan-secondary{table}"), table, threads, &[])?;
        }
        Ok(())
    }

    /// Scans of 100 entries from random keys at or above `lowest` on.
    pub fn scans_of(&self, phase: &str, table: usize, threads: usize, lowest: &[u8]) -> Result<()> {
        let content = &self.content;
        self.read_phase(phase, threads, |reader, random| {
            let mut from = [0; SECONDARY_KEY_BYTES];
            loop {
                random.fill(&mut from[..32]);
                if from.as_slice() >= lowest {
                    break;
                }
            }
            short_scan(reader, content, table, &from)
        })
    }

    /// Scans of 100 entries from the start of a table on.
    pub fn scans_from_start(&self, table: usize) -> Result<()> {
        let content = &self.content;
        self.read_phase("scan-from-start", 1, |reader, _| {
            short_scan(reader, content, table, &[])
        })
    }

    /// Reads a whole secondary table, and compares the number of its entries and the sum of their
    /// documents with what was written.
    pub fn full_scan(&self, table: usize) -> Result<()> {
        let before = self.meter.now();
        let start = Instant::now();
        let limit = self.limits.full_scan;
        let mut reader = self.engine.reader()?;
        let (mut count, mut sum, mut cut_short) = (0u64, 0u64, false);
        let mut check = Check::new(&self.content, table);
        reader.scan(table, &[], &mut |key, value| {
            sum += check.entry(key, value);
            count += 1;
            cut_short = count % 4096 == 0 && start.elapsed() > limit;
            check.right.get() && !cut_short
        })?;
        check.result()?;
        let used = self.meter.since(before);
        let mut record = self.record(&format!("full-scan-secondary{table}"), 1);
        let entries = count as f64;
        record.set("entries", entries);
        record.set("seconds", used.elapsed_s);
        record.set("entries_per_s", entries / used.elapsed_s);
        set_costs(&mut record, used, entries);
        if cut_short {
            record.notes.push(format!("cut short after {limit:?}"));
        } else if (count, sum) != self.content.entries(table) {
            return Err(Error::Wrong(format!(
                "a full scan of secondary {table} found {count} entries with the sum {sum}; there must be {:?}",
                self.content.entries(table)
            )));
        }
        self.keep(&record)
    }

    /// Reads everything once, to fill the caches.
    pub fn warm_up(&self) -> Result<()> {
        let mut reader = self.engine.reader()?;
        for table in 0..=SECONDARIES {
            let mut count = 0u64;
            reader.scan(table, &[], &mut |_, _| {
                count += 1;
                true
            })?;
            let expected = match table {
                PRIMARY => self.content.count(),
                table => self.content.entries(table).0,
            };
            if count != expected {
                let text = format!("table {table} has {count} entries; there must be {expected}");
                return Err(Error::Wrong(text));
            }
        }
        Ok(())
    }
}

/// Records the cost of one operation.
fn set_costs(record: &mut Record, used: Usage, ops: f64) {
    record.set("cpu_us_per_op", used.cpu_s / ops * 1e6);
    record.set("read_calls_per_op", used.read_calls / ops);
    record.set("major_faults_per_op", used.major_faults / ops);
    record.set("read_bytes_per_op", used.read_bytes / ops);
    record.set("device_reads_per_op", used.device_reads / ops);
}

fn some_document(content: &Content, random: &mut Random) -> u64 {
    loop {
        let document = random.below(content.documents);
        if content.has(document) {
            return document;
        }
    }
}

fn short_scan(
    reader: &mut dyn Reader,
    content: &Content,
    table: usize,
    from: &[u8],
) -> Result<u64> {
    let mut count = 0;
    let mut check = Check::new(content, table);
    reader.scan(table, from, &mut |key, value| {
        if key < from {
            check.right.set(false);
        }
        check.entry(key, value);
        count += 1;
        check.right.get() && count < SCAN_ENTRIES
    })?;
    check.result()?;
    Ok(count)
}

/// Looks at the entries of a scan.
struct Check<'a> {
    content: &'a Content,
    table: usize,
    seen: u64,
    last: [u8; SECONDARY_KEY_BYTES],
    right: Cell<bool>,
}

impl Check<'_> {
    fn new(content: &Content, table: usize) -> Check<'_> {
        Check {
            content,
            table,
            seen: 0,
            last: [0; SECONDARY_KEY_BYTES],
            right: Cell::new(true),
        }
    }

    /// Looks at one entry; returns its document.
    fn entry(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let (Ok(key), Some(document)) = (
            <&[u8; SECONDARY_KEY_BYTES]>::try_from(key),
            document_of(key),
        ) else {
            self.right.set(false);
            return 0;
        };
        let mut right = *key > self.last && value.is_empty();
        if self.seen.is_multiple_of(CHECK_EVERY) {
            right &= self.content.entry(document, self.table) == Some(*key);
        }
        if !right {
            self.right.set(false);
        }
        self.seen += 1;
        self.last = *key;
        document
    }

    fn result(&self) -> Result<()> {
        if self.right.get() {
            return Ok(());
        }
        Err(Error::Wrong(format!(
            "a scan of secondary {} at {:02x?}",
            self.table, self.last
        )))
    }
}
