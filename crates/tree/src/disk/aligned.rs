//! Byte buffers that start at a block boundary, as direct I/O needs, without `unsafe`.

/// Alignment of buffers, offsets and lengths of direct I/O, in bytes.
pub const ALIGNMENT: usize = 4096;

/// A growable byte buffer whose first byte lies at a multiple of [`ALIGNMENT`].
#[derive(Default)]
pub struct AlignedBuf {
    storage: Vec<u8>,
    start: usize,
}

impl AlignedBuf {
    /// An empty buffer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> AlignedBuf {
        let mut storage: Vec<u8> = Vec::with_capacity(bytes + ALIGNMENT);
        let start = storage.as_ptr().align_offset(ALIGNMENT);
        storage.resize(start, 0);
        AlignedBuf { storage, start }
    }

    /// Number of bytes in the buffer.
    pub fn len(&self) -> usize {
        self.storage.len() - self.start
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the buffer and keeps its capacity.
    pub fn clear(&mut self) {
        self.storage.truncate(self.start);
    }

    /// Appends bytes to those that are here.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.storage.extend_from_slice(bytes);
    }

    /// Truncates the buffer, or extends it with zeros.
    pub fn resize(&mut self, len: usize) {
        self.make_room(len.saturating_sub(self.len()));
        self.storage.resize(self.start + len, 0);
    }

    /// Pads with zeros to the next multiple of [`ALIGNMENT`].
    pub fn pad(&mut self) {
        self.resize(self.len().next_multiple_of(ALIGNMENT));
    }

    fn make_room(&mut self, more: usize) {
        if self.storage.capacity() - self.storage.len() < more || self.storage.capacity() == 0 {
            let wanted = (self.len() + more).max(self.len() * 2);
            let mut larger = AlignedBuf::with_capacity(wanted);
            larger.storage.extend_from_slice(self);
            *self = larger;
        }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.storage[self.start..]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_while_it_grows() {
        let mut buffer = AlignedBuf::default();
        for i in 0..20_000u32 {
            buffer.extend_from_slice(&i.to_le_bytes());
            assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT), 0);
        }
        assert_eq!(buffer.len(), 80_000);
        assert_eq!(&buffer[40_000..40_004], &10_000u32.to_le_bytes());
        buffer.pad();
        assert_eq!(buffer.len() % ALIGNMENT, 0);
        buffer.clear();
        assert!(buffer.is_empty());
    }
}
