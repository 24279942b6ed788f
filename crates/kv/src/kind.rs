//! The kinds of messages for a key.

/// The effect of a message on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Put,
    Delete,
    /// Applies a delta to the value through the merge operator (an update message).
    Merge,
}

impl Kind {
    /// The byte that encodes it in files.
    #[inline]
    pub fn to_byte(self) -> u8 {
        match self {
            Kind::Put => 0,
            Kind::Delete => 1,
            Kind::Merge => 2,
        }
    }

    /// The kind that a byte encodes.
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            0 => Kind::Put,
            1 => Kind::Delete,
            2 => Kind::Merge,
            _ => return None,
        })
    }
}
