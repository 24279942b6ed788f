//! `$meta`.

use super::{Entry, Eval, custom};
use crate::expr::node::Node;
use crate::meta::MetaField;

pub(super) const OPERATORS: &[Entry] = &[custom(
    "$meta",
    |_, _, argument| Ok(Node::Meta(MetaField::parse(&argument)?)),
    Eval::Never,
)];
