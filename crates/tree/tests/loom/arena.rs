//! The arena, with its contract checked: a model fails that reads bytes without a write that happens before, or writes
//! bytes that another thread may be reading.

#[path = "../../src/memtable/arena.rs"]
#[allow(dead_code, unused_imports, reason = "the models do not call all of it")]
mod real;

use loom::cell::UnsafeCell;

/// Bytes per cell.
const CELL_BYTES: usize = 4;

pub(crate) struct Arena {
    real: real::Arena,
    /// Every access to bytes of the arena accesses their cells too.
    cells: Vec<UnsafeCell<bool>>,
}

// SAFETY: as for the arena itself; the cells check it.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(capacity: usize) -> Arena {
        let count = capacity / CELL_BYTES;
        Arena {
            real: real::Arena::new(capacity, &Default::default()),
            cells: (0..count).map(|_| UnsafeCell::new(false)).collect(),
        }
    }

    fn cells(&self, offset: u32, len: usize) -> &[UnsafeCell<bool>] {
        let end = (offset as usize + len).div_ceil(CELL_BYTES);
        &self.cells[offset as usize / CELL_BYTES..end]
    }

    pub(crate) fn allocate(&self, len: usize) -> Option<u32> {
        self.real.allocate(len)
    }

    /// # Safety
    /// As the arena's.
    pub(crate) unsafe fn write(&self, offset: u32, bytes: &[u8]) {
        for cell in self.cells(offset, bytes.len()) {
            // SAFETY: the cell has just checked that no other thread accesses it.
            cell.with_mut(|written| unsafe { *written = true });
        }
        // SAFETY: the caller's promise.
        unsafe { self.real.write(offset, bytes) }
    }

    /// # Safety
    /// As the arena's.
    pub(crate) unsafe fn bytes(&self, offset: u32, len: usize) -> &[u8] {
        for cell in self.cells(offset, len) {
            // SAFETY: the cell has just checked that no thread writes.
            let written = cell.with(|written| unsafe { *written });
            assert!(written, "bytes are read that nobody wrote");
        }
        // SAFETY: the caller's promise.
        unsafe { self.real.bytes(offset, len) }
    }
}
