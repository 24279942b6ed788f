//! The first byte of each encoding. Stored on disk: never change one.
//!
//! None is 0x00, which ends documents and arrays, or 0xFF.

pub(super) const MIN_KEY: u8 = 0x0A;
pub(super) const UNDEFINED: u8 = 0x0F;
pub(super) const NULL: u8 = 0x14;

/// NaN; also stands for "a number" before the name of a document's element.
pub(super) const NAN: u8 = 0x1E;
/// -2^63 and below.
pub(super) const NEGATIVE_LARGE: u8 = 0x1F;
/// Whole part of 8 bytes; the following tags, up to `NEGATIVE_INT_1`, have a byte less each.
pub(super) const NEGATIVE_INT_8: u8 = 0x20;
pub(super) const NEGATIVE_INT_1: u8 = 0x27;
/// Between -1 and 0.
pub(super) const NEGATIVE_SMALL: u8 = 0x28;
pub(super) const ZERO: u8 = 0x29;
/// Between 0 and 1.
pub(super) const POSITIVE_SMALL: u8 = 0x2A;
/// Whole part of 1 byte; the following tags, up to `POSITIVE_INT_8`, have a byte more each.
pub(super) const POSITIVE_INT_1: u8 = 0x2B;
pub(super) const POSITIVE_INT_8: u8 = 0x32;
/// 2^63 and above.
pub(super) const POSITIVE_LARGE: u8 = 0x33;

pub(super) const STRING: u8 = 0x3C;
pub(super) const DOCUMENT: u8 = 0x46;
pub(super) const ARRAY: u8 = 0x50;
pub(super) const BINARY: u8 = 0x5A;
pub(super) const OBJECT_ID: u8 = 0x64;
/// Also stands for "a boolean" before the name of a document's element.
pub(super) const FALSE: u8 = 0x6E;
pub(super) const TRUE: u8 = 0x6F;
pub(super) const DATE_TIME: u8 = 0x78;
pub(super) const TIMESTAMP: u8 = 0x82;
pub(super) const REGEX: u8 = 0x8C;
pub(super) const DB_POINTER: u8 = 0x96;
pub(super) const JAVASCRIPT: u8 = 0xA0;
pub(super) const JAVASCRIPT_WITH_SCOPE: u8 = 0xAA;
pub(super) const MAX_KEY: u8 = 0xF0;

/// Ends a document, an array and a text.
pub(super) const END: u8 = 0x00;
/// In a text 0x00 is written as `ESCAPE 0x01`, and 0x01 as `ESCAPE 0x02`.
pub(super) const ESCAPE: u8 = 0x01;
/// A binary's length of 255 or more follows in four bytes.
pub(super) const LONG_LENGTH: u8 = 0xFF;
