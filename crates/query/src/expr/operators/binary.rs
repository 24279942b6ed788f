//! Conversions between text and binData in `$convert`, `$toUUID` and `$toString`, as of MongoDB 8.0.

use frond_bson::extjson::{base64_decode, base64_encode};
use frond_bson::{hex_upper, unhex, uuid_text};
use frond_error::{Error, ErrorCode, Result};

/// The most bytes that a conversion allocates for a byte of its input: text that is not UTF-8 takes three bytes for each, and the
/// result is a copy.
pub(super) const BYTES_PER_BYTE: usize = 5;

/// The subtype of UUIDs.
pub(super) const UUID: u8 = 4;

/// Text encodings of binary data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Chosen by the subtype: a UUID, or else base64. Only for binData to string.
    Auto,
    Base64,
    /// The alphabet for addresses, without padding.
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

impl Format {
    /// Reads the argument `format`.
    ///
    /// # Errors
    /// 4341125 for a name that is none.
    pub(super) fn parse(name: &str) -> Result<Format> {
        Ok(match name {
            "auto" => Format::Auto,
            "base64" => Format::Base64,
            "base64url" => Format::Base64Url,
            "hex" => Format::Hex,
            "utf8" => Format::Utf8,
            "uuid" => Format::Uuid,
            _ => {
                return Err(Error::location(
                    4_341_125,
                    format!(
                        "Invalid 'format' argument for $convert: {name}; it is one of auto, base64, base64url, hex, \
                         utf8 and uuid"
                    ),
                ));
            }
        })
    }
}

/// The error of a conversion that needs a format and has none.
pub(super) fn format_missing(from: &str, to: &str) -> Error {
    Error::location(
        4_341_115,
        format!("Format must be specified when converting from '{from}' to '{to}'"),
    )
}

fn failure(why: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!("{why} in $convert with no onError value"),
    )
}

/// The bytes of a text.
///
/// # Errors
/// `ConversionFailure` (241) if the text is not of the format, or the format does not suit the subtype.
pub(super) fn from_text(stored: &[u8], subtype: u8, format: Format) -> Result<Vec<u8>> {
    // Invalid UTF-8 becomes U+FFFD, which no format but `utf8` accepts; that one takes the bytes as they are.
    let text = &*String::from_utf8_lossy(stored);
    let bytes = match format {
        Format::Auto => {
            return Err(failure(
                "Format 'auto' is not supported when converting from string to binData",
            ));
        }
        // Only these make UUIDs, and they make nothing else.
        _ if (format == Format::Uuid) != (subtype == UUID) => {
            return Err(failure(format_args!(
                "The format 'uuid' goes with the binData subtype {UUID}, not with {subtype}"
            )));
        }
        Format::Base64 => {
            let standard = text.len().is_multiple_of(4) && !text.contains(['-', '_']);
            standard.then(|| base64_decode(text)).flatten()
        }
        Format::Base64Url => (!text.contains(['+', '/']))
            .then(|| base64_decode(text))
            .flatten(),
        Format::Hex => unhex(text),
        Format::Utf8 => Some(stored.to_vec()),
        Format::Uuid => uuid_decode(text),
    };
    bytes.ok_or_else(|| {
        failure(format_args!(
            "Input is not a valid {format:?} string: {}",
            text.get(..text.floor_char_boundary(1024))
                .unwrap_or_default()
        ))
    })
}

/// Bytes as text.
///
/// # Errors
/// `ConversionFailure` (241) if the format does not suit the subtype, or the bytes are not UTF-8.
pub(super) fn to_text(bytes: &[u8], subtype: u8, format: Format) -> Result<String> {
    let uuid = (subtype == UUID).then(|| bytes.try_into().ok()).flatten();
    match format {
        Format::Auto if subtype == UUID => to_text(bytes, subtype, Format::Uuid),
        Format::Auto | Format::Base64 => Ok(base64_encode(bytes)),
        Format::Base64Url => Ok(base64_encode(bytes)
            .trim_end_matches('=')
            .replace('+', "-")
            .replace('/', "_")),
        Format::Hex => Ok(hex_upper(bytes)),
        Format::Utf8 => std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| failure("Invalid UTF-8")),
        Format::Uuid => uuid.map(uuid_text).ok_or_else(|| failure(format_args!(
            "Only binData of subtype {UUID} and 16 bytes can be converted with the format 'uuid'"
        ))),
    }
}

/// The bytes of `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
fn uuid_decode(text: &str) -> Option<Vec<u8>> {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    if lengths != [8, 4, 4, 4, 12] {
        return None;
    }
    unhex(&text.replace('-', ""))
}
