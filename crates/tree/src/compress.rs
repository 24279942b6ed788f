//! Compression of pages, one byte of codec in front of each.

use std::cell::RefCell;
use std::io::{Read, Write};

use lz4_flex::block::{CompressTable, compress_into_with_table};

use crate::Compression;

thread_local! {
    // A table of its own for large inputs: what comes out must not depend on what came before.
    static LZ4_OUT: RefCell<(CompressTable, CompressTable)> =
        RefCell::new((CompressTable::small(), CompressTable::large()));
    static ZSTD_OUT: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static ZSTD_IN: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

const ZSTD_LEVEL: i32 = 1;

/// Appends `bytes` to `out`, compressed if that makes them smaller. Returns the codec used.
pub(crate) fn compress(codec: Compression, bytes: &[u8], out: &mut Vec<u8>) -> Compression {
    let start = out.len();
    let done = match codec {
        Compression::None => false,
        Compression::Zstd => ZSTD_OUT.with_borrow_mut(|slot| {
            let compressor = match slot {
                Some(compressor) => compressor,
                None => match zstd::bulk::Compressor::new(ZSTD_LEVEL) {
                    Ok(compressor) => slot.insert(compressor),
                    Err(_) => return false,
                },
            };
            out.resize(start + zstd::zstd_safe::compress_bound(bytes.len()), 0);
            match compressor.compress_to_buffer(bytes, &mut out[start..]) {
                Ok(len) => {
                    out.truncate(start + len);
                    true
                }
                Err(_) => false,
            }
        }),
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
        Compression::Zlib => {
            let mut encoder =
                flate2::write::ZlibEncoder::new(&mut *out, flate2::Compression::default());
            encoder.write_all(bytes).is_ok() && encoder.finish().is_ok()
        }
    };
    if done && out.len() - start < bytes.len() {
        return codec;
    }
    out.truncate(start);
    out.extend_from_slice(bytes);
    Compression::None
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
    // What is there already is overwritten, so only growth is filled with zeros.
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
        Compression::Zlib => {
            flate2::read::ZlibDecoder::new(bytes).read_exact(out).ok()?;
            len
        }
    };
    (filled == len).then_some(())
}

/// The byte that stands for a codec in files.
pub(crate) fn code(codec: Compression) -> u8 {
    match codec {
        Compression::None => 0,
        Compression::Zstd => 1,
        Compression::Lz4 => 2,
        Compression::Zlib => 3,
        Compression::Snappy => 4,
    }
}

/// The codec of a byte.
pub(crate) fn from_code(code: u8) -> Option<Compression> {
    Some(match code {
        0 => Compression::None,
        1 => Compression::Zstd,
        2 => Compression::Lz4,
        3 => Compression::Zlib,
        4 => Compression::Snappy,
        _ => return None,
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
            let codec = from_code(codec).unwrap();
            for input in &inputs {
                let mut out = vec![9];
                let used = compress(codec, input, &mut out);
                assert!(out.len() <= input.len() + 1);
                let mut restored = vec![7; 300];
                let result = decompress(used, &out[1..], input.len(), &mut restored);
                assert_eq!((result, &restored), (Some(()), input));
                let more = decompress(used, &out[1..], input.len() + 1, &mut restored);
                assert_eq!(more, None);
                assert_eq!(from_code(code(codec)), Some(codec));
            }
        }
        assert_eq!(from_code(5), None);
    }
}
