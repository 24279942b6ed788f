//! Percent-encoding as connection strings and the files of dumps have it. A `%` without two hexadecimal digits is an error there;
//! the crate `percent-encoding` takes it for text.

use percent_encoding::percent_decode_str;
pub use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// The characters that are escaped in a part of an address: all but RFC 3986's "unreserved" characters.
pub const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The text that an encoded text stands for.
///
/// # Errors
/// The fault of the text, as the end of a sentence.
pub fn decode(text: &str) -> Result<String, &'static str> {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err("has a % without two hex digits");
    }
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded
        .map_err(|_| "is not UTF-8 once decoded")?
        .into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_escapes_are_errors() {
        const ESCAPE: Result<&str, &str> = Err("has a % without two hex digits");
        for (text, expected) in [
            ("", Ok("")),
            ("a%20b%c3%A4+", Ok("a bä+")),
            ("%25", Ok("%")),
            ("%", ESCAPE),
            ("%4", ESCAPE),
            ("%%41", ESCAPE),
            ("%4%41", ESCAPE),
            ("%+4", ESCAPE),
            ("%é", ESCAPE),
            ("%ff", Err("is not UTF-8 once decoded")),
        ] {
            assert_eq!(
                decode(text).as_deref().map_err(|what| *what),
                expected,
                "{text}"
            );
        }
        let encoded = percent_encode("a-._~/ä".as_bytes(), RESERVED).to_string();
        assert_eq!(encoded, "a-._~%2F%C3%A4");
    }
}
