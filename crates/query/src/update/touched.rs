//! The paths that an update may change, to find the indexes that it affects.

use super::path::canonical;
use crate::paths::names;
use crate::required_fields::leads_to;
use std::sync::Arc;

/// The paths that an update may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Touched<'a> {
    /// Any path: the update replaces the document or computes it.
    All,
    /// Only these paths and those below them.
    Paths(&'a Paths),
}

impl Touched<'_> {
    /// Whether a value at the index field `path` (such as `a.b`, without array indexes) may change.
    pub fn affects(&self, path: &str) -> bool {
        match self {
            Touched::All => true,
            Touched::Paths(paths) => paths.affects(path),
        }
    }
}

/// Paths of an update, without array indexes and positional components.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paths {
    canonical: Vec<Arc<str>>,
}

impl Paths {
    /// `canonical` are paths as in an index specification.
    pub(super) fn new(mut canonical: Vec<Arc<str>>) -> Paths {
        canonical.sort_unstable();
        canonical.dedup();
        Paths { canonical }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.canonical.iter().map(|path| &**path)
    }

    /// Whether one of the paths is `path`, leads to it or is below it.
    pub fn affects(&self, path: &str) -> bool {
        let stripped;
        let path = if names(path)
            .skip(1)
            .any(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        {
            stripped = canonical(path);
            &stripped
        } else {
            path
        };
        self.iter().any(|touched| related(touched, path))
    }
}

/// Whether the paths are equal or one is the beginning of the other.
fn related(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    leads_to(short, long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_affected_by_its_path_and_its_relatives() {
        let paths = Paths::new(
            ["a.b", "x.0.y", "l.$[].m", "p.$.q"]
                .map(|path| canonical(path).into())
                .to_vec(),
        );
        for (index, expected) in [
            ("a", true),
            ("a.b", true),
            ("a.b.c", true),
            ("a.c", false),
            ("ab", false),
            ("a.bc", false),
            ("x", true),
            ("x.y", true),
            ("x.0", true),
            ("x.0.y", true),
            ("x.z", false),
            ("l.m", true),
            ("p.q.r", true),
            ("p.r", false),
            ("_id", false),
        ] {
            assert_eq!(paths.affects(index), expected, "{index}");
        }
        assert!(Touched::All.affects("anything"));
    }
}
