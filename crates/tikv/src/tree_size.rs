//! The size of a tree.

/// The space that one copy of a tree takes, about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSize {
    pub bytes: u64,
    /// The part of the keys in it.
    pub key_bytes: u64,
}
