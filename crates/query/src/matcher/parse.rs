//! The parts that the parsers of all operators share: their position in a filter, the field they stand on, conjunctions.

use frond_bson::{Collator, Doc, Value};

use super::{Expr, Leaf, Op};
use crate::environment::Environment;
use crate::paths::Path;
use frond_error::{Error, Result};

/// A filter may not nest deeper than this, which bounds every recursion over its tree. It is also
/// the depth limit of BSON documents.
const MAX_DEPTH: usize = 200;

/// The parser's position in a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'e> {
    depth: usize,
    /// Inside `$elemMatch`: fields are those of an array element, not of the document.
    pub(crate) in_element: bool,
    /// In a `$match`, where `$where` is refused.
    pub(crate) in_pipeline: bool,
    /// The environment of `$expr`; without it the operator is refused.
    pub(crate) environment: Option<&'e Environment<'e>>,
    pub(crate) collator: &'e Collator,
}

impl<'e> Context<'e> {
    /// The start of a filter that may hold `$expr`.
    pub(crate) fn top(environment: &'e Environment<'e>) -> Context<'e> {
        Context {
            environment: Some(environment),
            ..Context::without_expressions(environment.collator)
        }
    }

    /// The start of the filter of a `$match`.
    pub(crate) fn in_pipeline(environment: &'e Environment<'e>) -> Context<'e> {
        Context {
            in_pipeline: true,
            ..Context::top(environment)
        }
    }

    /// The start of a filter that may not.
    pub(crate) fn without_expressions(collator: &'e Collator) -> Context<'e> {
        Context {
            depth: 0,
            in_element: false,
            in_pipeline: false,
            environment: None,
            collator,
        }
    }

    /// The context one level further in; fails beyond the depth limit.
    pub(crate) fn deeper(self) -> Result<Context<'e>> {
        if self.depth >= MAX_DEPTH {
            return Err(Error::overflow(format!(
                "exceeded maximum query tree depth of {MAX_DEPTH}"
            )));
        }
        Ok(Context {
            depth: self.depth + 1,
            ..self
        })
    }

    /// The context inside an `$elemMatch`.
    pub(crate) fn element(self) -> Result<Context<'e>> {
        Ok(Context {
            in_element: true,
            ..self.deeper()?
        })
    }
}

/// A field with operators: `age: {$gte: 21, $lt: 65}`.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) path: &'a Path,
    /// All operators of the field, for those that read a sibling (`$regex` and `$options`).
    pub(crate) operators: &'a Doc,
    pub(crate) context: Context<'a>,
}

impl Field<'_> {
    pub(crate) fn leaf(&self, op: Op) -> Expr {
        Expr::Leaf(Leaf {
            path: self.path.clone(),
            op,
        })
    }

    pub(crate) fn not(&self, op: Op) -> Expr {
        Expr::Not(Box::new(self.leaf(op)))
    }
}

/// A conjunction. It has no conjunctions directly inside, and no wrapper around a single condition. The conditions of
/// inner conjunctions follow the others: as in MongoDB, this decides which of equal conditions the positional operator
/// follows.
pub(crate) fn all_of(conditions: Vec<Expr>) -> Expr {
    if conditions.len() > 1 && !conditions.iter().any(|one| matches!(one, Expr::And(_))) {
        return Expr::And(conditions);
    }
    let mut flat = Vec::with_capacity(conditions.len());
    let mut absorbed = Vec::new();
    for condition in conditions {
        match condition {
            Expr::And(inner) => absorbed.extend(inner),
            other => flat.push(other),
        }
    }
    flat.append(&mut absorbed);
    match flat.pop() {
        Some(only) if flat.is_empty() => only,
        last => {
            flat.extend(last);
            Expr::And(flat)
        }
    }
}

/// The document of operators that `value` is, if it is one: its first name starts with `$`, and it
/// is not a reference to a document (`{$ref: …, $id: …}`).
pub(crate) fn operators_of<'a>(value: &Value<'a>) -> Option<&'a Doc> {
    let Value::Document(doc) = *value else {
        return None;
    };
    let (first, _) = doc.first()?;
    let is_reference = || doc.contains_key("$ref") && doc.contains_key("$id");
    (first.starts_with('$') && !is_reference()).then_some(doc)
}

/// Whether a name is one of the three fields of a document reference.
pub(crate) fn is_db_ref_field(name: &str) -> bool {
    matches!(name, "$ref" | "$id" | "$db")
}
