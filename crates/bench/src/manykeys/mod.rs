//! Updates of documents with very many keys: a few integers among thousands are incremented, at
//! random, in documents whose keys are hard to tell apart.
//!
//! The workload is that of the TokuMX blog of 2013: with all keys side by side, and with keys spread
//! over buckets by hand, which servers need that walk a document key by key.

pub mod document;
mod load;
mod model;
mod options;
mod phase;
mod report;
pub mod updates;

pub use options::{Options, Plan, Verify};

use std::sync::Arc;

use crate::client::{Client, WriteTarget};
use crate::collection::check_batch;
use crate::document::Source;
use crate::error::{Error, Result};
use crate::monitor::Status;
use crate::report::{Facts, make_folder, thousands, write_files};
use crate::signals::stop_on_signals;
use crate::statistics::Statistics;
use crate::system::WriteConcern;
use document::Documents;
use model::Model;
use phase::{Bench, Subject, bytes_of};
use report::{Loaded, Read, Results, Updated};

/// What the updates find a document by.
const INDEX: [&str; 5] = ["appver", "deploytype", "g", "guid", "timeslice"];

/// Runs the workload to its end and leaves its report, also when it ends early.
pub fn run(options: &Options) -> Result<()> {
    let plan = options.plan()?;
    let stop = stop_on_signals()?;
    let connect = || Client::connect(&plan.uri, Arc::clone(&stop));
    let mut client = connect()?;
    let mut subjects = Vec::new();
    for (schema, collection) in &plan.schemas {
        let documents = Documents::new(*schema, options.seed, options.keys, options.random_values);
        check_batch(&client, true, options.batch, documents.document_bytes())?;
        subjects.push(Subject {
            collection: collection.clone(),
            documents,
            model: Model::new(options.documents),
        });
    }
    let mut workers = Vec::new();
    for _ in 0..options.connections {
        workers.push(connect()?);
    }
    let first = plan.acknowledged.first().copied().unwrap_or(true);
    let dialect = match subjects.first() {
        Some(subject) => Client::dialect(&target(&client, subject, &plan, first)),
        None => return Err(Error::Settings("no schema to measure".to_owned())),
    };
    let facts = Facts::ask(&mut client, dialect);
    let out = make_folder(options.out.as_deref(), "manykeys", facts.started)?;
    let statistics = Statistics::start(connect()?, &out, plan.report_every, options.verbose)?;
    let mut results = Results::new(options.pairs(&plan), facts);
    let bench = Bench {
        options,
        workers,
        stop: Arc::clone(&stop),
    };
    let mut run = Run {
        bench,
        plan: &plan,
        client,
        statistics: &statistics,
        results: &mut results,
    };
    let mut result = run.all(&mut subjects);
    drop(run);
    results.statistics = statistics.end();
    if let Err(error) = &result {
        results.ending = error.to_string();
    }
    let written = results
        .chart()
        .and_then(|svg| write_files(&out, &results.page(), &results.to_json(), &svg))
        .and_then(|()| results.write_rounds(&out));
    if let Err(error) = written {
        result = result.and(Err(error));
    }
    print!("{}", results.to_text(&out));
    result
}

/// Where the writes of a collection go.
fn target(client: &Client, subject: &Subject, plan: &Plan, acknowledged: bool) -> WriteTarget {
    let collection = &subject.collection;
    let concern = WriteConcern {
        acknowledged,
        journal: acknowledged && plan.journal,
    };
    client.write_target(&collection.database, &collection.name, concern)
}

/// A run under way.
struct Run<'a> {
    bench: Bench<'a>,
    plan: &'a Plan,
    client: Client,
    statistics: &'a Statistics,
    results: &'a mut Results,
}

impl Run<'_> {
    fn all(&mut self, subjects: &mut [Subject]) -> Result<()> {
        for subject in subjects.iter() {
            self.prepare(subject)?;
        }
        for subject in subjects.iter() {
            self.load(subject)?;
        }
        for subject in subjects.iter() {
            self.read(subject, "after the load")?;
        }
        let rounds = self.bench.options.rounds;
        for (turn, acknowledged) in (0..).zip(self.plan.acknowledged.clone()) {
            for subject in subjects.iter_mut() {
                self.update(subject, acknowledged, turn * rounds)?;
            }
        }
        for subject in subjects.iter() {
            self.read(subject, "after the updates")?;
        }
        for subject in subjects.iter() {
            let schema = subject.schema().name();
            self.begin(&format!("{schema}: verification"));
            let verified = self.bench.verify(&mut self.client, subject)?;
            self.results.verified.push((subject.schema(), verified));
        }
        Ok(())
    }

    /// Names what goes on from now on.
    fn begin(&self, phase: &str) {
        self.statistics.phase(phase);
    }

    fn tell(&self, text: &str) {
        if !self.bench.options.quiet {
            eprintln!("{text}");
        }
    }

    /// Empties the collection and makes its index.
    fn prepare(&mut self, subject: &Subject) -> Result<()> {
        let (options, collection) = (self.bench.options, &subject.collection);
        if options.drop {
            collection.drop(&mut self.client)?;
        }
        let already = collection.count(&mut self.client)?;
        if already > 0 {
            return Err(Error::Settings(format!(
                "{collection} holds {already} documents: --drop drops them"
            )));
        }
        if options.no_index {
            return Ok(());
        }
        collection.create_indexes(&mut self.client, &[&INDEX])
    }

    fn load(&mut self, subject: &Subject) -> Result<()> {
        let schema = subject.schema();
        self.begin(&format!("{}: load", schema.name()));
        let target = target(&self.client, subject, self.plan, true);
        let before = Status::ask(&mut self.client)?;
        let outcome = self.bench.load(subject, &target)?;
        self.begin(&format!("{}: settling", schema.name()));
        let after = self.bench.settle(&mut self.client, self.plan.settle)?;
        let loaded = Loaded::new(
            schema,
            &outcome,
            bytes_of(subject, outcome.documents),
            &before,
            &after,
        );
        self.tell(&format!(
            "{}: {} documents loaded in {:.1} s, {}/s",
            schema.name(),
            thousands(outcome.documents as f64),
            outcome.elapsed.as_secs_f64(),
            thousands(loaded.documents_per_s()),
        ));
        self.results.loads.push(loaded);
        Ok(())
    }

    /// Rounds of updates. Bytes written are counted from rest to rest.
    fn update(&mut self, subject: &mut Subject, acknowledged: bool, first: u64) -> Result<()> {
        let schema = subject.schema();
        let concern = u8::from(acknowledged);
        self.begin(&format!("{}: settling", schema.name()));
        let before = self.bench.settle(&mut self.client, self.plan.settle)?;
        let target = target(&self.client, subject, self.plan, acknowledged);
        self.begin(&format!("{}: updates w:{concern}", schema.name()));
        let mut rounds = Vec::new();
        let mut outcome = Ok(());
        for number in first..first + self.bench.options.rounds {
            match self.bench.update(subject, &target, acknowledged, number) {
                Ok(round) => {
                    self.tell(&format!(
                        "{}, w:{concern}: {} updates in {:.3} s, {}/s",
                        schema.name(),
                        thousands(round.updates as f64),
                        round.elapsed.as_secs_f64(),
                        thousands(round.updates as f64 / round.elapsed.as_secs_f64().max(1e-9)),
                    ));
                    rounds.push(round);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.begin(&format!("{}: settling", schema.name()));
        let after = match &outcome {
            Ok(()) => Some(self.bench.settle(&mut self.client, self.plan.settle)?),
            Err(_) => None,
        };
        let updated = Updated::new(schema, acknowledged, rounds, &before, after.as_ref());
        self.results.updates.push(updated);
        outcome
    }

    fn read(&mut self, subject: &Subject, when: &'static str) -> Result<()> {
        if self.bench.options.reads == 0 {
            return Ok(());
        }
        let schema = subject.schema();
        self.begin(&format!("{}: reads", schema.name()));
        for whole in [true, false] {
            let reads = self.bench.read(&mut self.client, subject, whole)?;
            self.results.reads.push(Read {
                schema,
                when,
                whole,
                reads,
            });
        }
        Ok(())
    }
}
