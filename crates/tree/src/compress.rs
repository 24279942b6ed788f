//! Compression of pages. Each block names its codec.

use std::cell::RefCell;

use lz4_flex::block::{CompressTable, compress_into_with_table};
use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, deflate_flags};
use miniz_oxide::inflate::{TINFLStatus, core as inflate};

use crate::Compression;

thread_local! {
    // A separate table for large inputs: the output must not depend on previous inputs.
    static LZ4_OUT: RefCell<(CompressTable, CompressTable)> =
        RefCell::new((CompressTable::small(), CompressTable::large()));
    /// For general data, and for data whose short matches are not worth coding.
    static ZLIB_OUT: RefCell<[Option<Box<CompressorOxide>>; 2]> = const { RefCell::new([None, None]) };
    static ZLIB_IN: RefCell<Option<Box<inflate::DecompressorOxide>>> = const { RefCell::new(None) };
    /// For each search of zstd.
    static ZSTD_OUT: RefCell<[Option<zstd::bulk::Compressor<'static>>; 2]> =
        const { RefCell::new([None, None]) };
    /// The output of the other search of a trial.
    static TRIAL: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ZSTD_IN: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Frees what this thread keeps for compression, a megabyte and more: for threads that seldom compress.
pub(crate) fn free_compressors() {
    ZLIB_OUT.take();
    ZSTD_OUT.take();
    TRIAL.take();
}

const ZSTD_LEVEL: i32 = 1;
/// The shortest match of a sparse search, in bytes.
const ZSTD_MATCH_MIN: u32 = 7;
/// A sparse search first looks for matches at steps of this many bytes, less one. The steps grow where it finds none.
const ZSTD_STEP: u32 = 5;
/// A sparse search may cost one byte in this many.
const SPARSE_COST_SHARE: usize = 64;
/// Pages that are compressed between two trials.
const TRIAL_PAGES: u32 = 64;

/// Level 6 of zlib: how many candidates are tried per match.
const ZLIB_PROBES: u32 = 128;
/// The same for data with few long matches.
const ZLIB_PROBES_FEW: u32 = 1;
/// Below this entropy, in bits per byte, a match of three to five bytes mostly costs more than the literals it replaces:
/// about 18 bits over the distances of a page.
const BITS_FOR_SHORT_MATCHES: f32 = 4.0;

/// The search of zstd for matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// As level 1 does.
    Dense = 0,
    /// Long matches only, and not everywhere: almost as good for data with few matches, such as keys and numbers, and faster
    /// in both directions. Where short matches cost more than the literals that they replace it is better.
    Sparse = 1,
}

/// Compresses the pages of one run, which are alike. zstd's search is chosen by a trial on one page in [`TRIAL_PAGES`].
pub(crate) struct Compressor {
    codec: Compression,
    search: Search,
    /// Pages until the next trial.
    left: u32,
}

impl Compressor {
    pub(crate) fn new(codec: Compression) -> Compressor {
        Compressor {
            codec,
            search: Search::Dense,
            left: 0,
        }
    }

    /// Appends `bytes` to `out`, compressed if that makes them smaller. Returns the codec used.
    pub(crate) fn compress(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Compression {
        if self.codec != Compression::Zstd {
            return compress(self.codec, bytes, out);
        }
        let start = out.len();
        let done = match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                zstd_append(self.search, bytes, out)
            }
            None => {
                self.left = TRIAL_PAGES - 1;
                self.try_both(bytes, out)
            }
        };
        smaller(Compression::Zstd, done, start, bytes, out)
    }

    /// Compresses with both searches, appends the smaller result, and notes the better search.
    fn try_both(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        TRIAL.with_borrow_mut(|other| {
            other.clear();
            let start = out.len();
            let done = zstd_append(Search::Dense, bytes, out);
            if !zstd_append(Search::Sparse, bytes, other) || !done {
                return done;
            }
            let (dense, sparse) = (out.len() - start, other.len());
            self.search = if sparse <= dense + dense / SPARSE_COST_SHARE {
                Search::Sparse
            } else {
                Search::Dense
            };
            if sparse < dense {
                out.truncate(start);
                out.extend_from_slice(other);
            }
            true
        })
    }
}

/// Appends a zstd frame. False if there was an error.
fn zstd_append(search: Search, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    ZSTD_OUT.with_borrow_mut(|slots| {
        let slot = &mut slots[search as usize];
        let compressor = match slot {
            Some(compressor) => compressor,
            None => match zstd_compressor(search) {
                Ok(compressor) => slot.insert(compressor),
                Err(_) => return false,
            },
        };
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(bytes.len()), 0);
        match compressor.compress_to_buffer(bytes, &mut out[start..]) {
            Ok(len) => {
                out.truncate(start + len);
                true
            }
            Err(_) => false,
        }
    })
}

/// Replaces what was appended to `out` from `start` on by `bytes`, unless it is `done` and smaller.
fn smaller(
    codec: Compression,
    done: bool,
    start: usize,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Compression {
    if done && out.len() - start < bytes.len() {
        return codec;
    }
    out.truncate(start);
    out.extend_from_slice(bytes);
    Compression::None
}

/// Appends `bytes` to `out`, compressed if that makes them smaller. Returns the codec used.
pub(crate) fn compress(codec: Compression, bytes: &[u8], out: &mut Vec<u8>) -> Compression {
    let start = out.len();
    let done = match codec {
        Compression::None => false,
        Compression::Zstd => return Compressor::new(codec).compress(bytes, out),
        Compression::Lz4 => {
            out.resize(
                start + lz4_flex::block::get_maximum_output_size(bytes.len()),
                0,
            );
            match lz4_into(bytes, &mut out[start..]) {
                Some(len) => {
                    out.truncate(start + len);
                    true
                }
                None => false,
            }
        }
        Compression::Snappy => {
            out.resize(start + snap::raw::max_compress_len(bytes.len()), 0);
            match snap::raw::Encoder::new().compress(bytes, &mut out[start..]) {
                Ok(len) => {
                    out.truncate(start + len);
                    true
                }
                Err(_) => false,
            }
        }
        Compression::Zlib => deflate(bytes, out),
    };
    smaller(codec, done, start, bytes, out)
}

/// Compresses `bytes` with LZ4 into `out`, which has room for the worst case. Returns the length.
pub(crate) fn lz4_into(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    LZ4_OUT.with_borrow_mut(|(small, large)| {
        let table = if bytes.len() < u16::MAX.into() {
            small
        } else {
            large
        };
        compress_into_with_table(bytes, out, table).ok()
    })
}

/// Replaces `out` with exactly `len` restored bytes. `None` if the input does not hold them.
pub(crate) fn decompress(
    codec: Compression,
    bytes: &[u8],
    len: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    if codec == Compression::None {
        out.clear();
        out.extend_from_slice(bytes);
        return (bytes.len() == len).then_some(());
    }
    // The length may be damaged, and the memory for it is taken before the input is looked at.
    if len > restored_bytes_max(codec, bytes.len()) {
        return None;
    }
    // Existing bytes are overwritten, so only growth is filled with zeros.
    out.resize(len, 0);
    let filled = match codec {
        Compression::None => 0,
        Compression::Zstd => ZSTD_IN.with_borrow_mut(|slot| {
            let decompressor = match slot {
                Some(decompressor) => decompressor,
                None => slot.insert(zstd::bulk::Decompressor::new().ok()?),
            };
            decompressor.decompress_to_buffer(bytes, &mut out[..]).ok()
        })?,
        Compression::Lz4 => lz4_flex::block::decompress_into(bytes, out).ok()?,
        Compression::Snappy => snap::raw::Decoder::new().decompress(bytes, out).ok()?,
        Compression::Zlib => inflate_into(bytes, out)?,
    };
    (filled == len).then_some(())
}

/// The most bytes that an input of this size can be restored to, or a little more.
fn restored_bytes_max(codec: Compression, bytes: usize) -> usize {
    // The longest output of the shortest code: a block of one repeated byte, a byte of a match's length, the longest match
    // in two bits, a copy of 64 bytes.
    let ratio = match codec {
        Compression::None => 1,
        Compression::Zstd => (128 << 10) / 3,
        Compression::Lz4 => 255,
        Compression::Zlib => 1032,
        Compression::Snappy => 64 / 2,
    };
    bytes.saturating_mul(ratio).saturating_add(1024)
}

/// Appends a zlib stream, unless that would be longer than the bytes.
fn deflate(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let filter = has_few_matches(bytes);
    let flags = if filter {
        ZLIB_PROBES_FEW | deflate_flags::TDEFL_FILTER_MATCHES
    } else {
        ZLIB_PROBES
    };
    let flags = flags | deflate_flags::TDEFL_WRITE_ZLIB_HEADER;
    let start = out.len();
    out.resize(start + bytes.len(), 0);
    ZLIB_OUT.with_borrow_mut(|slots| {
        let slot = &mut slots[usize::from(filter)];
        let compressor = slot.get_or_insert_with(|| Box::new(CompressorOxide::new(flags)));
        compressor.reset();
        let to = &mut out[start..];
        let finish = TDEFLFlush::Finish;
        let (status, _, len) = miniz_oxide::deflate::core::compress(compressor, bytes, to, finish);
        out.truncate(start + len);
        status == TDEFLStatus::Done
    })
}

/// A compressor of level 1.
fn zstd_compressor(search: Search) -> std::io::Result<zstd::bulk::Compressor<'static>> {
    use zstd::zstd_safe::{CParameter, ParamSwitch};
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    if search == Search::Sparse {
        compressor.set_parameter(CParameter::MinMatch(ZSTD_MATCH_MIN))?;
        compressor.set_parameter(CParameter::TargetLength(ZSTD_STEP))?;
        // With a target length, zstd would not code literals.
        compressor.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
    }
    Ok(compressor)
}

/// Whether short matches do not pay off.
fn has_few_matches(bytes: &[u8]) -> bool {
    bits_per_byte(bytes) < BITS_FOR_SHORT_MATCHES
}

/// The order-0 entropy in bits per byte.
fn bits_per_byte(bytes: &[u8]) -> f32 {
    let mut counts = [0u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let all = bytes.len() as f32;
    let bits = counts.iter().filter(|count| **count > 0);
    let bits = bits.map(|count| *count as f32 * (all / *count as f32).log2());
    bits.sum::<f32>() / all.max(1.0)
}

/// Restores a zlib stream of exactly as many bytes as `out` has.
fn inflate_into(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    use inflate::inflate_flags as flags;
    let how = flags::TINFL_FLAG_PARSE_ZLIB_HEADER
        | flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
        | flags::TINFL_FLAG_IGNORE_ADLER32;
    ZLIB_IN.with_borrow_mut(|slot| {
        let decompressor = slot.get_or_insert_default();
        decompressor.init();
        let (status, _, len) = inflate::decompress(decompressor, bytes, out, 0, how);
        (status == TINFLStatus::Done).then_some(len)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_restores_what_it_was_given() {
        let inputs: [Vec<u8>; 3] = [
            Vec::new(),
            b"fractal ".repeat(500),
            (0..=255u8).collect::<Vec<u8>>(),
        ];
        for codec in 0..5 {
            let codec = Compression::from_code(codec).unwrap();
            for input in &inputs {
                let mut out = vec![9];
                let used = compress(codec, input, &mut out);
                assert!(out.len() <= input.len() + 1);
                let mut restored = vec![7; 300];
                let result = decompress(used, &out[1..], input.len(), &mut restored);
                assert_eq!((result, &restored), (Some(()), input));
                let more = decompress(used, &out[1..], input.len() + 1, &mut restored);
                assert_eq!(more, None);
                assert_eq!(Compression::from_code(codec.code()), Some(codec));
            }
        }
        assert_eq!(Compression::from_code(5), None);
    }

    #[test]
    fn a_trial_chooses_the_search() {
        let mut state = 1u32;
        let mut below = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (((state >> 16) * limit) >> 16) as u8
        };
        let noise: Vec<u8> = (0..6000).map(|_| b'a' + below(26)).collect();
        // Matches are six bytes long.
        let words: Vec<u8> = (0..6 * 40).map(|_| below(256)).collect();
        let mut text = Vec::new();
        while text.len() < 6000 {
            let word = 6 * usize::from(below(40));
            text.extend_from_slice(&words[word..word + 6]);
            text.push(below(256));
        }
        for (input, expected) in [(noise, Search::Sparse), (text, Search::Dense)] {
            let mut compressor = Compressor::new(Compression::Zstd);
            for page in 0..TRIAL_PAGES + 2 {
                let mut out = vec![9];
                let used = compressor.compress(&input, &mut out);
                assert_eq!(
                    (used, compressor.search),
                    (Compression::Zstd, expected),
                    "{page}"
                );
                let mut restored = Vec::new();
                let result = decompress(used, &out[1..], input.len(), &mut restored);
                assert_eq!((result, &restored), (Some(()), &input));
            }
        }
    }

    #[test]
    fn a_length_that_no_input_can_have_takes_no_memory() {
        for codec in [
            Compression::Zstd,
            Compression::Lz4,
            Compression::Zlib,
            Compression::Snappy,
        ] {
            // The most that they compress: one repeated byte.
            let input = vec![7; 4 << 20];
            let mut out = Vec::new();
            assert_eq!(compress(codec, &input, &mut out), codec);
            let mut restored = Vec::new();
            assert!(decompress(codec, &out, input.len(), &mut restored).is_some());
            assert_eq!(restored, input);
            let mut restored = Vec::new();
            assert_eq!(decompress(codec, &out[..100], 1 << 30, &mut restored), None);
            assert_eq!(restored.capacity(), 0, "{codec:?}");
        }
    }

    #[test]
    fn random_digits_take_little_more_than_they_must() {
        let mut state = 1u32;
        let mut digit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'0' + (((state >> 16) * 10) >> 16) as u8
        };
        let digits: Vec<u8> = (0..6000).map(|_| digit()).collect();
        let least = digits.len() as f32 * 10f32.log2() / 8.0;
        for (codec, most) in [(Compression::Zstd, 1.06), (Compression::Zlib, 1.06)] {
            let mut out = Vec::new();
            assert_eq!(compress(codec, &digits, &mut out), codec);
            assert!((out.len() as f32) < least * most, "{codec:?} {}", out.len());
        }
    }
}
