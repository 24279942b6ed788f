//! One target's part of a run. Its work is divided into steps, one for each turn; the steps of all
//! targets are the same.

use std::collections::VecDeque;
use std::time::Duration;

use super::model::Model;
use super::phases::{Dataset, Phases};
use super::results::{Loaded, Results, Updated, Written};
use super::{NAME, Work};
use crate::documents::Source;
use crate::documents::manykeys::Documents;
use crate::format::thousands;
use crate::harness::{Run, Runner, StepOutcome, Target};
use crate::statistics::Statistics;
use crate::system::Status;
use crate::system::{Definition, Index, WriteConcern};
use frond_client::Result;

/// The fields that updates find a document by.
const INDEX: Index = Index::on(&["appver", "deploytype", "g", "guid", "timeslice"]);

/// When documents are read.
pub const READS: [&str; 2] = ["after the load", "after the updates"];

/// Work of one turn. Subjects are given by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Load(usize),
    Read(usize, &'static str),
    Update(Rounds),
    Verify(usize),
}

/// One round among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounds {
    dataset: usize,
    acknowledged: bool,
    /// Its number among all rounds of the dataset.
    number: u64,
    first: bool,
    last: bool,
}

/// All steps of a run.
fn steps(datasets: usize, concerns: &[bool], rounds: u64, reads: bool) -> VecDeque<Step> {
    let all = 0..datasets;
    let mut steps: VecDeque<Step> = all.clone().map(Step::Load).collect();
    let [after_load, after_updates] = READS;
    if reads {
        steps.extend(all.clone().map(|dataset| Step::Read(dataset, after_load)));
    }
    for (block, acknowledged) in (0..).zip(concerns) {
        for dataset in all.clone() {
            steps.extend((0..rounds).map(|round| {
                Step::Update(Rounds {
                    dataset,
                    acknowledged: *acknowledged,
                    number: block * rounds + round,
                    first: round == 0,
                    last: round + 1 == rounds,
                })
            }));
        }
    }
    if reads {
        steps.extend(
            all.clone()
                .map(|dataset| Step::Read(dataset, after_updates)),
        );
    }
    steps.extend(all.map(Step::Verify));
    steps
}

pub struct ManykeysRunner<'a> {
    phases: Phases<'a>,
    datasets: Vec<Dataset<'a>>,
    journal: bool,
    statistics: Option<Statistics>,
    steps: VecDeque<Step>,
    /// Rounds still to come.
    rounds_left: u32,
    /// The least time that a round gets.
    share: Option<Duration>,
    /// Time that load and updates took.
    spent: Duration,
    /// Something was left out or cut short for lack of time.
    cut: bool,
    /// Counters of the server before the current rounds.
    before: Status,
    results: Results,
}

impl<'a> ManykeysRunner<'a> {
    /// Connects, checks the settings against the server's limits, and makes the collections ready.
    pub fn open(
        run: &'a Run,
        target: &'a Target,
        work: &'a Work,
        sources: &'a [Documents],
        concerns: &[bool],
    ) -> Result<Self> {
        let options = &run.options;
        let mut watcher = target.connect(&run.stop)?;
        let indexes: &[Index] = if work.no_index { &[] } else { &[INDEX] };
        let mut datasets = Vec::new();
        for documents in sources {
            let name = work.collection(documents.schema);
            watcher.check_batch(true, work.batch, documents.document_bytes())?;
            let (collection, _) = target.collection(run, watcher.as_mut(), &name, None)?;
            datasets.push(Dataset {
                collection,
                documents,
                model: Model::new(work.documents()),
            });
        }
        for dataset in &datasets {
            watcher.create(&dataset.collection, &Definition::with_indexes(indexes))?;
        }
        let workers = target.connect_all(usize::from(work.connections), &run.stop)?;
        let same = |other: &Target| std::ptr::eq(other, target);
        let name = match run.targets.iter().position(same) {
            Some(index) if run.targets.len() > 1 => format!("statistics-{}.csv", index + 1),
            _ => "statistics.csv".to_owned(),
        };
        let path = run.folder.join(name);
        let session = target.connect(&run.stop)?;
        let verbose = work.verbose && !options.quiet;
        let statistics = Statistics::start(session, &path, options.every(), verbose)?;
        statistics.phase("waiting");
        let steps = steps(datasets.len(), concerns, work.rounds, work.reads > 0);
        let updates = steps.iter().filter(|step| matches!(step, Step::Update(_)));
        Ok(ManykeysRunner {
            rounds_left: updates.count() as u32,
            phases: Phases {
                run,
                work,
                target,
                watcher,
                workers,
            },
            share: None,
            datasets,
            journal: work.journal || target.defaults().journal == Some(true),
            statistics: Some(statistics),
            steps,
            spent: Duration::ZERO,
            cut: false,
            before: Status::default(),
            results: Results::default(),
        })
    }

    /// Sets the phase that the statistics show.
    fn begin(&self, phase: &str) {
        if let Some(statistics) = &self.statistics {
            statistics.phase(phase);
        }
    }

    fn tell(&self, text: &str) {
        if !self.phases.run.options.quiet {
            eprintln!("{}, {NAME}: {text}", self.phases.target.label());
        }
    }

    fn concern(&self, acknowledged: bool) -> WriteConcern {
        WriteConcern {
            acknowledged,
            journal: acknowledged && self.journal,
            majority: false,
        }
    }

    /// Remaining time of the workload on this server.
    fn time_left(&self) -> Option<Duration> {
        let limit = self.phases.run.limit()?;
        Some(limit.saturating_sub(self.spent))
    }

    fn wait_until_idle(&mut self, name: &str) -> Result<Status> {
        self.begin(&format!("{name}: idle compaction"));
        self.phases.wait_until_idle()
    }

    /// Loads a collection. False if the time was too short: then there is nothing to update.
    fn load(&mut self, index: usize) -> Result<bool> {
        let name = self.datasets[index].schema().name();
        let before = self.phases.watcher.status()?;
        self.begin(&format!("{name}: load"));
        let (concern, allowed) = (self.concern(true), self.time_left());
        let dataset = &self.datasets[index];
        let outcome = self.phases.load(dataset, concern, allowed)?;
        self.spent += outcome.elapsed;
        let each = dataset.documents.document_bytes();
        let mut loaded = Loaded::new(dataset.schema(), &outcome, each);
        self.tell(&format!(
            "{name}: {} documents loaded in {:.1} s, {}/s",
            thousands(loaded.documents as f64),
            loaded.elapsed_s,
            thousands(loaded.documents_per_s()),
        ));
        let whole = loaded.documents == self.phases.work.documents();
        if whole {
            let after = self.wait_until_idle(name)?;
            loaded.written = Written::between(&before, &after, loaded.documents);
        }
        self.results.loads.push(loaded);
        Ok(whole)
    }

    /// A round of updates. Bytes written are counted between idle moments, over all rounds of a kind.
    /// The time left is divided among the rounds to come. A round without acknowledgement may exceed its
    /// share, since the server works on everything that was sent; the others keep theirs.
    fn round(&mut self, round: Rounds) -> Result<()> {
        let schema = self.datasets[round.dataset].schema();
        let (name, w) = (schema.name(), u8::from(round.acknowledged));
        if round.first {
            self.before = self.wait_until_idle(name)?;
            self.results.updates.push(Updated {
                schema,
                acknowledged: round.acknowledged,
                rounds: Vec::new(),
                written: Written::default(),
            });
        }
        let even = self.time_left().map(|left| left / self.rounds_left.max(1));
        let share = *self.share.get_or_insert(even.unwrap_or_default());
        let allowed = even.map(|even| even.max(share));
        self.rounds_left = self.rounds_left.saturating_sub(1);
        if allowed == Some(Duration::ZERO) {
            self.cut = true;
        } else {
            self.begin(&format!("{name}: updates w:{w}"));
            let concern = self.concern(round.acknowledged);
            let dataset = &mut self.datasets[round.dataset];
            let done = self
                .phases
                .update(dataset, concern, round.number, allowed)?;
            self.spent += done.elapsed;
            self.cut |= done.updates < self.phases.work.updates();
            self.tell(&format!(
                "{name}, w:{w}: {} updates in {:.3} s, {}/s",
                thousands(done.updates as f64),
                done.elapsed.as_secs_f64(),
                thousands(done.per_s()),
            ));
            if let Some(updated) = self.results.updates.last_mut() {
                updated.rounds.push(done);
            }
        }
        if round.last {
            let after = self.wait_until_idle(name)?;
            if let Some(updated) = self.results.updates.last_mut() {
                updated.written = Written::between(&self.before, &after, updated.updates());
            }
        }
        Ok(())
    }

    fn read(&mut self, index: usize, when: &'static str) -> Result<()> {
        let dataset = &self.datasets[index];
        self.begin(&format!("{}: reads", dataset.schema().name()));
        for whole in [true, false] {
            let read = self.phases.read(dataset, when, whole)?;
            self.results.reads.push(read);
        }
        Ok(())
    }

    /// Compares a collection with its model. A null server has nothing to compare.
    fn verify(&mut self, index: usize) -> Result<()> {
        let dataset = &self.datasets[index];
        let schema = dataset.schema();
        self.begin(&format!("{}: verification", schema.name()));
        if !self.phases.target.is_null() {
            let verified = self.phases.verify(dataset)?;
            self.results.verified.push((schema, verified));
        }
        let Phases { run, target, .. } = self.phases;
        run.drop_collections(target, self.phases.watcher.as_mut(), [&dataset.collection]);
        Ok(())
    }
}

impl Runner for ManykeysRunner<'_> {
    type Results = Results;

    fn into_results(self) -> Results {
        self.results
    }

    fn turn(&mut self) -> Result<StepOutcome> {
        let mut time_is_up = false;
        match self.steps.pop_front() {
            Some(Step::Load(dataset)) => time_is_up = !self.load(dataset)?,
            Some(Step::Read(dataset, when)) => self.read(dataset, when)?,
            Some(Step::Update(round)) => self.round(round)?,
            Some(Step::Verify(dataset)) => self.verify(dataset)?,
            None => {}
        }
        self.begin("waiting");
        if time_is_up {
            return Ok(StepOutcome::TimeUp);
        }
        Ok(match (self.steps.is_empty(), self.cut) {
            (false, _) => StepOutcome::More,
            (true, false) => StepOutcome::Done,
            (true, true) => StepOutcome::TimeUp,
        })
    }

    fn ended(&mut self) {
        if let Some(statistics) = self.statistics.take() {
            self.results.statistics = statistics.end();
        }
        // Connections are not needed any more, and the server can reuse their memory.
        self.phases.workers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_round_has_its_beginning_and_its_end() {
        let steps: Vec<Step> = steps(2, &[false, true], 3, true).into();
        assert_eq!(steps.len(), 2 + 2 + 12 + 2 + 2);
        let rounds: Vec<Rounds> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Update(round) => Some(*round),
                _ => None,
            })
            .collect();
        for (index, round) in (0..).zip(&rounds) {
            assert_eq!(round.dataset, index / 3 % 2);
            assert_eq!(round.acknowledged, index >= 6);
            assert_eq!((round.first, round.last), (index % 3 == 0, index % 3 == 2));
        }
        // No two rounds of a collection make the same updates.
        for dataset in 0..2 {
            let mine = rounds.iter().filter(|round| round.dataset == dataset);
            let numbers: Vec<u64> = mine.map(|round| round.number).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        }
        assert_eq!(steps.last(), Some(&Step::Verify(1)));
        assert_eq!(super::steps(1, &[true], 1, false).len(), 3);
    }
}
