//! Running a pipeline: each stage pulls documents from the one before it.

use crate::aggregate::Pipeline;
use crate::error::{Error, ErrorCode, Result};
use frond_bson::{Doc, DocBuf};
use std::sync::Arc;

/// Documents one after the other.
///
/// `E` is the error of whoever runs the pipeline; the language's own errors convert into it.
pub trait DocSource<E>: Send {
    /// The next document, `None` at the end and after it.
    ///
    /// # Errors
    /// What the source or a stage fails with; the source is not used any more after that.
    fn next(&mut self) -> Result<Option<DocBuf>, E>;
}

/// A source on the heap.
pub type Source<E> = Box<dyn DocSource<E>>;

/// What an error type needs to pass through a pipeline.
pub trait Fault: From<Error> + Send + 'static {}

impl<E: From<Error> + Send + 'static> Fault for E {}

/// Documents at hand, for instance in tests and for `$documents`.
#[derive(Debug)]
pub struct Docs(std::vec::IntoIter<DocBuf>);

impl Docs {
    /// A source of these documents.
    pub fn new(docs: Vec<DocBuf>) -> Docs {
        Docs(docs.into_iter())
    }
}

impl<E> DocSource<E> for Docs {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        Ok(self.0.next())
    }
}

/// What a pipeline needs from the server around it: other collections and their figures.
///
/// Every method has a default that refuses with an error naming the stage.
pub trait Host<E: Fault>: Send + Sync {
    /// Runs a pipeline over another collection of the database, for `$lookup` and `$unionWith`. A
    /// collection that does not exist is empty. `database` is given where the stage names one.
    ///
    /// # Errors
    /// Those of the collection.
    fn run(
        &self,
        stage: &'static str,
        _database: Option<&str>,
        _collection: &str,
        _pipeline: Pipeline,
    ) -> Result<Source<E>, E> {
        Err(refused(stage).into())
    }

    /// Writes all documents into a collection, for `$out` and `$merge`. `spec` is the argument of
    /// the stage, not checked yet.
    ///
    /// # Errors
    /// Those of writing.
    fn write(&self, stage: &'static str, _spec: &Doc, _docs: Source<E>) -> Result<(), E> {
        Err(refused(stage).into())
    }

    /// The documents of `$collStats`, `$indexStats` and other stages that describe the collection.
    ///
    /// # Errors
    /// Those of the collection.
    fn describe(&self, stage: &'static str, _spec: &Doc) -> Result<Source<E>, E> {
        Err(refused(stage).into())
    }
}

fn refused(stage: &str) -> Error {
    Error::not_supported(format!("the aggregation stage '{stage}'"))
}

/// A host without collections.
#[derive(Debug)]
pub struct NoHost;

impl<E: Fault> Host<E> for NoHost {}

/// What stages take from outside; the query language has neither clock nor chance.
pub struct ExecContext<E> {
    /// `$$NOW`, in milliseconds since 1970.
    pub now_ms: i64,
    /// What `$sample` chooses by.
    pub seed: u64,
    /// Bytes that one blocking stage may hold.
    pub memory_bytes_max: usize,
    /// Other collections.
    pub host: Arc<dyn Host<E>>,
}

/// What one blocking stage may hold by default, as in MongoDB: 100 MiB.
pub const STAGE_MEMORY_BYTES_MAX: usize = 100 * 1024 * 1024;

impl<E: Fault> ExecContext<E> {
    /// A context without other collections.
    pub fn new(now_ms: i64) -> ExecContext<E> {
        ExecContext {
            now_ms,
            seed: now_ms.unsigned_abs(),
            memory_bytes_max: STAGE_MEMORY_BYTES_MAX,
            host: Arc::new(NoHost),
        }
    }
}

impl<E> Clone for ExecContext<E> {
    fn clone(&self) -> Self {
        ExecContext {
            now_ms: self.now_ms,
            seed: self.seed,
            memory_bytes_max: self.memory_bytes_max,
            host: self.host.clone(),
        }
    }
}

impl<E> std::fmt::Debug for ExecContext<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecContext")
            .field("now_ms", &self.now_ms)
            .field("seed", &self.seed)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .finish_non_exhaustive()
    }
}

/// The memory of one blocking stage.
#[derive(Debug)]
pub(super) struct Memory {
    stage: &'static str,
    used: usize,
    max: usize,
}

impl Memory {
    pub(super) fn new(stage: &'static str, max: usize) -> Memory {
        Memory {
            stage,
            used: 0,
            max,
        }
    }

    /// Counts bytes that are kept. Error 292 beyond the limit.
    pub(super) fn add(&mut self, bytes: usize) -> Result<()> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.max {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Exceeded memory limit for {}: it holds more than {} bytes, and this server \
                     does not move such stages to disk",
                    self.stage, self.max
                ),
            ));
        }
        Ok(())
    }

    /// Counts bytes that were given back.
    pub(super) fn sub(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// A stage that reads all of its input before its first document.
pub(super) struct Blocking<E, F> {
    state: State<E, F>,
}

enum State<E, F> {
    Waiting(Option<(Source<E>, F)>),
    Giving(std::vec::IntoIter<DocBuf>),
}

impl<E, F> Blocking<E, F>
where
    F: FnOnce(Source<E>) -> Result<Vec<DocBuf>, E> + Send,
{
    /// `drain` reads the input and gives the documents that come out.
    pub(super) fn new(input: Source<E>, drain: F) -> Blocking<E, F> {
        Blocking {
            state: State::Waiting(Some((input, drain))),
        }
    }
}

impl<E, F> DocSource<E> for Blocking<E, F>
where
    F: FnOnce(Source<E>) -> Result<Vec<DocBuf>, E> + Send,
{
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        if let State::Waiting(waiting) = &mut self.state {
            let docs = match waiting.take() {
                Some((input, drain)) => drain(input)?,
                None => Vec::new(),
            };
            self.state = State::Giving(docs.into_iter());
        }
        match &mut self.state {
            State::Giving(docs) => Ok(docs.next()),
            State::Waiting(_) => Ok(None),
        }
    }
}
