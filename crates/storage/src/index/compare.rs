//! New index specifications against those that a collection has.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use super::kinds::text::check_only_one;
use super::spec::IndexSpec;
use crate::error::{Error, Result, command};
use crate::text;

/// Options that do not distinguish indexes: some are compared separately, others change no result.
const NOT_COMPARED: [&str; 19] = [
    "v",
    "key",
    "name",
    "ns",
    "background",
    "dropDups",
    "hidden",
    "prepareUnique",
    "collation",
    "partialFilterExpression",
    "unique",
    "sparse",
    "wildcardProjection",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "compression",
    "pageSize",
    "readPageSize",
    "storageEngine",
];

/// The relation of a new specification to an existing index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Different,
    /// They are the same index with other options.
    Equivalent,
    /// They are the same index.
    Identical,
}

/// Whether an option has the same value in both, or is in neither.
fn same(a: &Doc, b: &Doc, option: &str) -> bool {
    match (a.get(option), b.get(option)) {
        (None, None) => true,
        (Some(a), Some(b)) => frond_bson::compare(&a, &b).is_eq(),
        _ => false,
    }
}

impl IndexSpec {
    fn relation(&self, other: &IndexSpec) -> Relation {
        let tell_apart = ["collation", "partialFilterExpression", "wildcardProjection"];
        if !frond_bson::compare_docs(&self.key, &other.key).is_eq()
            || self.unique != other.unique
            || self.sparse != other.sparse
            || !tell_apart
                .iter()
                .all(|option| same(&self.doc, &other.doc, option))
        {
            return Relation::Different;
        }
        let all = |a: &Doc, b: &Doc| {
            a.iter()
                .filter(|(option, _): &(&str, Value<'_>)| !NOT_COMPARED.contains(option))
                .all(|(option, _)| same(a, b, option))
        };
        if all(&self.doc, &other.doc) && all(&other.doc, &self.doc) {
            Relation::Identical
        } else {
            Relation::Equivalent
        }
    }

    /// Looks for the same index among those of a collection. Returns its position.
    ///
    /// # Errors
    /// `IndexOptionsConflict` (85) if it exists under another name or with other options,
    /// `IndexKeySpecsConflict` (86) if the name is taken by another index.
    pub fn find_same(&self, existing: &[&IndexSpec]) -> Result<Option<usize>> {
        if let Some(place) = existing.iter().position(|one| one.name == self.name) {
            let other = existing[place];
            return match self.relation(other) {
                Relation::Identical => Ok(Some(place)),
                Relation::Equivalent => Err(self.conflict(
                    other,
                    ErrorCode::IndexOptionsConflict,
                    "An equivalent index already exists with the same name but different options.",
                )),
                Relation::Different => Err(self.conflict(
                    other,
                    ErrorCode::IndexKeySpecsConflict,
                    "An existing index has the same name as the requested index. When index names \
                     are not specified, they are auto generated and can cause conflicts. Please \
                     refer to our documentation.",
                )),
            };
        }
        let mut relations = existing.iter().map(|other| (self.relation(other), *other));
        match relations.find(|(relation, _)| *relation != Relation::Different) {
            None => {
                check_only_one(self, existing)?;
                Ok(None)
            }
            Some((Relation::Identical, other)) => Err(command(
                ErrorCode::IndexOptionsConflict,
                format!("Index already exists with a different name: {}", other.name),
            )),
            Some((_, other)) => Err(self.conflict(
                other,
                ErrorCode::IndexOptionsConflict,
                "An equivalent index already exists with a different name and options.",
            )),
        }
    }

    /// Checks that no two of these specifications are of the same index.
    ///
    /// # Errors
    /// `IndexAlreadyExists` (68) for equal ones, those of [`IndexSpec::find_same`] for others.
    pub fn check_distinct(specs: &[IndexSpec]) -> Result<()> {
        let mut earlier = Vec::new();
        for spec in specs.iter().filter(|spec| !spec.is_id_index()) {
            if spec.find_same(&earlier)?.is_some() {
                return Err(spec.already_exists());
            }
            earlier.push(spec);
        }
        Ok(())
    }

    /// The error for an index that the same command has created.
    pub fn already_exists(&self) -> Error {
        command(
            ErrorCode::IndexAlreadyExists,
            format!("Identical index already exists: {}", self.name),
        )
    }

    fn conflict(&self, other: &IndexSpec, code: ErrorCode, what: &str) -> Error {
        command(
            code,
            format!(
                "{what} Requested index: {}, existing index: {}",
                text::document(&self.doc),
                text::document(&other.doc)
            ),
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::{DocBuf, doc};

    #[test]
    fn conflicts_have_the_codes_of_mongodb() {
        let existing = [
            doc! {"key": {"a": 1}, "name": "a_1"},
            doc! {"key": {"b": 1}, "name": "b_1", "expireAfterSeconds": 60},
            doc! {"key": {"c": 1}, "name": "c_1", "partialFilterExpression": {"x": 1}},
        ];
        let existing: Vec<IndexSpec> = existing
            .iter()
            .map(|spec| IndexSpec::parse(spec).unwrap())
            .collect();
        let existing: Vec<&IndexSpec> = existing.iter().collect();
        let cases: Vec<(DocBuf, Result<Option<usize>, i32>)> = vec![
            (doc! {"key": {"z": 1}, "name": "z"}, Ok(None)),
            (doc! {"key": {"a": 1}, "name": "a_1"}, Ok(Some(0))),
            (
                doc! {"key": {"a": 1}, "name": "a_1", "hidden": true, "background": true},
                Ok(Some(0)),
            ),
            (doc! {"key": {"a": 1}, "name": "other"}, Err(85)),
            (doc! {"key": {"a": -1}, "name": "a_1"}, Err(86)),
            (
                doc! {"key": {"a": 1}, "name": "a_1", "unique": true},
                Err(86),
            ),
            (
                doc! {"key": {"a": 1}, "name": "u", "unique": true},
                Ok(None),
            ),
            (
                doc! {"key": {"a": 1}, "name": "s", "sparse": true},
                Ok(None),
            ),
            (
                doc! {"key": {"a": 1}, "name": "a_1", "expireAfterSeconds": 1},
                Err(85),
            ),
            (
                doc! {"key": {"b": 1}, "name": "b_1", "expireAfterSeconds": 60.0},
                Ok(Some(1)),
            ),
            (doc! {"key": {"b": 1}, "name": "b_1"}, Err(85)),
            (
                doc! {"key": {"b": 1}, "name": "other", "expireAfterSeconds": 5},
                Err(85),
            ),
            (doc! {"key": {"c": 1}, "name": "other"}, Ok(None)),
            (doc! {"key": {"c": 1}, "name": "c_1"}, Err(86)),
            (doc! {"key": {"$**": 1}, "name": "w"}, Ok(None)),
        ];
        for (spec, expected) in cases {
            let found = IndexSpec::parse(&spec).unwrap().find_same(&existing);
            let found = found.map_err(|error| error.code().code());
            assert_eq!(found, expected, "{spec:?}");
        }
    }
}
