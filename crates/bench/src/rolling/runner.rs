//! One target's part of a run with documents of a limited lifetime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::options::{DATE, Work};
use crate::documents::insertion::{CreatedNow, Generator, now_ms};
use crate::harness::{Run, Runner, StepOutcome, Target, Workload};
use crate::insert::reads::Reads;
use crate::load::Load;
use crate::meter::{Meter, Outcome};
use crate::progress::{Progress, SECONDS};
use crate::random::SplitMix64;
use crate::report::Row;
use crate::sampler::Sampler;
use crate::system::{Session, Sizes};
use frond_client::{Collection, Result};

/// Keeps the random numbers of reads apart from those of documents.
const READS: u64 = 0x5245_4144;

/// A run of several minutes inserts about this many documents. The timeline scales its points to that.
const EXPECTED: u64 = 20_000_000;

/// Between two counts of the backlog.
const BETWEEN_COUNTS: Duration = Duration::from_secs(5);
/// Between two batches of the client's deletes, if nothing is left to delete.
const BETWEEN_DELETES: Duration = Duration::from_millis(200);
/// Between two looks at whether the run has ended.
const NAP: Duration = Duration::from_millis(50);

/// The state at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub elapsed: Duration,
    /// Documents that have expired and are still there.
    pub backlog: u64,
}

pub struct Results {
    pub outcome: Outcome,
    pub finds: Outcome,
    pub rows: Vec<Row>,
    pub samples: Vec<Sample>,
    /// Documents and sizes when the first document was about to expire.
    pub full: Option<Stock>,
    pub last: Option<Stock>,
}

/// The contents of a collection at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stock {
    /// Documents inserted so far.
    pub inserted: u64,
    /// The part of these documents that has not expired.
    pub retained: u64,
    pub sizes: Sizes,
}

pub struct RollingRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Generator,
    collection: Collection,
    watcher: Box<dyn Session>,
    workers: Vec<Worker>,
    meter: Meter,
    finds: Meter,
    progress: Progress,
    rows: Vec<Row>,
    shared: Shared,
}

/// The figures that the threads collect.
#[derive(Default)]
struct Shared {
    samples: Mutex<Vec<Sample>>,
    full: Mutex<Option<Stock>>,
    last: Mutex<Option<Stock>>,
}

/// A connection and its job.
struct Worker {
    session: Box<dyn Session>,
    job: Job,
}

enum Job {
    Insert,
    Read(SplitMix64),
    /// Removes what has expired.
    Expire,
    Count,
}

impl<'a> RollingRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collection.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        source: &'a Generator,
    ) -> Result<Self> {
        let options = &run.options;
        let concern = target.concern(&work.write, 1)?;
        let mut watcher = target.watcher(run, concern.acknowledged, work.write.batch, source)?;
        let (collection, _) = target.collection(run, watcher.as_mut(), &work.collection, None)?;
        let mut definition = work.definition();
        if target.is_null() {
            // Nothing expires there.
            definition.retention = None;
        }
        watcher.create(&collection, &definition)?;
        let mut workers = Vec::new();
        for mut session in target.connect_all(usize::from(work.write.threads), &run.stop)? {
            session.insert_into(&collection, concern)?;
            workers.push(Worker {
                session,
                job: Job::Insert,
            });
        }
        for (number, session) in
            (0..).zip(target.connect_all(usize::from(work.readers), &run.stop)?)
        {
            let random = SplitMix64::new(options.seed ^ READS, number);
            workers.push(Worker {
                session,
                job: Job::Read(random),
            });
        }
        if !target.is_null() {
            for job in [Job::Expire, Job::Count] {
                let session = target.connect(&run.stop)?;
                workers.push(Worker { session, job });
            }
        }
        let meter = Meter::start(EXPECTED, Arc::clone(&run.stop));
        meter.pause();
        let finds = Meter::start(u64::MAX, Arc::clone(&run.stop));
        finds.pause();
        let seconds = work.time().as_secs();
        Ok(RollingRunner {
            progress: Progress::new(target.label(), seconds, SECONDS, options.quiet),
            run,
            target,
            work,
            source,
            collection,
            watcher,
            workers,
            meter,
            finds,
            rows: Vec::new(),
            shared: Shared::default(),
        })
    }

    /// Waits until a moment of the run. False if the run ends before.
    fn wait(meter: &Meter, until: Duration) -> bool {
        loop {
            if meter.stopping() {
                return false;
            }
            let left = until.saturating_sub(meter.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// The removal of expired documents beside inserts and reads.
struct Removal<'a> {
    work: &'a Work,
    collection: &'a Collection,
    meter: &'a Meter,
    shared: &'a Shared,
}

impl Removal<'_> {
    /// Does the client's part of the removal until the run ends.
    fn expire(&self, session: &mut dyn Session) -> Result<()> {
        while !self.meter.stopping() {
            let more = session.expire(self.collection, &self.work.retain(), now_ms())?;
            if !more && !RollingRunner::wait(self.meter, self.meter.elapsed() + BETWEEN_DELETES) {
                break;
            }
        }
        Ok(())
    }

    /// Counts the backlog again and again, and the stock before the first document expires and at the end.
    fn count(&self, session: &mut dyn Session) -> Result<()> {
        // A moment before, so that nothing has expired when the sizes are read.
        let full_at = self.work.first_period().mul_f64(0.95);
        let mut next = BETWEEN_COUNTS;
        loop {
            let is_full = lock(&self.shared.full).is_some();
            let at = if is_full { next } else { next.min(full_at) };
            if !RollingRunner::wait(self.meter, at) {
                break;
            }
            if !is_full && at == full_at {
                let inserted = self.meter.documents();
                let stock = Stock {
                    inserted,
                    retained: inserted,
                    sizes: session.sizes(self.collection)?,
                };
                *lock(&self.shared.full) = Some(stock);
                continue;
            }
            self.sample(session)?;
            next = self.meter.elapsed() + BETWEEN_COUNTS;
        }
        // The moment of the end, when the other threads are ending.
        let sample = self.sample(session)?;
        let sizes = session.sizes(self.collection)?;
        let inserted = self.meter.documents();
        let there = match sizes.documents {
            Some(documents) => documents,
            None => session.count(self.collection)?,
        };
        *lock(&self.shared.last) = Some(Stock {
            inserted,
            retained: there.saturating_sub(sample.backlog),
            sizes: Sizes {
                documents: Some(there),
                ..sizes
            },
        });
        Ok(())
    }

    fn sample(&self, session: &mut dyn Session) -> Result<Sample> {
        let before_ms = now_ms().saturating_sub(u64::from(self.work.retention()) * 1000);
        let elapsed = self.meter.elapsed();
        let backlog = session.count_before(self.collection, DATE, before_ms)?;
        let sample = Sample { elapsed, backlog };
        lock(&self.shared.samples).push(sample);
        Ok(sample)
    }
}

/// A thread that panicked leaves figures that are still good to report.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runner for RollingRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        let into = |stock: Mutex<Option<Stock>>| {
            stock.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let samples = self.shared.samples.into_inner();
        Results {
            outcome: self.meter.end(),
            finds: self.finds.end(),
            rows: self.rows,
            samples: samples.unwrap_or_else(PoisonError::into_inner),
            full: into(self.shared.full),
            last: into(self.shared.last),
        }
    }

    /// The whole run: documents expire by the time of day, so that a server cannot pause.
    fn turn(&mut self) -> Result<StepOutcome> {
        let source = CreatedNow(self.source);
        let load = Load::new(
            &source,
            0..u64::MAX - u64::from(u32::MAX),
            self.work.write.batch,
        );
        let inserting = AtomicUsize::new(usize::from(self.work.write.threads));
        let (meter, finds) = (&self.meter, &self.finds);
        let fields = self.work.found_by();
        let reads = Reads {
            source: self.source,
            collection: &self.collection,
            fields: &fields,
            inserts: meter,
            finds,
            inserting: &inserting,
        };
        let removal = Removal {
            work: self.work,
            collection: &self.collection,
            meter,
            shared: &self.shared,
        };
        let whole = self.work.time();
        let time = self.run.time_left(Duration::ZERO).min(whole);
        let mut own_time = Duration::ZERO;
        let mut sampler = Sampler {
            run: self.run,
            name: self.work.name(),
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut own_time,
            others: 0,
            rows: Some(&mut self.rows),
        };
        // Other servers may have had their turns since the partitions were made.
        sampler
            .watcher
            .expire(&self.collection, &self.work.retain(), now_ms())?;
        finds.go_on();
        let driven = sampler.drive(&mut self.workers, meter, time, |_, worker| {
            let session = worker.session.as_mut();
            match &mut worker.job {
                Job::Insert => {
                    let result = load.insert(session, meter);
                    inserting.fetch_sub(1, Ordering::AcqRel);
                    result
                }
                Job::Read(random) => reads.run(session, random),
                Job::Expire => removal.expire(session),
                Job::Count => removal.count(session),
            }
        });
        finds.pause();
        driven?;
        self.run.go_on()?;
        Ok(if time < whole {
            StepOutcome::TimeUp
        } else {
            StepOutcome::Done
        })
    }

    fn ended(&mut self) {
        self.workers.clear();
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), [&self.collection]);
    }
}
