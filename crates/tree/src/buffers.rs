//! Page buffers that are reused.
//!
//! Pages are read by one thread and dropped by another. An allocator with caches per thread would keep the memory of
//! dropped pages while it allocates new ones, and the process would exceed its budget.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Buffers have a multiple of this many bytes.
const STEP_BYTES: usize = 512;
/// Larger buffers are not kept. Pages that compress to little have up to 32 KiB (`run/writer.rs`), and a last entry more.
const KEPT_BYTES_MAX: usize = 40 << 10;
const CLASSES: usize = KEPT_BYTES_MAX / STEP_BYTES;
/// The most bytes that are kept for reuse.
const WAITING_BYTES_MAX: usize = 12 << 20;

static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);
static WAITING: [Mutex<Vec<Vec<u8>>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];

/// The size class of a buffer with room for `bytes`; `None` for those that are not kept.
fn class(bytes: usize) -> Option<usize> {
    let class = bytes.max(1).div_ceil(STEP_BYTES) - 1;
    (class < CLASSES).then_some(class)
}

/// The bytes of a page.
pub(crate) struct PageBytes(Vec<u8>);

impl PageBytes {
    /// An empty buffer with room for `bytes`.
    pub(crate) fn with_capacity(bytes: usize) -> PageBytes {
        let Some(class) = class(bytes) else {
            return PageBytes(Vec::with_capacity(bytes));
        };
        let waiting = WAITING[class].lock().pop();
        if let Some(buffer) = waiting {
            WAITING_BYTES.fetch_sub(buffer.capacity(), Ordering::Relaxed);
            return PageBytes(buffer);
        }
        PageBytes(Vec::with_capacity((class + 1) * STEP_BYTES))
    }

    /// The buffer, to be filled up to its capacity.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Bytes of memory that this takes.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl Deref for PageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PageBytes {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        let capacity = buffer.capacity();
        // A buffer that has grown, or was never allocated, has another size.
        let Some(class) = class(capacity).filter(|class| (class + 1) * STEP_BYTES == capacity)
        else {
            return;
        };
        buffer.clear();
        // Several threads at once may exceed the limit a little.
        if WAITING_BYTES.load(Ordering::Relaxed) + capacity <= WAITING_BYTES_MAX {
            WAITING_BYTES.fetch_add(capacity, Ordering::Relaxed);
            WAITING[class].lock().push(buffer);
        }
    }
}

/// Frees the buffers that are kept for reuse.
pub(crate) fn clear() {
    for waiting in &WAITING {
        let buffers = std::mem::take(&mut *waiting.lock());
        let bytes = buffers.iter().map(Vec::capacity).sum();
        WAITING_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_room_and_come_back_empty() {
        for bytes in [0, 1, 511, 512, 513, 4096, 40_960, 40_961, 100_000] {
            for _ in 0..3 {
                let mut buffer = PageBytes::with_capacity(bytes);
                assert!(buffer.is_empty() && buffer.capacity() >= bytes);
                buffer.bytes_mut().resize(bytes, 7);
                assert_eq!(buffer.len(), bytes);
            }
        }
        // A buffer that has grown out of its size is not kept for that size.
        let mut buffer = PageBytes::with_capacity(512);
        buffer.bytes_mut().resize(5000, 1);
        drop(buffer);
        assert!(PageBytes::with_capacity(512).capacity() >= 512);
    }
}
