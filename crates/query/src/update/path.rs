//! The path of one update, such as `a.b.0.c`, `a.$.b`, `a.$[].b` or `a.$[item].b`.

use crate::paths::names;
use frond_error::{Error, ErrorCode, Result};
use std::cmp::Ordering;

/// Components of a path; with documents nested at most this deep a longer path cannot exist.
pub(crate) const MAX_DEPTH: usize = 200;

/// One component of an update path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    /// A field name, or the index of an array element.
    Field(&'a str),
    /// `$`: the array element that the query matched.
    Positional,
    /// `$[]` with an empty name or `$[name]`: all array elements, or those that the filter takes.
    Filtered(&'a str),
}

/// Splits and checks the path of an update operator; `components` is replaced.
///
/// Names that begin with `$` and are no positional component are names like others. Errors: 56 for empty names, 2
/// for misplaced positional components.
pub(crate) fn parse<'a>(path: &'a str, components: &mut Vec<Component<'a>>) -> Result<()> {
    components.clear();
    if path.is_empty() {
        return Err(Error::new(
            ErrorCode::EmptyFieldName,
            "An empty update path is not valid.",
        ));
    }
    for (position, name) in names(path).enumerate() {
        components.push(component(path, position, name)?);
    }
    if components.len() > MAX_DEPTH {
        return Err(Error::overflow(format!(
            "The update path is nested deeper than the limit of {MAX_DEPTH}"
        )));
    }
    let positional = components
        .iter()
        .filter(|c| **c == Component::Positional)
        .count();
    if positional > 1 {
        return Err(Error::bad_value(format!(
            "Too many positional (i.e. '$') elements found in path '{path}'"
        )));
    }
    Ok(())
}

fn component<'a>(path: &str, position: usize, name: &'a str) -> Result<Component<'a>> {
    if name.is_empty() {
        return Err(Error::new(
            ErrorCode::EmptyFieldName,
            format!("The update path '{path}' contains an empty field name, which is not allowed."),
        ));
    }
    if name == "$" {
        if position == 0 {
            return Err(Error::bad_value(format!(
                "Cannot have positional (i.e. '$') element in the first position in path '{path}'"
            )));
        }
        return Ok(Component::Positional);
    }
    if let Some(id) = name.strip_prefix("$[").and_then(|n| n.strip_suffix(']')) {
        if position == 0 {
            return Err(Error::bad_value(format!(
                "Cannot have array filter identifier (i.e. '$[<id>]') element in the first \
                 position in path '{path}'"
            )));
        }
        return Ok(Component::Filtered(id));
    }
    Ok(Component::Field(name))
}

/// Order in which new fields are added: numbers by value, then other names by their bytes.
///
/// Numbers all go first, because an order that mixed both kinds would not be transitive.
pub(crate) fn compare_names(a: &str, b: &str) -> Ordering {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|c| c.is_ascii_digit());
    match (digits(a), digits(b)) {
        (true, true) => {
            let (x, y) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            (x.len(), x).cmp(&(y.len(), y)).then_with(|| a.cmp(b))
        }
        (false, false) => a.cmp(b),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

/// Whether [`canonical`] leaves a path of these components as it is.
pub(crate) fn is_canonical(components: &[Component<'_>]) -> bool {
    let is_plain = |component: &Component<'_>| match component {
        Component::Field(name) => !name.starts_with(|c: char| c.is_ascii_digit()),
        _ => false,
    };
    components.iter().skip(1).all(is_plain)
}

/// The beginning of a path, up to its first positional component.
pub(crate) fn fixed(path: &str) -> &str {
    let is_positional = |rest: &str| {
        let name = rest.split('.').next().unwrap_or_default();
        name == "$" || name.starts_with("$[")
    };
    // None is in the first position.
    let mut dots = path.match_indices('.');
    let end = dots.find(|(at, _)| path.get(at + 1..).is_some_and(is_positional));
    end.and_then(|(at, _)| path.get(..at)).unwrap_or(path)
}

/// The path up to its first array index. The index may be beyond the end of the array: then elements are added
/// up to it, whose other fields are missing, which affects all indexes below the array.
pub(crate) fn up_to_index(path: &str) -> &str {
    let mut at = 0;
    for (position, name) in path.split('.').enumerate() {
        if position > 0 && !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
            return path.get(..at - 1).unwrap_or(path);
        }
        at += name.len() + 1;
    }
    path
}

/// The path without array indexes and positional components, as in an index specification.
pub(crate) fn canonical(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (position, name) in path.split('.').enumerate() {
        let numeric = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
        let placeholder = name == "$" || (name.starts_with("$[") && name.ends_with(']'));
        if position > 0 && (numeric || placeholder) {
            continue;
        }
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(name);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn paths_are_split_and_checked() {
        fn parse(path: &str) -> Result<Vec<Component<'_>>> {
            let mut components = vec![Component::Positional];
            super::parse(path, &mut components)?;
            Ok(components)
        }
        let field = Component::Field;
        assert_eq!(parse("a.b").unwrap(), [field("a"), field("b")]);
        assert_eq!(
            parse("a.$.b").unwrap(),
            [field("a"), Component::Positional, field("b")]
        );
        assert_eq!(
            parse("a.$[].b.$[x]").unwrap(),
            [
                field("a"),
                Component::Filtered(""),
                field("b"),
                Component::Filtered("x")
            ]
        );
        assert_eq!(
            parse("$x.$*.$[y.$z]").unwrap(),
            [field("$x"), field("$*"), field("$[y"), field("$z]")]
        );
        for (path, code) in [
            ("", 56),
            (".a", 56),
            ("a.", 56),
            ("a..b", 56),
            ("$", 2),
            ("$[]", 2),
            ("$[x].a", 2),
            ("a.$.b.$", 2),
        ] {
            assert_eq!(parse(path).unwrap_err().code().code(), code, "{path}");
        }
        let deep = vec!["a"; MAX_DEPTH + 1].join(".");
        assert_eq!(parse(&deep).unwrap_err().code().code(), 15);
    }

    #[test]
    fn the_fixed_part_ends_before_what_is_positional() {
        for (path, expected) in [
            ("a", "a"),
            ("a.b.15.c", "a.b.15.c"),
            ("a.b.$.c", "a.b"),
            ("a.$[].b.$[x]", "a"),
            ("a.b.$[x]", "a.b"),
            ("a.$id", "a.$id"),
        ] {
            assert_eq!(fixed(path), expected);
        }
    }

    #[test]
    fn names_order_numbers_by_value() {
        let mut names = ["b", "10", "a", "9", "1x", "0"];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(names, ["0", "9", "10", "1x", "a", "b"]);
    }

    #[test]
    fn canonical_paths_name_no_elements() {
        for (path, expected) in [
            ("a", "a"),
            ("a.0.b", "a.b"),
            ("a.$.b", "a.b"),
            ("a.$[].b.$[x]", "a.b"),
            ("0.a", "0.a"),
        ] {
            assert_eq!(canonical(path), expected);
        }
    }
}
