//! Folding updates of one key, so that a counter that changes often has a short message.
//!
//! The folded updates have exactly the effect of all of them, whatever document they meet, also if some of them fail:
//! - Equal updates become one with a number.
//! - Increments by different amounts become steps of one group. Their sum alone would not do, because one that overflows fails,
//!   and those after it may succeed. They are added up when they are applied.
//! - A `$set` replaces an older one of the same paths whose values were no shorter. (A longer value might not fit the document,
//!   which then keeps the older one.)

use frond_bson::{RawElement, compare, tag};
use frond_query::update::Operation;

use super::group::{Group, Part, RawStep};
use crate::keyspace::Malformed;
use crate::record::message as parts;

/// Folds parts into fewer with the same effect.
pub(super) fn folded(all: Vec<Part<'_>>) -> Result<Vec<Part<'_>>, Malformed> {
    let mut folded: Vec<Part<'_>> = Vec::with_capacity(all.len());
    for part in all {
        match (folded.last_mut(), part) {
            (Some(Part::Group(last)), Part::Group(newer)) if last.shape == newer.shape => {
                for step in newer.steps {
                    add(last, step);
                }
            }
            (Some(Part::ToParts(last)), Part::ToParts(newer)) => {
                *last = parts::combine([&**last, &*newer].into_iter())?.into();
            }
            (_, part) => folded.push(part),
        }
    }
    Ok(folded)
}

fn add<'a>(group: &mut Group<'a>, mut newer: RawStep<'a>) {
    while let Some(older) = group.steps.last_mut() {
        let repeat = older.repeat.checked_add(newer.repeat);
        let Some(repeat) = repeat else { break };
        if older.operands == newer.operands {
            older.repeat = repeat;
            return;
        }
        match replaces(&group.operations, &older.operands, &newer.operands) {
            Some(true) => {
                group.steps.pop();
                newer.repeat = repeat;
            }
            Some(false) => {
                older.repeat = repeat;
                return;
            }
            None => break,
        }
    }
    group.steps.push(newer);
}

/// Whether of two updates, executed one after the other, only the newer one matters (true) or only the older one (false). Repeated
/// once more it changes nothing, and both fail for the same documents.
fn replaces(operations: &[Operation<'_>], older: &[u8], newer: &[u8]) -> Option<bool> {
    if let [only] = operations
        && matches!(only.operator, "$min" | "$max")
    {
        let (older, _) = RawElement::split(older)?;
        let (newer, _) = RawElement::split(newer)?;
        let (one, other) = (older.value_bytes(), newer.value_bytes());
        if older.tag() != newer.tag() || one.len() != other.len() || !is_shallow(only, &newer) {
            return None;
        }
        let order = compare(&newer.value()?, &older.value()?);
        return Some(match only.operator {
            "$min" => order.is_lt(),
            _ => order.is_gt(),
        });
    }
    let (mut older, mut newer) = (older, newer);
    for operation in operations {
        let (before, rest) = RawElement::split(older)?;
        older = rest;
        let (after, rest) = RawElement::split(newer)?;
        newer = rest;
        let is_replaced = match operation.operator {
            "$unset" => true,
            "$set" => {
                after.value_bytes().len() <= before.value_bytes().len()
                    && is_shallow(operation, &after)
            }
            "$setOnInsert" => before.as_bytes() == after.as_bytes(),
            _ => false,
        };
        if !is_replaced {
            return None;
        }
    }
    Some(true)
}

/// Whether an operand cannot fail for its depth, of which 200 levels are allowed with those of the path. A level takes 8 bytes.
fn is_shallow(operation: &Operation<'_>, operand: &RawElement<'_>) -> bool {
    let is_scalar = !matches!(
        operand.tag(),
        tag::DOCUMENT | tag::ARRAY | tag::JAVASCRIPT_WITH_SCOPE
    );
    is_scalar || (operation.path.len() < 200 && operand.value_bytes().len() < 800)
}
