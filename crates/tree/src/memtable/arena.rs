//! An arena: a fixed block of memory that is allocated in pieces and freed as a whole.
//!
//! Blocks of dropped arenas are reused: at this rate of frees and allocations, the allocator would hold the
//! memory twice. This is one of the crate's modules with `unsafe`. Pieces are addressed by their offset in the
//! block, so links are four bytes and a link of 0 is "none": no piece starts there, and its bytes are zeros.

use std::alloc::{Layout, handle_alloc_error};
use std::any::Any;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Every piece starts at a multiple of this.
const PIECE_ALIGN: usize = 8;

/// The block begins with this many zeros, which belong to no piece: as many as an entry's header has.
const ZEROS: usize = 16;

/// Smaller blocks use small pages.
#[cfg(target_os = "linux")]
const HUGE_PAGES_MIN: usize = 8 << 20;

/// Most blocks that are kept for reuse.
const SPARE_MAX: usize = 2;

/// A block of memory. All of it is initialised: it begins as zeros.
struct Block {
    base: NonNull<u8>,
    capacity: usize,
    _share: Option<Share>,
}

// SAFETY: a block owns its memory, like a boxed slice.
unsafe impl Send for Block {}
// SAFETY: as above; what is done to the memory is up to the arena that owns the block.
unsafe impl Sync for Block {}

impl Block {
    fn new(capacity: usize, share: Option<Share>) -> Block {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of private memory; no address is asked for, so it replaces nothing.
        let mapped = unsafe { mmap_anonymous(null_mut(), capacity, access, MapFlags::PRIVATE) };
        let Some(base) = mapped.ok().and_then(|base| NonNull::new(base.cast())) else {
            // The clamp in `Arena::new` keeps the size below what a layout can hold.
            let layout = Layout::from_size_align(capacity, PIECE_ALIGN);
            handle_alloc_error(layout.unwrap_or(Layout::new::<u64>()))
        };
        Block::prefer_huge_pages(base, capacity);
        let _share = share;
        Block {
            base,
            capacity,
            _share,
        }
    }

    /// Entries are accessed in the order of their keys, all over the block: with small pages almost every access misses the
    /// TLB. A block is filled before it is dropped, so no memory is wasted.
    #[cfg(target_os = "linux")]
    fn prefer_huge_pages(base: NonNull<u8>, capacity: usize) {
        if capacity >= HUGE_PAGES_MIN {
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: the range is the mapping just made; the advice changes no byte of it.
            // A system without huge pages returns an error, which is harmless.
            let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), capacity, advice) };
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn prefer_huge_pages(_: NonNull<u8>, _: usize) {}
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this very length, and no borrow outlives the arena that owned the block.
        // It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.capacity) };
    }
}

/// A block's reservation of the memory budget.
type Share = Box<dyn Any + Send + Sync>;

/// Blocks of dropped arenas.
#[derive(Default)]
pub(crate) struct SpareBlocks {
    blocks: Mutex<Vec<Block>>,
    /// The least number of blocks that were there since the last [`SpareBlocks::free_unused`].
    unused: AtomicUsize,
    /// Reserves a block's bytes in the budget.
    take_share: Option<Box<dyn Fn(usize) -> Share + Send + Sync>>,
}

impl SpareBlocks {
    /// No blocks yet; `take_share` reserves the bytes of a new block in the memory budget until its result is dropped.
    pub(crate) fn new<T: Any + Send + Sync>(
        take_share: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Arc<SpareBlocks> {
        Arc::new(SpareBlocks {
            blocks: Mutex::default(),
            unused: AtomicUsize::new(0),
            take_share: Some(Box::new(move |bytes| Box::new(take_share(bytes)))),
        })
    }

    /// Bytes of the blocks.
    pub(crate) fn bytes(&self) -> usize {
        let blocks = self.blocks.lock();
        blocks.iter().map(|block| block.capacity).sum()
    }

    /// Frees all blocks but some.
    pub(crate) fn keep(&self, most: usize) {
        let mut blocks = self.blocks.lock();
        let kept = most.min(blocks.len());
        let freed = blocks.split_off(kept);
        drop((blocks, freed));
    }

    /// Frees the blocks that have not this size.
    pub(crate) fn keep_fitting(&self, capacity: usize) {
        let mut blocks = self.blocks.lock();
        let (kept, freed) = std::mem::take(&mut *blocks)
            .into_iter()
            .partition(|block| block.capacity == capacity);
        *blocks = kept;
        drop(blocks);
        drop::<Vec<Block>>(freed);
    }

    /// Frees the blocks that were not needed since the last call.
    pub(crate) fn free_unused(&self) {
        let mut blocks = self.blocks.lock();
        let needed = blocks
            .len()
            .saturating_sub(self.unused.load(Ordering::Relaxed));
        let freed = blocks.split_off(needed);
        self.unused.store(needed, Ordering::Relaxed);
        drop((blocks, freed));
    }
}

/// The memory of one memtable.
pub(super) struct Arena {
    /// Only `None` while the arena is dropped.
    block: Option<Block>,
    base: NonNull<u8>,
    capacity: usize,
    next: AtomicUsize,
    spare: Arc<SpareBlocks>,
}

// SAFETY: the block is owned by the arena. Pieces are disjoint; bytes of a piece are written by the
// one thread that allocated it before the piece is linked (under a lock) and are immutable afterwards.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// A block of `capacity` bytes (at most 4 GiB, as links are 32 bits wide), a spare one if there is
    /// one of that size. Its bytes are initialised, but not to zeros.
    pub(super) fn new(capacity: usize, spare: &Arc<SpareBlocks>) -> Arena {
        let capacity = capacity.clamp(64, u32::MAX as usize - PIECE_ALIGN);
        let mut blocks = spare.blocks.lock();
        let fitting = blocks.iter().position(|block| block.capacity == capacity);
        let reused = fitting.map(|index| blocks.swap_remove(index));
        spare.unused.fetch_min(blocks.len(), Ordering::Relaxed);
        drop(blocks);
        let block = reused.unwrap_or_else(|| {
            let share = spare.take_share.as_ref().map(|take| take(capacity));
            Block::new(capacity, share)
        });
        let (base, spare) = (block.base, spare.clone());
        // SAFETY: the block has at least 64 bytes, and no other thread has it.
        unsafe { base.as_ptr().write_bytes(0, ZEROS) };
        let next = AtomicUsize::new(ZEROS);
        Arena {
            block: Some(block),
            base,
            capacity,
            next,
            spare,
        }
    }

    /// Bytes allocated so far.
    pub(super) fn used(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.capacity)
    }

    /// Size of the block.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// A piece of `len` bytes, or `None` when the block is full.
    pub(super) fn allocate(&self, len: usize) -> Option<u32> {
        let len = len.next_multiple_of(PIECE_ALIGN);
        let start = self.next.fetch_add(len, Ordering::Relaxed);
        (start.checked_add(len)? <= self.capacity).then_some(start as u32)
    }

    /// Copies `bytes` into a piece that is not linked yet.
    ///
    /// # Safety
    /// `offset..offset + bytes.len()` lies in a piece that the caller allocated and has not made
    /// visible to any other thread.
    pub(super) unsafe fn write(&self, offset: u32, bytes: &[u8]) {
        debug_assert!(offset as usize + bytes.len() <= self.capacity);
        // SAFETY: in bounds and not aliased, as the caller promises.
        unsafe {
            let target = self.base.as_ptr().add(offset as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    /// The bytes of a linked piece, or the zeros at 0.
    ///
    /// # Safety
    /// `offset..offset + len` lies in the zeros at 0, or in a piece whose bytes were written before the caller learnt
    /// its offset under a lock.
    pub(super) unsafe fn bytes(&self, offset: u32, len: usize) -> &[u8] {
        debug_assert!(offset as usize + len <= self.capacity);
        // SAFETY: in bounds, initialised (blocks begin as zeros) and immutable, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset as usize), len) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut blocks = self.spare.blocks.lock();
        if blocks.len() < SPARE_MAX {
            blocks.extend(self.block.take());
        }
    }
}
