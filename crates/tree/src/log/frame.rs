//! Frames: a commit appends one to the log.

use frond_kv::operation::{OP_STAMP_BYTES, encode_stamp};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Size of a frame's header in bytes.
pub(super) const FRAME_HEADER_BYTES: usize = 4;

/// The checksum of a write set's operations, which a committer computes before it takes the commit lock.
pub(crate) struct Checksum {
    hash: u64,
    /// If the stamp of the commit follows the operations. It is large, and most commits do not need it.
    unfinished: Option<Box<Xxh3>>,
}

impl Checksum {
    pub(crate) fn of(operations: &[u8], is_stamped: bool) -> Checksum {
        if !is_stamped {
            return Checksum {
                hash: xxh3_64(operations),
                unfinished: None,
            };
        }
        let mut unfinished = Box::new(Xxh3::new());
        unfinished.update(operations);
        Checksum {
            hash: 0,
            unfinished: Some(unfinished),
        }
    }
}

/// The stamps of a commit, and the number of its last operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamped {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) sequence: u64,
}

/// A frame. Its payload is the operations of a write set and, if the commit is stamped, its first stamp.
pub(crate) struct Frame<'a> {
    operations: &'a [u8],
    stamp: Option<[u8; OP_STAMP_BYTES]>,
    /// Checksum of the payload.
    pub(super) hash: u64,
    /// Number of the first operation.
    pub(super) sequence: u64,
    pub(super) stamped: Option<Stamped>,
}

impl<'a> Frame<'a> {
    /// A frame whose first operation has the number `sequence`.
    pub(crate) fn new(
        operations: &'a [u8],
        checksum: Checksum,
        sequence: u64,
        stamped: Option<Stamped>,
    ) -> Frame<'a> {
        let stamp = stamped.map(|stamped| encode_stamp(stamped.first));
        let hash = match checksum.unfinished {
            Some(mut whole) => {
                whole.update(stamp.as_ref().map_or(&[], |stamp| stamp));
                whole.digest()
            }
            None => checksum.hash,
        };
        Frame {
            operations,
            stamp,
            hash,
            sequence,
            stamped,
        }
    }

    /// The parts of the payload.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        let stamp = self.stamp.as_ref();
        [self.operations, stamp.map_or(&[], |stamp| stamp.as_slice())]
    }

    /// Length of the payload.
    pub(super) fn payload_len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Length of the frame.
    pub(super) fn len(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload_len()
    }
}
