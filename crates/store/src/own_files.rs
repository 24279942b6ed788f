//! Capabilities of an engine whose trees are files of this machine, with the answers of one that has none.

use frond_storage::error::Result;
use frond_storage::keyspace::{Damage, DiskSpace, Engine, EngineError, EngineStats, Files, TreeId};

/// The files of an engine, if it has some. Without files there are no memtables, no log that may be cut, no bulk loads that wait,
/// and no disk that fills up.
#[derive(Clone, Copy)]
pub(crate) struct OwnFiles<'a> {
    engine: &'a Engine,
    files: Option<&'a Files>,
}

impl<'a> OwnFiles<'a> {
    #[inline]
    pub fn new(engine: &'a Engine) -> OwnFiles<'a> {
        let files = engine.files();
        OwnFiles { engine, files }
    }

    /// The files, for a request that cannot be served without them.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] if there are none.
    pub fn require(self) -> Result<&'a Files, EngineError> {
        self.engine.require_files()
    }

    pub fn retained_bytes(self) -> u64 {
        self.files.map_or(0, Files::retained_bytes)
    }

    #[inline]
    pub fn retains_too_much(self) -> bool {
        self.files.is_some_and(Files::retains_too_much)
    }

    pub fn retains_far_too_much(self) -> bool {
        self.files.is_some_and(Files::retains_far_too_much)
    }

    pub fn stats(self) -> EngineStats {
        self.files.map_or_else(EngineStats::default, Files::stats)
    }

    pub fn disk_space(self) -> Option<DiskSpace> {
        self.files.map(Files::disk_space)
    }

    pub fn is_disk_low(self) -> bool {
        self.files.is_some_and(Files::is_disk_low)
    }

    /// Waits for space that deletions free. Returns whether some may have become free.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn await_space(self) -> Result<bool> {
        self.files
            .map_or(Ok(false), |files| Ok(files.await_space()?))
    }

    pub fn was_log_cut(self) -> bool {
        self.files.is_some_and(Files::was_log_cut)
    }

    /// Whether a tree waits for a bulk load that a crash interrupted.
    pub fn is_loading(self, tree: TreeId) -> bool {
        self.files.is_some_and(|files| files.is_loading(tree))
    }

    pub fn damage(self) -> Vec<Damage> {
        self.files.map_or_else(Vec::new, Files::damage)
    }

    /// # Errors
    /// Errors of the disk.
    pub fn checkpoint(self) -> Result<()> {
        self.files.map_or(Ok(()), |files| Ok(files.checkpoint()?))
    }
}
