//! `$meta`.

use super::{Eval, Operator, custom};
use crate::expr::node::Node;
use crate::meta::MetaField;

pub(super) const OPERATORS: &[Operator] = &[custom(
    "$meta",
    |_, _, argument| Ok(Node::Meta(MetaField::parse(&argument)?)),
    Eval::Never,
)];
