//! One server's part of an insertion run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Work;
use super::reads::Reads;
use crate::collection::Collection;
use crate::contest::{Contest, Contestant, Ending, Lane, Turn};
use crate::document::{Generator, Source};
use crate::error::{Error, Result};
use crate::load::Load;
use crate::meter::{Meter, Outcome};
use crate::monitor::Status;
use crate::progress::Progress;
use crate::random::SplitMix64;
use crate::report::Row;
use crate::system::{Session, Sizes, settle};
use crate::threads::with_each;
use crate::watch::Watch;

/// Keeps the random numbers of reads apart from those of documents.
const READS: u64 = 0x5245_4144;

/// Connections, and what was done so far.
pub struct InsertLane<'a> {
    contest: &'a Contest,
    contestant: &'a Contestant,
    work: &'a Work,
    source: &'a Generator,
    collection: Collection,
    /// Looks on and counts.
    watcher: Box<dyn Session>,
    workers: Vec<Worker>,
    meter: Meter,
    /// Of finds beside the inserts.
    finds: Meter,
    progress: Progress,
    rows: Vec<Row>,
    /// Documents that were there before.
    already: u64,
    /// The next document's number.
    next: u64,
    before: Status,
    after: Status,
    sizes: Sizes,
    ending: Ending,
}

/// A connection and what it does.
struct Worker {
    session: Box<dyn Session>,
    /// Where it reads; `None` for one that inserts.
    reads: Option<SplitMix64>,
}

/// What a lane leaves.
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// Documents, times, latencies.
    pub outcome: Outcome,
    /// Finds beside them.
    pub finds: Outcome,
    /// The trace.
    pub rows: Vec<Row>,
    /// What the collection takes.
    pub sizes: Sizes,
    /// What the server counted before and after.
    pub status: [Status; 2],
}

impl<'a> InsertLane<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collection ready.
    pub fn open(
        contest: &'a Contest,
        contestant: &'a Contestant,
        work: &'a Work,
        source: &'a Generator,
    ) -> Result<Self> {
        let servers = &contest.servers;
        let collection = contestant.collection(servers.db.as_deref(), work.collection())?;
        let concern = contestant.concern(work.write_concern, work.journal, 1)?;
        let mut watcher = contestant.connect(&contest.stop)?;
        watcher.check_batch(concern.acknowledged, work.batch, source.document_bytes())?;
        if servers.drop {
            watcher.drop_collection(&collection)?;
        }
        let already = watcher.count(&collection)?;
        if already > 0 && !work.keep {
            return Err(Error::Settings(format!(
                "{collection} of {} holds {already} documents: --drop drops them, --keep keeps them",
                contestant.label
            )));
        }
        watcher.create(&collection, &work.definition())?;
        let before = watcher.status()?;
        let mut workers = Vec::new();
        for session in contestant.connect_all(usize::from(work.threads), &contest.stop)? {
            workers.push(Worker {
                session,
                reads: None,
            });
        }
        for worker in &mut workers {
            worker.session.insert_into(&collection, concern)?;
        }
        for (number, session) in
            (0..).zip(contestant.connect_all(usize::from(work.readers), &contest.stop)?)
        {
            workers.push(Worker {
                session,
                reads: Some(SplitMix64::new(servers.seed ^ READS, number)),
            });
        }
        let documents = work.documents();
        let meter = Meter::start(documents, Arc::clone(&contest.stop));
        meter.pause();
        let finds = Meter::start(0, Arc::clone(&contest.stop));
        finds.pause();
        Ok(InsertLane {
            progress: Progress::new(&contestant.label, documents, "documents", servers.quiet),
            contest,
            contestant,
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
            ending: Ending::Open,
        })
    }

    /// What is left of it.
    #[must_use]
    pub fn end(self) -> Ended {
        self.progress.finish();
        Ended {
            ending: self.ending,
            outcome: self.meter.end(),
            finds: self.finds.end(),
            rows: self.rows,
            sizes: self.sizes,
            status: [self.before, self.after],
        }
    }

    fn time_is_up(&self) -> bool {
        let limit = self.contest.limit();
        limit.is_some_and(|limit| self.meter.elapsed() >= limit)
    }

    /// Counts, and asks what the collection takes.
    fn look(&mut self) -> Result<()> {
        // This is what a run without acknowledgement has to show for itself.
        let expected = self.already + self.meter.documents();
        let counted = self.watcher.count(&self.collection)?;
        if counted != expected {
            return Err(Error::Wrong(format!(
                "{} holds {counted} documents instead of {expected}",
                self.collection
            )));
        }
        let longest = self.contest.servers.longest_settle();
        let go_on = || self.contest.go_on();
        self.after = settle(self.watcher.as_mut(), longest, &go_on)?;
        self.sizes = self.watcher.sizes(&self.collection)?;
        Ok(())
    }
}

impl Lane for InsertLane<'_> {
    fn turn(&mut self) -> Result<Turn> {
        let documents = self.work.documents();
        let end = (self.next + documents.div_ceil(u64::from(self.contest.turns()))).min(documents);
        let load = Load::new(self.source, self.next..end, self.work.batch);
        self.next = end;
        let limit = self.contest.limit();
        let Self {
            workers,
            meter,
            finds,
            watcher,
            contest,
            contestant,
            work,
            progress,
            rows,
            source,
            collection,
            ..
        } = self;
        let own_time = meter.elapsed();
        let mut watch = Watch {
            contest,
            name: work.name(),
            label: &contestant.label,
            watcher: watcher.as_mut(),
            progress,
            own_time,
            time_left: limit.map_or(Duration::MAX, |limit| limit.saturating_sub(own_time)),
            others: 0,
            rows: Some(rows),
        };
        let inserting = AtomicUsize::new(usize::from(work.threads));
        let fields = work.indexed_fields();
        let reads = Reads {
            source,
            collection,
            fields,
            inserts: meter,
            finds,
            inserting: &inserting,
        };
        meter.go_on();
        finds.go_on();
        let watched = with_each(
            workers,
            meter,
            |_, worker| match &mut worker.reads {
                Some(random) => reads.run(worker.session.as_mut(), random),
                None => {
                    let result = load.insert(worker.session.as_mut(), meter);
                    inserting.fetch_sub(1, Ordering::AcqRel);
                    result
                }
            },
            |all_done| watch.until(meter, all_done),
        );
        meter.pause();
        finds.pause();
        watched?;
        if let Some(error) = self.meter.take_error() {
            return Err(error);
        }
        self.contest.go_on()?;
        let done = self.next == documents;
        let time_is_up = self.time_is_up();
        if !done && !time_is_up {
            return Ok(Turn::More);
        }
        self.look()?;
        let whole = self.meter.documents() == documents;
        Ok(if whole { Turn::Done } else { Turn::TimeUp })
    }

    fn ended(&mut self, ending: Ending) {
        self.ending = ending;
        // Connections are not needed any more, and the server may want their memory.
        self.workers.clear();
        if let Err(error) = self.contest.leave(self.watcher.as_mut(), &self.collection) {
            eprintln!("frond bench: {}: {error}", self.contestant.label);
        }
    }
}
