//! One target's part of a run without and with an index.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::Value;
use frond_client::{Collection, Error, Result};

use super::options::Work;
use crate::documents::indexcost::{Documents, WANTED};
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::load::Load;
use crate::meter::{Meter, rate};
use crate::progress::Progress;
use crate::sampler::Sampler;
use crate::system::{Definition, Find, From, Index, Session, Sizes, WriteConcern};

/// The index of the original.
const INDEX: Index = Index::on(&["name"]);

/// A batch in one of the two collections.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub documents: u64,
    /// Until the server had worked on all of them.
    pub elapsed: Duration,
    /// Duration of each find; empty in a batch that was cut off.
    pub finds: Vec<Duration>,
    /// Documents that each of them found.
    pub found: u64,
    /// Size of the collection after the batch.
    pub sizes: Sizes,
}

impl Batch {
    pub fn rate(&self) -> Option<f64> {
        rate(self.documents, self.elapsed)
    }
}

#[derive(Default)]
pub struct Results {
    pub acknowledged: bool,
    /// Each batch without and with the index.
    pub batches: Vec<[Batch; 2]>,
    /// Sizes of the collections after idle compaction.
    pub at_rest: Option<[Sizes; 2]>,
}

/// One of the two collections.
struct Side {
    collection: Collection,
    meter: Meter,
}

pub struct IndexcostRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Documents,
    concern: WriteConcern,
    /// Without and with the index.
    sides: [Side; 2],
    /// Finds, counts and takes sizes.
    watcher: Box<dyn Session>,
    workers: Vec<Box<dyn Session>>,
    progress: Progress,
    next: u32,
    own_time: Duration,
    results: Results,
}

impl<'a> IndexcostRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collections.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        source: &'a Documents,
    ) -> Result<Self> {
        let options = &run.options;
        let concern = target.concern(&work.write, 0)?;
        let mut watcher = target.watcher(run, concern.acknowledged, work.write.batch, source)?;
        let mut side = |name: &str, indexes: &[Index]| -> Result<Side> {
            let (collection, _) = target.collection(run, watcher.as_mut(), name, None)?;
            watcher.create(&collection, &Definition::with_indexes(indexes))?;
            let meter = Meter::start(work.documents(), Arc::clone(&run.stop));
            meter.pause();
            Ok(Side { collection, meter })
        };
        let [plain, indexed] = work.collections();
        let sides = [side(&plain, &[])?, side(&indexed, &[INDEX])?];
        let workers = target.connect_all(usize::from(work.write.threads), &run.stop)?;
        let (label, documents) = (target.label(), work.documents() * 2);
        Ok(IndexcostRunner {
            progress: Progress::new(label, documents, "documents", options.quiet),
            run,
            target,
            work,
            source,
            concern,
            sides,
            watcher,
            workers,
            next: 0,
            own_time: Duration::ZERO,
            results: Results {
                acknowledged: concern.acknowledged,
                ..Results::default()
            },
        })
    }

    /// Inserts a batch into one of the collections, and returns when the server has worked on all
    /// of it.
    fn insert(&mut self, batch: u32, which: usize) -> Result<Batch> {
        let time_left = self.run.time_left(self.own_time);
        let others: u64 = self.sides.iter().map(|side| side.meter.documents()).sum();
        let Side { collection, meter } = &self.sides[which];
        for session in &mut self.workers {
            session.insert_into(collection, self.concern)?;
        }
        let load = Load::new(self.source, self.work.numbers(batch), self.work.write.batch);
        let before = meter.documents();
        let names = ["indexcost without", "indexcost with"];
        let mut sampler = Sampler {
            run: self.run,
            name: names[which],
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut self.own_time,
            others: others - before,
            rows: None,
        };
        let elapsed = sampler.drive(&mut self.workers, meter, time_left, |_, session| {
            load.insert(session.as_mut(), meter)
        })?;
        self.run
            .check_count(self.watcher.as_mut(), collection, meter.documents())?;
        Ok(Batch {
            documents: meter.documents() - before,
            elapsed,
            ..Batch::default()
        })
    }

    /// Finds by name, each find counted and timed, and reads the sizes of the collection.
    fn look(&mut self, which: usize, expected: u64, batch: &mut Batch) -> Result<()> {
        if self.target.is_null() {
            return Ok(());
        }
        let collection = &self.sides[which].collection;
        let find = Find {
            field: "name",
            from: From::Equal(Value::String(WANTED)),
            limit: 0,
        };
        for _ in 0..self.work.finds {
            self.run.go_on()?;
            let start = Instant::now();
            batch.found = self.watcher.find(collection, &find)?;
            batch.finds.push(start.elapsed());
            if batch.found != expected {
                return Err(Error::Wrong(format!(
                    "{collection}: {} documents of {WANTED} instead of {expected}",
                    batch.found
                )));
            }
        }
        batch.sizes = self.watcher.sizes(collection)?;
        Ok(())
    }

    /// Sizes when the server has written everything.
    fn rest(&mut self) -> Result<()> {
        if self.target.is_null() {
            return Ok(());
        }
        self.run.wait_until_idle(self.watcher.as_mut())?;
        let mut sizes = [Sizes::default(); 2];
        for (side, sizes) in self.sides.iter().zip(&mut sizes) {
            *sizes = self.watcher.sizes(&side.collection)?;
        }
        self.results.at_rest = Some(sizes);
        Ok(())
    }
}

impl Runner for IndexcostRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        self.results
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        let number = self.next;
        self.next += 1;
        let numbers = self.work.numbers(number);
        let size = numbers.end - numbers.start;
        // The one that comes first does so in every other batch, so that drift affects both alike.
        let order = if number.is_multiple_of(2) {
            [0, 1]
        } else {
            [1, 0]
        };
        let at = self.results.batches.len();
        self.results.batches.push(Default::default());
        let mut whole = true;
        for which in order {
            if self.run.time_left(self.own_time).is_zero() {
                whole = false;
                break;
            }
            let batch = self.insert(number, which)?;
            whole &= batch.documents == size;
            self.results.batches[at][which] = batch;
            self.run.go_on()?;
        }
        if whole {
            let expected = self.source.wanted(numbers.end);
            for which in order {
                let mut batch = std::mem::take(&mut self.results.batches[at][which]);
                let looked = self.look(which, expected, &mut batch);
                self.results.batches[at][which] = batch;
                looked?;
            }
        }
        let done = self.next == self.work.batches && whole;
        if !done && !self.run.time_left(self.own_time).is_zero() {
            return Ok(StepOutcome::More);
        }
        self.rest()?;
        Ok(if done {
            StepOutcome::Done
        } else {
            StepOutcome::TimeUp
        })
    }

    fn ended(&mut self) {
        // Connections are not needed any more, and the server can reuse their memory.
        self.workers.clear();
        self.progress.finish();
        let collections = self.sides.iter().map(|side| &side.collection);
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), collections);
    }
}
