//! The memory that a stage holds: bounded by the limit of the stage, and by what all operations share.

use frond_error::{Error, ErrorCode};
use std::fmt::{Debug, Display};

/// Memory is taken in steps of this many bytes.
const STEP_BYTES: usize = 64 * 1024;

/// The least memory of a stage, in bytes. A stage always gets this much, because it makes no progress with less.
const SURE_BYTES: usize = 512 * 1024;

/// Memory that operations share.
pub trait SharedMemory: Debug + Send + Sync {
    /// A share without any bytes yet.
    fn open(&self) -> Box<dyn MemoryShare>;
}

/// One holder's part of the shared memory. Dropping it returns the memory.
pub trait MemoryShare: Send {
    /// Takes more; false, without effect, if too little is left for this holder.
    fn try_grow(&mut self, bytes: usize) -> bool;

    /// Takes more, whatever is left.
    fn grow(&mut self, bytes: usize);

    fn shrink(&mut self, bytes: usize);
}

/// Whether what a stage holds is within its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Fits,
    /// It is beyond the limit of the stage.
    OverLimit,
    /// The memory that all operations share is used up.
    Scarce,
}

/// Error 146: the memory that all operations share is used up, and `what` cannot do with less.
pub fn scarce(what: impl Display) -> Error {
    Error::new(
        ErrorCode::ExceededMemoryLimit,
        format!(
            "{what} cannot go on: the memory for all operations is used up. Try again when fewer operations run, or give \
             the server more memory"
        ),
    )
}

/// The bytes that a stage holds.
pub struct StageMemory {
    bytes: usize,
    bytes_max: usize,
    /// Taken of the shared memory.
    taken: usize,
    share: Option<Box<dyn MemoryShare>>,
}

impl StageMemory {
    /// Nothing yet, of at most `bytes_max`.
    pub fn new(bytes_max: usize, shared: Option<&dyn SharedMemory>) -> StageMemory {
        StageMemory {
            bytes: 0,
            bytes_max,
            taken: 0,
            share: shared.map(SharedMemory::open),
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts more bytes. If the result is not [`Fit::Fits`], the stage has to spill or to fail.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> Fit {
        self.bytes += bytes;
        if self.bytes <= self.taken.min(self.bytes_max) {
            return Fit::Fits;
        }
        self.take()
    }

    fn take(&mut self) -> Fit {
        if self.bytes > self.bytes_max {
            return Fit::OverLimit;
        }
        let more = (self.bytes - self.taken).next_multiple_of(STEP_BYTES);
        if let Some(share) = &mut self.share
            && !share.try_grow(more)
        {
            if self.bytes > SURE_BYTES {
                return Fit::Scarce;
            }
            share.grow(more);
        }
        self.taken += more;
        Fit::Fits
    }

    /// Counts bytes that are held in any case.
    pub fn add_always(&mut self, bytes: usize) {
        self.bytes += bytes;
        let more = self.bytes.saturating_sub(self.taken);
        if more > 0 {
            if let Some(share) = &mut self.share {
                share.grow(more);
            }
            self.taken += more;
        }
    }

    #[inline]
    pub fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        if self.taken.saturating_sub(self.bytes) >= 4 * STEP_BYTES {
            self.give_back();
        }
    }

    /// Counts this many bytes instead.
    pub fn set(&mut self, bytes: usize) -> Fit {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.add(more),
            None => {
                self.remove(self.bytes - bytes);
                self.add(0)
            }
        }
    }

    /// Counts this many bytes instead, of something that `what` cannot put aside.
    ///
    /// # Errors
    /// `ExceededMemoryLimit` (146) beyond the limits.
    pub fn require(&mut self, bytes: usize, what: &str) -> Result<(), Error> {
        match self.set(bytes) {
            Fit::Fits => Ok(()),
            Fit::OverLimit => Err(Error::new(
                ErrorCode::ExceededMemoryLimit,
                format!(
                    "{what} holds {bytes} bytes; the limit is {} bytes",
                    self.bytes_max
                ),
            )),
            Fit::Scarce => Err(scarce(what)),
        }
    }

    /// Counts nothing any more.
    pub fn clear(&mut self) {
        self.bytes = 0;
        self.give_back();
    }

    fn give_back(&mut self) {
        let spare = self.taken.saturating_sub(self.bytes);
        if let Some(share) = &mut self.share {
            share.shrink(spare);
        }
        self.taken -= spare;
    }
}

impl Debug for StageMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("bytes", &self.bytes)
            .field("bytes_max", &self.bytes_max)
            .finish_non_exhaustive()
    }
}

/// Shared memory of a fixed size, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Pool {
        pub(crate) left: Arc<AtomicUsize>,
    }

    struct Part(Pool, usize);

    impl Pool {
        pub(crate) fn with_bytes(bytes: usize) -> Pool {
            Pool {
                left: Arc::new(AtomicUsize::new(bytes)),
            }
        }
    }

    impl SharedMemory for Pool {
        fn open(&self) -> Box<dyn MemoryShare> {
            Box::new(Part(self.clone(), 0))
        }
    }

    impl MemoryShare for Part {
        fn try_grow(&mut self, bytes: usize) -> bool {
            let fits = self.0.left.load(Ordering::Relaxed) >= bytes;
            if fits {
                self.grow(bytes);
            }
            fits
        }

        fn grow(&mut self, bytes: usize) {
            let left = self.0.left.load(Ordering::Relaxed);
            let taken = bytes.min(left);
            self.0.left.fetch_sub(taken, Ordering::Relaxed);
            self.1 += taken;
        }

        fn shrink(&mut self, bytes: usize) {
            let bytes = bytes.min(self.1);
            self.0.left.fetch_add(bytes, Ordering::Relaxed);
            self.1 -= bytes;
        }
    }

    impl Drop for Part {
        fn drop(&mut self) {
            self.shrink(self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Pool;
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_stage_holds_what_its_limit_and_the_others_leave() {
        let pool = Pool::with_bytes(1 << 20);
        let left = || pool.left.load(Ordering::Relaxed);
        let mut small = StageMemory::new(1000, Some(&pool));
        assert_eq!((small.add(1000), small.add(1)), (Fit::Fits, Fit::OverLimit));
        let mut large = StageMemory::new(100 << 20, Some(&pool));
        assert_eq!(large.add(900 << 10), Fit::Fits);
        assert_eq!(large.add(100 << 10), Fit::Scarce);
        // Others still get a little.
        let mut late = StageMemory::new(100 << 20, Some(&pool));
        assert_eq!(late.add(SURE_BYTES), Fit::Fits);
        assert_eq!(late.add(1), Fit::Scarce);
        large.remove(1000 << 10);
        assert_eq!(large.bytes(), 0);
        assert!(left() > 800 << 10, "{}", left());
        drop((small, large));
        late.clear();
        assert_eq!(left(), 1 << 20);
        late.add_always(2 << 20);
        assert_eq!((left(), late.bytes()), (0, 2 << 20));
        drop(late);
        assert_eq!(left(), 1 << 20);
    }
}
