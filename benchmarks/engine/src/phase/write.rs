//! Phases that write: load, deletion, replacement.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Bench, on_threads};
use crate::engine::{Engine, Operation};
use crate::error::{During, Result};
use crate::record::{Latencies, latencies};
use crate::workload::{
    Content, DOCUMENT_BYTES, Done, Order, PRIMARY, PRIMARY_KEY_BYTES, SECONDARIES,
    SECONDARY_KEY_BYTES, TABLES, VALUE_BYTES, primary_key, secondary_key, value,
};

/// Slices of a second in which work is counted.
const SLICES: u64 = 10;

struct Written {
    latencies: Latencies,
    /// Work done in each slice of the time.
    slices: Vec<u64>,
}

impl Bench {
    /// Calls `write` for the numbers from 0 on, until `count` or the time limit, and records `phase`.
    /// Returns how many were done.
    fn write_phase(
        &mut self,
        phase: &str,
        threads: usize,
        count: u64,
        bytes_each: u64,
        write: impl Fn(&dyn Engine, u64) -> Result<()> + Sync,
    ) -> Result<u64> {
        let before = self.meter.now();
        let next = AtomicU64::new(0);
        let (start, limit) = (Instant::now(), self.limits.write);
        let engine = &*self.engine;
        let work = |_| -> Result<Written> {
            let mut done = Written {
                latencies: latencies(),
                slices: Vec::new(),
            };
            let mut begin = Instant::now();
            while begin - start < limit {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                write(engine, number)?;
                let end = Instant::now();
                let slice = slice_at(end - start);
                if done.slices.len() <= slice {
                    done.slices.resize(slice + 1, 0);
                }
                done.slices[slice] += 1;
                done.latencies
                    .saturating_record((end - begin).as_nanos() as u64);
                begin = end;
            }
            Ok(done)
        };
        let results = on_threads(threads, work)?;
        let elapsed = start.elapsed();
        let done = next.into_inner().min(count);

        let (mut all, mut slices) = (latencies(), Vec::new());
        for written in results {
            all.add(&written.latencies).during("adding latencies")?;
            slices.resize(written.slices.len().max(slices.len()), 0);
            for (sum, count) in slices.iter_mut().zip(&written.slices) {
                *sum += count;
            }
        }
        let used = self.meter.since(before);
        let logical = (done * bytes_each) as f64;
        self.written = (before, logical);

        let mut record = self.record(phase, threads);
        record.set("documents", done as f64);
        record.set("seconds", elapsed.as_secs_f64());
        record.set("documents_per_s", done as f64 / elapsed.as_secs_f64());
        if let Some(speed) = speed_of_end(&slices, elapsed, done, 0.05) {
            record.set("last_5_percent_per_s", speed);
        }
        record.seconds = seconds_of(&slices);
        let mut full: Vec<u64> = record.seconds.clone();
        if full.len() > 1 {
            full.pop();
        }
        full.sort_unstable();
        record.set("worst_second", full.first().copied().unwrap_or(0) as f64);
        record.set(
            "median_second",
            full.get(full.len() / 2).copied().unwrap_or(0) as f64,
        );
        record.set_latencies(&all);
        record.set("cpu_s_per_million", used.cpu_s / done as f64 * 1e6);
        record.set("written_per_logical", used.write_bytes / logical);
        record.set(
            "device_written_per_logical",
            used.device_write_bytes / logical,
        );
        record.set("read_bytes_per_document", used.read_bytes / done as f64);
        self.set_space(&mut record);
        if done < count {
            record.notes.push(format!(
                "stopped at the time limit of {limit:?} with {done} of {count} done"
            ));
        }
        self.keep(&record)?;
        Ok(done)
    }

    /// Loads the documents from 0 on.
    pub fn load(&mut self, threads: usize) -> Result<()> {
        let count = self.limits.documents;
        let done = self.write_phase(
            "load",
            threads,
            count,
            DOCUMENT_BYTES,
            |engine, document| insert(engine, document, 0),
        )?;
        self.content.documents = done;
        Ok(())
    }

    /// Loads what a store would hold after deletions and replacements, in the order of its keys. False if
    /// that took too long.
    pub fn load_content(&mut self, content: Content) -> Result<bool> {
        let count = content.documents;
        let bytes = content.count() * DOCUMENT_BYTES / count.max(1);
        let done = self.write_phase("load", 1, count, bytes, |engine, document| {
            insert_content(engine, &content, document)
        })?;
        self.content = content;
        Ok(done == count)
    }

    /// Deletes the first part of a random order of the documents.
    pub fn delete(&mut self, order: Order, count: u64) -> Result<()> {
        let bytes = (PRIMARY_KEY_BYTES + SECONDARIES * SECONDARY_KEY_BYTES) as u64;
        let content = self.content.clone();
        let done = self.write_phase("delete", 1, count, bytes, |engine, number| {
            delete(engine, order.at(number), &content)
        })?;
        self.content.deleted = Some(Done::new(order, done));
        Ok(())
    }

    /// Replaces every document once, in a random order: a new value, and new secondary keys.
    pub fn replace(&mut self, order: Order) -> Result<()> {
        let round = self.content.replaced.len() as u32 + 1;
        let bytes = DOCUMENT_BYTES + (SECONDARIES * SECONDARY_KEY_BYTES) as u64;
        let content = self.content.clone();
        let phase = format!("replace-{round}");
        let done = self.write_phase(&phase, 1, order.count(), bytes, |engine, number| {
            let document = order.at(number);
            replace(engine, document, content.generation(document), round)
        })?;
        self.content.replaced.push(Done::new(order, done));
        Ok(())
    }

    /// Deletes the entries of a secondary table below a key, in one operation. False if the engine
    /// has none for that.
    pub fn cut(&mut self, table: usize, bound: [u8; SECONDARY_KEY_BYTES]) -> Result<bool> {
        let before = self.meter.now();
        let start = Instant::now();
        if !self.engine.delete_range(table, &[0], &bound)? {
            return Ok(false);
        }
        let mut record = self.record("delete-range", 1);
        record.set("seconds", start.elapsed().as_secs_f64());
        self.keep(&record)?;
        self.written = (before, SECONDARY_KEY_BYTES as f64 * 2.0);
        self.content.cut = Some((table, bound));
        Ok(true)
    }
}

fn slice_at(elapsed: Duration) -> usize {
    (elapsed.as_millis() as u64 * SLICES / 1000) as usize
}

/// Sums slices to seconds.
fn seconds_of(slices: &[u64]) -> Vec<u64> {
    slices
        .chunks(SLICES as usize)
        .map(|second| second.iter().sum())
        .collect()
}

/// The speed of the last part of the work, by interpolation within slices.
fn speed_of_end(slices: &[u64], elapsed: Duration, done: u64, part: f64) -> Option<f64> {
    let first = done as f64 * (1.0 - part);
    let mut sum = 0.0;
    for (slice, count) in slices.iter().enumerate() {
        let count = *count as f64;
        if sum + count >= first && count > 0.0 {
            let at = (slice as f64 + (first - sum) / count) / SLICES as f64;
            let seconds = elapsed.as_secs_f64() - at;
            return (seconds > 0.0).then(|| done as f64 * part / seconds);
        }
        sum += count;
    }
    None
}

fn insert(engine: &dyn Engine, document: u64, generation: u32) -> Result<()> {
    let key = primary_key(document);
    let value = value(document, generation);
    let keys: [_; SECONDARIES] =
        std::array::from_fn(|index| secondary_key(document, generation, index + 1));
    let batch: [Operation<'_>; TABLES] = std::array::from_fn(|table| match table {
        PRIMARY => Operation::Put(PRIMARY, &key, &value),
        table => Operation::Put(table, &keys[table - 1], &[]),
    });
    engine.write(&batch)
}

/// Inserts those entries of a document that a store must hold.
fn insert_content(engine: &dyn Engine, content: &Content, document: u64) -> Result<()> {
    if !content.has(document) {
        return Ok(());
    }
    let key = primary_key(document);
    let value: [u8; VALUE_BYTES] = value(document, content.generation(document));
    let keys: [_; SECONDARIES] = std::array::from_fn(|index| content.entry(document, index + 1));
    let mut batch = vec![Operation::Put(PRIMARY, &key, &value)];
    for (index, key) in keys.iter().enumerate() {
        if let Some(key) = key {
            batch.push(Operation::Put(index + 1, key, &[]));
        }
    }
    engine.write(&batch)
}

fn delete(engine: &dyn Engine, document: u64, content: &Content) -> Result<()> {
    let key = primary_key(document);
    let generation = content.generation(document);
    let keys: [_; SECONDARIES] =
        std::array::from_fn(|index| secondary_key(document, generation, index + 1));
    let batch: [Operation<'_>; TABLES] = std::array::from_fn(|table| match table {
        PRIMARY => Operation::Delete(PRIMARY, &key),
        table => Operation::Delete(table, &keys[table - 1]),
    });
    engine.write(&batch)
}

fn replace(engine: &dyn Engine, document: u64, old: u32, new: u32) -> Result<()> {
    let key = primary_key(document);
    let value = value(document, new);
    let keys_of = |generation| -> [[u8; SECONDARY_KEY_BYTES]; SECONDARIES] {
        std::array::from_fn(|index| secondary_key(document, generation, index + 1))
    };
    let (old_keys, new_keys) = (keys_of(old), keys_of(new));
    let mut batch = Vec::with_capacity(1 + 2 * SECONDARIES);
    batch.push(Operation::Put(PRIMARY, &key, &value));
    for (index, (old, new)) in old_keys.iter().zip(&new_keys).enumerate() {
        batch.push(Operation::Delete(index + 1, old));
        batch.push(Operation::Put(index + 1, new, &[]));
    }
    engine.write(&batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_come_from_slices() {
        // Two seconds of 100 a slice, then one of 10.
        let slices: Vec<u64> = [vec![100; 20], vec![10; 10]].concat();
        assert_eq!(seconds_of(&slices), [1000, 1000, 100]);
        let whole = Duration::from_secs(3);
        for (part, speed) in [(1.0, 2100.0 / 3.0), (100.0 / 2100.0, 100.0)] {
            let got = speed_of_end(&slices, whole, 2100, part).unwrap_or_default();
            assert!((got - speed).abs() < 1e-6, "{part}: {got}");
        }
        assert_eq!(speed_of_end(&[], whole, 0, 0.05), None);
        assert_eq!(slice_at(Duration::from_millis(1234)), 12);
    }
}
