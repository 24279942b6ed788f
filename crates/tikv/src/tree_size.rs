//! The size of a tree.

/// About how much space one copy of a tree takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSize {
    pub bytes: u64,
    /// The part of the keys in it.
    pub key_bytes: u64,
}
