//! One target's part of a run with reads beside a writer.

use std::sync::Arc;
use std::time::Duration;

use super::options::Work;
use super::pace::Pace;
use super::reads::{Meters, Reads};
use crate::documents::insertion::Generator;
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::load::Load;
use crate::meter::{Meter, Outcome};
use crate::progress::Progress;
use crate::random::SplitMix64;
use crate::report::Row;
use crate::sampler::Sampler;
use crate::system::{Session, Sizes};
use frond_client::{Collection, Result};

/// Keeps the random numbers of reads apart from those of documents.
const READS: u64 = 0x5245_4144;

/// Finds for the points of the timeline of a phase.
const EXPECTED: u64 = 1_000_000;

/// Indexes of the phases in lists of two.
pub const ALONE: usize = 0;
pub const BESIDE: usize = 1;

pub struct Results {
    pub load: Outcome,
    /// Without the writer, and beside it.
    pub phases: [Finds; 2],
    pub writes: Outcome,
    /// The rate that the writers keep to, in documents per second; `None` sets no limit.
    pub writes_per_s: Option<f64>,
    pub rows: Vec<Row>,
    pub sizes: Sizes,
}

/// The finds of a phase.
pub struct Finds {
    pub all: Outcome,
    pub points: Outcome,
    pub ranges: Outcome,
}

/// The measurements of a phase.
struct Phase {
    /// All finds; its clock is that of the phase.
    all: Meter,
    kinds: Meters,
}

struct Worker {
    session: Box<dyn Session>,
    job: Job,
}

enum Job {
    /// The number among the connections that insert.
    Insert(u64),
    Read(u64, SplitMix64),
}

pub struct MixedRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Generator,
    collection: Collection,
    watcher: Box<dyn Session>,
    writers: Vec<Worker>,
    readers: Vec<Worker>,
    load: Meter,
    phases: [Phase; 2],
    writes: Meter,
    writes_per_s: Option<f64>,
    /// The documents after those of the load.
    more: Load<'a>,
    progress: Progress,
    rows: Vec<Row>,
    rounds: u32,
    own_time: Duration,
    sizes: Sizes,
}

/// A meter whose clock stands still.
fn paused(run: &Run, total: u64) -> Meter {
    let meter = Meter::start(total, Arc::clone(&run.stop));
    meter.pause();
    meter
}

impl Phase {
    fn new(run: &Run) -> Phase {
        Phase {
            all: paused(run, EXPECTED),
            kinds: Meters {
                points: paused(run, EXPECTED),
                ranges: paused(run, EXPECTED),
            },
        }
    }

    fn end(&self) -> Finds {
        Finds {
            all: self.all.end(),
            points: self.kinds.points.end(),
            ranges: self.kinds.ranges.end(),
        }
    }
}

impl<'a> MixedRunner<'a> {
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
        watcher.create(&collection, &work.definition())?;
        let connect = |count: u16| target.connect_all(usize::from(count), &run.stop);
        let mut writers = Vec::new();
        for (number, mut session) in (0..).zip(connect(work.write.threads)?) {
            session.insert_into(&collection, concern)?;
            let job = Job::Insert(number);
            writers.push(Worker { session, job });
        }
        let mut readers = Vec::new();
        for (number, session) in (0..).zip(connect(work.readers)?) {
            let random = SplitMix64::new(options.seed ^ READS, number);
            let job = Job::Read(number, random);
            readers.push(Worker { session, job });
        }
        let documents = work.documents();
        let end = u64::MAX - u64::from(u32::MAX);
        Ok(MixedRunner {
            progress: Progress::new(target.label(), documents, "documents", options.quiet),
            run,
            target,
            work,
            source,
            collection,
            watcher,
            writers,
            readers,
            load: paused(run, documents),
            phases: [Phase::new(run), Phase::new(run)],
            writes: paused(run, documents),
            writes_per_s: None,
            more: Load::new(source, documents..end, work.write.batch),
            rows: Vec::new(),
            rounds: 0,
            own_time: Duration::ZERO,
            sizes: Sizes::default(),
        })
    }

    /// Inserts the documents that are there before the reads.
    fn fill(&mut self) -> Result<()> {
        let load = Load::new(self.source, 0..self.work.documents(), self.work.write.batch);
        let meter = &self.load;
        let mut sampler = Sampler {
            run: self.run,
            name: "mixed load",
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: None,
        };
        let time_left = self.run.time_left(Duration::ZERO);
        sampler.drive(&mut self.writers, meter, time_left, |_, worker| {
            load.insert(worker.session.as_mut(), meter)
        })?;
        self.run.go_on()?;
        let watcher = self.watcher.as_mut();
        self.run
            .check_count(watcher, &self.collection, self.load.documents())?;
        self.run.wait_until_idle(watcher)?;
        self.writes_per_s = self.work.writes_per_s(self.load.speed_of_part(0.5, 1.0));
        Ok(())
    }

    /// Finds for half of a round, beside the writers or without them.
    fn read(&mut self, phase: usize) -> Result<()> {
        let (work, beside) = (self.work, phase == BESIDE);
        let Phase { all, kinds } = &self.phases[phase];
        let (writes, more) = (&self.writes, &self.more);
        let reads = Reads {
            source: self.source,
            collection: &self.collection,
            loaded: self.load.documents(),
            fields: work.indexed_fields(),
            checked: !self.target.is_null(),
            meters: kinds,
        };
        let batches = self
            .writes_per_s
            .map(|speed| speed / f64::from(work.write.batch));
        let (read_rate, connections) = (work.read_rate, work.readers);
        let mut sampler = Sampler {
            run: self.run,
            name: if beside {
                "mixed beside"
            } else {
                "mixed alone"
            },
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: beside.then_some(&mut self.rows),
        };
        let writers = if beside {
            &mut self.writers[..]
        } else {
            &mut []
        };
        let mut workers: Vec<&mut Worker> = self.readers.iter_mut().chain(writers).collect();
        for meter in [&kinds.points, &kinds.ranges] {
            meter.go_on();
        }
        if beside {
            writes.go_on();
        }
        let driven = sampler.drive(&mut workers, all, work.time(), |_, worker| {
            let session = worker.session.as_mut();
            match &mut worker.job {
                Job::Read(number, random) => {
                    let pace =
                        (read_rate > 0.0).then(|| Pace::shared(read_rate, connections, *number));
                    reads.run(session, random, pace, all)
                }
                Job::Insert(number) => {
                    let pace =
                        batches.map(|per_s| Pace::shared(per_s, work.write.threads, *number));
                    insert(more, session, pace, all, writes)
                }
            }
        });
        for meter in [&kinds.points, &kinds.ranges, writes] {
            meter.pause();
        }
        driven?;
        Ok(())
    }
}

/// Inserts batches when they are due, until the phase ends.
fn insert(
    load: &Load<'_>,
    session: &mut dyn Session,
    mut pace: Option<Pace>,
    phase: &Meter,
    writes: &Meter,
) -> Result<()> {
    load.insert_when(session, writes, || match &mut pace {
        None => !phase.stopping(),
        Some(pace) => {
            let most = pace.every();
            pace.next(phase, most).is_some()
        }
    })
}

impl Runner for MixedRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        Results {
            load: self.load.end(),
            phases: [self.phases[ALONE].end(), self.phases[BESIDE].end()],
            writes: self.writes.end(),
            writes_per_s: self.writes_per_s,
            rows: self.rows,
            sizes: self.sizes,
        }
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        if self.load.documents() == 0 {
            self.fill()?;
            return Ok(StepOutcome::More);
        }
        if self.run.time_left(self.own_time).is_zero() {
            return Ok(StepOutcome::TimeUp);
        }
        for phase in [ALONE, BESIDE] {
            self.read(phase)?;
            self.run.go_on()?;
        }
        // The next half without the writer begins after the work that it left.
        self.run.wait_until_idle(self.watcher.as_mut())?;
        self.rounds += 1;
        if self.rounds < self.work.rounds {
            return Ok(StepOutcome::More);
        }
        self.sizes = self.watcher.sizes(&self.collection)?;
        Ok(StepOutcome::Done)
    }

    fn ended(&mut self) {
        self.writers.clear();
        self.readers.clear();
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), [&self.collection]);
    }
}
