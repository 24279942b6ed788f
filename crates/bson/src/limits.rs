//! Limits of documents, as in MongoDB.

/// The deepest nesting of documents and arrays, the outermost document counted as one.
pub const MAX_DEPTH: usize = 200;

/// The largest document that a client may store, in bytes (16 MiB).
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;
