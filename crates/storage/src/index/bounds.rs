//! The bounds of an index: from the conditions of a filter to intervals of the index's fields.
//!
//! The intervals hold every document that can pass, often more: whoever reads through an index applies
//! the filter again. Two rules come from arrays, of which an index has one entry per element:
//! - Two conditions may be met by two elements of an array that both paths lead through. Both bound the index only if
//!   one `$elemMatch` ties them to one element of each array that they share; the index's multikey paths show
//!   which components are arrays. This holds for two conditions on one field as for those on two fields.
//! - A negation holds for an array if no element matches, so it bounds the index only if an `$elemMatch` names one
//!   element of each array on its path.
//!
//! The first rule looks at pairs only. That is enough: each condition of a filter that matches has one witness, a
//! choice of an element of each array on its path; if the witnesses agree pairwise where paths share arrays, they
//! are together the choice that one entry stands for.

use std::cmp::Reverse;

use frond_query::paths::MultikeyPaths;

use super::field::Holds;
use super::route::{IndexBounds, Route};
use super::spec::IndexSpec;
use crate::intervals::Intervals;
use crate::intervals::conditions::{Condition, Conditions, has_number, narrowness};

/// A field of an index, and the components of its path that were arrays in some document.
#[derive(Clone, Copy)]
struct Field<'a> {
    path: &'a str,
    arrays: u32,
}

impl<'a> Field<'a> {
    fn at(position: usize, path: &'a str, multikey: &MultikeyPaths) -> Field<'a> {
        Field {
            path,
            arrays: multikey.set(position),
        }
    }

    /// The number of leading components of the two paths up to the last array that both lead through.
    fn shared_arrays(&self, other: &Field<'_>) -> usize {
        let names = self.path.split('.').zip(other.path.split('.'));
        let shared = names.take_while(|(one, other)| one == other).count();
        let components = u32::BITS as usize;
        let within = if shared < components {
            (1 << shared) - 1
        } else {
            u32::MAX
        };
        // An array that both paths lead through is marked in both.
        let arrays = self.arrays & other.arrays & within;
        match components - arrays.leading_zeros() as usize {
            // The last bit stands for all deeper components, too.
            last if last == components => shared,
            last => last,
        }
    }

    /// Whether the ranges of a condition hold for the entries of this field.
    fn can_bound(&self, condition: &Condition) -> bool {
        condition.holds_for_elements
            || self.shared_arrays(self) <= condition.shared_depth(condition)
    }

    /// Whether both conditions are met in one entry.
    fn go_together(&self, condition: &Condition, other: &Field<'_>, by: &Condition) -> bool {
        self.shared_arrays(other) <= condition.shared_depth(by)
    }
}

/// The most conditions on one array field that are considered, the narrowest first. Each is compared with all chosen
/// ones, so this bounds the time of planning; leaving conditions out only widens the bounds.
const CONDITIONS_MAX: usize = 16;

/// The ranges of a field with arrays, from the conditions on it that go together with those chosen for the fields
/// before it.
fn ranges_in_arrays<'a>(
    field: Field<'a>,
    mut about: Vec<&'a Condition>,
    chosen: &mut Vec<(Field<'a>, &'a Condition)>,
) -> Intervals {
    // The narrowest first; of equally narrow ones the last, because MongoDB sorts `$lt` before `$gt`.
    about.reverse();
    about.sort_by_key(|one| Reverse(narrowness(&one.intervals)));
    about.truncate(CONDITIONS_MAX);
    let mut ranges = Intervals::all();
    for one in about {
        let mut others = chosen.iter();
        if !one.intervals.is_all() && others.all(|(other, by)| field.go_together(one, other, by)) {
            ranges = ranges.intersection(&one.intervals);
            chosen.push((field, one));
        }
    }
    ranges
}

impl IndexBounds {
    /// The bounds of an index with these multikey paths. Computed parts are not bounded.
    pub fn from_conditions(
        spec: &IndexSpec,
        multikey: &MultikeyPaths,
        conditions: &Conditions,
    ) -> IndexBounds {
        let may_be_missing = !spec.fields.first().is_some_and(|first| {
            let field = Field::at(0, &first.path, multikey);
            // An element that is an array is a document with numbers as names to `$elemMatch`, but has no such key.
            let is_unsafe = field.arrays != 0 && has_number(field.path);
            let mut about = conditions.about(&first.path);
            about.any(|one| {
                let has_key = !is_unsafe || one.elements.is_empty();
                !one.matches_missing && field.can_bound(one) && has_key
            })
        });
        let mut bounds = IndexBounds {
            fields: Vec::with_capacity(spec.fields.len()),
            may_be_missing,
        };
        let mut chosen = Vec::new();
        for (position, field) in spec.fields.iter().enumerate() {
            let is_array = multikey.has_array(position);
            bounds.fields.push(if field.holds != Holds::Value {
                Intervals::all()
            } else if !is_array {
                conditions.ranges_of(&field.path)
            } else if has_number(&field.path) {
                Intervals::all()
            } else {
                let field = Field::at(position, &field.path, multikey);
                let about = conditions.about(field.path);
                // A sparse index lacks the entries of elements without any of its fields.
                let usable = |one: &&Condition| {
                    field.can_bound(one) && !(spec.sparse && one.matches_missing)
                };
                ranges_in_arrays(field, about.filter(usable).collect(), &mut chosen)
            });
        }
        bounds
    }
}

impl Route {
    /// The route through an index by its ordinary fields. Computed parts are not bounded.
    pub fn ordinary(spec: &IndexSpec, multikey: &MultikeyPaths, conditions: &Conditions) -> Route {
        let bounds = IndexBounds::from_conditions(spec, multikey, conditions);
        let has_field = |path: &str| spec.value_fields().any(|field| field.path == path);
        Route {
            may_repeat: !multikey.is_empty() && !bounds.all_points(),
            is_exact: multikey.is_empty() && conditions.are_exact_for(has_field),
            bounds,
            multikey: multikey.clone(),
            expanded: None,
        }
    }
}
