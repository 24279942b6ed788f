//! Dotted paths and MongoDB's rules for following them through arrays.
//!
//! Three readers follow paths in three slightly different ways, one file each:
//! - [`walk`](for_each_value): what a query condition sees (elements of arrays, then the array),
//! - [`KeyPaths`]: the keys of an index entry or a sort, several paths in step,
//! - [`distinct_values`]: what the `distinct` command collects.
//!
//! All three descend no deeper than the document nests, which validation bounds.

mod distinct;
mod field_path;
mod keys;
mod multikey;
mod walk;

pub use distinct::distinct_values;
pub(crate) use field_path::{MAX_PATH_COMPONENTS, check_field_path, is_reserved, path_too_long};
pub use keys::{KeyPaths, MAX_KEY_FIELDS, ParallelArrays};
pub use multikey::MultikeyPaths;
pub use walk::{LeafArrays, for_each_value, walk};

use frond_bson::find_byte;
use std::fmt;

/// One name between the dots of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Component {
    name: Box<str>,
    /// The array index that the name spells, if it is one: digits without a leading zero.
    index: Option<usize>,
}

impl Component {
    fn new(name: &str) -> Component {
        Component {
            name: name.into(),
            index: array_index(name),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The array index that the name spells, if any. Such a component names a field in a document
    /// and an element in an array.
    pub fn index(&self) -> Option<usize> {
        self.index
    }
}

/// The names between the dots of a path.
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let here = rest?;
        let (name, below) = match find_byte(here.as_bytes(), b'.') {
            Some(dot) => (here.get(..dot)?, here.get(dot + 1..)),
            None => (here, None),
        };
        rest = below;
        Some(name)
    })
}

/// Reads `name` as an array index, written as BSON writes it (`"0"`, `"17"`, never `"01"`).
pub fn array_index(name: &str) -> Option<usize> {
    let canonical = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_digit())
        && (name.len() == 1 || !name.starts_with('0'));
    if canonical { name.parse().ok() } else { None }
}

/// A dotted path, split once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path(Form);

/// The names, held as few times as may be.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A path without dots.
    Field(Component),
    Nested {
        full: Box<str>,
        components: Box<[Component]>,
    },
}

impl Path {
    /// Splits `full` at its dots. Any string is a path; an empty component names the empty field.
    pub fn new(full: &str) -> Path {
        let dots = full.bytes().filter(|byte| *byte == b'.').count();
        if dots == 0 {
            return Path(Form::Field(Component::new(full)));
        }
        let mut components = Vec::with_capacity(dots + 1);
        components.extend(names(full).map(Component::new));
        Path(Form::Nested {
            full: full.into(),
            components: components.into(),
        })
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Field(only) => only.name(),
            Form::Nested { full, .. } => full,
        }
    }

    /// The components, at least one.
    pub fn components(&self) -> &[Component] {
        match &self.0 {
            Form::Field(only) => std::slice::from_ref(only),
            Form::Nested { components, .. } => components,
        }
    }

    /// The number of components.
    pub fn depth(&self) -> usize {
        self.components().len()
    }

    /// The name of the top-level field that the path starts with.
    pub fn first(&self) -> &str {
        self.components().first().map_or("", Component::name)
    }

    /// Whether a component can be an array index, as in `a.0.b`.
    ///
    /// A condition sees the documents of an array in both readings of such a component, a key only
    /// in one. So `{"a.0.b": null}` matches `{a: [{b: 5}]}` (the element has no field `0`), while
    /// the only key of that document is 5: an index on such a path cannot answer a condition that a
    /// missing field satisfies.
    pub fn has_index(&self) -> bool {
        self.components()
            .iter()
            .any(|component| component.index.is_some())
    }

    /// Whether the path names a top-level field.
    pub fn is_top_level(&self) -> bool {
        matches!(self.0, Form::Field(_))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&str> for Path {
    fn from(full: &str) -> Path {
        Path::new(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_indexes_are_canonical_decimals() {
        for (name, index) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("120", Some(120)),
            ("", None),
            ("01", None),
            ("-1", None),
            ("+1", None),
            ("1a", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(array_index(name), index, "{name:?}");
        }
    }

    #[test]
    fn paths_split_at_dots() {
        let path = Path::new("a.0.b");
        let names: Vec<&str> = path.components().iter().map(Component::name).collect();
        assert_eq!(names, ["a", "0", "b"]);
        assert_eq!(path.first(), "a");
        assert!(!path.is_top_level());
        assert!(Path::new("").is_top_level());
    }
}
