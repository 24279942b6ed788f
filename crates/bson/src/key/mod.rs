//! Keys: values encoded as bytes whose `memcmp` order is MongoDB's order of the values.
//!
//! The encoding is prefix-free. So encodings can be concatenated, as a compound index does, and in both directions; a
//! descending one has all bytes inverted. The README of this crate describes the format byte by byte.
//!
//! Numbers compare by value, so their type is not part of the key, nor is a decimal's exponent. The lost
//! information goes into [`TypeBits`]; with them [`decode`] restores the value exactly.

mod bounds;
mod decode;
mod encode;
mod number;
mod skip;
mod tags;
mod type_bits;

pub use bounds::{bracket, prefix_end};
pub use decode::{decode, decode_into, leading_date};
pub use encode::{encode, encode_descending, encode_directed, encode_typed};
pub use skip::skip;
pub use type_bits::{TypeBits, TypeBitsReader};

/// The order in which a field is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    Ascending,
    /// Greatest first: all bytes inverted.
    Descending,
}

impl Direction {
    /// XOR mask that turns the ascending encoding into this one.
    pub(crate) fn mask(self) -> u8 {
        match self {
            Direction::Ascending => 0,
            Direction::Descending => 0xFF,
        }
    }
}
