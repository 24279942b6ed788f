//! One target's part of a run of aggregations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::Value;
use frond_client::{Collection, Error, Result};

use super::options::Work;
use crate::documents::groups::{Documents, VALUES};
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::load::Load;
use crate::meter::Meter;
use crate::progress::Progress;
use crate::sampler::Sampler;
use crate::system::{Definition, Find, From, Group, Groups, Session, Sizes, WriteConcern};

/// The `k` that is looked for.
const KEY: i32 = 77;
/// A quarter of the documents have a `v` below this.
const BELOW: i32 = (VALUES / 4) as i32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Groups by `k` of all documents.
    All,
    /// Groups by `k` of the documents with a small `v`.
    Some,
    /// A find of the documents with one `k`.
    Find,
}

impl Query {
    /// All of them, in the order in which they run.
    pub const ALL: [Query; 3] = [Query::All, Query::Some, Query::Find];

    pub fn name(self) -> &'static str {
        match self {
            Query::All => "group all documents by k",
            Query::Some => "group a quarter of them by k",
            Query::Find => "find one k of 1,000",
        }
    }
}

#[derive(Default)]
pub struct Results {
    pub documents: u64,
    pub load: Duration,
    /// The times of each query, in the order of [`Query::ALL`].
    pub times: [Vec<Duration>; 3],
    /// The size of the collection when it was loaded.
    pub sizes: Sizes,
}

pub struct GroupsRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Documents,
    concern: WriteConcern,
    collection: Collection,
    watcher: Box<dyn Session>,
    workers: Vec<Box<dyn Session>>,
    progress: Progress,
    expected: [Groups; 2],
    found: u64,
    round: u32,
    loaded: bool,
    own_time: Duration,
    results: Results,
}

impl<'a> GroupsRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collection.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        source: &'a Documents,
    ) -> Result<Self> {
        let options = &run.options;
        let concern = target.concern(&work.write, 1)?;
        let mut watcher = target.watcher(run, concern.acknowledged, work.write.batch, source)?;
        let (collection, _) = target.collection(run, watcher.as_mut(), &work.collection, None)?;
        watcher.create(&collection, &Definition::default())?;
        let workers = target.connect_all(usize::from(work.write.threads), &run.stop)?;
        Ok(GroupsRunner {
            progress: Progress::new(target.label(), work.documents(), "documents", options.quiet),
            expected: source.expected(work.documents(), BELOW),
            found: source.with_key(work.documents(), KEY),
            run,
            target,
            work,
            source,
            concern,
            collection,
            watcher,
            workers,
            round: 0,
            loaded: false,
            own_time: Duration::ZERO,
            results: Results::default(),
        })
    }

    /// Loads the collection, and waits until the server has written it. False if the time was up before.
    fn load(&mut self) -> Result<bool> {
        let meter = Meter::start(self.work.documents(), Arc::clone(&self.run.stop));
        for session in &mut self.workers {
            session.insert_into(&self.collection, self.concern)?;
        }
        let load = Load::new(self.source, 0..self.work.documents(), self.work.write.batch);
        let time_left = self.run.time_left(self.own_time);
        let mut sampler = Sampler {
            run: self.run,
            name: "groups",
            target: self.target,
            watcher: self.watcher.as_mut(),
            progress: &mut self.progress,
            own_time: &mut self.own_time,
            others: 0,
            rows: None,
        };
        let driven = sampler.drive(&mut self.workers, &meter, time_left, |_, session| {
            load.insert(session.as_mut(), &meter)
        });
        self.results.load = meter.elapsed();
        self.results.documents = meter.documents();
        driven?;
        if meter.documents() < self.work.documents() {
            return Ok(false);
        }
        self.run
            .check_count(self.watcher.as_mut(), &self.collection, meter.documents())?;
        if !self.target.is_null() {
            self.run.wait_until_idle(self.watcher.as_mut())?;
            self.results.sizes = self.watcher.sizes(&self.collection)?;
        }
        Ok(true)
    }

    /// Runs a query, and checks its answer.
    fn ask(&mut self, query: Query) -> Result<Duration> {
        let group = |below| Group {
            by: "k",
            sum: "v",
            below,
        };
        let [all, some] = self.expected;
        let start = Instant::now();
        let (answer, expected) = match query {
            Query::All => (self.watcher.group(&self.collection, &group(None))?, all),
            Query::Some => {
                let answer = self.watcher.group(&self.collection, &group(Some(BELOW)))?;
                (answer, some)
            }
            Query::Find => {
                let find = Find {
                    field: "k",
                    from: From::Equal(Value::Int32(KEY)),
                    limit: 0,
                };
                let groups = self.watcher.find(&self.collection, &find)?;
                let of = |groups| Groups {
                    groups,
                    ..Groups::default()
                };
                (of(groups), of(self.found))
            }
        };
        let elapsed = start.elapsed();
        if answer != expected {
            return Err(Error::Wrong(format!(
                "{}: {}: {answer:?} instead of {expected:?}",
                self.collection,
                query.name()
            )));
        }
        Ok(elapsed)
    }
}

impl Runner for GroupsRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.progress.finish();
        self.results
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        if !self.loaded {
            if !self.load()? {
                return Ok(StepOutcome::TimeUp);
            }
            self.loaded = true;
            return Ok(if self.target.is_null() {
                StepOutcome::Done
            } else {
                StepOutcome::More
            });
        }
        for (at, query) in Query::ALL.into_iter().enumerate() {
            if self.run.time_left(self.own_time).is_zero() {
                return Ok(StepOutcome::TimeUp);
            }
            self.run.go_on()?;
            let elapsed = self.ask(query)?;
            self.own_time += elapsed;
            self.results.times[at].push(elapsed);
        }
        self.round += 1;
        Ok(if self.round == self.work.rounds {
            StepOutcome::Done
        } else {
            StepOutcome::More
        })
    }

    fn ended(&mut self) {
        self.workers.clear();
        self.progress.finish();
        self.run
            .drop_collections(self.target, self.watcher.as_mut(), [&self.collection]);
    }
}
