//! Validators: a filter that the documents of a collection have to pass.

use std::sync::Arc;

use frond_bson::{Collator, Doc, DocBuf, Value, doc};
use frond_error::{Error as CommandError, ErrorCode};
use frond_query::Environment;
use frond_query::matcher::{Filter, explain_failure};
use frond_query::script::{Script, ScriptHost, ScriptSource};

use crate::environment::environment as request_environment;
use crate::error::{Error, Result, command};
use crate::scripts::check as check_request;

/// Which writes are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationLevel {
    Off,
    #[default]
    Strict,
    /// Inserts, and updates of documents that passed before.
    Moderate,
}

/// The action on a document that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValidationAction {
    #[default]
    Error,
    /// It is stored, and a warning is logged.
    Warn,
}

pub(super) const LEVELS: &[(&str, ValidationLevel)] = &[
    ("off", ValidationLevel::Off),
    ("strict", ValidationLevel::Strict),
    ("moderate", ValidationLevel::Moderate),
];

pub(super) const ACTIONS: &[(&str, ValidationAction)] = &[
    ("error", ValidationAction::Error),
    ("warn", ValidationAction::Warn),
];

/// The name of a level or an action.
pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: &T) -> &'static str {
    let found = words.iter().find(|(_, other)| other == meaning);
    found.map_or("", |(word, _)| word)
}

/// A collection's validator, and how it is applied.
#[derive(Clone, Debug, Default)]
pub struct Validation {
    /// The filter; none if everything is valid.
    pub validator: Option<Validator>,
    /// Which writes are checked, if it was set.
    pub level: Option<ValidationLevel>,
    /// The action on a document that fails, if it was set.
    pub action: Option<ValidationAction>,
}

/// The consequence for a document that failed.
pub enum Invalid {
    /// It is refused with this error.
    Refused(Error),
    /// It is stored; this is the `errInfo` for the warning.
    Warned(DocBuf),
}

/// The filter of a validator.
#[derive(Clone, Debug)]
pub struct Validator {
    /// As it was given.
    pub doc: DocBuf,
    filter: Arc<Filter>,
    /// That of the collection: a validator compares strings as the collection's queries do.
    collator: Collator,
    /// It uses the current time, so it is parsed again for each use.
    uses_now: bool,
}

impl Validator {
    /// Reads a validator of a collection whose default collation is `collator`.
    ///
    /// # Errors
    /// Those of a filter, and `BadValue` (2) for operators that need an index or JavaScript.
    pub fn parse(doc: &Doc, collator: &Collator) -> Result<Validator> {
        check_operators(doc)?;
        Ok(Validator {
            doc: doc.to_owned(),
            filter: Arc::new(Filter::parse_with(doc, &environment(collator))?),
            collator: collator.clone(),
            uses_now: mentions_now(doc),
        })
    }

    fn environment(&self) -> Environment<'_> {
        environment(&self.collator)
    }

    fn filter(&self) -> Result<Arc<Filter>> {
        if self.uses_now {
            let filter = Filter::parse_with(&self.doc, &self.environment())?;
            return Ok(Arc::new(filter));
        }
        Ok(self.filter.clone())
    }

    /// A document fails if an expression cannot be evaluated for it, unless the reason is an interruption.
    fn passes(&self, doc: &Doc) -> Result<bool> {
        match self.filter()?.try_matches(doc) {
            Ok(passes) => Ok(passes),
            Err(_) => check_request().map(|()| false).map_err(Error::from),
        }
    }
}

fn environment(collator: &Collator) -> Environment<'_> {
    Environment {
        scripts: &InValidator,
        ..request_environment(None, collator)
    }
}

/// Refuses functions of JavaScript.
#[derive(Debug)]
struct InValidator;

impl ScriptHost for InValidator {
    fn script(&self, _: ScriptSource) -> std::result::Result<Arc<dyn Script>, CommandError> {
        Err(CommandError::location(
            4_660_800,
            "$function cannot be used inside a validator.",
        ))
    }
}

/// Whether a string of an expression is a variable of the current time.
fn mentions_now(doc: &Doc) -> bool {
    doc.values().any(|value| match value {
        Value::String(text) => text.starts_with("$$NOW") || text.starts_with("$$CLUSTER_TIME"),
        Value::Document(doc) | Value::Array(doc) => mentions_now(doc),
        _ => false,
    })
}

/// Refuses operators that a validator may not have, at all levels of the filter.
fn check_operators(filter: &Doc) -> Result<()> {
    let refused = |operator: &str| {
        command(
            ErrorCode::BadValue,
            format!("{operator} is not allowed in this context"),
        )
    };
    for (name, value) in filter.iter() {
        match (name, value) {
            ("$where" | "$text", _) => return Err(refused(name)),
            ("$near" | "$nearSphere" | "$geoNear", _) => {
                return Err(refused("$geoNear, $near, and $nearSphere"));
            }
            ("$sampleRate", _) => return Err(refused(name)),
            ("$and" | "$or" | "$nor", Value::Array(branches)) => branches
                .values()
                .filter_map(|branch| branch.as_doc())
                .try_for_each(check_operators)?,
            // Values, not operators.
            ("$eq" | "$ne" | "$in" | "$nin" | "$all" | "$gt" | "$gte" | "$lt" | "$lte", _)
            | ("$expr" | "$jsonSchema" | "$comment", _) => {}
            (_, Value::Document(inner)) => check_operators(inner)?,
            _ => {}
        }
    }
    Ok(())
}

impl Validation {
    /// Whether a document passes the validator, or needs none because validation is off.
    ///
    /// # Errors
    /// If the validator itself is invalid.
    pub fn conforms(&self, doc: &Doc) -> Result<bool> {
        match &self.validator {
            Some(validator) if self.level != Some(ValidationLevel::Off) => validator.passes(doc),
            _ => Ok(true),
        }
    }

    /// Checks a document that is about to be stored, in place of `old` if that is given.
    ///
    /// # Errors
    /// If the validator itself is invalid.
    pub fn check(&self, doc: &Doc, old: Option<&Doc>) -> Result<Option<Invalid>> {
        let Some(validator) = &self.validator else {
            return Ok(None);
        };
        if self.conforms(doc)? {
            return Ok(None);
        }
        if self.level.unwrap_or_default() == ValidationLevel::Moderate
            && let Some(old) = old
            && !validator.passes(old)?
        {
            return Ok(None);
        }
        let info = explain_failure(&validator.doc, doc, &validator.environment())?;
        Ok(Some(match self.action.unwrap_or_default() {
            ValidationAction::Warn => Invalid::Warned(info),
            ValidationAction::Error => Invalid::Refused(
                CommandError::new(
                    ErrorCode::DocumentValidationFailure,
                    "Document failed validation",
                )
                .with_details(doc! {"errInfo": info})
                .into(),
            ),
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn some_operators_are_not_for_validators() {
        for (filter, code) in [
            (doc! {"a": {"$gt": 1}}, None),
            (doc! {"$expr": {"$gt": ["$a", "$$NOW"]}}, None),
            (doc! {"a": {"$eq": {"$near": 1}}}, None),
            (doc! {"$where": "true"}, Some(2)),
            (doc! {"$text": {"$search": "x"}}, Some(2)),
            (doc! {"a": {"$near": [0, 0]}}, Some(2)),
            (
                doc! {"$or": [{"a": 1}, {"b": {"$not": {"$nearSphere": [0, 0]}}}]},
                Some(2),
            ),
            (doc! {"a": {"$nonsense": 1}}, Some(2)),
        ] {
            let parsed = Validator::parse(&filter, Collator::BINARY);
            let found = parsed.err().map(|error| error.code().code());
            assert_eq!(found, code, "{filter:?}");
        }
    }

    #[test]
    fn levels_and_actions() {
        let validator = Validator::parse(&doc! {"a": {"$gt": 1}}, Collator::BINARY).unwrap();
        let (good, bad) = (doc! {"_id": 1, "a": 2}, doc! {"_id": 1, "a": 1});
        let check = |level, action, old: Option<&Doc>| {
            let validation = Validation {
                validator: Some(validator.clone()),
                level,
                action,
            };
            assert!(validation.check(&good, old).unwrap().is_none());
            validation.check(&bad, old).unwrap()
        };
        use ValidationLevel::{Moderate, Off, Strict};
        assert!(matches!(check(None, None, None), Some(Invalid::Refused(_))));
        assert!(matches!(
            check(Some(Strict), None, Some(&bad)),
            Some(Invalid::Refused(_))
        ));
        assert!(check(Some(Moderate), None, Some(&bad)).is_none());
        assert!(check(Some(Moderate), None, Some(&good)).is_some());
        assert!(check(Some(Moderate), None, None).is_some());
        assert!(check(Some(Off), None, None).is_none());
        let warned = check(None, Some(ValidationAction::Warn), None);
        let Some(Invalid::Warned(info)) = warned else {
            panic!("no warning");
        };
        assert_eq!(info.get_i32("failingDocumentId"), Some(1));
        assert!(Validation::default().check(&bad, None).unwrap().is_none());
    }
    #[test]
    fn strings_compare_by_the_collation_except_in_schemas() {
        let no_case = frond_query::collation::parse(&doc! {"locale": "en", "strength": 2}).unwrap();
        for (filter, value, passes_binary, passes_no_case) in [
            (doc! {"s": "a"}, "A", false, true),
            (doc! {"s": {"$ne": "a"}}, "A", true, false),
            (doc! {"s": {"$in": ["active", "x"]}}, "ACTIVE", false, true),
            (doc! {"s": {"$nin": ["a"]}}, "A", true, false),
            (doc! {"s": {"$gt": "a", "$lt": "c"}}, "B", false, true),
            (doc! {"s": {"$not": {"$gte": "b"}}}, "B", true, false),
            (doc! {"s": {"$elemMatch": {"$eq": "a"}}}, "A", false, false),
            (doc! {"$expr": {"$eq": ["$s", "a"]}}, "A", false, true),
            (
                doc! {"$expr": {"$and": [{"$eq": ["$s", "a"]}, {"$gt": ["$$NOW", "$t"]}]}},
                "A",
                false,
                true,
            ),
            (doc! {"$nor": [{"s": "a"}]}, "A", true, false),
            (doc! {"s": {"$regex": "^a"}}, "A", false, false),
            // MongoDB compares by bytes in $jsonSchema, whatever the collation.
            (
                doc! {"$jsonSchema": {"properties": {"s": {"enum": ["a"]}}}},
                "A",
                false,
                false,
            ),
            (
                doc! {"$jsonSchema": {"properties": {"s": {"not": {"enum": ["a"]}}}}},
                "A",
                true,
                true,
            ),
            (
                doc! {"$jsonSchema": {"properties": {"l": {"uniqueItems": true}}}},
                "A",
                true,
                true,
            ),
        ] {
            let doc = doc! {"_id": 1, "s": value, "l": ["a", "A"], "t": 0};
            for (collator, passes) in [
                (Collator::BINARY, passes_binary),
                (&no_case, passes_no_case),
            ] {
                let validation = Validation {
                    validator: Some(Validator::parse(&filter, collator).unwrap()),
                    ..Validation::default()
                };
                let found = validation.check(&doc, None).unwrap();
                assert_eq!(found.is_none(), passes, "{filter:?} {collator:?}");
                assert_eq!(validation.conforms(&doc).unwrap(), passes, "{filter:?}");
            }
        }
    }
}
