//! Copying documents: ranges of collections by several threads, each with a connection to both sides.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frond_bson::{Doc, DocBuf, doc};
use frond_client::{BulkOptions, Client, Collection, CursorRequest};

use super::state::{CollectionState, RangeState, State};
use crate::error::{Error, Result};
use crate::inventory::{self, Listed};
use crate::node::Node;
use crate::progress::Progress;
use crate::ranges;
use crate::schema::{self, Refusal};
use crate::stop::Signals;
use crate::write::{self, DUPLICATE_KEY, Run};

/// Documents in one batch of the source, and so in one insert.
const BATCH: u32 = 10_000;

/// Attempts to repeat a step after its connection failed.
pub const TRIES: u32 = 10;

/// MongoDB's code for a cursor that the server does not know.
const CURSOR_NOT_FOUND: i32 = 43;

/// Pause before the next attempt.
pub const PAUSE: Duration = Duration::from_secs(1);

/// A collection that is copied.
pub struct Task {
    pub listed: Listed,
    pub indexes: Vec<DocBuf>,
    /// Documents that it has about.
    pub documents: u64,
}

/// A range to copy.
struct Job {
    task: usize,
    at: usize,
    range: RangeState,
}

/// The state that all threads share.
pub struct Copier<'a> {
    pub source: &'a Node,
    pub target: &'a Node,
    /// Progress, stored in the target.
    pub state: &'a State,
    /// The options of the user.
    pub signals: &'a Signals,
    pub progress: &'a Progress,
}

impl Copier<'_> {
    /// Copies all collections, and builds the indexes of each when its documents are there. Returns what the target
    /// refused.
    pub fn run(&self, tasks: &[Task], jobs: usize) -> Result<Vec<Refusal>> {
        let mut source = self.source.connect()?;
        let mut target = self.target.connect()?;
        let mut queue = Vec::new();
        let mut open = Vec::new();
        let mut refused = Vec::new();
        for (at, task) in tasks.iter().enumerate() {
            self.signals.check()?;
            let state = self.prepare(&mut source, &mut target, task)?;
            let waiting: Vec<Job> = state
                .ranges
                .into_iter()
                .enumerate()
                .map(|(n, range)| Job {
                    task: at,
                    at: n,
                    range,
                })
                .inspect(|job| self.progress.add(job.range.copied))
                .filter(|job| !job.range.done)
                .collect();
            open.push(AtomicUsize::new(waiting.len()));
            if waiting.is_empty() && !state.done {
                refused.extend(self.finish(&mut target, task)?);
            }
            queue.push(waiting);
        }
        // Large collections first, so that no thread is left alone with one in the end.
        queue.sort_by_key(|jobs| std::cmp::Reverse(jobs.len()));
        let queue: Mutex<VecDeque<Job>> = Mutex::new(queue.into_iter().flatten().collect());
        drop((source, target));
        let work = || -> Result<Vec<Refusal>> {
            let mut worker = Worker {
                copier: self,
                connections: None,
                run: Run::default(),
            };
            let mut refused = Vec::new();
            loop {
                self.signals.check()?;
                let next = queue.lock().unwrap_or_else(|e| e.into_inner()).pop_front();
                let Some(job) = next else {
                    return Ok(refused);
                };
                let (Some(task), Some(open)) = (tasks.get(job.task), open.get(job.task)) else {
                    continue;
                };
                let done = worker
                    .copy(&task.listed.collection, job.at, job.range)
                    .and_then(|()| {
                        if open.fetch_sub(1, Ordering::AcqRel) == 1 {
                            refused.extend(worker.finish(task)?);
                        }
                        Ok(())
                    });
                if let Err(error) = done {
                    // The others need not begin anything new.
                    queue.lock().unwrap_or_else(|e| e.into_inner()).clear();
                    return Err(error);
                }
            }
        };
        let results: Vec<Result<Vec<Refusal>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|_| {
                        Err(Error::Data("a thread of the copy has died".to_owned()))
                    })
                })
                .collect()
        });
        for result in results {
            refused.extend(result?);
        }
        Ok(refused)
    }

    /// Loads the progress of a collection. A collection without progress is created and divided.
    fn prepare(
        &self,
        source: &mut Client,
        target: &mut Client,
        task: &Task,
    ) -> Result<CollectionState> {
        let collection = &task.listed.collection;
        if let Some(state) = self.state.read_collection(target, collection)? {
            return Ok(state);
        }
        if schema::find(target, collection)?.is_none() {
            schema::create(target, &task.listed)?;
        }
        let ranges = ranges::divide(source, collection, task.documents, task.listed.is_ordered)?;
        let state = CollectionState {
            ranges: ranges
                .into_iter()
                .map(|range| RangeState {
                    range,
                    last: None,
                    done: false,
                    copied: 0,
                })
                .collect(),
            done: false,
        };
        self.state.write_collection(target, collection, &state)?;
        Ok(state)
    }

    fn finish(&self, target: &mut Client, task: &Task) -> Result<Vec<Refusal>> {
        let collection = &task.listed.collection;
        let refused = schema::create_indexes(target, collection, &task.indexes)?;
        if let Some(mut state) = self.state.read_collection(target, collection)? {
            state.done = true;
            self.state.write_collection(target, collection, &state)?;
        }
        Ok(refused)
    }
}

struct Worker<'a> {
    copier: &'a Copier<'a>,
    connections: Option<(Client, Client)>,
    run: Run,
}

impl Worker<'_> {
    /// The connections, which are reopened if they failed.
    fn connect(&mut self) -> Result<(&mut Client, &mut Client)> {
        if self.connections.is_none() {
            let copier = self.copier;
            self.connections = Some((copier.source.connect()?, copier.target.connect()?));
        }
        match &mut self.connections {
            Some((source, target)) => Ok((source, target)),
            None => Err(Error::Data("no connection".to_owned())),
        }
    }

    /// Copies a range, and goes on where it was after a connection failed.
    fn copy(&mut self, collection: &Collection, at: usize, mut range: RangeState) -> Result<()> {
        let mut tries = 0;
        let mut has_failed = false;
        loop {
            let before = range.copied;
            let copied = if has_failed {
                self.read_again(collection, at, &mut range)
            } else {
                Ok(())
            };
            match copied.and_then(|()| self.copy_once(collection, at, &mut range)) {
                Err(error) if error.is_connection() && tries < TRIES => {
                    self.connections = None;
                    self.copier.signals.check()?;
                    has_failed = true;
                    tries = if range.copied > before { 0 } else { tries + 1 };
                    std::thread::sleep(PAUSE);
                }
                // A cursor that the source has lost, such as after its restart.
                Err(error) if error.code() == Some(CURSOR_NOT_FOUND) && range.copied > before => {}
                other => return other,
            }
        }
    }

    /// Builds the indexes of a collection, again if its connection failed.
    fn finish(&mut self, task: &Task) -> Result<Vec<Refusal>> {
        let mut tries = 0;
        loop {
            let copier = self.copier;
            let done = self
                .connect()
                .and_then(|(_, target)| copier.finish(target, task));
            match done {
                Err(error) if error.is_connection() && tries < TRIES => {
                    self.connections = None;
                    self.copier.signals.check()?;
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Reads how far a range is: a target that has crashed may have lost what it had acknowledged, and then what it
    /// kept of the range, too.
    fn read_again(
        &mut self,
        collection: &Collection,
        at: usize,
        range: &mut RangeState,
    ) -> Result<()> {
        let state = self.copier.state;
        let (_, target) = self.connect()?;
        let kept = state.read_collection(target, collection)?;
        if let Some(kept) = kept.and_then(|kept| kept.ranges.into_iter().nth(at)) {
            *range = kept;
        }
        Ok(())
    }

    fn copy_once(
        &mut self,
        collection: &Collection,
        at: usize,
        range: &mut RangeState,
    ) -> Result<()> {
        let copier = self.copier;
        let mut run = std::mem::take(&mut self.run);
        run.clear();
        let (source, target) = self.connect()?;
        let result = copy_range(copier, source, target, collection, at, range, &mut run);
        self.run = run;
        result
    }
}

fn copy_range(
    copier: &Copier<'_>,
    source: &mut Client,
    target: &mut Client,
    collection: &Collection,
    at: usize,
    range: &mut RangeState,
    run: &mut Run,
) -> Result<()> {
    let by_id = range.range.is_by_id();
    let last = range.last.clone();
    let filter = range
        .range
        .filter(last.as_ref().map(|last| last.as_value()).as_ref());
    let sort = doc! { "_id": 1 };
    let request = CursorRequest {
        collection,
        filter: &filter,
        projection: None,
        sort: by_id.then_some(sort.as_doc()),
        limit: 0,
        batch: BATCH,
        tailable: false,
    };
    if !by_id {
        range.copied = 0;
    }
    let mut cursor = source.open_find(&request, &mut |document| {
        run.push(document);
        Ok(())
    })?;
    loop {
        store(target, collection, run)?;
        copier.progress.add(run.len() as u64);
        range.copied += run.len() as u64;
        range.done = !cursor.is_open();
        if by_id && let Some(id) = last_id(run) {
            range.last = Some(id);
        }
        if !run.is_empty() || range.done {
            copier.state.write_range(target, collection, at, range)?;
        }
        if range.done {
            return Ok(());
        }
        copier.signals.check()?;
        run.clear();
        source.more(&mut cursor, None, &mut |document| {
            run.push(document);
            Ok(())
        })?;
    }
}

fn last_id(run: &Run) -> Option<frond_bson::OwnedValue> {
    let last = run.get(run.len().checked_sub(1)?)?;
    last.get("_id").map(|id| id.to_owned())
}

/// Inserts documents. Those that are there already came from an interrupted copy.
fn store(target: &mut Client, collection: &Collection, run: &Run) -> Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    let options = BulkOptions {
        ordered: false,
        bypass_validation: true,
        journal: false,
    };
    let failed = write::write_all(target, collection, "insert", run, options)?;
    let others: Vec<_> = failed
        .into_iter()
        .filter(|failure| failure.code != DUPLICATE_KEY)
        .collect();
    if let Some(failure) = others.first() {
        let id = run
            .get(failure.index)
            .and_then(write::id_of)
            .unwrap_or_default();
        return Err(Error::Refused(format!(
            "{collection}: the target refuses the document {id:?}: {} (code {})",
            failure.message, failure.code
        )));
    }
    Ok(())
}

/// Copies the documents and indexes of one collection again, by one thread and without a state.
pub fn copy_again(
    source: &mut Client,
    target: &mut Client,
    listed: &Listed,
) -> Result<Vec<Refusal>> {
    let collection = &listed.collection;
    schema::drop(target, collection)?;
    schema::create(target, listed)?;
    let mut run = Run::default();
    let request = CursorRequest {
        collection,
        filter: Doc::empty(),
        projection: None,
        sort: None,
        limit: 0,
        batch: BATCH,
        tailable: false,
    };
    let mut cursor = source.open_find(&request, &mut |document| {
        run.push(document);
        Ok(())
    })?;
    store(target, collection, &run)?;
    while cursor.is_open() {
        run.clear();
        source.more(&mut cursor, None, &mut |document| {
            run.push(document);
            Ok(())
        })?;
        store(target, collection, &run)?;
    }
    let indexes = inventory::indexes(source, collection)?;
    schema::create_indexes(target, collection, &indexes)
}
