//! What filters, projections, updates and pipelines may refer to besides the document.

use frond_bson::{Collator, Doc};

/// The surroundings in which filters, projections, updates and pipelines are parsed. What is parsed
/// keeps its collator: it compares strings so ever after.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The values of a command's `let`, by name.
    pub variables: Option<&'a Doc>,
    /// `$$NOW`, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
    /// How strings compare.
    pub collator: &'a Collator,
}

impl Default for Environment<'_> {
    fn default() -> Self {
        Environment {
            variables: None,
            now_ms: 0,
            collator: Collator::BINARY,
        }
    }
}
