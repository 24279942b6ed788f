//! One target's part of a run of everyday operations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::Doc;
use frond_client::{Collection, Error, Result};

use super::model::{self, Model, Step};
use super::options::Work;
use crate::documents::Source;
use crate::documents::everyday::{Documents, KEYS, Referenced, id};
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::load::{BATCH, Load, fill};
use crate::meter::Meter;
use crate::progress::Progress;
use crate::random::SplitMix64;
use crate::sampler::Sampler;
use crate::system::{
    Batch, Definition, Group, Groups, Ids, Index, Session, Sizes, Task, WriteConcern,
};

/// The indexes beside that of `_id`.
const INDEXES: [Index; 2] = [Index::on(&["k"]), Index::on(&["v"])];
/// Documents of a range, and of a `$lookup`.
const IN_A_ROW: u64 = 1000;
/// Documents of an `$in`.
const IN: usize = 100;
/// Documents that are skipped, or half of the documents if that is less, and those behind them.
const SKIPPED: u64 = 100_000;
const BEHIND: u32 = 10;

#[derive(Default)]
pub struct Results {
    pub documents: u64,
    pub load: Duration,
    /// The times of each operation, in the order of [`Step::ALL`], one for each round.
    pub times: Vec<Vec<Duration>>,
    /// The size of the collection when it was loaded.
    pub sizes: Sizes,
}

pub struct EverydayRunner<'a> {
    run: &'a Run,
    target: &'a Target,
    work: &'a Work,
    source: &'a Documents,
    model: &'a Model,
    concern: WriteConcern,
    collection: Collection,
    other: Collection,
    watcher: Box<dyn Session>,
    workers: Vec<Box<dyn Session>>,
    progress: Progress,
    round: u32,
    loaded: bool,
    own_time: Duration,
    results: Results,
}

impl<'a> EverydayRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collections.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        source: &'a Documents,
        model: &'a Model,
    ) -> Result<Self> {
        let options = &run.options;
        let concern = target.concern(&work.write, 1)?;
        let mut watcher = target.watcher(run, concern.acknowledged, work.write.batch, source)?;
        let mut collection = |name: &str, indexes: &[Index]| -> Result<Collection> {
            let (collection, _) = target.collection(run, watcher.as_mut(), name, None)?;
            let definition = Definition {
                integer_ids: true,
                ..Definition::with_indexes(indexes)
            };
            watcher.create(&collection, &definition)?;
            Ok(collection)
        };
        let other = collection(&format!("{}_other", work.collection), &[])?;
        let collection = collection(&work.collection, &INDEXES)?;
        let workers = target.connect_all(usize::from(work.write.threads), &run.stop)?;
        Ok(EverydayRunner {
            progress: Progress::new(target.label(), work.documents(), "documents", options.quiet),
            run,
            target,
            work,
            source,
            model,
            concern,
            collection,
            other,
            watcher,
            workers,
            round: 0,
            loaded: false,
            own_time: Duration::ZERO,
            results: Results {
                times: vec![Vec::new(); Step::ALL.len()],
                ..Results::default()
            },
        })
    }

    /// Loads the collections, and waits until the server has written them. False if the time was up before.
    fn load(&mut self) -> Result<bool> {
        let meter = Meter::start(self.work.documents(), Arc::clone(&self.run.stop));
        fill(self.watcher.as_mut(), &self.other, &Referenced::new(), KEYS)?;
        for session in &mut self.workers {
            session.insert_into(&self.collection, self.concern)?;
        }
        let load = Load::new(self.source, 0..self.work.documents(), self.work.write.batch);
        let time_left = self.run.time_left(self.own_time);
        let mut sampler = Sampler {
            run: self.run,
            name: "everyday",
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
            self.watcher.loaded(&self.other)?;
            self.watcher.loaded(&self.collection)?;
            self.run.wait_until_idle(self.watcher.as_mut())?;
            self.results.sizes = self.watcher.sizes(&self.collection)?;
            self.watcher
                .insert_into(&self.collection, WriteConcern::ACKNOWLEDGED)?;
        }
        Ok(true)
    }

    /// Does an operation, and checks its answer. Returns its time.
    fn perform(&mut self, step: Step, task: &Task<'_>, expected: u64) -> Result<Duration> {
        let start = Instant::now();
        let answer = self.watcher.perform(&self.collection, task)?;
        let elapsed = start.elapsed();
        self.check(step, answer, expected)?;
        Ok(elapsed)
    }

    fn check(&self, step: Step, answer: u64, expected: u64) -> Result<()> {
        if answer == expected {
            return Ok(());
        }
        Err(Error::Wrong(format!(
            "{}: {}: {answer} instead of {expected}",
            self.collection,
            step.name()
        )))
    }

    /// Groups all documents by a field.
    fn group(&mut self, step: Step, by: &str, groups: u64) -> Result<Duration> {
        let group = Group {
            by,
            sum: "u",
            below: None,
        };
        let start = Instant::now();
        let Groups {
            groups: found,
            documents,
            total,
        } = self.watcher.group(&self.collection, &group)?;
        let elapsed = start.elapsed();
        self.check(step, found, groups)?;
        self.check(
            step,
            u64::try_from(documents).unwrap_or(0),
            self.model.documents,
        )?;
        if total != self.model.total {
            let expected = self.model.total;
            let name = step.name();
            return Err(Error::Wrong(format!(
                "{}: {name}: {total} instead of {expected}",
                self.collection
            )));
        }
        Ok(elapsed)
    }

    /// Inserts the deleted documents again, in requests of up to [`BATCH`] documents. Returns the mean time for [`BATCH`] documents.
    fn insert_many(&mut self) -> Result<Duration> {
        let (mut bytes, mut elapsed) = (Vec::new(), Duration::ZERO);
        for numbers in self.model.deleted.chunks(BATCH as usize) {
            bytes.clear();
            for number in numbers {
                self.source.append(*number, &mut bytes);
            }
            self.watcher.prepare(Batch {
                bytes: &bytes,
                each: self.source.document_bytes(),
            })?;
            let start = Instant::now();
            self.watcher.send()?;
            self.watcher.finish()?;
            elapsed += start.elapsed();
        }
        let inserted = self.model.deleted.len().max(1) as f64;
        Ok(elapsed.mul_f64(BATCH as f64 / inserted))
    }

    /// Runs an operation once, or `--repeats` times if it is short. Returns the mean time of its requests.
    fn step(&mut self, step: Step) -> Result<Duration> {
        // Deletes and inserts of a round are about the same documents.
        let seed = match step {
            Step::InsertOne => Step::DeleteOne as u64,
            other => other as u64,
        };
        let mut random = SplitMix64::new(self.run.options.seed, u64::from(self.round) << 8 | seed);
        if !step.is_short() {
            return self.one(step, &mut random);
        }
        let mut elapsed = Duration::ZERO;
        let repeats = u64::from(self.work.repeats);
        let all = self.model.documents;
        // The requests of a round use different documents, unless there are fewer documents than requests.
        let (first, stride) = (random.below(all), all / repeats.min(all));
        let mut document = Vec::new();
        let mut many = Vec::new();
        let repeats = if matches!(step, Step::DeleteOne | Step::InsertOne) {
            repeats.min(all)
        } else {
            repeats
        };
        for repeat in 0..repeats {
            if repeat.is_multiple_of(64) {
                self.run.go_on()?;
            }
            let number = (first + repeat * stride) % all;
            let (task, expected) = match step {
                Step::In => {
                    many.clear();
                    let apart = all / IN as u64;
                    many.extend((0..IN as u64).map(|at| id((number + at * apart) % all)));
                    (Task::In(&many), IN as u64)
                }
                Step::UpdateOne => (Task::UpdateOne(id(number)), 1),
                Step::FindAndUpdate => (Task::FindAndUpdate(id(number)), 1),
                Step::DeleteOne => (Task::DeleteOne(id(number)), 1),
                Step::InsertOne => {
                    document.clear();
                    self.source.append(number, &mut document);
                    (Task::InsertOne(Doc::from_trusted(&document)), 1)
                }
                _ => (Task::Point(id(number)), 1),
            };
            elapsed += self.perform(step, &task, expected)?;
        }
        Ok(elapsed / u32::try_from(repeats.max(1)).unwrap_or(u32::MAX))
    }

    /// An operation that is done once in a round.
    fn one(&mut self, step: Step, random: &mut SplitMix64) -> Result<Duration> {
        let model = self.model;
        let in_a_row = IN_A_ROW.min(model.documents);
        let first = random.below(model.documents - in_a_row + 1);
        let ids: Ids = id(first)..=id(first + in_a_row - 1);
        let other = self.other.clone();
        let (task, expected) = match step {
            Step::CountAll => (Task::Count(&[]), model.documents),
            Step::CountIndexed => (Task::Count(&model::COUNTED_INDEXED), model.counted_indexed),
            Step::CountScanned => (Task::Count(&model::COUNTED_SCANNED), model.counted_scanned),
            Step::MatchIndexed => (Task::Match(&model::MATCHED_INDEXED), model.matched_indexed),
            Step::MatchScanned => (Task::Match(&model::MATCHED_SCANNED), model.matched_scanned),
            Step::TopIndexed => (top("v"), model.top_v),
            Step::TopScanned => (top("u"), model.top_u),
            Step::Lookup => {
                let lookup = Task::Lookup {
                    ids: &ids,
                    other: &other,
                    by: "k",
                };
                (lookup, in_a_row)
            }
            Step::GroupFew => return self.group(step, "city", model.cities),
            Step::GroupMany => return self.group(step, "m", model.groups),
            Step::DistinctIndexed => (Task::Distinct("k"), model.keys),
            Step::DistinctScanned => (Task::Distinct("city"), model.cities),
            Step::Skip => {
                let skip = SKIPPED.min(model.documents / 2);
                let behind = skip..skip + u64::from(BEHIND);
                let sum = behind.map(|number| u64::from(id(number).unsigned_abs()));
                let skip = Task::Skip {
                    skip: u32::try_from(skip).unwrap_or(0),
                    limit: BEHIND,
                };
                (skip, sum.sum())
            }
            Step::UpdateMany => (Task::UpdateMany(model::UPDATED), model.updated),
            Step::DeleteMany => (Task::DeleteMany(model::DELETED), model.deleted.len() as u64),
            Step::InsertMany => return self.insert_many(),
            _ => (Task::Range(&ids), in_a_row),
        };
        self.perform(step, &task, expected)
    }
}

fn top(by: &'static str) -> Task<'static> {
    Task::Top {
        by,
        limit: model::TOP as u32,
    }
}

impl Runner for EverydayRunner<'_> {
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
        for (at, step) in Step::ALL.into_iter().enumerate() {
            // A round that has deleted documents goes on until they are there again.
            if at == 0 && self.run.time_left(self.own_time).is_zero() {
                return Ok(StepOutcome::TimeUp);
            }
            self.run.go_on()?;
            let start = Instant::now();
            let elapsed = self.step(step)?;
            self.own_time += start.elapsed();
            if let Some(times) = self.results.times.get_mut(at) {
                times.push(elapsed);
            }
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
        self.run.drop_collections(
            self.target,
            self.watcher.as_mut(),
            [&self.collection, &self.other],
        );
    }
}
