//! Hexadecimal digits, for this crate and all that depend on it. The crate `hex` does the same; these few lines save the dependency.

use std::fmt::{self, Write};

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes as lower-case hexadecimal digits. The text never moves while it grows, so a caller with a secret can erase it.
pub fn hex(bytes: &[u8]) -> String {
    text(bytes, LOWER)
}

/// Bytes as hexadecimal digits in capital letters.
pub fn hex_upper(bytes: &[u8]) -> String {
    text(bytes, UPPER)
}

fn text(bytes: &[u8], digits: &[u8; 16]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    // Writing to a string does not fail.
    let _ = write(&mut out, bytes, digits);
    out
}

fn write(out: &mut impl Write, bytes: &[u8], digits: &[u8; 16]) -> fmt::Result {
    for half in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        out.write_char(char::from(digits[usize::from(half)]))?;
    }
    Ok(())
}

/// Writes bytes as lower-case hexadecimal digits.
pub(crate) fn write_hex(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    write(out, bytes, LOWER)
}

fn byte([high, low]: [u8; 2]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// The bytes of hexadecimal digits in small or capital letters. None if the text has anything else, or half a byte.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().copied().map(byte).collect()
}

/// The `N` bytes of `2 * N` hexadecimal digits, as [`unhex`] reads them.
pub fn unhex_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (out, pair) in bytes.iter_mut().zip(pairs) {
        *out = byte(*pair)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_and_written() {
        for (text, bytes) in [
            ("", Some(&[][..])),
            ("00", Some(&[0])),
            ("09afAF", Some(&[0x09, 0xaf, 0xaf])),
            ("0", None),
            ("000", None),
            ("0g", None),
            ("+1", None),
            ("é", None),
            (" 1", None),
        ] {
            assert_eq!(unhex(text).as_deref(), bytes, "{text}");
            assert_eq!(
                unhex_array::<3>(text).as_ref().map(|array| &array[..]),
                bytes.filter(|bytes| bytes.len() == 3),
                "{text}"
            );
        }
        assert_eq!(hex(&[0x09, 0xaf, 0xff]), "09afff");
        assert_eq!(hex_upper(&[0x09, 0xaf, 0xff]), "09AFFF");
    }
}
