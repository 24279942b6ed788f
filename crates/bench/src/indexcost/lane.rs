//! One server's part of a run without and with an index.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::Value;

use super::document::{Documents, WANTED};
use super::options::Work;
use crate::collection::Collection;
use crate::contest::{Contest, Contestant, Ending, Lane, Turn};
use crate::document::Source;
use crate::error::{Error, Result};
use crate::load::Load;
use crate::meter::Meter;
use crate::progress::Progress;
use crate::system::{Definition, Find, From, Index, Session, Sizes, WriteConcern, settle};
use crate::threads::with_each;
use crate::watch::Watch;

/// The index of the original.
const INDEX: Index = Index {
    fields: &["name"],
    multikey: false,
};

/// A batch in one of the two collections.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Documents that went in.
    pub documents: u64,
    /// Until the server had worked on all of them.
    pub elapsed: Duration,
    /// How long each find took; none in a batch that was cut off.
    pub finds: Vec<Duration>,
    /// Documents that each of them found.
    pub found: u64,
    /// What the collection takes after it.
    pub sizes: Sizes,
}

impl Batch {
    /// Documents a second.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0 && self.documents > 0).then(|| self.documents as f64 / seconds)
    }
}

/// What a lane leaves.
#[derive(Default)]
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// Whether inserts were acknowledged.
    pub acknowledged: bool,
    /// Each batch without and with the index.
    pub batches: Vec<[Batch; 2]>,
    /// What the collections take when the server is at rest.
    pub at_rest: Option<[Sizes; 2]>,
}

/// One of the two collections.
struct Side {
    collection: Collection,
    meter: Meter,
}

/// Connections, and what was done so far.
pub struct IndexcostLane<'a> {
    contest: &'a Contest,
    contestant: &'a Contestant,
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
    ended: Ended,
}

impl<'a> IndexcostLane<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collections.
    pub fn open(
        contest: &'a Contest,
        contestant: &'a Contestant,
        work: &'a Work,
        source: &'a Documents,
    ) -> Result<Self> {
        let servers = &contest.servers;
        let concern = contestant.concern(work.write_concern, work.journal, 0)?;
        let mut watcher = contestant.connect(&contest.stop)?;
        watcher.check_batch(concern.acknowledged, work.batch, source.document_bytes())?;
        let mut side = |name: &str, indexes: Vec<Index>| -> Result<Side> {
            let collection = contestant.collection(servers.db.as_deref(), name)?;
            if servers.drop {
                watcher.drop_collection(&collection)?;
            }
            let already = watcher.count(&collection)?;
            if already > 0 {
                return Err(Error::Settings(format!(
                    "{collection} of {} holds {already} documents: --drop drops them",
                    contestant.label
                )));
            }
            let definition = Definition {
                indexes,
                compression: None,
            };
            watcher.create(&collection, &definition)?;
            let meter = Meter::start(work.documents(), Arc::clone(&contest.stop));
            meter.pause();
            Ok(Side { collection, meter })
        };
        let [plain, indexed] = work.collections();
        let sides = [side(&plain, Vec::new())?, side(&indexed, vec![INDEX])?];
        let workers = contestant.connect_all(usize::from(work.threads), &contest.stop)?;
        let (label, documents) = (&contestant.label, work.documents() * 2);
        Ok(IndexcostLane {
            progress: Progress::new(label, documents, "documents", servers.quiet),
            contest,
            contestant,
            work,
            source,
            concern,
            sides,
            watcher,
            workers,
            next: 0,
            own_time: Duration::ZERO,
            ended: Ended {
                acknowledged: concern.acknowledged,
                ..Ended::default()
            },
        })
    }

    /// What is left of it.
    #[must_use]
    pub fn end(self) -> Ended {
        self.progress.finish();
        self.ended
    }

    fn is_null(&self) -> bool {
        self.contestant.description.null
    }

    /// What is left of the longest time that a server may take.
    fn time_left(&self) -> Duration {
        let limit = self.contest.limit().unwrap_or(Duration::MAX);
        limit.saturating_sub(self.own_time)
    }

    /// Inserts a batch into one of the collections, and returns when the server has worked on all
    /// of it.
    fn insert(&mut self, batch: u32, which: usize) -> Result<Batch> {
        let time_left = self.time_left();
        let others: u64 = self.sides.iter().map(|side| side.meter.documents()).sum();
        let Some(Side { collection, meter }) = self.sides.get(which) else {
            return Ok(Batch::default());
        };
        for session in &mut self.workers {
            session.insert_into(collection, self.concern)?;
        }
        let load = Load::new(self.source, self.work.numbers(batch), self.work.batch);
        let before = (meter.elapsed(), meter.documents());
        let mut watch = Watch {
            contest: self.contest,
            name: ["indexcost without", "indexcost with"]
                .get(which)
                .copied()
                .unwrap_or_default(),
            label: &self.contestant.label,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: self.own_time,
            time_left,
            others: others - before.1,
            rows: None,
        };
        meter.go_on();
        let watched = with_each(
            &mut self.workers,
            meter,
            |_, session| load.insert(session.as_mut(), meter),
            |all_done| watch.until(meter, all_done),
        );
        meter.pause();
        let elapsed = meter.elapsed().saturating_sub(before.0);
        self.own_time += elapsed;
        watched?;
        if let Some(error) = meter.take_error() {
            return Err(error);
        }
        let counted = self.watcher.count(collection)?;
        if counted != meter.documents() {
            return Err(Error::Wrong(format!(
                "{collection} holds {counted} documents instead of {}",
                meter.documents()
            )));
        }
        Ok(Batch {
            documents: meter.documents() - before.1,
            elapsed,
            ..Batch::default()
        })
    }

    /// Finds by name, each find counted and timed, and asks what the collection takes.
    fn look(&mut self, which: usize, expected: u64, batch: &mut Batch) -> Result<()> {
        if self.is_null() {
            return Ok(());
        }
        let Some(Side { collection, .. }) = self.sides.get(which) else {
            return Ok(());
        };
        let find = Find {
            field: "name",
            from: From::Equal(Value::String(WANTED)),
            limit: 0,
        };
        for _ in 0..self.work.finds {
            self.contest.go_on()?;
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
        if self.is_null() {
            return Ok(());
        }
        let longest = self.contest.servers.longest_settle();
        let go_on = || self.contest.go_on();
        settle(self.watcher.as_mut(), longest, &go_on)?;
        let mut sizes = [Sizes::default(); 2];
        for (side, sizes) in self.sides.iter().zip(&mut sizes) {
            *sizes = self.watcher.sizes(&side.collection)?;
        }
        self.ended.at_rest = Some(sizes);
        Ok(())
    }
}

impl Lane for IndexcostLane<'_> {
    fn turn(&mut self) -> Result<Turn> {
        let number = self.next;
        self.next += 1;
        let numbers = self.work.numbers(number);
        let size = numbers.end - numbers.start;
        // The one that comes first does so in every other batch, so that both have the same luck.
        let order = if number.is_multiple_of(2) {
            [0, 1]
        } else {
            [1, 0]
        };
        self.ended.batches.push(Default::default());
        let mut whole = true;
        for which in order {
            if self.time_left().is_zero() {
                whole = false;
                break;
            }
            let batch = self.insert(number, which)?;
            whole &= batch.documents == size;
            if let Some(kept) = self.ended.batches.last_mut().and_then(|b| b.get_mut(which)) {
                *kept = batch;
            }
            self.contest.go_on()?;
        }
        if whole {
            let expected = self.source.wanted(numbers.end);
            let mut batches = self.ended.batches.pop().unwrap_or_default();
            let looked = order
                .into_iter()
                .try_for_each(|which| match batches.get_mut(which) {
                    Some(batch) => self.look(which, expected, batch),
                    None => Ok(()),
                });
            self.ended.batches.push(batches);
            looked?;
        }
        let done = self.next == self.work.batches && whole;
        if !done && !self.time_left().is_zero() {
            return Ok(Turn::More);
        }
        self.rest()?;
        Ok(if done { Turn::Done } else { Turn::TimeUp })
    }

    fn ended(&mut self, ending: Ending) {
        self.ended.ending = ending;
        // Connections are not needed any more, and the server may want their memory.
        self.workers.clear();
        self.progress.finish();
        for side in &self.sides {
            let collection = &side.collection;
            if let Err(error) = self.contest.leave(self.watcher.as_mut(), collection) {
                eprintln!("frond bench: {}: {error}", self.contestant.label);
                return;
            }
        }
    }
}
