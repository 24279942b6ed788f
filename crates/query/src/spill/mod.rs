//! Spilling of blocking stages: what they cannot hold in memory goes to files of blocks, which the caller supplies. This
//! crate itself accesses no files.
//!
//! [`Sorter`] sorts records, [`SpillBuffer`] keeps documents by position.

mod buffer;
mod sorter;

pub use buffer::SpillBuffer;
pub use sorter::{Record, Sorted, Sorter, key_prefix};

use crate::memory::{Fit, SharedMemory, StageMemory, scarce};
use frond_error::{Error, ErrorCode, Result};
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A place for temporary files.
pub trait SpillSpace: Debug + Send + Sync {
    /// A new, empty file.
    ///
    /// # Errors
    /// Those of the file system.
    fn create(&self) -> io::Result<Box<dyn SpillFile>>;
}

/// A temporary file of blocks. It is deleted when it is dropped.
pub trait SpillFile: Send {
    /// Appends a block. Returns its location.
    ///
    /// # Errors
    /// Those of the file system.
    fn append(&mut self, block: &[u8]) -> io::Result<u64>;

    /// Reads the block at a location that [`SpillFile::append`] returned.
    ///
    /// # Errors
    /// Those of the file system.
    fn read(&mut self, at: u64) -> io::Result<Vec<u8>>;
}

/// The memory limit of a stage, and where it may spill.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The name of the stage, for errors.
    pub stage: &'static str,
    /// Bytes that the stage may hold in memory.
    pub bytes_max: usize,
    /// Memory budget shared with other operations; `None` if only the own limit counts.
    pub memory: Option<Arc<dyn SharedMemory>>,
    /// Where to spill; `None` if that is not allowed.
    pub space: Option<Arc<dyn SpillSpace>>,
    /// Statistics of what was spilled.
    pub spilled: Arc<Spilled>,
}

/// Statistics of what an operation has spilled, over all of its stages.
#[derive(Debug, Default)]
pub struct Spilled {
    times: AtomicU64,
    bytes: AtomicU64,
    /// Results in memory that can still be spilled. Some may be gone.
    results: Mutex<Vec<Weak<dyn Spill>>>,
}

/// A result that is read bit by bit, and can be moved to disk meanwhile.
trait Spill: Debug + Send + Sync {
    fn spill(&self) -> Result<()>;
}

impl Spilled {
    /// Moves the sorted results of the operation that are still in memory to disk, as far as it may write: for one that is
    /// idle while memory is scarce.
    ///
    /// # Errors
    /// Those of files. What could not be written is still in memory.
    pub fn spill_results(&self) -> Result<()> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.retain(|result| result.strong_count() > 0);
        let alive: Vec<_> = results.iter().filter_map(Weak::upgrade).collect();
        drop(results);
        alive.iter().try_for_each(|result| result.spill())
    }

    fn add_result(&self, result: Weak<dyn Spill>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        // A `$lookup` makes one for each document.
        if results.len() == results.capacity() {
            results.retain(|result| result.strong_count() > 0);
        }
        results.push(result);
    }

    /// The number of spills.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Bytes that were spilled, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Budget {
    /// A budget without spilling.
    pub fn in_memory(stage: &'static str, bytes_max: usize) -> Budget {
        Budget {
            stage,
            bytes_max,
            memory: None,
            space: None,
            spilled: Arc::default(),
        }
    }

    /// A new file. Error 292 if writing is not allowed.
    fn file(&self) -> Result<File> {
        let Some(space) = &self.space else {
            return Err(self.exceeded());
        };
        Ok(File(space.create().map_err(failed)?))
    }

    /// The account of a holder.
    pub fn held(&self) -> StageMemory {
        StageMemory::new(self.bytes_max, self.memory.as_deref())
    }

    /// The error of a holder that cannot spill: 292 beyond its own limit, 146 if other operations have the memory.
    pub(crate) fn refused(&self, fit: Fit) -> Error {
        match fit {
            Fit::Scarce => scarce(format_args!("{} without allowDiskUse:true", self.stage)),
            _ => self.exceeded(),
        }
    }

    fn note(&self, bytes: usize) {
        self.spilled.times.fetch_add(1, Ordering::Relaxed);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.spilled.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Error 292: the stage exceeds its memory limit, and may not spill.
    pub fn exceeded(&self) -> Error {
        let (stage, max) = (self.stage, self.bytes_max);
        let message = match stage {
            "$sort" => format!(
                "Sort exceeded memory limit of {max} bytes, but did not opt in to external \
                 sorting. Aborting operation. Pass allowDiskUse:true to opt in."
            ),
            "$group" => "Exceeded memory limit for $group, but didn't allow external sort. Pass \
                         allowDiskUse:true to opt in."
                .to_owned(),
            _ => format!(
                "Exceeded memory limit of {max} bytes for {stage}, but didn't allow external \
                 spilling; pass allowDiskUse:true to opt in"
            ),
        };
        Error::new(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed, message)
    }
}

/// A file with this crate's errors.
struct File(Box<dyn SpillFile>);

impl File {
    fn append(&mut self, block: &[u8]) -> Result<u64> {
        self.0.append(block).map_err(failed)
    }

    fn read(&mut self, at: u64) -> Result<Vec<u8>> {
        self.0.read(at).map_err(failed)
    }
}

fn failed(error: io::Error) -> Error {
    let code = if error.kind() == io::ErrorKind::StorageFull {
        ErrorCode::OutOfDiskSpace
    } else {
        ErrorCode::FileStreamFailed
    };
    Error::new(code, format!("temporary file of a query: {error}"))
}

/// The error for a file with malformed content.
fn corrupt() -> Error {
    failed(io::Error::new(
        io::ErrorKind::InvalidData,
        "it does not hold what was written",
    ))
}

/// Bytes of a block before it is written.
const BLOCK_BYTES: usize = 64 * 1024;

/// Appends a length and bytes.
pub(crate) fn put(block: &mut Vec<u8>, bytes: &[u8]) {
    // Records are parts of one document or key each, far below 4 GiB.
    block.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    block.extend_from_slice(bytes);
}

/// Takes what [`put`] wrote from the front.
pub(crate) fn take<'b>(block: &mut &'b [u8]) -> Result<&'b [u8]> {
    let (length, rest) = block.split_first_chunk().ok_or_else(corrupt)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (bytes, rest) = rest.split_at_checked(length).ok_or_else(corrupt)?;
    *block = rest;
    Ok(bytes)
}

/// Files in memory, for tests: how often they were used, and what is left of them.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Debug, Default)]
    pub(crate) struct Files {
        pub(crate) made: AtomicUsize,
        pub(crate) open: Arc<AtomicUsize>,
    }

    struct Blocks(Vec<Vec<u8>>, Arc<AtomicUsize>);

    impl SpillSpace for Files {
        fn create(&self) -> io::Result<Box<dyn SpillFile>> {
            self.made.fetch_add(1, Ordering::Relaxed);
            self.open.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Blocks(Vec::new(), self.open.clone())))
        }
    }

    impl Drop for Blocks {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl SpillFile for Blocks {
        fn append(&mut self, block: &[u8]) -> io::Result<u64> {
            self.0.push(block.to_vec());
            Ok(self.0.len() as u64 - 1)
        }

        fn read(&mut self, at: u64) -> io::Result<Vec<u8>> {
            let block = usize::try_from(at).ok().and_then(|at| self.0.get(at));
            block.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    impl Files {
        pub(crate) fn budget(self: &Arc<Files>, stage: &'static str, bytes_max: usize) -> Budget {
            Budget {
                space: Some(self.clone()),
                ..Budget::in_memory(stage, bytes_max)
            }
        }
    }
}
