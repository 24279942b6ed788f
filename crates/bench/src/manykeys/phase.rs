//! The parts of a run: load, update, read, compare.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::doc;

use super::document::{Documents, Purpose, Schema, stream};
use super::load::Load;
use super::model::Model;
use super::updates::{self, Update};
use super::{Options, Verify};
use crate::client::{Client, WriteTarget};
use crate::collection::Collection;
use crate::document::Source;
use crate::error::{Error, Result};
use crate::meter::{Meter, Outcome, Percentiles, latencies, record};
use crate::monitor::Status;
use crate::progress::Progress;
use crate::threads::{wait_until, with_each};

/// A collection of a run, with what it must hold.
pub struct Subject {
    /// Where it is.
    pub collection: Collection,
    /// What it was loaded with.
    pub documents: Documents,
    /// What was done to it.
    pub model: Model,
}

impl Subject {
    /// Its schema.
    #[must_use]
    pub fn schema(&self) -> Schema {
        self.documents.schema
    }
}

/// What all phases of a run share.
pub struct Bench<'a> {
    /// The settings.
    pub options: &'a Options,
    /// The connections that load and update.
    pub workers: Vec<Client>,
    /// Set when the run should end.
    pub stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// A round of updates.
#[derive(Clone, Debug)]
pub struct Round {
    /// Updates that the server applied.
    pub updates: u64,
    /// From the first one sent to the last one applied.
    pub elapsed: Duration,
    /// Of answered updates.
    pub latency: Option<Percentiles>,
}

/// How long finds took.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Finds.
    pub count: u64,
    /// Of all of them, in milliseconds.
    pub latency: Percentiles,
    /// Bytes of a document found, on average.
    pub bytes: u64,
}

impl Bench<'_> {
    /// Inserts the documents.
    pub fn load(&mut self, subject: &Subject, target: &WriteTarget) -> Result<Outcome> {
        let options = self.options;
        let meter = self.meter(options.documents);
        let load = Load::new(target, &subject.documents, options.documents, options.batch);
        let work = |_: usize, client: &mut Client| load.insert(client, &meter);
        let progress = Progress::new(
            "",
            options.documents,
            "documents",
            options.quiet || options.verbose,
        );
        with_each(&mut self.workers, &meter, work, |all_done| {
            watch(&meter, progress, all_done);
            Ok(())
        })?;
        finished(meter, options.documents)
    }

    /// One round of updates. They are made and encoded before the clock runs; it stops when the
    /// server has applied the last one.
    pub fn update(
        &mut self,
        subject: &mut Subject,
        target: &WriteTarget,
        acknowledged: bool,
        number: u64,
    ) -> Result<Round> {
        let options = self.options;
        let updates = updates::round(
            options.seed,
            number,
            options.updates,
            options.documents,
            options.keys,
        );
        let count = self.workers.len();
        let mut scripts = Vec::new();
        for (index, client) in self.workers.iter_mut().enumerate() {
            let mine = updates.iter().skip(index).step_by(count);
            scripts.push(Script::build(client, target, &subject.documents, mine)?);
        }
        let meter = self.meter(options.updates);
        let ended = AtomicU64::new(0);
        let work = |index: usize, client: &mut Client| {
            if let Some(script) = scripts.get(index) {
                script.play(client, target, &meter)?;
            }
            // What counts is when the last connection is done, not when this was noticed.
            let nanos = u64::try_from(meter.elapsed().as_nanos()).unwrap_or(u64::MAX);
            ended.fetch_max(nanos, Ordering::AcqRel);
            Ok(())
        };
        let progress = Progress::new(
            "",
            options.updates,
            "updates",
            options.quiet || options.verbose,
        );
        with_each(&mut self.workers, &meter, work, |all_done| {
            watch(&meter, progress, all_done);
            Ok(())
        })?;
        let outcome = finished(meter, options.updates)?;
        for (n, update) in updates.iter().enumerate() {
            subject.model.apply(n % count, update);
        }
        subject.model.next_round();
        Ok(Round {
            updates: outcome.documents,
            elapsed: Duration::from_nanos(ended.into_inner()),
            latency: acknowledged.then(|| Percentiles::of(&outcome.latencies)),
        })
    }

    fn meter(&self, total: u64) -> Meter {
        Meter::start(total, std::sync::Arc::clone(&self.stop))
    }

    /// Finds random documents by `_id`: whole, or one key of each.
    pub fn read(&self, client: &mut Client, subject: &Subject, whole: bool) -> Result<Reads> {
        let options = self.options;
        let mut random = stream(options.seed, Purpose::Reads, u64::from(whole));
        let (mut times, mut bytes) = (latencies(), 0);
        for _ in 0..options.reads {
            self.go_on()?;
            let number = random.below(options.documents);
            let key = random.below(u64::from(options.keys)) as usize;
            let path = subject.documents.paths.get(key).map(String::as_str);
            let field = if whole { None } else { path };
            let id = subject.documents.id(number);
            let (found, elapsed) = client.find_by_id(&subject.collection, id, field)?;
            let found = found.ok_or_else(|| absent(number))?;
            if path.is_none_or(|path| found.path(path).is_none()) {
                let path = path.unwrap_or_default();
                return Err(Error::Wrong(format!("document {number} has no {path}")));
            }
            bytes += found.len_bytes() as u64;
            record(
                &mut times,
                u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            );
        }
        Ok(Reads {
            count: options.reads,
            latency: Percentiles::of(&times),
            bytes: bytes / options.reads.max(1),
        })
    }

    /// Compares documents with what they must hold; how many were compared.
    pub fn verify(&self, client: &mut Client, subject: &Subject) -> Result<u64> {
        let documents = self.options.documents;
        subject.collection.check_count(client, documents)?;
        let mut numbers: Vec<u64> = (0..documents).collect();
        if let Verify::Some(count) = self.options.verify {
            stream(self.options.seed, Purpose::Order, u64::MAX).shuffle(&mut numbers);
            numbers.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
        for number in &numbers {
            self.go_on()?;
            let id = subject.documents.id(*number);
            let (found, _) = client.find_by_id(&subject.collection, id, None)?;
            let found = found.ok_or_else(|| absent(*number))?;
            subject
                .model
                .check(&subject.documents, *number, &found)
                .map_err(|error| match error {
                    Error::Wrong(text) => Error::Wrong(format!("{}, {text}", subject.collection)),
                    other => other,
                })?;
        }
        Ok(numbers.len() as u64)
    }

    /// Asks the server to write everything, and waits until it has written nothing for two seconds.
    /// A server that does not tell what it writes is not waited for.
    pub fn settle(&self, client: &mut Client, longest: Duration) -> Result<Status> {
        const NAP: Duration = Duration::from_millis(250);
        const REST: Duration = Duration::from_secs(2);
        if !longest.is_zero() {
            match client.command("admin", &doc! { "fsync": 1 }) {
                Ok(_) | Err(Error::Server { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let start = Instant::now();
        let mut status = Status::ask(client)?;
        let mut since = Instant::now();
        while status.data_bytes.is_some() && start.elapsed() < longest && since.elapsed() < REST {
            std::thread::sleep(NAP.min(longest));
            self.go_on()?;
            let now = Status::ask(client)?;
            if (now.data_bytes, now.log_bytes) != (status.data_bytes, status.log_bytes) {
                since = Instant::now();
            }
            status = now;
        }
        Ok(status)
    }

    fn go_on(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        Ok(())
    }
}

fn absent(number: u64) -> Error {
    Error::Wrong(format!("document {number} is not there"))
}

/// The outcome of a phase that did all it should.
fn finished(meter: Meter, requested: u64) -> Result<Outcome> {
    let mut outcome = meter.end();
    match outcome.error.take() {
        Some(error) => Err(error),
        None if outcome.documents < requested => Err(Error::Stopped),
        None => Ok(outcome),
    }
}

/// Shows progress until all threads are done.
fn watch(meter: &Meter, mut progress: Progress, all_done: &dyn Fn() -> bool) {
    const EVERY: Duration = Duration::from_millis(500);
    let (mut at, mut last) = (EVERY, (0.0, 0));
    while !wait_until(meter, at, all_done) {
        let (elapsed_s, count) = (meter.elapsed().as_secs_f64(), meter.documents());
        let now = (count - last.1) as f64 / (elapsed_s - last.0).max(1e-9);
        progress.show(elapsed_s, count, now, meter.speed_of_part(0.95, 1.0));
        last = (elapsed_s, count);
        at = meter.elapsed().max(at) + EVERY;
    }
    progress.finish();
}

/// The messages of one connection, ready to send.
struct Script {
    bytes: Vec<u8>,
    /// Where each message ends, and the request that is answered.
    messages: Vec<(usize, i32)>,
}

impl Script {
    fn build<'u>(
        client: &mut Client,
        target: &WriteTarget,
        documents: &Documents,
        updates: impl Iterator<Item = &'u Update>,
    ) -> Result<Script> {
        let (mut bytes, mut messages) = (Vec::new(), Vec::new());
        for update in updates {
            let (filter, change) = (update.filter(documents), update.change(documents));
            let id = client.build_update(target, &filter, &change, &mut bytes)?;
            messages.push((bytes.len(), id));
        }
        Ok(Script { bytes, messages })
    }

    /// Sends the messages one by one and takes their answers. Returns when the server has applied
    /// the last one.
    fn play(&self, client: &mut Client, target: &WriteTarget, meter: &Meter) -> Result<()> {
        let mut from = 0;
        for (to, id) in &self.messages {
            if meter.stopping() {
                break;
            }
            let start = Instant::now();
            client.send_built(self.bytes.get(from..*to).unwrap_or_default())?;
            client.update_reply(target, *id)?;
            meter.batch(1, start.elapsed());
            from = *to;
        }
        // A server works on the messages of a connection one after another, so that its answer to
        // this says that all the others are done.
        client.command("admin", &doc! { "ping": 1 })?;
        Ok(())
    }
}

/// Bytes of the documents of a load, on the wire.
#[must_use]
pub fn bytes_of(subject: &Subject, documents: u64) -> u64 {
    subject.documents.document_bytes() as u64 * documents
}
