//! The memory of operations, in the budget of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_query::memory::{MemoryShare, SharedMemory, scarce};

use frond_storage::error::Result;
use frond_storage::keyspace::{MemoryBudget, MemoryUse, Reservation};

/// Makes room for more bytes in a buffer of rows. Most results are small, and to move them as the buffer grows costs more
/// than room for the usual ones.
pub fn make_room(buffer: &mut Vec<u8>, bytes: usize) {
    // Sizes that the allocator's thread caches have.
    const STEPS: [usize; 2] = [4 << 10, 28 << 10];
    let needed = buffer.len() + bytes;
    if needed <= buffer.capacity() {
        return;
    }
    match STEPS.into_iter().find(|step| *step >= needed) {
        Some(step) => buffer.reserve_exact(step - buffer.len()),
        None => buffer.reserve(bytes),
    }
}

/// The memory of one operation: a part of the budget of the process, taken fairly beside other operations.
#[derive(Clone, Debug)]
pub struct OperationMemory {
    budget: MemoryBudget,
    /// The present memory of the operation, in bytes.
    held: Arc<AtomicU64>,
}

impl OperationMemory {
    /// Memory of a new operation.
    pub fn new(budget: &MemoryBudget) -> OperationMemory {
        OperationMemory {
            budget: budget.clone(),
            held: Arc::default(),
        }
    }

    /// Bytes that the operation has now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// As the shared memory of the query language.
    pub fn shared(&self) -> Arc<dyn SharedMemory> {
        Arc::new(self.clone())
    }
}

impl SharedMemory for OperationMemory {
    fn open(&self) -> Box<dyn MemoryShare> {
        Box::new(Share {
            reservation: self.budget.reserve(MemoryUse::Queries, 0),
            held: self.held.clone(),
        })
    }
}

/// The memory of one stage of an operation.
struct Share {
    reservation: Reservation,
    held: Arc<AtomicU64>,
}

impl MemoryShare for Share {
    fn try_grow(&mut self, bytes: usize) -> bool {
        let fits = self.reservation.try_grow_fairly(bytes);
        if fits {
            self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        fits
    }

    fn grow(&mut self, bytes: usize) {
        self.reservation.grow(bytes);
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.reservation.bytes());
        self.reservation.shrink(bytes);
        self.held.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let bytes = self.reservation.bytes() as u64;
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory is taken in steps of this many bytes.
const STEP_BYTES: usize = 64 * 1024;
/// The memory that every set may hold, however little is left for all.
const SURE_BYTES: usize = 512 * 1024;

/// Grows what an operator holds that cannot go to disk, by `bytes` to `total`.
///
/// # Errors
/// `ExceededMemoryLimit` (146) if too little is left for all.
pub fn take(
    reservation: &mut Option<Reservation>,
    budget: Option<&MemoryBudget>,
    total: usize,
    what: &str,
) -> Result<()> {
    let Some(budget) = budget else {
        return Ok(());
    };
    let reserved = reservation.get_or_insert_with(|| budget.reserve(MemoryUse::Queries, 0));
    if total <= reserved.bytes() {
        return Ok(());
    }
    let more = (total - reserved.bytes()).next_multiple_of(STEP_BYTES);
    if total <= SURE_BYTES {
        reserved.grow(more);
    } else if !reserved.try_grow_fairly(more) {
        return Err(scarce(what).into());
    }
    Ok(())
}
