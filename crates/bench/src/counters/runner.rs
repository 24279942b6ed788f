//! One target's part of a run of counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Work;
use super::model::Model;
use crate::harness::{Run, Runner, StepOutcome, Target, Workload};
use crate::meter::{Meter, Outcome};
use crate::progress::{Progress, SECONDS};
use crate::random::SplitMix64;
use crate::report::Row;
use crate::sampler::Sampler;
use crate::system::{Session, Sizes};
use frond_client::{Collection, Error, Result};

/// Keep the random numbers of reads, and of the comparison, apart from those of additions.
const READS: u64 = 0x5245_4144;
const COMPARISON: u64 = 0x434f_4d50;

/// Counters of one insert before the additions.
const INSERT: usize = 1000;

/// Additions for the points of the timeline.
const EXPECTED: u64 = 10_000_000;

pub struct Results {
    /// The first part adds in batches, the second one adds to single counters.
    pub parts: [Part; 2],
    /// Counters that were compared at the end.
    pub compared: u64,
    /// Counters, and the sum of their values.
    pub total: Option<(u64, i64)>,
    pub sizes: Sizes,
}

pub struct Part {
    pub outcome: Outcome,
    pub reads: Outcome,
    pub rows: Vec<Row>,
}

/// The measurements of a part.
struct Meters {
    additions: Meter,
    reads: Meter,
    rows: Vec<Row>,
    done: Duration,
}

pub struct CountersRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    collection: Collection,
    watcher: Box<dyn Session>,
    workers: Vec<Worker>,
    progress: Progress,
    model: Model,
    loaded: bool,
    /// The first part adds in batches, the second one adds to single counters.
    parts: [Meters; 2],
    own_time: Duration,
    compared: u64,
    total: Option<(u64, i64)>,
    sizes: Sizes,
}

struct Worker {
    session: Box<dyn Session>,
    random: SplitMix64,
    reads: bool,
}

impl Meters {
    fn new(run: &Run) -> Meters {
        let meter = |total| {
            let meter = Meter::start(total, Arc::clone(&run.stop));
            meter.pause();
            meter
        };
        Meters {
            additions: meter(EXPECTED),
            reads: meter(u64::MAX),
            rows: Vec::new(),
            done: Duration::ZERO,
        }
    }
}

impl<'a> CountersRunner<'a> {
    /// Connects and makes the collection.
    pub fn open(run: &'a Run, target: &'a Target, work: &'a Work) -> Result<Self> {
        let options = &run.options;
        let mut watcher = target.connect(&run.stop)?;
        let (collection, _) = target.collection(run, watcher.as_mut(), &work.collection, None)?;
        watcher.create_counters(&collection, work.fast_updates)?;
        let mut workers = Vec::new();
        for (reads, count, seed) in [
            (false, work.threads, options.seed),
            (true, work.readers, options.seed ^ READS),
        ] {
            for (number, session) in (0..).zip(target.connect_all(usize::from(count), &run.stop)?) {
                workers.push(Worker {
                    session,
                    random: SplitMix64::new(seed, number),
                    reads,
                });
            }
        }
        let seconds = (work.seconds + work.single_seconds).ceil() as u64;
        Ok(CountersRunner {
            progress: Progress::new(target.label(), seconds, SECONDS, options.quiet),
            run,
            target,
            work,
            collection,
            watcher,
            workers,
            model: Model::new(work.counters()),
            loaded: false,
            parts: [Meters::new(run), Meters::new(run)],
            own_time: Duration::ZERO,
            compared: 0,
            total: None,
            sizes: Sizes::default(),
        })
    }

    /// Inserts the counters that are there before the additions.
    fn load(&mut self) -> Result<()> {
        let work = self.work;
        let there = (0..work.counters()).filter(|key| work.is_preloaded(*key));
        let mut batch = Vec::with_capacity(INSERT);
        for key in there {
            batch.push(key as i64);
            if batch.len() == INSERT {
                self.run.go_on()?;
                self.watcher.insert_counters(&self.collection, &batch)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            self.watcher.insert_counters(&self.collection, &batch)?;
        }
        self.run.wait_until_idle(self.watcher.as_mut())?;
        Ok(())
    }

    /// Adds for a turn's time.
    fn add(&mut self, part: usize) -> Result<()> {
        let (work, is_null) = (self.work, self.target.is_null());
        let batch = if part == 0 { work.batch as usize } else { 1 };
        let Meters {
            additions: meter,
            reads,
            rows,
            done,
        } = &mut self.parts[part];
        let whole = work.time(part == 0);
        let turn = whole / self.run.turns();
        let time = turn
            .min(whole.saturating_sub(*done))
            .min(self.run.time_left(self.own_time));
        let adding = AtomicUsize::new(usize::from(work.threads));
        let (model, collection) = (&self.model, &self.collection);
        let (meter, reads) = (&*meter, &*reads);
        let before = self.own_time;
        let mut sampler = Sampler {
            run: self.run,
            name: work.name(),
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: Some(rows),
        };
        reads.go_on();
        let driven = sampler.drive(&mut self.workers, meter, time, |_, worker| {
            let session = worker.session.as_mut();
            let random = &mut worker.random;
            if worker.reads {
                while adding.load(Ordering::Acquire) > 0 && !meter.stopping() {
                    let key = model.key(random.below(model.len()));
                    let start = Instant::now();
                    check(session, collection, model, key, is_null)?;
                    reads.batch(1, start.elapsed());
                }
                return Ok(());
            }
            let mut keys = vec![0; batch];
            let result = loop {
                if meter.stopping() {
                    break Ok(());
                }
                for key in &mut keys {
                    *key = random.below(work.counters()) as i64;
                }
                model.begin(&keys);
                let start = Instant::now();
                if let Err(error) = session.increment(collection, &keys) {
                    break Err(error);
                }
                model.acknowledge(&keys);
                meter.batch(batch as u64, start.elapsed());
            };
            adding.fetch_sub(1, Ordering::AcqRel);
            result
        });
        reads.pause();
        *done += self.own_time.saturating_sub(before).max(time);
        driven?;
        Ok(())
    }

    /// Compares counters and their sum with the model.
    fn compare(&mut self) -> Result<()> {
        let session = self.watcher.as_mut();
        session.drain()?;
        let mut random = SplitMix64::new(self.run.options.seed ^ COMPARISON, 0);
        let all = self.model.len();
        for number in 0..self.work.compare.min(all) {
            self.run.go_on()?;
            let number = if self.work.compare < all {
                random.below(all)
            } else {
                number
            };
            check(
                session,
                &self.collection,
                &self.model,
                self.model.key(number),
                false,
            )?;
            self.compared += 1;
        }
        if !self.work.skip_sum {
            let (counters, sum) = session.total(&self.collection)?;
            let expected = self.model.total();
            if sum as u64 != expected {
                return Err(Error::Wrong(format!(
                    "the counters of {} add up to {sum} instead of {expected}",
                    self.collection
                )));
            }
            self.total = Some((counters, sum));
        }
        Ok(())
    }
}

/// Reads a counter. A value that it cannot have is an error; a null server has none.
fn check(
    session: &mut dyn Session,
    collection: &Collection,
    model: &Model,
    key: i64,
    is_null: bool,
) -> Result<()> {
    let least = model.least(key);
    let value = match session.counter(collection, key) {
        Err(Error::Wrong(_)) if is_null => None,
        value => value?,
    };
    let greatest = model.greatest(key);
    let found = value.unwrap_or(0);
    if !is_null && !(least..=greatest).contains(&found) {
        return Err(Error::Wrong(format!(
            "counter {key} of {collection} is {value:?}, and must be from {least} to {greatest}"
        )));
    }
    Ok(())
}

impl Runner for CountersRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        Results {
            parts: self.parts.map(|part| Part {
                outcome: part.additions.end(),
                reads: part.reads.end(),
                rows: part.rows,
            }),
            compared: self.compared,
            total: self.total,
            sizes: self.sizes,
        }
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        if !self.loaded {
            self.load()?;
            self.loaded = true;
            return Ok(StepOutcome::More);
        }
        let part = (0..2).find(|part| self.parts[*part].done < self.work.time(*part == 0));
        let time_is_up = self.run.time_left(self.own_time).is_zero();
        if let Some(part) = part
            && !time_is_up
        {
            self.add(part)?;
            self.run.go_on()?;
            return Ok(StepOutcome::More);
        }
        if !self.target.is_null() {
            self.compare()?;
            self.run.wait_until_idle(self.watcher.as_mut())?;
            self.sizes = self.watcher.sizes(&self.collection)?;
        }
        Ok(if part.is_some() {
            StepOutcome::TimeUp
        } else {
            StepOutcome::Done
        })
    }

    fn ended(&mut self) {
        self.workers.clear();
        self.progress.finish();
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), [&self.collection]);
    }
}
