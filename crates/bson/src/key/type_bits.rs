//! Type bits: the information that the key encoding loses.

/// A stream of bits, value after value. All zero bits at the end are left out, so that keys of
/// int32, strings and types without loss have no bytes here at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits {
    bytes: Vec<u8>,
    /// Bits written, zeros included.
    len: usize,
}

impl TypeBits {
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all bits and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }

    /// The bytes to store; the last is never zero.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the bits from the start.
    pub fn reader(&self) -> TypeBitsReader<'_> {
        TypeBitsReader::new(&self.bytes)
    }

    pub(super) fn bit(&mut self, bit: bool) {
        if bit {
            let at = self.len / 8;
            if self.bytes.len() <= at {
                self.bytes.resize(at + 1, 0);
            }
            if let Some(byte) = self.bytes.get_mut(at) {
                *byte |= 1 << (self.len % 8);
            }
        }
        self.len += 1;
    }

    /// Appends the low `count` bits of `bits`, the lowest first.
    pub(super) fn bits(&mut self, bits: u128, count: u32) {
        for i in 0..count {
            self.bit((bits >> i) & 1 == 1);
        }
    }
}

/// Reads type bits; all bits after the end are zero.
#[derive(Clone, Debug, Default)]
pub struct TypeBitsReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the bits are not known.
    pub(super) is_unknown: bool,
}

impl<'a> TypeBitsReader<'a> {
    /// Reads bytes that came from [`TypeBits::as_bytes`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            is_unknown: false,
        }
    }

    /// For a key whose bits are not known: each number gets the first of the types int32, int64, double and decimal
    /// that can hold it.
    pub fn unknown() -> TypeBitsReader<'static> {
        TypeBitsReader {
            is_unknown: true,
            ..TypeBitsReader::default()
        }
    }

    pub(super) fn bit(&mut self) -> bool {
        let byte = self.bytes.get(self.at / 8).copied().unwrap_or(0);
        let bit = (byte >> (self.at % 8)) & 1 == 1;
        self.at += 1;
        bit
    }

    pub(super) fn bits(&mut self, count: u32) -> u128 {
        (0..count).fold(0, |bits, i| bits | (u128::from(self.bit()) << i))
    }
}

/// The two bits of a number's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
    Int32 = 0,
    Double = 1,
    Int64 = 2,
    Decimal = 3,
}

impl NumberType {
    pub(super) fn read(bits: &mut TypeBitsReader<'_>) -> Self {
        match bits.bits(2) {
            0 => NumberType::Int32,
            1 => NumberType::Double,
            2 => NumberType::Int64,
            _ => NumberType::Decimal,
        }
    }
}
