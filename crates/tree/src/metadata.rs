//! Blocks of metadata that are stored twice: one damaged page of a disk must not cost all trees.

use std::sync::Arc;

use crate::Result;
use crate::block::Place;
use crate::data_file::check_payload;
use crate::disk::ALIGNMENT;
use crate::run::RunStore;
use crate::space::Extent;
use crate::{Compression, Error};

/// The location of a block that is stored twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Copies {
    /// The offsets of the copies; zeros where there is no block.
    pub(crate) at: [u64; 2],
    /// The length of each.
    pub(crate) len: u32,
    /// The newest durable checkpoint when their extents were allocated.
    pub(crate) birth: u64,
}

impl Copies {
    /// The offsets of the copies that there are.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        self.at.into_iter().filter(|at| *at != 0)
    }

    /// Whether the copies have two places, if there is a block.
    pub(crate) fn have_places(&self) -> bool {
        self.len == 0 || self.at[0] != self.at[1]
    }

    /// The extents of the copies: offset and length.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let len = u64::from(self.len).next_multiple_of(ALIGNMENT as u64);
        self.offsets().map(move |at| (at, len))
    }

    /// The payload, of the second copy if the first is damaged, and whether all copies that were read are sound.
    pub(crate) fn read(&self, store: &RunStore) -> Result<(Vec<u8>, bool)> {
        let mut first: Option<Error> = None;
        for at in self.offsets() {
            let place = Place::new(at, self.birth);
            match (store.data).read_block(place, self.len as usize, <[u8]>::to_vec) {
                Ok(payload) => return Ok((payload, first.is_none())),
                Err(error) => {
                    store.damage.record(None, &error);
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| crate::data_file::corrupt(0, "a block has no location")))
    }
}

/// A block on disk and its copy.
///
/// K5: each has an extent of its own, with room for the block.
pub(crate) struct StoredTwice {
    extents: [Arc<Extent>; 2],
    len: u32,
}

impl StoredTwice {
    /// A handle to blocks that were read; `None` if their extents are impossible.
    pub(crate) fn adopt(store: &RunStore, copies: Copies) -> Option<StoredTwice> {
        let space = &store.data.space;
        let mut extents = copies
            .extents()
            .map(|(at, len)| space.adopt(at, len, copies.birth));
        let extents = [extents.next()??, extents.next()??];
        let len = copies.len;
        let are_apart = extents[0].offset != extents[1].offset;
        are_apart.then_some(StoredTwice { extents, len })
    }

    /// Room for a block of `len` bytes, not written yet.
    pub(crate) fn allocate(store: &RunStore, len: usize) -> StoredTwice {
        let space = &store.data.space;
        StoredTwice::new([space.allocate(len), space.allocate(len)], len)
    }

    /// Compresses a payload and writes it.
    pub(crate) fn write_new(store: &RunStore, payload: &[u8]) -> Result<StoredTwice> {
        check_payload("page of trees", payload)?;
        let mut block = Vec::new();
        let data = &store.data;
        data.form.push(&mut block, Compression::Lz4, payload);
        let first = data.write_new(&mut block, &[0], None)?;
        data.form.unseal(&mut block, first.place())?;
        // Both copies have the birth of the first one.
        let second = data.write_new(&mut block, &[0], Some(first.birth))?;
        let extents = [first, second];
        Ok(StoredTwice::new(extents, block.len()))
    }

    fn new(extents: [Arc<Extent>; 2], len: usize) -> StoredTwice {
        let [first, second] = &extents;
        assert!(
            first.offset + first.len <= second.offset || second.offset + second.len <= first.offset,
            "K5: two copies of a block share an extent"
        );
        assert!(
            len as u64 <= first.len.min(second.len) && len <= u32::MAX as usize,
            "K5: an extent has no room for its block"
        );
        StoredTwice {
            extents,
            len: len as u32,
        }
    }

    /// The extents of both copies.
    pub(crate) fn into_extents(self) -> [Arc<Extent>; 2] {
        self.extents
    }

    /// Writes a payload as it is. With the header of a block it has the length that was allocated.
    pub(crate) fn write(&self, store: &RunStore, payload: &[u8]) -> Result<()> {
        let mut block = Vec::new();
        let form = &store.data.form;
        form.push(&mut block, Compression::None, payload);
        assert!(
            block.len() == self.len as usize,
            "K5: a block has not the length that was allocated"
        );
        for extent in &self.extents {
            let place = Place::new(extent.offset, self.extents[0].birth);
            form.seal(&mut block, place);
            store.data.write(extent, &block)?;
            form.unseal(&mut block, place)?;
        }
        Ok(())
    }

    pub(crate) fn copies(&self) -> Copies {
        Copies {
            at: [self.extents[0].offset, self.extents[1].offset],
            len: self.len,
            birth: self.extents[0].birth,
        }
    }
}
