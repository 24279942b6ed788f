//! BSON documents as bytes: reading, building, validating, comparing and encoding as ordered keys.
//!
//! A [`Doc`] is a borrowed document, a [`DocBuf`] an owned one. Reading never allocates: a [`Value`]
//! borrows its strings, documents and binary from the document's bytes.
#![forbid(unsafe_code)]

mod array_buf;
mod collate;
mod compare;
mod convert;
mod decimal128;
mod doc;
mod docbuf;
mod error;
pub mod extjson;
pub mod key;
mod macros;
mod number;
mod object_id;
mod owned;
pub mod path;
mod raw;
mod text;
mod timestamp;
mod validate;
mod value;

pub use array_buf::ArrayBuf;
pub use collate::{Collate, Collator};
pub use compare::{canonical_class, compare, compare_docs};
pub use convert::ToValue;
pub use decimal128::{Decimal128, ParseDecimalError, Rounding};
pub use doc::{Doc, Iter, RawIter};
pub use docbuf::DocBuf;
pub use error::{Error, ErrorKind};
pub use object_id::{ObjectId, ParseObjectIdError};
pub use owned::OwnedValue;
pub use raw::{RawElement, find_byte, value_len};
pub use text::{NotUtf8, NotUtf8Buf, Text, hex};
pub use timestamp::Timestamp;
pub use value::{Value, type_code_of_name, type_name_of_code};

/// The deepest nesting of documents and arrays, the outermost document counted as one.
pub const MAX_DEPTH: usize = 200;

/// The largest document that a client may store, in bytes (16 MiB).
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// The BSON type bytes, as in the BSON specification (bsonspec.org).
pub mod tag {
    #![allow(missing_docs)]
    pub const DOUBLE: u8 = 0x01;
    pub const STRING: u8 = 0x02;
    pub const DOCUMENT: u8 = 0x03;
    pub const ARRAY: u8 = 0x04;
    pub const BINARY: u8 = 0x05;
    pub const UNDEFINED: u8 = 0x06;
    pub const OBJECT_ID: u8 = 0x07;
    pub const BOOL: u8 = 0x08;
    pub const DATE_TIME: u8 = 0x09;
    pub const NULL: u8 = 0x0A;
    pub const REGEX: u8 = 0x0B;
    pub const DB_POINTER: u8 = 0x0C;
    pub const JAVASCRIPT: u8 = 0x0D;
    pub const SYMBOL: u8 = 0x0E;
    pub const JAVASCRIPT_WITH_SCOPE: u8 = 0x0F;
    pub const INT32: u8 = 0x10;
    pub const TIMESTAMP: u8 = 0x11;
    pub const INT64: u8 = 0x12;
    pub const DECIMAL128: u8 = 0x13;
    pub const MIN_KEY: u8 = 0xFF;
    pub const MAX_KEY: u8 = 0x7F;
    /// Not of BSON: stands where a value was taken out that is kept elsewhere, with a number of 4 bytes in its
    /// place. Elements of this type can be walked over and copied, but have no value. Validation refuses them,
    /// so that none comes from outside.
    pub const ELSEWHERE: u8 = 0x60;
}
