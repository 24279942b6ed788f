//! Bounds for index scans.

use super::encode::class_tag;
use super::{Direction, tags};
use crate::Value;

/// The range of first bytes, `first..end`, of all values that compare with `value` in a query such as
/// `{$gt: value}`: those of its class. NaN and the other numbers do not compare with each other.
pub fn bracket(value: &Value<'_>, direction: Direction) -> (u8, u8) {
    let tag = class_tag(value.type_code());
    let (first, last) = match tag {
        tags::NAN if value.is_nan() => (tags::NAN, tags::NAN),
        tags::NAN => (tags::NEGATIVE_LARGE, tags::POSITIVE_LARGE),
        tags::FALSE => (tags::FALSE, tags::TRUE),
        tag => (tag, tag),
    };
    // No tag is 0x00 or 0xFF, so adding one cannot overflow in either direction.
    match direction {
        Direction::Ascending => (first, last + 1),
        Direction::Descending => (!last, !first + 1),
    }
}

/// Turns `prefix` into the least bytes that are greater than all that start with it. False, with an empty
/// `prefix`, when there are none: it was empty or all 0xFF.
pub fn prefix_end(prefix: &mut Vec<u8>) -> bool {
    while let Some(last) = prefix.pop() {
        if last < 0xFF {
            prefix.push(last + 1);
            return true;
        }
    }
    false
}
