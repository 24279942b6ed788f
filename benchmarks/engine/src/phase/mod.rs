//! The phases of a measurement, each with its record.

mod idle;
mod read;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::record::Record;
use crate::usage::{Meter, Usage};
use crate::workload::Content;

/// How long and how much.
#[derive(Clone, Debug)]
pub struct Limits {
    pub documents: u64,
    /// Length of a timed phase.
    pub phase: Duration,
    /// Longest time for a load, a deletion or a round of replacements.
    pub write: Duration,
    /// Longest time for a full scan.
    pub full_scan: Duration,
    /// Longest wait for the background work.
    pub compaction: Duration,
    /// Read everything once before reads are measured.
    pub warm_up: bool,
}

/// Runs `work` on threads, each with its number, until all are done.
pub fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let panicked = || Err(Error::Engine("a thread", "panicked".to_owned()));
        let results: Vec<Result<T>> = started
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panicked()))
            .collect();
        results.into_iter().collect()
    })
}

pub struct Bench {
    pub engine: Box<dyn Engine>,
    pub content: Content,
    /// Bounds of the phases.
    pub limits: Limits,
    pub folder: PathBuf,
    pub records: PathBuf,
    /// The fields that all records of this process share.
    pub template: Record,
    /// Stands before the names of phases.
    pub stage: &'static str,
    pub meter: Meter,
    /// Counters at the start of the newest phase that wrote, and the bytes of keys and values it
    /// has written.
    written: (Usage, f64),
}

impl Bench {
    /// A bench for an empty store.
    pub fn new(
        engine: Box<dyn Engine>,
        limits: Limits,
        folder: PathBuf,
        records: PathBuf,
        template: Record,
    ) -> Bench {
        let meter = Meter::new(&folder);
        Bench {
            engine,
            content: Content::default(),
            limits,
            folder,
            records,
            template,
            stage: "",
            written: (meter.now(), 0.0),
            meter,
        }
    }

    fn record(&self, phase: &str, threads: usize) -> Record {
        Record {
            phase: format!("{}{phase}", self.stage),
            threads,
            ..self.template.clone()
        }
    }

    /// Keeps a record and shows its figures.
    fn keep(&self, record: &Record) -> Result<()> {
        let shown = [
            "documents_per_s",
            "ops_per_s",
            "entries_per_s",
            "p99_us",
            "cpu_us_per_op",
            "cpu_s_per_million",
            "settle_s",
            "disk_mib",
        ];
        let figures: Vec<String> = shown
            .iter()
            .filter_map(|name| Some(format!("{name} {:.1}", record.values.get(*name)?)))
            .collect();
        eprintln!(
            "{} {} {} {} x{}: {} {}",
            record.engine,
            record.mode,
            record.scenario,
            record.phase,
            record.threads,
            figures.join(", "),
            record.notes.join("; "),
        );
        record.append(&self.records)
    }

    /// Records why the rest is not measured.
    pub fn remark(&self, text: &str) -> Result<()> {
        let mut record = self.record("not-measured", 0);
        record.notes.push(text.to_owned());
        self.keep(&record)
    }

    pub fn describe(&self) -> Result<()> {
        let mut record = self.record("settings", 0);
        record
            .notes
            .push(format!("version {}", self.engine.version()));
        record.notes.extend(self.engine.settings());
        self.keep(&record)
    }
}
