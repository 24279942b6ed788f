//! One target's part of a run of Sysbench: load, transactions at each thread level, sizes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::options::Work;
use super::tally::{Level, Tally};
use super::transaction::{Dataset, Worker};
use crate::documents::Source;
use crate::documents::sysbench::Documents;
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::load::Load;
use crate::meter::{Meter, Percentiles};
use crate::progress::{Progress, SECONDS};
use crate::random::SplitMix64;
use crate::report::Row;
use crate::sampler::Sampler;
use crate::system::{Compression, Definition, Index, Session, Sizes, WriteConcern};
use frond_client::Result;

/// The index of the original.
const INDEX: Index = Index::on(&["k"]);

/// A part of the work, done in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    /// Loads some of them, from this one on.
    Load(usize),
    Loaded,
    Run {
        level: usize,
        slice: u32,
    },
    Ran,
}

fn steps(work: &Work, turns: u32) -> Vec<(usize, Step)> {
    let (slices, _) = work.slices(turns);
    let mut steps = Vec::new();
    for index in 0..work.compressions().len() {
        let mut add = |step: Step| steps.push((index, step));
        add(Step::Create);
        let together = usize::from(work.load_threads);
        (0..work.collections as usize)
            .step_by(together)
            .for_each(|first| add(Step::Load(first)));
        add(Step::Loaded);
        if index > 0 && !work.run_each {
            continue;
        }
        for level in 0..work.threads.len() {
            (0..slices).for_each(|slice| add(Step::Run { level, slice }));
        }
        add(Step::Ran);
    }
    steps
}

/// Size of all collections together.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The compression that was asked for.
    pub compression: Option<Compression>,
    /// After the run, or after the load.
    pub after_run: bool,
    pub sizes: Sizes,
}

#[derive(Clone, Debug)]
pub struct Loaded {
    /// The compression that was asked for.
    pub compression: Option<Compression>,
    pub documents: u64,
    pub elapsed: Duration,
    pub latency: Percentiles,
}

#[derive(Default)]
pub struct Results {
    pub loads: Vec<Loaded>,
    pub levels: Vec<Level>,
    /// Sizes, in the order in which they were taken.
    pub sizes: Vec<Size>,
    /// The trace of transactions, of all levels one after the other.
    pub rows: Vec<Row>,
}

pub struct SysbenchRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    dataset: Dataset,
    /// Samples, creates collections, reads sizes.
    watcher: Box<dyn Session>,
    loaders: Vec<Box<dyn Session>>,
    threads: Vec<Box<dyn Session>>,
    steps: std::vec::IntoIter<(usize, Step)>,
    meter: Option<Meter>,
    tally: Option<Tally>,
    /// The compression at hand.
    compression: Option<Compression>,
    own_time: Duration,
    run_time: Duration,
    slices: u64,
    progress: Option<Progress>,
    results: Results,
}

impl<'a> SysbenchRunner<'a> {
    /// Connects, and refuses settings that this server would refuse.
    pub fn open(run: &'a Run, target: &'a Target, work: &'a Work) -> Result<Self> {
        let options = &run.options;
        let documents = work.documents();
        let mut watcher = target.connect(&run.stop)?;
        let mut collections = Vec::new();
        for number in 1..=work.collections {
            let name = format!("sbtest{number}");
            let (collection, _) = target.collection(run, watcher.as_mut(), &name, None)?;
            collections.push((collection, Documents::new(options.seed, number, documents)));
        }
        if let Some((_, documents)) = collections.first() {
            watcher.check_batch(true, work.batch, documents.document_bytes())?;
        }
        Ok(SysbenchRunner {
            run,
            target,
            work,
            dataset: Dataset {
                collections,
                documents,
                missing_allowed: None,
            },
            watcher,
            loaders: Vec::new(),
            threads: Vec::new(),
            steps: steps(work, run.turns()).into_iter(),
            meter: None,
            tally: None,
            compression: None,
            own_time: Duration::ZERO,
            run_time: Duration::ZERO,
            slices: 0,
            progress: None,
            results: Results::default(),
        })
    }

    fn create(&mut self, compression: usize) -> Result<()> {
        let asked = self.work.compressions();
        self.compression = asked.get(compression).copied().flatten();
        let definition = Definition {
            indexes: vec![INDEX],
            compression: self.compression,
            ..Definition::default()
        };
        for (collection, _) in &self.dataset.collections {
            self.run.go_on()?;
            // Collections of an earlier compression were created by this run.
            if self.run.options.drop || compression > 0 {
                self.watcher.drop_collection(collection)?;
            }
            self.watcher.create(collection, &definition)?;
        }
        let total = u64::from(self.work.documents()) * u64::from(self.work.collections);
        let meter = Meter::start(total, Arc::clone(&self.run.stop));
        meter.pause();
        self.meter = Some(meter);
        self.show_of(total, "documents");
        Ok(())
    }

    /// Begins to show something else.
    fn show_of(&mut self, total: u64, unit: &'static str) {
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        let quiet = self.run.options.quiet;
        let progress = Progress::new(self.target.label(), total, unit, quiet);
        self.progress = Some(progress.from(self.own_time));
    }

    fn load(&mut self, first: usize) -> Result<()> {
        let concern = WriteConcern::ACKNOWLEDGED;
        let together = usize::from(self.work.load_threads);
        let collections = self.dataset.collections.iter().skip(first).take(together);
        let documents = 0..u64::from(self.work.documents());
        let mut loads = Vec::new();
        for (index, (collection, source)) in collections.enumerate() {
            if self.loaders.len() <= index {
                let session = self.target.connect(&self.run.stop)?;
                self.loaders.push(session);
            }
            self.loaders[index].insert_into(collection, concern)?;
            loads.push(Load::new(source, documents.clone(), self.work.batch));
        }
        let time_left = self.run.time_left(self.own_time);
        let (Some(meter), Some(progress)) = (&self.meter, &mut self.progress) else {
            return Ok(());
        };
        let mut sampler = Sampler {
            run: self.run,
            name: "sysbench load",
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: None,
        };
        let sessions = &mut self.loaders[..loads.len()];
        sampler.drive(sessions, meter, time_left, |index, session| {
            loads[index].insert(session.as_mut(), meter)
        })?;
        self.run.go_on()
    }

    /// Adds the load, complete or not, to the results.
    fn keep_load(&mut self) {
        let Some(meter) = self.meter.take() else {
            return;
        };
        let outcome = meter.end();
        self.results.loads.push(Loaded {
            compression: self.compression,
            documents: outcome.documents,
            elapsed: outcome.elapsed,
            latency: Percentiles::from_latencies(&outcome.latencies),
        });
    }

    fn keep_level(&mut self) {
        let tally = self.tally.take();
        self.results.levels.extend(tally.map(|tally| tally.level()));
    }

    /// Runs transactions, a thread for each session, until the time is up. A transaction that has
    /// begun is done to its end, so that no document stays deleted.
    fn run(&mut self, threads: u16, first: bool) -> Result<()> {
        if first {
            self.keep_level();
            self.tally = Some(Tally::new(self.compression, threads, &self.run.stop));
        }
        let count = usize::from(threads);
        while self.threads.len() < count {
            self.run.go_on()?;
            let session = self.target.connect(&self.run.stop)?;
            self.threads.push(session);
        }
        // A document is gone for a moment while a thread replaces it; a thread that is alone sees
        // all of them. Reading 100 takes so long that one thread may replace two meanwhile.
        let others = u64::from(threads - 1);
        self.dataset.missing_allowed = (!self.target.is_null()).then_some(others * 2);
        let (_, time) = self.work.slices(self.run.turns());
        let time = time.min(self.run.time_left(self.own_time));
        self.slices += 1;
        let (Some(tally), Some(progress)) = (&self.tally, &mut self.progress) else {
            return Ok(());
        };
        let name = format!("sysbench {}", threads_name(threads));
        let own_before = self.own_time;
        let mut rows = Vec::new();
        let mut sampler = Sampler {
            run: self.run,
            name: &name,
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: Some(&mut rows),
        };
        let (started, worked) = (Instant::now(), AtomicU64::new(0));
        let (dataset, meter) = (&self.dataset, &tally.meter);
        let (seed, slice) = (self.run.options.seed, self.slices);
        let work = |index: usize, session: &mut Box<dyn Session>| -> Result<()> {
            // A thread's numbers are its own, however many threads a slice has.
            let stream = (slice << 16) | index as u64;
            let mut worker = Worker::new(dataset, SplitMix64::new(seed, stream));
            while started.elapsed() < time && !meter.stopping() {
                tally.count(&worker.transaction(session.as_mut())?);
            }
            let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            worked.fetch_add(nanos, Ordering::Relaxed);
            Ok(())
        };
        let sessions = &mut self.threads[..count];
        let driven = sampler.drive(sessions, meter, Duration::MAX, work);
        let worked = Duration::from_nanos(worked.into_inner());
        tally.slice(worked / u32::from(threads.max(1)));
        let own_before = own_before.as_secs_f64();
        let shift = self.run_time.as_secs_f64() - own_before;
        let mut last = own_before;
        for row in rows {
            // The rest of an interval after all threads are done says little about speed.
            let seconds = row.elapsed_s - std::mem::replace(&mut last, row.elapsed_s);
            if seconds > self.run.options.report_every / 2.0 {
                let elapsed_s = row.elapsed_s + shift;
                self.results.rows.push(Row { elapsed_s, ..row });
            }
        }
        self.run_time += driven?;
        self.run.go_on()
    }

    /// Checks the counts, waits for idle compaction, and reads sizes.
    fn take_sizes(&mut self, after_run: bool) -> Result<()> {
        if self.target.is_null() {
            return Ok(());
        }
        let expected = u64::from(self.work.documents());
        for (collection, _) in &self.dataset.collections {
            self.run
                .check_count(self.watcher.as_mut(), collection, expected)?;
        }
        self.run.wait_until_idle(self.watcher.as_mut())?;
        let mut sum = Sizes::default();
        for (index, (collection, _)) in self.dataset.collections.iter().enumerate() {
            let sizes = self.watcher.sizes(collection)?;
            sum = if index == 0 { sizes } else { add(&sum, &sizes) };
        }
        self.results.sizes.push(Size {
            compression: self.compression,
            after_run,
            sizes: sum,
        });
        Ok(())
    }

    fn step(&mut self, compression: usize, step: Step) -> Result<()> {
        match step {
            Step::Create => self.create(compression),
            Step::Load(first) => self.load(first),
            Step::Loaded => {
                self.keep_load();
                self.loaders.clear();
                self.take_sizes(false)?;
                let levels = self.work.threads.len() as f64;
                self.show_of((levels * self.work.seconds).ceil() as u64, SECONDS);
                Ok(())
            }
            Step::Run { level, slice } => self.run(self.work.threads[level], slice == 0),
            Step::Ran => {
                self.keep_level();
                self.threads.clear();
                self.take_sizes(true)
            }
        }
    }
}

impl Runner for SysbenchRunner<'_> {
    type Results = Results;

    fn into_results(mut self) -> Results {
        self.keep_load();
        self.keep_level();
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        self.results
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        let Some((compression, step)) = self.steps.next() else {
            return Ok(StepOutcome::Done);
        };
        self.step(compression, step)?;
        if self.steps.len() == 0 {
            return Ok(StepOutcome::Done);
        }
        if !self.run.time_left(self.own_time).is_zero() {
            return Ok(StepOutcome::More);
        }
        // A run without its last slices still has its sizes.
        if self.tally.is_some() {
            self.step(compression, Step::Ran)?;
        }
        Ok(StepOutcome::TimeUp)
    }

    fn ended(&mut self) {
        // Connections are not needed any more, and the server can reuse their memory.
        self.loaders.clear();
        self.threads.clear();
        if let Some(progress) = self.progress.take() {
            progress.finish();
        }
        let collections = self.dataset.collections.iter().map(|(name, _)| name);
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), collections);
    }
}

pub fn threads_name(threads: u16) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    }
}

/// Total of two sizes, if both are known.
fn add(one: &Sizes, other: &Sizes) -> Sizes {
    let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
    Sizes {
        documents: sum(one.documents, other.documents),
        logical_bytes: sum(one.logical_bytes, other.logical_bytes),
        storage_bytes: sum(one.storage_bytes, other.storage_bytes),
        index_bytes: sum(one.index_bytes, other.index_bytes),
    }
}
