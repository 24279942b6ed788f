//! The phases of a run on one server: load, update, read, compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::model::Model;
use super::results::{Read, Round};
use super::{NAME, Verify, Work};
use crate::documents::manykeys::{Documents, Purpose, Schema, stream};
use crate::documents::updates;
use crate::harness::{Run, Target};
use crate::load::Load;
use crate::meter::{Meter, Outcome, Percentiles, latencies, record};
use crate::progress::Progress;
use crate::sampler::Sampler;
use crate::system::Status;
use crate::system::{Session, WriteConcern};
use frond_client::{Collection, Error, Result};

/// Default of `--compaction-wait`, in seconds.
const COMPACTION_WAIT: f64 = 60.0;

/// Speeds kept of a round.
const SPEEDS: u32 = 40;

/// A collection of a run, with its expected documents.
pub struct Dataset<'a> {
    pub collection: Collection,
    /// Generator of the documents that were loaded.
    pub documents: &'a Documents,
    /// Expected state after the updates.
    pub model: Model,
}

impl Dataset<'_> {
    pub fn schema(&self) -> Schema {
        self.documents.schema
    }
}

/// The connections to a server, and what all phases share.
pub struct Phases<'a> {
    pub run: &'a Run,
    pub work: &'a Work,
    pub target: &'a Target,
    /// Samples, reads and compares.
    pub watcher: Box<dyn Session>,
    pub workers: Vec<Box<dyn Session>>,
}

impl Phases<'_> {
    /// Inserts the documents, as many as the time allows.
    pub fn load(
        &mut self,
        dataset: &Dataset<'_>,
        concern: WriteConcern,
        allowed: Option<Duration>,
    ) -> Result<Outcome> {
        for worker in &mut self.workers {
            worker.insert_into(&dataset.collection, concern)?;
        }
        let documents = self.work.documents();
        let load = Load::new(dataset.documents, 0..documents, self.work.batch);
        let meter = &self.meter(documents);
        let name = format!("{NAME} {} load", dataset.schema().name());
        let insert = |_, session: &mut Box<dyn Session>| load.insert(session.as_mut(), meter);
        self.run(&name, meter, insert, (documents, "documents"), allowed)
    }

    /// One round of updates, as many of them as the time allows. They are made and encoded before the
    /// clock runs; it stops when the server has applied the last one.
    pub fn update(
        &mut self,
        dataset: &mut Dataset<'_>,
        concern: WriteConcern,
        number: u64,
        allowed: Option<Duration>,
    ) -> Result<Round> {
        let work = self.work;
        let updates = updates::round(
            self.run.options.seed,
            number,
            work.updates(),
            work.documents(),
            work.keys,
        );
        let count = self.workers.len();
        for (index, session) in self.workers.iter_mut().enumerate() {
            let mut mine = updates.iter().skip(index).step_by(count);
            session.encode(&dataset.collection, concern, dataset.documents, &mut mine)?;
        }
        let meter = &self.meter(work.updates());
        let played: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let execute = |index: usize, session: &mut Box<dyn Session>| {
            session.execute(&mut |elapsed| {
                meter.batch(1, elapsed);
                played[index].fetch_add(1, Ordering::Relaxed);
                !meter.stopping()
            })
        };
        let w = u8::from(concern.acknowledged);
        let name = format!("{NAME} {} w:{w}", dataset.schema().name());
        let outcome = self.run(&name, meter, execute, (work.updates(), "updates"), allowed)?;
        let mut left: Vec<u64> = played.into_iter().map(AtomicU64::into_inner).collect();
        for (n, update) in updates.iter().enumerate() {
            if let Some(left @ 1..) = left.get_mut(n % count) {
                *left -= 1;
                dataset.model.apply(n % count, update);
            }
        }
        dataset.model.next_round();
        let mut round = Round {
            updates: outcome.documents,
            elapsed: outcome.elapsed,
            latency: concern
                .acknowledged
                .then(|| Percentiles::from_latencies(&outcome.latencies)),
            speeds: Vec::new(),
        };
        round.speeds = if concern.acknowledged {
            speeds(&outcome)
        } else {
            // When an update was sent says nothing of when it was applied.
            vec![(0.0, round.per_s()), (1.0, round.per_s())]
        };
        Ok(round)
    }

    fn meter(&self, total: u64) -> Meter {
        Meter::start(total, Arc::clone(&self.run.stop))
    }

    /// Runs the part of each worker on a thread of its own. Returns the outcome, unless an error or the user ended it.
    fn run(
        &mut self,
        name: &str,
        meter: &Meter,
        work: impl Fn(usize, &mut Box<dyn Session>) -> Result<()> + Sync,
        (total, unit): (u64, &'static str),
        allowed: Option<Duration>,
    ) -> Result<Outcome> {
        let quiet = self.run.options.quiet || self.work.verbose;
        let label = format!("{}, {name}", self.target.label());
        let mut progress = Progress::new(&label, total, unit, quiet);
        let mut sampler = Sampler {
            run: self.run,
            name,
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut progress,
            own_time: &mut Duration::default(),
            others: 0,
            rows: None,
        };
        let time_left = allowed.unwrap_or(Duration::MAX);
        let driven = sampler.drive(&mut self.workers, meter, time_left, work);
        progress.finish();
        driven?;
        self.run.go_on()?;
        Ok(meter.end())
    }

    /// Finds random documents by `_id`: whole, or one key of each.
    pub fn read(&mut self, dataset: &Dataset<'_>, when: &'static str, whole: bool) -> Result<Read> {
        let work = self.work;
        let seed = self.run.options.seed;
        let mut random = stream(seed, Purpose::Reads, u64::from(whole));
        let (mut times, mut bytes) = (latencies(), 0);
        for _ in 0..work.reads {
            self.run.go_on()?;
            let number = random.below(work.documents());
            let key = random.below(u64::from(work.keys)) as usize;
            let path = dataset.documents.paths.get(key).map(String::as_str);
            let field = if whole { None } else { path };
            let id = dataset.documents.id(number);
            let (found, elapsed) = self.watcher.find_by_id(&dataset.collection, id, field)?;
            let found = found.ok_or_else(|| absent(number))?;
            if !self.target.is_null() && path.is_none_or(|path| found.path(path).is_none()) {
                let path = path.unwrap_or_default();
                return Err(Error::Wrong(format!("document {number} has no {path}")));
            }
            bytes += found.len_bytes() as u64;
            record(&mut times, elapsed);
        }
        Ok(Read {
            schema: dataset.schema(),
            when,
            whole,
            latency: Percentiles::from_latencies(&times),
            bytes: bytes / work.reads.max(1),
        })
    }

    /// Compares documents with the expected ones. Returns how many were compared.
    pub fn verify(&mut self, dataset: &Dataset<'_>) -> Result<u64> {
        let documents = self.work.documents();
        let collection = &dataset.collection;
        self.run
            .check_count(self.watcher.as_mut(), collection, documents)?;
        let mut numbers: Vec<u64> = (0..documents).collect();
        if let Verify::Some(count) = self.work.verify {
            let seed = self.run.options.seed;
            stream(seed, Purpose::Order, u64::MAX).shuffle(&mut numbers);
            numbers.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        let exact = self.watcher.keeps_order_and_types();
        for number in &numbers {
            self.run.go_on()?;
            let id = dataset.documents.id(*number);
            let (found, _) = self.watcher.find_by_id(collection, id, None)?;
            let found = found.ok_or_else(|| absent(*number))?;
            dataset
                .model
                .check(dataset.documents, *number, &found, exact)
                .map_err(|error| match error {
                    Error::Wrong(text) => Error::Wrong(format!("{collection}, {text}")),
                    other => other,
                })?;
        }
        Ok(numbers.len() as u64)
    }

    pub fn wait_until_idle(&mut self) -> Result<Status> {
        self.run
            .wait_until_idle_or(self.watcher.as_mut(), COMPACTION_WAIT)
    }
}

fn absent(number: u64) -> Error {
    Error::Wrong(format!("document {number} is not there"))
}

/// Speeds of the parts of a round.
fn speeds(outcome: &Outcome) -> Vec<(f64, f64)> {
    let part = |n: u32| f64::from(n) / f64::from(SPEEDS);
    (0..SPEEDS)
        .filter_map(|n| {
            let speed = outcome.timeline.speed_of_part(part(n), part(n + 1))?;
            Some(((part(n) + part(n + 1)) / 2.0, speed))
        })
        .collect()
}
