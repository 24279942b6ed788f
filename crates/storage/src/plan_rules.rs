//! Rules for the planner that do not come from the query: which indexes it may use, and whether it may read whole collections.

use frond_bson::{Doc, DocBuf, Value, compare_docs, doc};
use frond_error::ErrorCode;

use crate::error::{Result, command};
use crate::keyspace::Direction;

/// An index that the planner may use.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowedIndex {
    /// The one of this name.
    Name(String),
    /// The ones with this key pattern.
    Key(DocBuf),
    /// No index: the documents in this order.
    Natural(Direction),
}

impl AllowedIndex {
    /// Reads a name, a key pattern or `{$natural: ±1}`.
    ///
    /// # Errors
    /// `BadValue` (2) for anything else.
    pub fn parse(value: &Value<'_>) -> Result<AllowedIndex> {
        let wrong = |message: &str| Err(command(ErrorCode::BadValue, message));
        match value {
            Value::String("") => wrong("index name cannot be empty"),
            Value::String(name) => Ok(AllowedIndex::Name((*name).to_owned())),
            Value::Document(key) if key.is_empty() => wrong("index specification cannot be empty"),
            Value::Document(key) => match key.get("$natural").map(|one| one.as_i64_lossless()) {
                None => Ok(AllowedIndex::Key((*key).to_owned())),
                Some(Some(1)) => Ok(AllowedIndex::Natural(Direction::Forward)),
                Some(Some(-1)) => Ok(AllowedIndex::Natural(Direction::Backward)),
                Some(_) => wrong("$natural hint cannot be set to a value other than -1 or 1."),
            },
            _ => wrong("each item in indexes must be an object or a string"),
        }
    }

    /// Adds it to an array, as it was given.
    pub fn push_to(&self, list: &mut frond_bson::ArrayBuf) {
        match self {
            AllowedIndex::Name(name) => list.push(name.as_str()),
            AllowedIndex::Key(key) => list.push(key),
            AllowedIndex::Natural(direction) => {
                let sign = match direction {
                    Direction::Forward => 1,
                    Direction::Backward => -1,
                };
                list.push(&doc! {"$natural": sign});
            }
        }
    }
}

/// The indexes that the planner may use for a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllowedIndexes(Vec<AllowedIndex>);

impl AllowedIndexes {
    /// Reads an array that is not empty.
    ///
    /// # Errors
    /// `BadValue` (2).
    pub fn parse(list: &Doc) -> Result<AllowedIndexes> {
        let all: Result<Vec<AllowedIndex>> =
            list.values().map(|one| AllowedIndex::parse(&one)).collect();
        Ok(AllowedIndexes(all?))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an index may be used.
    pub fn has(&self, name: &str, key: &Doc) -> bool {
        self.0.iter().any(|one| match one {
            AllowedIndex::Name(allowed) => allowed == name,
            AllowedIndex::Key(allowed) => compare_docs(allowed, key).is_eq(),
            AllowedIndex::Natural(_) => false,
        })
    }

    /// The direction of a collection scan, if that is allowed explicitly.
    pub fn natural(&self) -> Option<Direction> {
        self.0.iter().find_map(|one| match one {
            AllowedIndex::Natural(direction) => Some(*direction),
            _ => None,
        })
    }

    /// As an array, as they were given.
    pub fn to_array(&self) -> frond_bson::ArrayBuf {
        let mut list = frond_bson::ArrayBuf::new();
        self.0.iter().for_each(|one| one.push_to(&mut list));
        list
    }
}

/// The rules for the queries of an operation.
#[derive(Clone, Debug, Default)]
pub struct PlanRules {
    /// Whether queries with conditions must not read whole collections.
    pub no_collection_scans: bool,
    /// The indexes that queries of a collection may use, by its namespace, instead of what its index filters and hints say.
    pub index_hints: Vec<(String, AllowedIndexes)>,
    /// The settings as `explain` shows them.
    pub shown: Option<DocBuf>,
}

impl PlanRules {
    /// The indexes that queries of a collection may use.
    pub fn hints_for(&self, ns: &str) -> Option<&AllowedIndexes> {
        let found = self.index_hints.iter().find(|(of, _)| of == ns);
        found.map(|(_, allowed)| allowed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::array;

    use super::*;

    #[test]
    fn indexes_are_allowed_by_name_or_by_key() {
        let list = array!["a_1", {"b": 1, "c": -1}, {"$natural": -1}];
        let allowed = AllowedIndexes::parse(&list).unwrap();
        assert!(allowed.has("a_1", &doc! {"x": 1}));
        assert!(allowed.has("any", &doc! {"b": 1.0, "c": -1i64}));
        assert!(!allowed.has("any", &doc! {"c": -1, "b": 1}));
        assert_eq!(allowed.natural(), Some(Direction::Backward));
        assert_eq!(allowed.to_array(), list);
        for wrong in [array![1], array![""], array![{}], array![{"$natural": 2}]] {
            assert!(AllowedIndexes::parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
