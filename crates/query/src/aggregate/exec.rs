//! Running a pipeline: each stage pulls documents from the one before it.

use crate::aggregate::groups::Groups;
use crate::aggregate::{Pipeline, Writing};
use crate::memory::{SharedMemory, StageMemory};
use crate::meta::Metadata;
use crate::spill::{Budget, Sorted, SpillSpace, Spilled};
use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, Result};
use std::sync::Arc;

/// Documents one after the other.
///
/// `E` is the error type of the caller; the language's own errors convert into it.
pub trait DocSource<E>: Send {
    /// The next document, `None` at the end and after it.
    ///
    /// # Errors
    /// What the source or a stage fails with; the source is not used any more after that.
    fn next(&mut self) -> Result<Option<DocBuf>, E>;

    /// The metadata of the document that [`DocSource::next`] gave last, if it has any.
    fn meta(&self) -> Option<&Metadata> {
        None
    }

    /// Adds all further documents to groups, as [`DocSource::next`] gives them. A source that can do so adds them without
    /// copying them, or in parts.
    ///
    /// # Errors
    /// As [`DocSource::next`], and those of the groups.
    fn group(&mut self, groups: &mut Groups) -> Result<(), E>
    where
        E: From<Error>,
    {
        while let Some(doc) = self.next()? {
            groups.add(&doc, self.meta())?;
        }
        Ok(())
    }
}

/// A source on the heap.
pub type Source<E> = Box<dyn DocSource<E>>;

/// Bounds on an error type that passes through a pipeline.
pub trait Fault: From<Error> + Send + 'static {}

impl<E: From<Error> + Send + 'static> Fault for E {}

/// Documents at hand, for instance in tests and for `$documents`.
#[derive(Debug)]
pub struct Docs {
    docs: std::vec::IntoIter<DocBuf>,
    /// Counts the bytes of these rows; `None` where they are not counted.
    _held: Option<StageMemory>,
}

impl Docs {
    /// A source of these documents.
    pub fn new(docs: Vec<DocBuf>) -> Docs {
        Docs {
            docs: docs.into_iter(),
            _held: None,
        }
    }

    /// A source of these documents, which are counted until it is dropped.
    pub(super) fn counted(docs: Vec<DocBuf>, mut held: StageMemory) -> Docs {
        held.clear();
        held.add_always(
            docs.iter()
                .map(|doc| doc.len_bytes() + size_of::<DocBuf>())
                .sum(),
        );
        Docs {
            _held: Some(held),
            ..Docs::new(docs)
        }
    }
}

impl<E> DocSource<E> for Docs {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        Ok(self.docs.next())
    }
}

/// The server around a pipeline: other collections and their statistics.
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

    /// The document with an `_id` of another collection of the database, found without a pipeline. The outer `None`: that takes
    /// one.
    ///
    /// # Errors
    /// Those of the collection.
    fn find_by_id(
        &self,
        _database: Option<&str>,
        _collection: &str,
        _id: &Value<'_>,
    ) -> Result<Option<Option<DocBuf>>, E> {
        Ok(None)
    }

    /// Writes all documents into a collection, for `$out` and `$merge`.
    ///
    /// # Errors
    /// Those of writing.
    fn write(&self, writing: Writing<'_>, _docs: Source<E>) -> Result<(), E> {
        Err(refused(writing.stage()).into())
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

/// Resources that stages get from their caller: the query language itself has no clock, no random numbers and no files.
pub struct ExecContext<E> {
    /// `$$NOW`, in milliseconds since 1970.
    pub now_ms: i64,
    /// Seed of the random choices of `$sample`.
    pub seed: u64,
    /// Memory limits of stages.
    pub limits: StageLimits,
    /// The memory that stages share with other operations; `None` if each has only its own limit.
    pub memory: Option<Arc<dyn SharedMemory>>,
    /// Where stages write what they may not hold; `None` if they may not write.
    pub space: Option<Arc<dyn SpillSpace>>,
    pub spilled: Arc<Spilled>,
    pub host: Arc<dyn Host<E>>,
}

/// Default memory limit of one blocking stage, as in MongoDB: 100 MiB.
pub const STAGE_MEMORY_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Limits of single stages; of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLimits {
    pub sort: usize,
    pub group: usize,
    pub bucket_auto: usize,
    pub set_window_fields: usize,
    pub graph_lookup: usize,
    pub facet: usize,
    /// Documents that one `$densify` may make.
    pub densify_documents: u64,
}

impl Default for StageLimits {
    fn default() -> StageLimits {
        StageLimits {
            sort: STAGE_MEMORY_BYTES_MAX,
            group: STAGE_MEMORY_BYTES_MAX,
            bucket_auto: STAGE_MEMORY_BYTES_MAX,
            set_window_fields: STAGE_MEMORY_BYTES_MAX,
            graph_lookup: STAGE_MEMORY_BYTES_MAX,
            facet: STAGE_MEMORY_BYTES_MAX,
            densify_documents: 500_000,
        }
    }
}

impl<E: Fault> ExecContext<E> {
    /// A context without other collections.
    pub fn new(now_ms: i64) -> ExecContext<E> {
        ExecContext {
            now_ms,
            seed: now_ms.unsigned_abs(),
            limits: StageLimits::default(),
            memory: None,
            space: None,
            spilled: Arc::default(),
            host: Arc::new(NoHost),
        }
    }
}

impl<E> ExecContext<E> {
    /// The memory of a stage that holds a document while it makes others of it.
    pub(super) fn held(&self) -> StageMemory {
        StageMemory::new(STAGE_MEMORY_BYTES_MAX, self.memory.as_deref())
    }

    /// Memory and disk space that a stage may use.
    pub(super) fn budget(&self, stage: &'static str, bytes_max: usize) -> Budget {
        Budget {
            stage,
            bytes_max,
            memory: self.memory.clone(),
            space: self.space.clone(),
            spilled: self.spilled.clone(),
        }
    }
}

impl<E> Clone for ExecContext<E> {
    fn clone(&self) -> Self {
        ExecContext {
            now_ms: self.now_ms,
            seed: self.seed,
            limits: self.limits,
            memory: self.memory.clone(),
            space: self.space.clone(),
            spilled: self.spilled.clone(),
            host: self.host.clone(),
        }
    }
}

impl<E> std::fmt::Debug for ExecContext<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecContext")
            .field("now_ms", &self.now_ms)
            .field("seed", &self.seed)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// A stage that reads its input before its first document: `open` is called when that is asked for,
/// and gives the documents that come out.
pub(super) struct Deferred<E, F> {
    state: State<E, F>,
}

enum State<E, F> {
    Waiting(Option<(Source<E>, F)>),
    Giving(Source<E>),
}

impl<E, F> Deferred<E, F>
where
    F: FnOnce(Source<E>) -> Result<Source<E>, E> + Send,
{
    pub(super) fn new(input: Source<E>, open: F) -> Deferred<E, F> {
        Deferred {
            state: State::Waiting(Some((input, open))),
        }
    }
}

impl<E, F> DocSource<E> for Deferred<E, F>
where
    F: FnOnce(Source<E>) -> Result<Source<E>, E> + Send,
{
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        if let State::Waiting(waiting) = &mut self.state {
            let Some((input, open)) = waiting.take() else {
                return Ok(None);
            };
            self.state = State::Giving(open(input)?);
        }
        match &mut self.state {
            State::Giving(docs) => docs.next(),
            State::Waiting(_) => Ok(None),
        }
    }
}

/// The documents of a sorter, in order.
pub(super) struct InOrder(Sorted<DocBuf>);

impl InOrder {
    pub(super) fn new(sorted: Sorted<DocBuf>) -> InOrder {
        InOrder(sorted)
    }
}

impl<E: Fault> DocSource<E> for InOrder {
    fn next(&mut self) -> Result<Option<DocBuf>, E> {
        Ok(self.0.next()?.map(|(_, doc)| doc))
    }
}
