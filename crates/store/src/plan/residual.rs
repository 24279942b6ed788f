//! Residual conditions: those that the bounds of an index scan do not decide. They are tested on the entries if the
//! fields of the index suffice, else on the documents.

use std::sync::Arc;

use frond_bson::Collator;
use frond_query::matcher::{Expr, Filter, Leaf, Op, Relation};

use super::IndexAccess;
use frond_storage::index::covered;
use frond_storage::index::field::Holds;
use frond_storage::intervals::conditions::Conditions;

/// Where a condition is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Every entry inside the bounds satisfies it.
    ByBounds,
    /// The fields of an entry decide it.
    OnEntry,
    /// Only the document decides it.
    OnDocument,
}

/// Where a scan checks one condition of a conjunction.
pub fn checked(condition: &Expr, access: &IndexAccess) -> Checked {
    let spec = &access.index.spec;
    if spec.method.is_some() || access.expanded.is_some() {
        return if access.exact {
            Checked::ByBounds
        } else {
            Checked::OnDocument
        };
    }
    // A field without arrays has one value in a document, which all conditions on it bound together.
    let is_single = |path: &str| {
        let mut fields = spec.fields.iter().enumerate();
        fields.any(|(position, field)| {
            field.path == path
                && field.holds == Holds::Value
                && !access.multikey.has_array(position)
        })
    };
    if Conditions::from_filter(condition, &spec.collator).are_exact_for(is_single) {
        return Checked::ByBounds;
    }
    if covered::can_rebuild(spec) && is_told_by_entry(condition, &is_single) {
        Checked::OnEntry
    } else {
        Checked::OnDocument
    }
}

/// Whether the values of the fields that satisfy `has` decide a condition. An entry has null for a missing
/// field, so conditions that distinguish the two are not decided.
fn is_told_by_entry(condition: &Expr, has: &impl Fn(&str) -> bool) -> bool {
    match condition {
        Expr::And(all) | Expr::Or(all) | Expr::Nor(all) => {
            all.iter().all(|one| is_told_by_entry(one, has))
        }
        Expr::Not(inner) => is_told_by_entry(inner, has),
        Expr::Leaf(Leaf { path, op }) => {
            has(path.as_str())
                && match op {
                    Op::Compare(comparison) => {
                        let value = comparison.value();
                        let is_equal = comparison.relation() == Relation::Eq;
                        use frond_bson::Value::{Array, MaxKey, MinKey, Undefined};
                        !matches!(value, Array(_) | MinKey | MaxKey | Undefined)
                            && (is_equal || !value.is_nullish())
                    }
                    Op::In(set) => set.values().iter().all(|value| {
                        use frond_bson::Value::{Array, MaxKey, MinKey, Undefined};
                        let value = value.as_value();
                        !matches!(value, Array(_) | MinKey | MaxKey | Undefined)
                    }),
                    Op::Regex(_) | Op::Mod(_) | Op::Bits(_) => true,
                    Op::Exists
                    | Op::Type(_)
                    | Op::Size(_)
                    | Op::ElemMatch(_)
                    | Op::Geo(_)
                    | Op::Near(_) => false,
                }
        }
        Expr::Computed(_) | Expr::Schema(_) | Expr::Text(_) | Expr::Sample(_) | Expr::False => {
            false
        }
    }
}

/// The conditions of a filter by where a scan checks them.
#[derive(Debug)]
pub struct Residual {
    /// Those that are checked on entries; `None` if there are none.
    pub on_entry: Option<Arc<Filter>>,
    /// Those that are checked on documents.
    pub on_document: Option<Arc<Filter>>,
}

impl Residual {
    /// The conditions of `filter` that the bounds of `access` do not decide.
    pub fn for_access(filter: &Arc<Filter>, access: &IndexAccess) -> Residual {
        if access.exact || filter.is_empty() {
            return Residual {
                on_entry: None,
                on_document: None,
            };
        }
        let (mut on_entry, mut on_document) = (Vec::new(), Vec::new());
        let conditions = filter.conditions();
        for condition in &conditions {
            match checked(condition, access) {
                Checked::ByBounds => {}
                Checked::OnEntry => on_entry.push(*condition),
                Checked::OnDocument => on_document.push(*condition),
            }
        }
        let all = conditions.len();
        let filter_of = |part: Vec<&Expr>| match part.len() {
            0 => None,
            // Nothing has to be copied.
            len if len == all => Some(filter.clone()),
            _ => Some(Arc::new(Filter::of_conditions(part))),
        };
        Residual {
            on_entry: filter_of(on_entry),
            on_document: filter_of(on_document),
        }
    }
}

/// The conditions of a filter that satisfy `keep`; `None` if there are none.
pub fn part(filter: &Arc<Filter>, keep: impl Fn(&Expr) -> bool) -> Option<Arc<Filter>> {
    let mut kept = filter.conditions();
    kept.retain(|condition| keep(condition));
    (!kept.is_empty()).then(|| Arc::new(Filter::of_conditions(kept)))
}

/// Whether ranges of `_id` with this collator decide a condition.
pub fn is_said_by_id(condition: &Expr, collator: &Collator) -> bool {
    Conditions::from_filter(condition, collator).are_exact_for(|path| path == "_id")
}
