//! The parts of a run on one server: load, update, read, compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::document::{Documents, Purpose, Schema, stream};
use super::model::Model;
use super::results::{Read, Round};
use super::updates;
use super::{NAME, Verify, Work};
use crate::collection::Collection;
use crate::contest::Contest;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::meter::{Meter, Outcome, Percentiles, latencies, record};
use crate::monitor::Status;
use crate::progress::Progress;
use crate::system::{Session, WriteConcern, settle};
use crate::threads::with_each;
use crate::watch::Watch;

/// Longest wait for rest, in seconds, when nobody says.
const SETTLE: f64 = 60.0;

/// Speeds kept of a round.
const SPEEDS: u32 = 40;

/// A collection of a run, with what it must hold.
pub struct Subject<'a> {
    /// Where it is.
    pub collection: Collection,
    /// What it was loaded with.
    pub documents: &'a Documents,
    /// What was done to it.
    pub model: Model,
}

impl Subject<'_> {
    /// Its schema.
    #[must_use]
    pub fn schema(&self) -> Schema {
        self.documents.schema
    }
}

/// The connections to a server, and what all parts need.
pub struct Bench<'a> {
    /// The run.
    pub contest: &'a Contest,
    /// The settings.
    pub work: &'a Work,
    /// How reports call the server.
    pub label: &'a str,
    /// It stores nothing.
    pub null: bool,
    /// Looks on, reads and compares.
    pub watcher: Box<dyn Session>,
    /// Load and update.
    pub workers: Vec<Box<dyn Session>>,
}

impl Bench<'_> {
    /// Inserts the documents, as many as the time allows.
    pub fn load(
        &mut self,
        subject: &Subject<'_>,
        concern: WriteConcern,
        allowed: Option<Duration>,
    ) -> Result<Outcome> {
        for worker in &mut self.workers {
            worker.insert_into(&subject.collection, concern)?;
        }
        let documents = self.work.documents();
        let load = Load::new(subject.documents, 0..documents, self.work.batch);
        let meter = self.meter(documents);
        let name = format!("{NAME} {} load", subject.schema().name());
        let insert = |_, session: &mut Box<dyn Session>| load.insert(session.as_mut(), &meter);
        self.run(&name, &meter, insert, (documents, "documents"), allowed)?;
        self.ended(meter)
    }

    /// One round of updates, as many of them as the time allows. They are made and encoded before the
    /// clock runs; it stops when the server has applied the last one.
    pub fn update(
        &mut self,
        subject: &mut Subject<'_>,
        concern: WriteConcern,
        number: u64,
        allowed: Option<Duration>,
    ) -> Result<Round> {
        let work = self.work;
        let updates = updates::round(
            self.contest.servers.seed,
            number,
            work.updates(),
            work.documents(),
            work.keys,
        );
        let count = self.workers.len();
        for (index, session) in self.workers.iter_mut().enumerate() {
            let mut mine = updates.iter().skip(index).step_by(count);
            session.encode(&subject.collection, concern, subject.documents, &mut mine)?;
        }
        let meter = self.meter(work.updates());
        let played: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let play = |index: usize, session: &mut Box<dyn Session>| {
            session.play(&mut |elapsed| {
                meter.batch(1, elapsed);
                if let Some(played) = played.get(index) {
                    played.fetch_add(1, Ordering::Relaxed);
                }
                !meter.stopping()
            })
        };
        let w = u8::from(concern.acknowledged);
        let name = format!("{NAME} {} w:{w}", subject.schema().name());
        self.run(&name, &meter, play, (work.updates(), "updates"), allowed)?;
        let outcome = self.ended(meter)?;
        let mut left: Vec<u64> = played.into_iter().map(AtomicU64::into_inner).collect();
        for (n, update) in updates.iter().enumerate() {
            if let Some(left @ 1..) = left.get_mut(n % count) {
                *left -= 1;
                subject.model.apply(n % count, update);
            }
        }
        subject.model.next_round();
        let mut round = Round {
            updates: outcome.documents,
            elapsed: outcome.elapsed,
            latency: concern
                .acknowledged
                .then(|| Percentiles::of(&outcome.latencies)),
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
        Meter::start(total, Arc::clone(&self.contest.stop))
    }

    /// Lets each worker do its part on a thread of its own, and looks on.
    fn run(
        &mut self,
        name: &str,
        meter: &Meter,
        work: impl Fn(usize, &mut Box<dyn Session>) -> Result<()> + Sync,
        (total, unit): (u64, &'static str),
        allowed: Option<Duration>,
    ) -> Result<()> {
        let quiet = self.contest.servers.quiet || self.work.verbose;
        let label = format!("{}, {name}", self.label);
        let mut progress = Progress::new(&label, total, unit, quiet);
        let mut watch = Watch {
            contest: self.contest,
            name,
            label: self.label,
            watcher: self.watcher.as_mut(),
            progress: &mut progress,
            own_time: Duration::ZERO,
            time_left: allowed.unwrap_or(Duration::MAX),
            others: 0,
            rows: None,
        };
        let result = with_each(&mut self.workers, meter, work, |all_done| {
            watch.until(meter, all_done)
        });
        // What counts is when the last connection was done.
        meter.pause();
        progress.finish();
        result
    }

    /// The outcome of a part, unless an error or the user ended it.
    fn ended(&self, meter: Meter) -> Result<Outcome> {
        let mut outcome = meter.end();
        if let Some(error) = outcome.error.take() {
            return Err(error);
        }
        self.contest.go_on()?;
        Ok(outcome)
    }

    /// Finds random documents by `_id`: whole, or one key of each.
    pub fn read(&mut self, subject: &Subject<'_>, when: &'static str, whole: bool) -> Result<Read> {
        let work = self.work;
        let seed = self.contest.servers.seed;
        let mut random = stream(seed, Purpose::Reads, u64::from(whole));
        let (mut times, mut bytes) = (latencies(), 0);
        for _ in 0..work.reads {
            self.contest.go_on()?;
            let number = random.below(work.documents());
            let key = random.below(u64::from(work.keys)) as usize;
            let path = subject.documents.paths.get(key).map(String::as_str);
            let field = if whole { None } else { path };
            let id = subject.documents.id(number);
            let (found, elapsed) = self.watcher.find_by_id(&subject.collection, id, field)?;
            let found = found.ok_or_else(|| absent(number))?;
            if !self.null && path.is_none_or(|path| found.path(path).is_none()) {
                let path = path.unwrap_or_default();
                return Err(Error::Wrong(format!("document {number} has no {path}")));
            }
            bytes += found.len_bytes() as u64;
            record(
                &mut times,
                u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            );
        }
        Ok(Read {
            schema: subject.schema(),
            when,
            whole,
            latency: Percentiles::of(&times),
            bytes: bytes / work.reads.max(1),
        })
    }

    /// Compares documents with what they must hold; how many were compared.
    pub fn verify(&mut self, subject: &Subject<'_>) -> Result<u64> {
        let documents = self.work.documents();
        let collection = &subject.collection;
        let counted = self.watcher.count(collection)?;
        if counted != documents {
            return Err(Error::Wrong(format!(
                "{collection} holds {counted} documents instead of {documents}"
            )));
        }
        let mut numbers: Vec<u64> = (0..documents).collect();
        if let Verify::Some(count) = self.work.verify {
            let seed = self.contest.servers.seed;
            stream(seed, Purpose::Order, u64::MAX).shuffle(&mut numbers);
            numbers.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        let exact = self.watcher.keeps_order_and_types();
        for number in &numbers {
            self.contest.go_on()?;
            let id = subject.documents.id(*number);
            let (found, _) = self.watcher.find_by_id(collection, id, None)?;
            let found = found.ok_or_else(|| absent(*number))?;
            subject
                .model
                .check(subject.documents, *number, &found, exact)
                .map_err(|error| match error {
                    Error::Wrong(text) => Error::Wrong(format!("{collection}, {text}")),
                    other => other,
                })?;
        }
        Ok(numbers.len() as u64)
    }

    /// Waits until the server rests.
    pub fn settle(&mut self) -> Result<Status> {
        let longest = self.contest.servers.longest_settle_or(SETTLE);
        let go_on = || self.contest.go_on();
        settle(self.watcher.as_mut(), longest, &go_on)
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
