//! Hexadecimal digits. This crate knows no documents, so it does not use those of `frond_bson`.

/// Bytes as digits in capital letters, as MongoDB shows thumbprints, and RFC 2253 bytes that are no text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
