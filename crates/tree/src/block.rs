//! Blocks of the data file, and what protects them: a checksum, and in an encrypted store a seal.
//!
//! A block is a header of 16 bytes and a payload: XXH3-64 of all that follows, seeded with the
//! block's offset in the file, so that a misdirected write is detected too (8 bytes, little-endian),
//! length of the uncompressed payload (4), codec (1), three zeros, payload.
//!
//! FORMAT.md describes both forms, and why a block that was changed, moved or replaced by an older one is noticed.

use std::cell::Cell;
use std::sync::Arc;

use frond_encryption::{Ciphers, SEAL_BYTES};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::compress::Compressor;
use crate::{Compression, Error, Result, compress};

/// Name of the data file.
pub const DATA_FILE: &str = "data.frond";
/// Size of a block's header in bytes.
pub(crate) const BLOCK_HEADER_BYTES: usize = 16;
/// The largest uncompressed payload: a page with the largest key and value, with room to spare.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// Set in the codec of a block that is encrypted.
pub(crate) const IS_SEALED: u8 = 0x80;
const CODEC_AT: usize = 12;
/// Where the payload of a sealed block begins.
const SEALED_PAYLOAD_AT: usize = BLOCK_HEADER_BYTES + SEAL_BYTES;
/// Larger buffers than this are not kept for the next block of a thread.
const SPARE_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static SPARE_OPENED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static SPARE_PAYLOAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Where a block is, and which one of those that were there: the birth of its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) birth: u64,
}

impl Place {
    pub(crate) fn new(offset: u64, birth: u64) -> Place {
        Place { offset, birth }
    }

    /// The place of another block of the same extent.
    pub(crate) fn plus(self, bytes: u64) -> Place {
        Place {
            offset: self.offset + bytes,
            ..self
        }
    }
}

/// The form of the blocks of a store: with the ciphers of an encrypted one.
#[derive(Clone, Default)]
pub(crate) struct BlockForm(Option<Arc<Ciphers>>);

impl BlockForm {
    pub(crate) fn new(ciphers: Option<&Arc<Ciphers>>) -> BlockForm {
        BlockForm(ciphers.cloned())
    }

    pub(crate) fn ciphers(&self) -> Option<&Arc<Ciphers>> {
        self.0.as_ref()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.is_some()
    }

    /// Bytes of a block before its payload.
    pub(crate) fn head_bytes(&self) -> usize {
        match self.0 {
            Some(_) => SEALED_PAYLOAD_AT,
            None => BLOCK_HEADER_BYTES,
        }
    }

    /// Starts a block at the end of `out` and compresses the payload into it. The place of the block in the file
    /// may be unknown yet: [`BlockForm::seal`] must follow.
    pub(crate) fn push(&self, out: &mut Vec<u8>, codec: Compression, payload: &[u8]) {
        self.push_with(out, &mut Compressor::new(codec), payload);
    }

    /// As [`BlockForm::push`], for one of many blocks of a compressor.
    pub(crate) fn push_with(&self, out: &mut Vec<u8>, compressor: &mut Compressor, payload: &[u8]) {
        check_payload_bytes(payload);
        let start = out.len();
        out.resize(start + self.head_bytes(), 0);
        let used = compressor.compress(payload, out);
        out[start + 8..start + CODEC_AT].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let sealed = if self.is_encrypted() { IS_SEALED } else { 0 };
        out[start + CODEC_AT] = used.code() | sealed;
    }

    /// Completes a block for its place: encrypts it if the store is encrypted, and writes its checksum.
    pub(crate) fn seal(&self, block: &mut [u8], place: Place) {
        if let Some(ciphers) = &self.0 {
            let (head, payload) = block.split_at_mut(SEALED_PAYLOAD_AT);
            let seal = ciphers.data.seal(&context(head, place), payload);
            head[BLOCK_HEADER_BYTES..].copy_from_slice(&seal);
        }
        seal_block(block, place.offset);
    }

    /// Undoes [`BlockForm::seal`], so that the block can be sealed for another place.
    pub(crate) fn unseal(&self, block: &mut [u8], place: Place) -> Result<()> {
        let Some(ciphers) = &self.0 else {
            return Ok(());
        };
        check_form(block, place.offset)?;
        let (head, payload) = block.split_at_mut(SEALED_PAYLOAD_AT);
        open(ciphers, head, place, payload)
    }

    /// Changes a complete block so that it can be stored at another place.
    pub(crate) fn seal_again(&self, block: &mut [u8], from: Place, to: Place) -> Result<()> {
        if self.accepts_as_plain(block) {
            seal_block(block, to.offset);
            return Ok(());
        }
        self.unseal(block, from)?;
        self.seal(block, to);
        Ok(())
    }

    /// Whether readers accept this block although it is not encrypted, because the store is being encrypted.
    fn accepts_as_plain(&self, block: &[u8]) -> bool {
        let codec = block.get(CODEC_AT);
        let is_plain = codec.is_some_and(|codec| codec & IS_SEALED == 0);
        is_plain && (self.0.as_ref()).is_some_and(|ciphers| ciphers.accepts_plain())
    }

    /// Whether a block of an encrypted store has an older store key or is unencrypted. `block` has at least its header, and the whole head
    /// if it is encrypted. The content is not checked.
    pub(crate) fn is_old(&self, block: &[u8], offset: u64) -> Result<bool> {
        let Some(ciphers) = &self.0 else {
            return Ok(false);
        };
        if self.accepts_as_plain(block) {
            return Ok(true);
        }
        check_form(block, offset)?;
        let seal = block[BLOCK_HEADER_BYTES..].first_chunk();
        let seal = seal.expect("the block is longer than its head");
        Ok(!ciphers.data.has_current_key(seal))
    }

    /// Checks a block, and calls `visit` with its unencrypted form.
    pub(crate) fn opened<T>(
        &self,
        block: &[u8],
        place: Place,
        visit: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        if block.len() < BLOCK_HEADER_BYTES {
            let what = "a block is shorter than its header";
            return Err(corrupt(place.offset, what));
        }
        check_block(block, place.offset)?;
        if self.accepts_as_plain(block) {
            return visit(block);
        }
        let Some(ciphers) = &self.0 else {
            if block[CODEC_AT] & IS_SEALED != 0 {
                let what = "a block is encrypted, but the store is not";
                return Err(corrupt(place.offset, what));
            }
            return visit(block);
        };
        check_form(block, place.offset)?;
        let (head, payload) = block.split_at(SEALED_PAYLOAD_AT);
        let mut opened = SPARE_OPENED.take();
        opened.clear();
        opened.extend_from_slice(&head[..BLOCK_HEADER_BYTES]);
        opened.extend_from_slice(payload);
        opened[CODEC_AT] &= !IS_SEALED;
        let checked = open(ciphers, head, place, &mut opened[BLOCK_HEADER_BYTES..]);
        let result = checked.and_then(|()| visit(&opened));
        if opened.capacity() <= SPARE_BYTES_MAX {
            SPARE_OPENED.set(opened);
        }
        result
    }

    /// Checks a block, and calls `visit` with its payload.
    pub(crate) fn decode<T>(
        &self,
        block: &[u8],
        place: Place,
        visit: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.opened(block, place, |block| {
            decode_checked(block, place.offset, visit)
        })
    }
}

/// Fails unless a block is sealed.
fn check_form(block: &[u8], offset: u64) -> Result<()> {
    if block.len() < SEALED_PAYLOAD_AT {
        return Err(corrupt(offset, "a block is shorter than its header"));
    }
    if block[CODEC_AT] & IS_SEALED == 0 {
        let what = "a block is not encrypted, but the store is";
        return Err(corrupt(offset, what));
    }
    Ok(())
}

/// The context of a payload, which is authenticated with it: the place of the block, its birth, its length and its codec.
fn context(head: &[u8], place: Place) -> [u8; 24] {
    let mut context = [0; 24];
    context[..8].copy_from_slice(&place.offset.to_le_bytes());
    context[8..16].copy_from_slice(&place.birth.to_le_bytes());
    context[16..].copy_from_slice(&head[8..BLOCK_HEADER_BYTES]);
    context
}

fn open(ciphers: &Ciphers, head: &[u8], place: Place, payload: &mut [u8]) -> Result<()> {
    let seal = head.last_chunk().expect("the head ends with the seal");
    let context = context(head, place);
    let opened = ciphers.data.open(seal, &context, payload);
    opened.map_err(|error| not_authentic(&error, place.offset))
}

/// The error of a block that does not open.
fn not_authentic(error: &frond_encryption::Error, offset: u64) -> Error {
    let what = match error {
        frond_encryption::Error::UnknownKey(_) => {
            "a block is encrypted with a key that the key store does not have"
        }
        _ => "a block was changed, moved, or replaced by an older one",
    };
    corrupt(offset, what)
}

/// The error for a damaged block of the data file.
pub(crate) fn corrupt(offset: u64, what: &'static str) -> Error {
    Error::Corrupt {
        file: DATA_FILE.to_owned(),
        offset,
        what,
    }
}

/// Fails for a payload that could not be read again.
pub(crate) fn check_payload(what: &'static str, payload: &[u8]) -> Result<()> {
    if payload.len() <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        bytes: payload.len(),
        limit: PAYLOAD_BYTES_MAX,
    })
}

pub(crate) fn check_payload_bytes(payload: &[u8]) {
    assert!(
        payload.len() <= PAYLOAD_BYTES_MAX,
        "S8: a block is larger than what can be read again"
    );
}

/// Writes the checksum of a block for `offset`.
pub(crate) fn seal_block(block: &mut [u8], offset: u64) {
    let (checksum, rest) = block.split_at_mut(8);
    checksum.copy_from_slice(&xxh3_64_with_seed(rest, offset).to_le_bytes());
}

/// Checks the checksum of a block at `offset`.
pub(crate) fn check_block(block: &[u8], offset: u64) -> Result<()> {
    let sum = |rest| xxh3_64_with_seed(rest, offset).to_le_bytes();
    match block.split_at_checked(8) {
        Some((checksum, rest)) if checksum == sum(rest) => Ok(()),
        _ => Err(corrupt(offset, "the checksum of a block does not match")),
    }
}

/// The length of the uncompressed payload of a block, by its header.
pub(crate) fn payload_bytes(block: &[u8]) -> usize {
    let len = block.get(8..).and_then(<[u8]>::first_chunk);
    let len = len.map_or(0, |len| u32::from_le_bytes(*len) as usize);
    len.min(PAYLOAD_BYTES_MAX)
}

/// Calls `visit` with the payload of a block that is not encrypted, and whose checksum was checked when it was read.
pub(crate) fn decode_checked<T>(
    block: &[u8],
    offset: u64,
    visit: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    let damaged = |what| corrupt(offset, what);
    let Some((header, stored)) = block.split_at_checked(BLOCK_HEADER_BYTES) else {
        return Err(damaged("a block is shorter than its header"));
    };
    let fields = &header[8..];
    let len = u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]) as usize;
    if len > PAYLOAD_BYTES_MAX {
        return Err(damaged("the size of a block is impossible"));
    }
    let codec = Compression::from_code(fields[4]).ok_or(damaged("a block has an unknown codec"))?;
    if codec == Compression::None && len == stored.len() {
        return Ok(visit(stored));
    }
    let mut payload = SPARE_PAYLOAD.take();
    let result = match compress::decompress(codec, stored, len, &mut payload) {
        Some(()) => Ok(visit(&payload)),
        None => Err(damaged("a block does not decompress")),
    };
    if payload.len() <= SPARE_BYTES_MAX {
        SPARE_PAYLOAD.set(payload);
    }
    result
}

/// The error of an encrypted store that is opened without its keys.
pub(crate) fn needs_key() -> Error {
    Error::InvalidOption("the store is encrypted, and it is opened without its key".to_owned())
}

/// The error of a store that is opened with keys, and is not encrypted.
pub(crate) fn has_no_key() -> Error {
    Error::InvalidOption("the store is not encrypted, and it is opened with a key".to_owned())
}

#[cfg(test)]
mod tests {
    use frond_encryption::{Key, StoreKeys};

    use super::*;

    fn encrypted(key: u8) -> BlockForm {
        let keys = StoreKeys::single(Key::new([key; 32]));
        BlockForm(Some(Arc::new(Ciphers::new(&keys).unwrap())))
    }

    fn what<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
        match result {
            Err(Error::Corrupt { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn changed_moved_and_older_blocks_are_noticed() {
        let form = encrypted(1);
        let here = Place::new(8192, 5);
        for codec in [Compression::None, Compression::Zstd, Compression::Lz4] {
            let payload = b"what is stored is secret ".repeat(4);
            let mut block = Vec::new();
            form.push(&mut block, codec, &payload);
            form.seal(&mut block, here);
            let decode =
                |form: &BlockForm, block: &[u8], place| form.decode(block, place, <[u8]>::to_vec);
            assert!(
                !block
                    .windows(8)
                    .any(|part| payload.windows(8).any(|it| it == part))
            );
            assert_eq!(decode(&form, &block, here).unwrap(), payload);
            // Another process, with another salt.
            assert_eq!(decode(&encrypted(1), &block, here).unwrap(), payload);
            for bit in 0..block.len() * 8 {
                block[bit / 8] ^= 1 << (bit % 8);
                let found = what(decode(&form, &block, here));
                assert_eq!(found, "the checksum of a block does not match", "bit {bit}");
                // With a checksum that matches.
                let mut forged = block.clone();
                seal_block(&mut forged, here.offset);
                assert_eq!(decode(&form, &forged, here).is_ok(), bit < 64, "bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
            let older = "a block was changed, moved, or replaced by an older one";
            assert_eq!(what(decode(&form, &block, Place::new(8192, 6))), older);
            let mut moved = block.clone();
            seal_block(&mut moved, 4096);
            assert_eq!(what(decode(&form, &moved, Place::new(4096, 5))), older);
            assert_eq!(what(decode(&encrypted(2), &block, here)), older);
            assert!(what(decode(&BlockForm::default(), &block, here)).contains("store is not"));
            // A block without encryption is none of this store.
            let mut plain = Vec::new();
            BlockForm::default().push(&mut plain, codec, &payload);
            BlockForm::default().seal(&mut plain, here);
            assert!(what(decode(&form, &plain, here)).starts_with("a block is"));
            // It can be sealed for another place.
            let there = Place::new(12288, 7);
            form.unseal(&mut block, here).unwrap();
            form.seal(&mut block, there);
            assert_eq!(decode(&form, &block, there).unwrap(), payload);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        for codec in [Compression::None, Compression::Zstd, Compression::Lz4] {
            let payload = b"all that is stored carries a checksum ".repeat(4);
            let mut block = Vec::new();
            BlockForm::default().push(&mut block, codec, &payload);
            seal_block(&mut block, 8192);
            let form = BlockForm::default();
            let decode =
                |block: &[u8], offset| form.decode(block, Place::new(offset, 0), <[u8]>::to_vec);
            assert_eq!(decode(&block, 8192).unwrap(), payload);
            assert!(decode(&block, 4096).is_err(), "a block at the wrong place");
            for bit in 0..block.len() * 8 {
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&block, 8192).is_err(), "bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
        }
        let short = BlockForm::default().decode(&[1, 2, 3], Place::new(0, 0), |_| ());
        assert!(short.is_err());
    }
}
