//! The error of reading a bucket.

use std::fmt;

/// The reason why a bucket cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A field is missing or of another type; the text names it and says what it must be.
    Shape(String),
    /// A version of the format that does not exist, or is not known.
    Version(String),
    /// The bucket has values of a metaField, and the time series has none.
    Metadata,
    /// A column holds another number of values than the bucket has measurements.
    Count {
        column: String,
        values: usize,
        measurements: usize,
    },
    /// The bytes of a compressed column are damaged.
    Column(String, ColumnFault),
    /// The bucket has more measurements, or columns, than a program can be made to hold.
    TooLarge(&'static str),
    /// A measurement is no document.
    Measurement(crate::Error),
}

/// The reason why the bytes of a compressed column cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnFault {
    /// The bytes end before the column does.
    Truncated,
    /// Bytes follow the end of the column.
    Trailing,
    /// A byte that begins no literal, no deltas and no objects, or not for the type of the values.
    Control(u8),
    /// A block of integers with a selector that does not exist.
    Selector(u8),
    /// A difference to a value of a type that has none, or that is too long.
    Delta(u8),
    /// A double that its scale cannot represent.
    Scale,
    /// The document that describes the objects behind it is damaged or empty.
    Reference,
    /// The objects end within one of them.
    Objects,
    /// The objects have more fields than a program can be made to hold.
    Fields,
}

impl fmt::Display for ColumnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnFault::Truncated => f.write_str("the bytes end too early"),
            ColumnFault::Trailing => f.write_str("bytes follow the end"),
            ColumnFault::Control(byte) => write!(f, "invalid control byte 0x{byte:02x}"),
            ColumnFault::Selector(selector) => write!(f, "invalid selector 0x{selector:02x}"),
            ColumnFault::Delta(tag) => match crate::type_name_of_code(*tag) {
                Some(name) => write!(f, "a difference to a value of type {name}"),
                None => f.write_str("a difference without a value before it"),
            },
            ColumnFault::Scale => f.write_str("a double that its scale cannot represent"),
            ColumnFault::Reference => f.write_str("invalid reference object"),
            ColumnFault::Objects => f.write_str("the values of an object end too early"),
            ColumnFault::Fields => f.write_str("its objects have too many fields"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Shape(text) => f.write_str(text),
            Fault::Version(version) => write!(
                f,
                "its control.version is {version}: buckets of versions 1, 2 and 3 are known"
            ),
            Fault::Metadata => f.write_str("it has a meta, and the time series has no metaField"),
            Fault::Count {
                column,
                values,
                measurements,
            } => write!(
                f,
                "'{column}' has {values} values, and the bucket has {measurements} measurements"
            ),
            Fault::Column(column, fault) => write!(f, "the column '{column}': {fault}"),
            Fault::TooLarge(what) => write!(f, "it has too many {what}"),
            Fault::Measurement(error) => write!(f, "a measurement is no document: {error}"),
        }
    }
}

/// A bucket that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketError {
    /// The `_id` of the bucket, as extended JSON.
    pub bucket: String,
    pub fault: Fault,
}

impl fmt::Display for BucketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bucket {}: {}", self.bucket, self.fault)
    }
}

impl std::error::Error for BucketError {}
