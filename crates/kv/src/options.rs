//! Limits of all engines, the settings of a tree, and the source of stamps.

use crate::{Error, Result};

/// The largest key, in bytes: an entry of a memtable of Fractal Trees has 25 bits for its length.
pub const KEY_BYTES_MAX: usize = (1 << 25) - 1;
/// The largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 17 << 20;
/// The largest write set, in bytes.
pub const WRITE_SET_BYTES_MAX: usize = 256 << 20;

/// The compression of the pages of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Zstandard, level 1.
    #[default]
    Zstd,
    /// zlib (DEFLATE), level 6.
    Zlib,
    /// LZ4 block format.
    Lz4,
    /// In the raw format, without frames.
    Snappy,
    None,
}

impl Compression {
    /// The byte that encodes the codec in files.
    pub fn code(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Zstd => 1,
            Compression::Lz4 => 2,
            Compression::Zlib => 3,
            Compression::Snappy => 4,
        }
    }

    /// The codec that a byte encodes.
    pub fn from_code(code: u8) -> Option<Compression> {
        Some(match code {
            0 => Compression::None,
            1 => Compression::Zstd,
            2 => Compression::Lz4,
            3 => Compression::Zlib,
            4 => Compression::Snappy,
            _ => return None,
        })
    }
}

/// Settings of one tree, fixed when it is created. An engine that has no pages of its own ignores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// Compression of leaf pages. Buffers are always compressed with LZ4, unless this is `None`.
    pub compression: Compression,
    /// Largest uncompressed size of a leaf in bytes (`pageSize`), 4 KiB to 64 MiB.
    pub node_bytes: u32,
    /// Uncompressed size of a page in bytes (`readPageSize`), 1 KiB to 1 MiB.
    pub page_bytes: u32,
}

impl Default for TreeOptions {
    fn default() -> Self {
        TreeOptions {
            compression: Compression::Zstd,
            node_bytes: 4 << 20,
            page_bytes: 8 << 10,
        }
    }
}

impl TreeOptions {
    /// Fails for sizes outside their bounds.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub fn check(&self) -> Result<()> {
        if !(4 << 10..=64 << 20).contains(&self.node_bytes) {
            return Err(Error::InvalidOption(format!(
                "pageSize is {}; it must be between 4096 and 67108864 bytes",
                self.node_bytes
            )));
        }
        if !(1 << 10..=1 << 20).contains(&self.page_bytes) || self.page_bytes > self.node_bytes {
            return Err(Error::InvalidOption(format!(
                "readPageSize is {}; it must be between 1024 and 1048576 bytes and not above pageSize",
                self.page_bytes
            )));
        }
        Ok(())
    }
}

/// Gives out stamps, the first parts of keys that commits make ([`crate::Operations::put_stamped`]).
pub trait Stamps: Send + Sync {
    /// Takes `count` consecutive stamps and returns the first one, or `None` if fewer are reserved. Called under the
    /// commit lock: it must be cheap, and must not call the store. No stamp may be given out twice, not even after a
    /// crash, and each one must be greater than those before.
    fn take(&self, count: u32) -> Option<u64>;
}
