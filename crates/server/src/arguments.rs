//! Reading a command's fields strictly, with the errors of MongoDB's command parser.

use frond_bson::{Collator, Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_query::matcher::Filter;

/// The fields of a command or of a document inside one, with its name for error messages:
/// `find`, or `update.updates`.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    owner: &'a str,
    doc: &'a Doc,
    /// A bit for each name in the document, to skip the search for most absent names.
    names: u64,
}

/// The bit of a name; several names may share a bit.
pub fn name_bit(name: &[u8]) -> u64 {
    let byte = |at: usize| name.get(at).copied().map_or(0, usize::from);
    let sum = name.len() + 5 * byte(0) + 11 * byte(name.len().wrapping_sub(1)) + byte(2);
    1 << (sum % 64)
}

/// The types that a number field accepts, for error messages.
const NUMBERS: &str = "types '[long, int, decimal, double]'";

impl<'a> Arguments<'a> {
    /// The fields of `doc`.
    pub fn new(owner: &'a str, doc: &'a Doc) -> Self {
        let names = doc.iter_raw().map(|field| name_bit(field.name_bytes()));
        Arguments {
            owner,
            doc,
            names: names.fold(0, |names, bit| names | bit),
        }
    }

    /// The command or the part of it that has the fields, for messages.
    pub fn owner(&self) -> &'a str {
        self.owner
    }

    /// The value of a field; `null` counts as missing.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        if self.names & name_bit(name.as_bytes()) == 0 {
            return None;
        }
        self.doc.get(name).filter(|value| !value.is_nullish())
    }

    /// Fails with `IDLUnknownField` at a field that is not in the list, and with
    /// `IDLDuplicateField` at one that is given twice.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        for (at, (name, _)) in self.doc.iter().enumerate() {
            if !known.contains(&name) {
                return Err(self.unknown(name));
            }
            if self.doc.iter().take(at).any(|(other, _)| other == name) {
                return Err(self.duplicate(name));
            }
        }
        Ok(())
    }

    /// Fails with `IDLDuplicateField` if a field is given twice.
    pub fn each_once(&self) -> Result<()> {
        let mut names: Vec<&str> = self.doc.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        match pairs.find(|(name, next)| name == next) {
            Some((name, _)) => Err(self.duplicate(name)),
            None => Ok(()),
        }
    }

    /// The error for an unknown field.
    #[cold]
    pub fn unknown(&self, name: &str) -> Error {
        Error::new(
            ErrorCode::IDLUnknownField,
            format!("BSON field '{}.{name}' is an unknown field.", self.owner),
        )
    }

    /// The error for a field given twice.
    #[cold]
    pub fn duplicate(&self, name: &str) -> Error {
        Error::new(
            ErrorCode::IDLDuplicateField,
            format!("BSON field '{}.{name}' is a duplicate field", self.owner),
        )
    }

    /// The error for a required field that is missing.
    #[cold]
    pub fn missing(&self, name: &str) -> Error {
        Error::new(
            ErrorCode::IDLFailedToParse,
            format!(
                "BSON field '{}.{name}' is missing but a required field",
                self.owner
            ),
        )
    }

    /// The error for a field of the wrong type; `expected` begins with `type` or `types`.
    #[cold]
    pub fn wrong_type(&self, name: &str, value: &Value<'_>, expected: &str) -> Error {
        Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{name}' is the wrong type '{}', expected {expected}",
                self.owner,
                value.type_name()
            ),
        )
    }

    pub fn str(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) if value.is_string() => Err(Error::new(
                ErrorCode::BadValue,
                format!("BSON field '{}.{name}' has to be valid UTF-8", self.owner),
            )),
            Some(value) => Err(self.wrong_type(name, &value, "type 'string'")),
        }
    }

    pub fn doc_field(&self, name: &str) -> Result<Option<&'a Doc>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Document(doc)) => Ok(Some(doc)),
            Some(value) => Err(self.wrong_type(name, &value, "type 'object'")),
        }
    }

    /// The `filter` of a command that lists something.
    pub fn list_filter(&self) -> Result<Option<Filter>> {
        let environment = frond_store::environment(None, Collator::BINARY);
        let filter = self.doc_field("filter")?;
        filter
            .map(|filter| Filter::parse_for_list(filter, &environment))
            .transpose()
    }

    /// The `collation`; none if it is not given or empty.
    pub fn collation(&self) -> Result<Option<Collator>> {
        match self.doc_field("collation")? {
            Some(spec) if !spec.is_empty() => Ok(Some(frond_query::collation::parse(spec)?)),
            _ => Ok(None),
        }
    }

    /// The values of the variables in `let`. Their expressions are evaluated here, once.
    pub fn variables(&self) -> Result<Option<DocBuf>> {
        let Some(expressions) = self.doc_field("let")? else {
            return Ok(None);
        };
        let collator = self.collation()?.unwrap_or_default();
        Ok(Some(frond_query::expr::evaluate_variables(
            expressions,
            &frond_store::environment(None, &collator),
        )?))
    }

    pub fn array(&self, name: &str) -> Result<Option<&'a Doc>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Array(array)) => Ok(Some(array)),
            Some(value) => Err(self.wrong_type(name, &value, "type 'array'")),
        }
    }

    /// An optional array of documents.
    pub fn documents(&self, name: &str) -> Result<Option<Vec<&'a Doc>>> {
        let Some(array) = self.array(name)? else {
            return Ok(None);
        };
        let mut documents = Vec::new();
        for (at, value) in array.iter() {
            match value {
                Value::Document(doc) => documents.push(doc),
                other => {
                    return Err(self.wrong_type(&format!("{name}.{at}"), &other, "type 'object'"));
                }
            }
        }
        Ok(Some(documents))
    }

    /// An optional boolean, strictly.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(on)),
            Some(value) => Err(self.wrong_type(name, &value, "type 'bool'")),
        }
    }

    /// An optional boolean, which may also be a number (what MongoDB calls a safe boolean).
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(on)),
            Some(value) if value.is_number() => Ok(Some(value.truthy())),
            Some(value) => {
                Err(self.wrong_type(name, &value, "types '[bool, long, int, decimal, double]'"))
            }
        }
    }

    /// An optional whole number. Fractions are truncated, as MongoDB does.
    pub fn i64(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) if value.is_number() => Ok(Some(whole(&value))),
            Some(value) => Err(self.wrong_type(name, &value, NUMBERS)),
        }
    }

    pub fn f64(&self, name: &str) -> Result<Option<f64>> {
        match self.get(name) {
            None => Ok(None),
            Some(value) if value.is_number() => Ok(value.as_f64()),
            Some(value) => Err(self.wrong_type(name, &value, NUMBERS)),
        }
    }

    /// An optional whole number that must not be negative.
    pub fn u64(&self, name: &str) -> Result<Option<u64>> {
        match self.i64(name)? {
            None => Ok(None),
            Some(n) => match u64::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(Error::location(
                    51024,
                    format!("BSON field '{name}' value must be >= 0, actual value '{n}'"),
                )),
            },
        }
    }
}

/// A number as an integer: truncated towards zero and clamped to 64 bits.
pub fn whole(value: &Value<'_>) -> i64 {
    match value {
        Value::Int32(n) => i64::from(*n),
        Value::Int64(n) => *n,
        // `as` clamps a double and turns NaN into 0, as MongoDB does.
        other => other
            .as_i64_lossless()
            .unwrap_or_else(|| other.as_f64().unwrap_or(0.0) as i64),
    }
}

/// True for a value by which a client declines an option that this server does not support.
pub fn declines(value: &Value<'_>) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Document(doc) => {
            doc.is_empty() || (doc.count() == 1 && doc.get_str("locale") == Some("simple"))
        }
        other => other.is_nullish(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    #[test]
    fn values_are_read() {
        let doc = doc! {
            "s": "x", "d": {"a": 1}, "a": [{"b": 1}], "t": true, "one": 1, "half": 1.5, "n": null,
            "big": 1e300, "minus": -1,
        };
        let args = Arguments::new("find", &doc);
        assert_eq!(args.str("s").unwrap(), Some("x"));
        assert_eq!(args.str("n").unwrap(), None);
        assert_eq!(
            args.doc_field("d").unwrap().unwrap().as_bytes(),
            doc! {"a": 1}.as_bytes()
        );
        assert_eq!(args.documents("a").unwrap().unwrap().len(), 1);
        assert_eq!(
            (args.bool("t").unwrap(), args.flag("one").unwrap()),
            (Some(true), Some(true))
        );
        assert_eq!(
            (args.i64("half").unwrap(), args.i64("big").unwrap()),
            (Some(1), Some(i64::MAX))
        );
        assert_eq!(
            (args.u64("one").unwrap(), args.u64("none").unwrap()),
            (Some(1), None)
        );
        assert!(args.array("a").unwrap().is_some());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_command_with_let_evaluates_it() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let three = doc! {"n": {"$literal": 1}, "three": {"$add": [2, "$$n"]}};
        let query = doc! {"$expr": {"$eq": ["$_id", "$$three"]}};
        let found = server.run("test", doc! {"find": "c", "filter": &query, "let": &three});
        assert_eq!(
            server.batch(&found, "firstBatch"),
            [doc! {"_id": 3, "a": 30}]
        );
        let found = server.run(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$match": &query}], "let": &three, "cursor": {}},
        );
        assert_eq!(server.batch(&found, "firstBatch").len(), 1);
        let reply = server.run(
            "test",
            doc! {
                "update": "c", "let": &three,
                "updates": [{"q": &query, "u": [{"$set": {"a": "$$three"}}]}],
            },
        );
        assert_eq!(reply.get_i32("nModified"), Some(1));
        let explained = server.run(
            "test",
            doc! {"explain": {"delete": "c", "deletes": [{"q": &query, "limit": 0}], "let": &three}},
        );
        let stats = explained.get_doc("executionStats").unwrap();
        let stage = stats.get_doc("executionStages").unwrap();
        assert_eq!(stage.get_i64("nWouldDelete"), Some(1));
        let reply = server.run(
            "test",
            doc! {"findAndModify": "c", "query": &query, "update": {"$inc": {"a": 1}}, "let": &three},
        );
        assert_eq!(reply.get_doc("value"), Some(&*doc! {"_id": 3, "a": 3}));
        let delete = doc! {
            "delete": "c", "deletes": [{"q": &query, "limit": 0}], "let": &three,
        };
        assert_eq!(server.run("test", delete).get_i32("n"), Some(1));
        let reads = doc! {"find": "c", "filter": {}, "let": {"x": "$a"}};
        assert_eq!(server.code("test", reads), 4_890_500);
    }

    #[test]
    fn errors_are_those_of_mongodb() {
        let doc = doc! {"s": 1, "d": [], "a": [1], "t": 1, "n": "x", "minus": -1, "f": "x"};
        let args = Arguments::new("find", &doc);
        let cases: &[(Error, i32, &str)] = &[
            (
                args.str("s").unwrap_err(),
                14,
                "BSON field 'find.s' is the wrong type 'int', expected type 'string'",
            ),
            (
                args.doc_field("d").unwrap_err(),
                14,
                "BSON field 'find.d' is the wrong type 'array', expected type 'object'",
            ),
            (
                args.array("s").unwrap_err(),
                14,
                "BSON field 'find.s' is the wrong type 'int', expected type 'array'",
            ),
            (
                args.documents("a").unwrap_err(),
                14,
                "BSON field 'find.a.0' is the wrong type 'int', expected type 'object'",
            ),
            (
                args.bool("t").unwrap_err(),
                14,
                "BSON field 'find.t' is the wrong type 'int', expected type 'bool'",
            ),
            (
                args.flag("f").unwrap_err(),
                14,
                "BSON field 'find.f' is the wrong type 'string', expected types '[bool, long, int, decimal, double]'",
            ),
            (
                args.i64("n").unwrap_err(),
                14,
                "BSON field 'find.n' is the wrong type 'string', expected types '[long, int, decimal, double]'",
            ),
            (
                args.u64("minus").unwrap_err(),
                51024,
                "BSON field 'minus' value must be >= 0, actual value '-1'",
            ),
            (
                args.only(&["s"]).unwrap_err(),
                40415,
                "BSON field 'find.d' is an unknown field.",
            ),
            (
                args.missing("q"),
                40414,
                "BSON field 'find.q' is missing but a required field",
            ),
        ];
        for (failure, code, message) in cases {
            assert_eq!(
                (failure.code().code(), failure.message()),
                (*code, *message)
            );
        }
        let mut twice = doc! {"a": 1};
        twice.push("a", 2);
        let failure = Arguments::new("find", &twice).only(&["a"]).unwrap_err();
        assert_eq!(failure.code().code(), 40413);
    }
}
