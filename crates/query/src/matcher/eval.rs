//! Running a filter over a document.

use std::ops::ControlFlow;

use frond_bson::{Doc, Value};

use super::state::State;
use super::{Computed, Expr, Leaf, SampleRate, Schema, Text};
use crate::paths::walk;
use frond_error::{Error, ErrorCode};

/// Whether `doc` satisfies `expr`.
pub(crate) fn matches_document(expr: &Expr, doc: &Doc, state: &mut State) -> bool {
    combine(expr, state, &mut |atom, state| match atom {
        Atom::Leaf(leaf) => leaf_matches(leaf, doc, state),
        Atom::Computed(computed) => computed.matches(doc, state),
        Atom::Schema(schema) => schema.accepts(Value::Document(doc), state),
        Atom::Text(text) => text_matches(text, doc, state),
        Atom::Sample(rate) => rate.passes(),
    })
}

/// Whether one value satisfies `expr`, whose leaves all have empty paths.
pub(crate) fn matches_value(expr: &Expr, value: Value<'_>, state: &mut State) -> bool {
    combine(expr, state, &mut |atom, state| match atom {
        Atom::Leaf(leaf) => leaf.op.matches(Some(value), state),
        // The parser refuses it inside $elemMatch.
        _ => false,
    })
}

/// A condition without conditions inside.
enum Atom<'e> {
    Leaf(&'e Leaf),
    Computed(&'e Computed),
    Schema(&'e Schema),
    Text(&'e Text),
    Sample(&'e SampleRate),
}

fn combine<F>(expr: &Expr, state: &mut State, atom: &mut F) -> bool
where
    F: FnMut(Atom<'_>, &mut State) -> bool,
{
    match expr {
        Expr::Leaf(leaf) => atom(Atom::Leaf(leaf), state),
        Expr::Computed(computed) => atom(Atom::Computed(computed), state),
        Expr::Schema(schema) => atom(Atom::Schema(schema), state),
        Expr::Text(text) => atom(Atom::Text(text), state),
        Expr::Sample(rate) => atom(Atom::Sample(rate), state),
        Expr::And(children) => children.iter().all(|child| combine(child, state, atom)),
        Expr::Or(children) => state.any(children, |child, state| combine(child, state, atom)),
        Expr::Nor(children) => !state.any(children, |child, state| combine(child, state, atom)),
        Expr::Not(child) => !combine(child, state, atom),
        Expr::False => false,
    }
}

fn leaf_matches(leaf: &Leaf, doc: &Doc, state: &mut State) -> bool {
    walk(doc, &leaf.path, leaf.op.leaf_arrays(), &mut |value, _| {
        if state.goes_on(1) && !leaf.op.matches(value, state) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
    .is_break()
}

fn text_matches(text: &Text, doc: &Doc, state: &mut State) -> bool {
    let found = match text {
        Text::Bound(bound) => bound.matches(doc),
        Text::Unbound(_) => Err(Error::new(
            ErrorCode::IndexNotFound,
            "text index required for $text query",
        )),
    };
    found.unwrap_or_else(|error| {
        state.fail(error);
        false
    })
}
