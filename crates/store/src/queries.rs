//! The resources of queries: memory limits and temporary files.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use frond_query::aggregate::StageLimits;
use frond_query::script::ScriptEngine;
use frond_query::spill::{Budget, SpillSpace, Spilled};

use crate::spill::SpillFolder;
use frond_error::ErrorCode;
use frond_storage::error::{Result, command};

/// The settings of queries, which can change while the store is open.
#[derive(Debug)]
pub struct QuerySettings {
    limits: [AtomicUsize; COUNT],
    disk_use: AtomicBool,
    engine: OnceLock<Arc<dyn ScriptEngine>>,
    folder: Option<Arc<SpillFolder>>,
}

/// A limit on one stage of one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each is named after its stage
pub enum QueryLimit {
    Sort,
    Group,
    BucketAuto,
    SetWindowFields,
    GraphLookup,
    Facet,
    DensifyDocuments,
}

const COUNT: usize = 7;

impl QuerySettings {
    /// The defaults; temporary files go into a folder, which is emptied. Without a folder nothing is
    /// written, and queries that exceed their memory limit fail. With `encrypts` they have a key that is nowhere else than in memory.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new(folder: Option<&Path>, encrypts: bool) -> Result<QuerySettings> {
        let limits = StageLimits::default();
        let open = |path| SpillFolder::open(path, encrypts);
        let folder = folder.map(open).transpose();
        let folder = folder.map_err(|error| {
            let message = format!("the folder of temporary files cannot be emptied: {error}");
            command(ErrorCode::FileStreamFailed, message)
        })?;
        Ok(QuerySettings {
            limits: [
                limits.sort,
                limits.group,
                limits.bucket_auto,
                limits.set_window_fields,
                limits.graph_lookup,
                limits.facet,
                usize::try_from(limits.densify_documents).unwrap_or(usize::MAX),
            ]
            .map(AtomicUsize::new),
            disk_use: AtomicBool::new(true),
            engine: OnceLock::new(),
            folder: folder.map(Arc::new),
        })
    }

    /// Runs JavaScript; `None` if it is turned off.
    pub fn engine(&self) -> Option<Arc<dyn ScriptEngine>> {
        self.engine.get().cloned()
    }

    /// Sets [`QuerySettings::engine`], once.
    pub fn set_engine(&self, engine: Arc<dyn ScriptEngine>) {
        let _ = self.engine.set(engine);
    }

    /// A limit; of memory in bytes.
    pub fn limit(&self, limit: QueryLimit) -> usize {
        let limit = self.limits.get(limit as usize);
        limit.map_or(0, |limit| limit.load(Ordering::Relaxed))
    }

    /// Changes a limit for queries that begin from now on.
    pub fn set_limit(&self, limit: QueryLimit, value: usize) {
        if let Some(limit) = self.limits.get(limit as usize) {
            limit.store(value, Ordering::Relaxed);
        }
    }

    /// Whether queries may write temporary files by default.
    pub fn disk_use_by_default(&self) -> bool {
        self.disk_use.load(Ordering::Relaxed)
    }

    /// Changes [`QuerySettings::disk_use_by_default`].
    pub fn set_disk_use_by_default(&self, allowed: bool) {
        self.disk_use.store(allowed, Ordering::Relaxed);
    }

    /// The limits of the stages of one pipeline.
    pub fn stage_limits(&self) -> StageLimits {
        StageLimits {
            sort: self.limit(QueryLimit::Sort),
            group: self.limit(QueryLimit::Group),
            bucket_auto: self.limit(QueryLimit::BucketAuto),
            set_window_fields: self.limit(QueryLimit::SetWindowFields),
            graph_lookup: self.limit(QueryLimit::GraphLookup),
            facet: self.limit(QueryLimit::Facet),
            densify_documents: self.limit(QueryLimit::DensifyDocuments) as u64,
        }
    }

    /// The temporary files of one query; `allowed` is its own option.
    pub fn space(&self, allowed: Option<bool>) -> Option<Arc<dyn SpillSpace>> {
        let allowed = allowed.unwrap_or_else(|| self.disk_use_by_default());
        let folder = self.folder.as_ref().filter(|_| allowed)?;
        Some(folder.clone())
    }

    /// The budget of the sort of one query.
    pub fn sort_budget(&self, allowed: Option<bool>, spilled: Arc<Spilled>) -> Budget {
        Budget {
            stage: "$sort",
            bytes_max: self.limit(QueryLimit::Sort),
            // Given when the query is planned.
            memory: None,
            space: self.space(allowed),
            spilled,
        }
    }
}
