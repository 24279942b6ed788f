//! What a filter or a projection may refer to besides the document.

use frond_bson::Doc;

/// The surroundings in which aggregation expressions inside a filter (`$expr`) or a projection are
/// parsed and evaluated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment<'a> {
    /// The values of a command's `let`, by name.
    pub variables: Option<&'a Doc>,
    /// `$$NOW`, in milliseconds since 1970-01-01 UTC.
    pub now_ms: i64,
}
