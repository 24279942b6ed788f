//! `$meta`.

use super::{Eval, Operator, special};
use crate::expr::node::Node;
use crate::meta::MetaField;

pub(super) const OPERATORS: &[Operator] = &[special(
    "$meta",
    |_, _, argument| Ok(Node::Meta(MetaField::parse(&argument)?)),
    Eval::Never,
)];
