//! `updateDescription`: what an update changed, by dotted paths, from the `$v: 2` diff of its entry.

use frond_bson::{ArrayBuf, Doc, DocBuf, RawElement, Value, doc};
use frond_query::paths::array_index;

use frond_storage::error::{Result, corrupt};

/// A component of a path: a field, or an element of an array.
#[derive(Clone, Copy)]
enum Part<'a> {
    Field(&'a str),
    Index(&'a str),
}

impl<'a> Part<'a> {
    fn text(self) -> &'a str {
        match self {
            Part::Field(text) | Part::Index(text) => text,
        }
    }
}

/// Collects the parts of a description.
#[derive(Default)]
struct Builder<'a> {
    path: Vec<Part<'a>>,
    updated: DocBuf,
    removed: ArrayBuf,
    truncated: ArrayBuf,
    disambiguated: DocBuf,
}

/// The description of a diff. Paths that can be read in several ways are in `disambiguatedPaths`, if they are asked for.
///
/// # Errors
/// `DataCorruptionDetected` (301) if this is no diff.
pub fn update_description(diff: &Doc, with_disambiguated: bool) -> Result<DocBuf> {
    let mut builder = Builder::default();
    builder.document(diff)?;
    let mut description = DocBuf::with_capacity(diff.len_bytes() + 64);
    description.push("updatedFields", &*builder.updated);
    description.push("removedFields", &builder.removed);
    description.push("truncatedArrays", &builder.truncated);
    if with_disambiguated {
        description.push("disambiguatedPaths", &*builder.disambiguated);
    }
    Ok(description)
}

fn damaged() -> frond_storage::error::Error {
    corrupt("the difference that an update left in the oplog")
}

fn fields<'a>(diff: &'a Doc, section: &str) -> Result<Option<&'a Doc>> {
    match diff.get(section) {
        None => Ok(None),
        Some(Value::Document(fields)) => Ok(Some(fields)),
        Some(_) => Err(damaged()),
    }
}

impl<'a> Builder<'a> {
    fn document(&mut self, diff: &'a Doc) -> Result<()> {
        for section in ["u", "i"] {
            let changed = fields(diff, section)?.into_iter().flat_map(Doc::iter_raw);
            for field in changed {
                self.update(Part::Field(field.name()), &field);
            }
        }
        for (name, _) in fields(diff, "d")?.into_iter().flat_map(Doc::iter) {
            let path = self.enter(Part::Field(name));
            self.removed.push(path.as_str());
            self.leave(&path);
        }
        for (name, value) in diff.iter() {
            let (Some(field), Value::Document(sub)) = (name.strip_prefix('s'), value) else {
                continue;
            };
            self.nested(Part::Field(field), sub)?;
        }
        Ok(())
    }

    fn array(&mut self, diff: &'a Doc) -> Result<()> {
        if let Some(size) = diff.get_i32("l") {
            let path = self.dotted();
            self.truncated
                .push(&doc! {"field": path.as_str(), "newSize": size});
            self.disambiguate(&path);
        }
        for field in diff.iter_raw() {
            let name = field.name();
            if let Some(index) = name.strip_prefix('u') {
                self.update(Part::Index(index), &field);
            } else if let Some(index) = name.strip_prefix('s') {
                let Some(Value::Document(sub)) = field.value() else {
                    return Err(damaged());
                };
                self.nested(Part::Index(index), sub)?;
            }
        }
        Ok(())
    }

    fn nested(&mut self, part: Part<'a>, diff: &'a Doc) -> Result<()> {
        self.path.push(part);
        match diff.get_bool("a") {
            Some(true) => self.array(diff)?,
            _ => self.document(diff)?,
        }
        self.path.pop();
        Ok(())
    }

    fn update(&mut self, part: Part<'a>, value: &RawElement<'_>) {
        let path = self.enter(part);
        self.updated.push_raw_as(&path, value);
        self.leave(&path);
    }

    fn enter(&mut self, part: Part<'a>) -> String {
        self.path.push(part);
        self.dotted()
    }

    fn leave(&mut self, path: &str) {
        self.disambiguate(path);
        self.path.pop();
    }

    fn dotted(&self) -> String {
        let parts: Vec<&str> = self.path.iter().map(|part| part.text()).collect();
        parts.join(".")
    }

    /// Whether the dotted path can be read in several ways: it has a field whose name has a dot, or, behind the first one, is
    /// a number.
    fn is_ambiguous(&self) -> bool {
        self.path.iter().enumerate().any(|(at, part)| match part {
            Part::Field(name) => name.contains('.') || (at > 0 && array_index(name).is_some()),
            Part::Index(_) => false,
        })
    }

    fn disambiguate(&mut self, path: &str) {
        if !self.is_ambiguous() {
            return;
        }
        self.disambiguated.push_array(path, |parts| {
            for part in &self.path {
                match part {
                    Part::Field(name) => parts.push(*name),
                    Part::Index(index) => match index.parse::<i32>() {
                        Ok(index) => parts.push(index),
                        Err(_) => parts.push(*index),
                    },
                }
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_described() {
        let none = ArrayBuf::new;
        for (diff, updated, removed, truncated, disambiguated) in [
            (doc! {}, doc! {}, vec![], none(), doc! {}),
            (
                doc! {"d": {"x": false, "y": false}, "u": {"a": 1}, "i": {"b": {"c": 2}}},
                doc! {"a": 1, "b": {"c": 2}},
                vec!["x", "y"],
                none(),
                doc! {},
            ),
            (
                doc! {"u": {"a": 1}, "sb": {"d": {"c": false}, "sd": {"i": {"e": 5}}}},
                doc! {"a": 1, "b.d.e": 5},
                vec!["b.c"],
                none(),
                doc! {},
            ),
            (
                doc! {"sarr": {"a": true, "l": 2, "u0": 7, "s1": {"u": {"x": 8}}}},
                doc! {"arr.0": 7, "arr.1.x": 8},
                vec![],
                [&*doc! {"field": "arr", "newSize": 2}]
                    .into_iter()
                    .collect(),
                doc! {},
            ),
            (
                doc! {"u": {"a.b": 1, "1": 2}, "sc": {"u": {"0": 3, "01": 4}}, "se.f": {"a": true, "l": 1, "u0": 5}},
                doc! {"a.b": 1, "1": 2, "c.0": 3, "c.01": 4, "e.f.0": 5},
                vec![],
                [&*doc! {"field": "e.f", "newSize": 1}]
                    .into_iter()
                    .collect(),
                doc! {"a.b": ["a.b"], "c.0": ["c", "0"], "e.f": ["e.f"], "e.f.0": ["e.f", 0]},
            ),
        ] {
            let removed: ArrayBuf = removed.into_iter().collect();
            let mut expected = doc! {"updatedFields": updated, "removedFields": removed};
            expected.push("truncatedArrays", &truncated);
            assert_eq!(
                update_description(&diff, false).unwrap(),
                expected,
                "{diff:?}"
            );
            expected.push("disambiguatedPaths", &*disambiguated);
            assert_eq!(
                update_description(&diff, true).unwrap(),
                expected,
                "{diff:?}"
            );
        }
    }

    #[test]
    fn what_is_no_difference_is_an_error() {
        assert!(update_description(&doc! {"u": 1}, false).is_err());
        assert!(update_description(&doc! {"sa": {"a": true, "s0": 1}}, false).is_err());
    }
}
