//! BSON documents as bytes: reading, building, validating, comparing and encoding as ordered keys.
//!
//! A [`Doc`] is a borrowed document, a [`DocBuf`] an owned one. Reading never allocates: a [`Value`]
//! borrows its strings, documents and binary from the document's bytes.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod calendar;
mod collate;
mod compare;
mod convert;
mod decimal128;
mod error;
pub mod extjson;
mod finder;
mod hex;
pub mod key;
mod limits;
mod macros;
mod number;
mod object_id;
mod owned;
pub mod path;
mod raw;
pub mod tag;
mod timestamp;
mod validate;
mod value;

pub use collate::{Collate, Collator};
pub use compare::{canonical_class, compare, compare_docs};
pub use convert::ToValue;
pub use decimal128::{Decimal128, ParseDecimalError, Rounding};
pub use error::{Error, ErrorKind};
pub use finder::FieldFinder;
pub use hex::{hex, hex_upper, unhex, unhex_array};
pub use limits::{MAX_DEPTH, MAX_DOCUMENT_BYTES};
pub use object_id::{ObjectId, ParseObjectIdError};
pub use owned::{ArrayBuf, DocBuf, NotUtf8Buf, OwnedValue};
pub use raw::{RawElement, find_byte, uuid_text, value_len};
pub use tag::{type_code_of_name, type_name_of_code};
pub use timestamp::Timestamp;
pub use value::{Doc, Iter, NotUtf8, RawIter, Text, Value};
