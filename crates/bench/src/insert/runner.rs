//! One target's part of an insertion run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Work;
use super::reads::Reads;
use crate::documents::insertion::Generator;
use crate::harness::{Run, Runner, StepOutcome, Target, Workload};
use crate::load::Load;
use crate::meter::{Meter, Outcome};
use crate::progress::Progress;
use crate::random::SplitMix64;
use crate::report::Row;
use crate::sampler::Sampler;
use crate::system::Status;
use crate::system::{Session, Sizes};
use frond_client::{Collection, Result};

/// Keeps the random numbers of reads apart from those of documents.
const READS: u64 = 0x5245_4144;

pub struct InsertRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Generator,
    collection: Collection,
    watcher: Box<dyn Session>,
    workers: Vec<Worker>,
    meter: Meter,
    /// Of finds beside the inserts.
    finds: Meter,
    progress: Progress,
    rows: Vec<Row>,
    /// Documents that were there before.
    already: u64,
    next: u64,
    before: Status,
    after: Status,
    sizes: Sizes,
}

/// A connection, for inserts or for reads.
struct Worker {
    session: Box<dyn Session>,
    /// Where it reads; `None` for one that inserts.
    reads: Option<SplitMix64>,
}

pub struct Results {
    pub outcome: Outcome,
    pub finds: Outcome,
    pub rows: Vec<Row>,
    pub sizes: Sizes,
    /// Counters of the server before and after.
    pub status: [Status; 2],
}

impl<'a> InsertRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collection ready.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        source: &'a Generator,
    ) -> Result<Self> {
        let options = &run.options;
        let concern = target.concern(&work.write, 1)?;
        let mut watcher = target.watcher(run, concern.acknowledged, work.write.batch, source)?;
        let (collection, already) =
            target.collection(run, watcher.as_mut(), work.collection(), Some(work.keep))?;
        watcher.create(&collection, &work.definition())?;
        let before = watcher.status()?;
        let mut workers = Vec::new();
        for session in target.connect_all(usize::from(work.write.threads), &run.stop)? {
            workers.push(Worker {
                session,
                reads: None,
            });
        }
        for worker in &mut workers {
            worker.session.insert_into(&collection, concern)?;
        }
        for (number, session) in
            (0..).zip(target.connect_all(usize::from(work.readers), &run.stop)?)
        {
            workers.push(Worker {
                session,
                reads: Some(SplitMix64::new(options.seed ^ READS, number)),
            });
        }
        let documents = work.documents();
        let meter = Meter::start(documents, Arc::clone(&run.stop));
        meter.pause();
        let finds = Meter::start(u64::MAX, Arc::clone(&run.stop));
        finds.pause();
        Ok(InsertRunner {
            progress: Progress::new(target.label(), documents, "documents", options.quiet),
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
            already,
            next: 0,
            before,
            after: before,
            sizes: Sizes::default(),
        })
    }

    /// Checks the count, and reads the sizes after idle compaction.
    fn check_and_measure(&mut self) -> Result<()> {
        let expected = self.already + self.meter.documents();
        let watcher = self.watcher.as_mut();
        // Without acknowledgement, the count is the only proof that the documents are in.
        self.run.check_count(watcher, &self.collection, expected)?;
        self.after = self.run.wait_until_idle(watcher)?;
        self.sizes = self.watcher.sizes(&self.collection)?;
        Ok(())
    }
}

impl Runner for InsertRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        Results {
            outcome: self.meter.end(),
            finds: self.finds.end(),
            rows: self.rows,
            sizes: self.sizes,
            status: [self.before, self.after],
        }
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        let documents = self.work.documents();
        let end = (self.next + documents.div_ceil(u64::from(self.run.turns()))).min(documents);
        let load = Load::new(self.source, self.next..end, self.work.write.batch);
        self.next = end;
        let inserting = AtomicUsize::new(usize::from(self.work.write.threads));
        let (meter, finds) = (&self.meter, &self.finds);
        let reads = Reads {
            source: self.source,
            collection: &self.collection,
            fields: self.work.indexed_fields(),
            inserts: meter,
            finds,
            inserting: &inserting,
        };
        let mut own_time = meter.elapsed();
        let time_left = self.run.time_left(own_time);
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
        finds.go_on();
        let driven = sampler.drive(&mut self.workers, meter, time_left, |_, worker| {
            let session = worker.session.as_mut();
            if let Some(random) = &mut worker.reads {
                return reads.run(session, random);
            }
            let result = load.insert(session, meter);
            inserting.fetch_sub(1, Ordering::AcqRel);
            result
        });
        finds.pause();
        driven?;
        self.run.go_on()?;
        let done = self.next == documents;
        let time_is_up = self.run.time_left(self.meter.elapsed()).is_zero();
        if !done && !time_is_up {
            return Ok(StepOutcome::More);
        }
        self.check_and_measure()?;
        let whole = self.meter.documents() == documents;
        Ok(if whole {
            StepOutcome::Done
        } else {
            StepOutcome::TimeUp
        })
    }

    fn ended(&mut self) {
        // Connections are not needed any more, and the server can reuse their memory.
        self.workers.clear();
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), [&self.collection]);
    }
}
