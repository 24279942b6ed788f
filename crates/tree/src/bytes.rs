//! Little-endian reading and writing for the formats of nodes, the manifest and the log.

/// Reads fields from the front of bytes; every call returns `None` past the end.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(*self.bytes(1)?.first()?)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A key with its length in two bytes.
    pub(crate) fn key(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.bytes(len as usize)
    }

    /// A key with its length in four bytes.
    pub(crate) fn long_key(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

pub(crate) trait Writer {
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// A key with its length in two bytes. It must not be long.
    fn put_key(&mut self, key: &[u8]);
    /// A key with its length in four bytes.
    fn put_long_key(&mut self, key: &[u8]);
}

/// Separators and bounds of longer keys are shortened.
pub(crate) use frond_kv::operation::SHORT_KEY_BYTES_MAX;

impl Writer for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_key(&mut self, key: &[u8]) {
        debug_assert!(key.len() <= SHORT_KEY_BYTES_MAX);
        self.put_u16(key.len() as u16);
        self.extend_from_slice(key);
    }

    fn put_long_key(&mut self, key: &[u8]) {
        self.put_u32(key.len() as u32);
        self.extend_from_slice(key);
    }
}
