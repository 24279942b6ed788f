//! Text indexes: an entry for every term of a document, with its score, see [`frond_query::text`].
//!
//! The key pattern is stored as MongoDB stores it: all text fields of it become the two parts `_fts` and `_ftsx`,
//! the term and its score; the option `weights` has the original fields. Ordinary fields may precede and follow
//! them. A query must bound those that precede to one value, besides the `$text` that every query needs.
//!
//! In a unique one the entries are unique, as in MongoDB: no two documents have the same term with the same score and
//! the same values of the ordinary fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, Value, key};
use frond_error::{Error, ErrorCode, Result};
use frond_query::hash64;
use frond_query::paths::Path;
use frond_query::text::{Language, TextMatch, TextSpec, TextVersion, WEIGHT_LIMIT, WILDCARD};

use super::{Kind, Parsed, Request, ordinary_field, refuse};
use crate::index::field::{Holds, IndexField};
use crate::index::route::Route;
use crate::index::slots::{Part, Slots};
use crate::index::spec::{IndexMethod, IndexSpec, PlanRequest};
use crate::intervals::{Interval, Intervals};

/// Longer terms are truncated; a hash replaces the rest.
const TERM_BYTES_MAX: usize = 256;
const TERM_BYTES_KEPT: usize = 224;

/// The line in [`super::KINDS`].
pub(super) const KIND: Kind = Kind {
    name: "text",
    options: &[
        "weights",
        "default_language",
        "language_override",
        "textIndexVersion",
    ],
    own_only: &["weights"],
    parse: Some(parse),
};

/// The parts of a key pattern.
#[derive(Default)]
struct Pattern {
    key: DocBuf,
    fields: Vec<IndexField>,
    weights: BTreeMap<String, i32>,
}

fn is_text(value: &Value<'_>) -> bool {
    matches!(value, Value::String(_))
}

fn read_key(key: &Doc) -> Result<Pattern> {
    let part = |path: &str| IndexField {
        path: path.to_owned(),
        direction: key::Direction::Ascending,
        holds: Holds::Computed(0),
    };
    let mut pattern = Pattern::default();
    let mut text_fields_end = false;
    let mut fields = key.iter().peekable();
    while let Some((path, value)) = fields.next() {
        if is_text(&value) {
            if text_fields_end {
                return Err(refuse("'text' fields in index must all be adjacent"));
            }
            if pattern
                .fields
                .iter()
                .all(|field| field.holds == Holds::Value)
            {
                pattern.key.push("_fts", KIND.name);
                pattern.key.push("_ftsx", 1);
                pattern.fields.extend(["_fts", "_ftsx"].map(part));
            }
            if path != "_fts" {
                pattern.weights.insert(path.to_owned(), 1);
                text_fields_end = fields.peek().is_some_and(|(_, next)| !is_text(next));
                continue;
            }
            // The pattern has its stored form already.
            match fields.next() {
                Some(("_ftsx", value)) if value.as_i64_lossless() == Some(1) => {}
                Some(("_ftsx", _)) => return Err(refuse("expecting _ftsx:1")),
                _ => return Err(refuse("expected _ftsx after _fts")),
            }
            text_fields_end = true;
            continue;
        }
        if matches!(path, "_fts" | "_ftsx") {
            return Err(refuse(
                "text index with reserved fields _fts/_ftsx not allowed",
            ));
        }
        if !matches!(value.as_i64_lossless(), Some(1 | -1)) {
            return Err(refuse(
                "expected value 1 or -1 for non-text key in compound index",
            ));
        }
        pattern.fields.push(ordinary_field(path, value)?);
        pattern.key.push_value(path, &value);
    }
    Ok(pattern)
}

fn add_weights(spec: &Doc, weights: &mut BTreeMap<String, i32>) -> Result<()> {
    match spec.get("weights") {
        None => {}
        Some(Value::String(WILDCARD)) => {
            weights.insert(WILDCARD.to_owned(), 1);
        }
        Some(Value::Document(given)) => {
            for (path, weight) in given.iter() {
                let Some(weight) = weight.as_f64() else {
                    return Err(refuse("weight for text index needs numeric type"));
                };
                weights.insert(path.to_owned(), weight as i32);
            }
        }
        Some(_) => return Err(refuse("text index option 'weights' must be an object")),
    }
    for (path, weight) in weights {
        if !(1..WEIGHT_LIMIT).contains(weight) {
            return Err(refuse(format!(
                "text index weight must be in the exclusive interval (0,{WEIGHT_LIMIT}) but found: {weight}"
            )));
        }
        if path == WILDCARD {
            continue;
        }
        if path.is_empty() {
            return Err(refuse("weight cannot be on an empty field"));
        }
        for component in path.split('.') {
            if component.is_empty() {
                return Err(refuse("weight cannot have empty path component"));
            }
            if component.starts_with('$') {
                return Err(refuse("weight cannot have path component with $ prefix"));
            }
        }
    }
    Ok(())
}

fn parse(request: &Request<'_>) -> Result<Parsed> {
    let mut pattern = read_key(request.key)?;
    add_weights(request.spec, &mut pattern.weights)?;
    let default_language = match request.spec.get("default_language") {
        None => Language::english(),
        Some(Value::String(name)) => {
            Language::find(name).map_err(|_| refuse("default_language is not valid"))?
        }
        Some(_) => return Err(refuse("default_language needs a string type")),
    };
    let language_override = match request.spec.get("language_override") {
        None => "language",
        Some(Value::String(name))
            if !name.is_empty() && !name.starts_with('$') && !name.contains('.') =>
        {
            name
        }
        Some(_) => return Err(refuse("language_override is not valid")),
    };
    let version = match request.spec.get("textIndexVersion") {
        None => TextVersion::default(),
        Some(version) if !version.is_number() => {
            return Err(refuse(
                "text index option 'textIndexVersion' must be a number",
            ));
        }
        Some(version) => version
            .as_i64_lossless()
            .and_then(TextVersion::from_number)
            .ok_or_else(|| {
                let shown = version.as_f64().unwrap_or_default();
                refuse(format!("bad textIndexVersion: {shown}"))
            })?,
    };
    let mut options = DocBuf::new();
    options.push_doc("weights", |weights| {
        for (path, weight) in &pattern.weights {
            weights.push(path, *weight);
        }
    });
    options.push("default_language", default_language.name());
    options.push("language_override", language_override);
    options.push("textIndexVersion", version.number());
    let weights = pattern.weights.iter();
    let spec = TextSpec::new(
        weights.map(|(path, weight)| (path.as_str(), f64::from(*weight))),
        default_language,
        language_override,
    )
    .with_version(version);
    let position = pattern
        .fields
        .iter()
        .position(|field| field.holds != Holds::Value);
    let ordinary = pattern
        .fields
        .iter()
        .filter(|field| field.holds == Holds::Value);
    Ok(Parsed {
        method: Some(Arc::new(Text {
            position: position.unwrap_or_default(),
            ordinary: ordinary.map(|field| Path::new(&field.path)).collect(),
            spec: Arc::new(spec),
        })),
        fields: pattern.fields,
        key: Some(pattern.key),
        options,
    })
}

/// Refuses a second text index in a collection.
///
/// # Errors
/// `CannotCreateIndex` (67).
pub(crate) fn check_only_one(new: &IndexSpec, existing: &[&IndexSpec]) -> Result<()> {
    let is_text = |spec: &IndexSpec| {
        let method = spec.method.as_ref();
        method.is_some_and(|method| method.kind() == KIND.name)
    };
    match existing.iter().find(|one| is_text(one)) {
        Some(old) if is_text(new) => Err(refuse(format!(
            "only one text index per collection allowed, found existing text index \"{}\"",
            old.name
        ))),
        _ => Ok(()),
    }
}

/// The text fields of an index.
#[derive(Debug)]
struct Text {
    /// The position of the term among the parts.
    position: usize,
    ordinary: Vec<Path>,
    spec: Arc<TextSpec>,
}

/// A term as it is stored.
fn stored(term: &str) -> String {
    if term.len() <= TERM_BYTES_MAX {
        return term.to_owned();
    }
    let end = (0..=TERM_BYTES_KEPT)
        .rev()
        .find(|end| term.is_char_boundary(*end));
    let head = term.get(..end.unwrap_or_default()).unwrap_or_default();
    format!("{head}{:016x}", hash64(Value::String(term)))
}

/// Whether an array is on the way to a field, or there.
fn leads_to_array(doc: &Doc, path: &Path) -> bool {
    let mut inner = doc;
    for component in path.components() {
        match inner.get(component.name()) {
            Some(Value::Array(_)) => return true,
            Some(Value::Document(next)) => inner = next,
            _ => return false,
        }
    }
    false
}

impl Text {
    /// The ranges of the terms of a query.
    fn terms(query: &TextMatch) -> Intervals {
        let points = query.terms().map(|term| {
            let term = stored(term);
            let mut encoded = Vec::new();
            key::encode(&Value::String(&term), &mut encoded);
            Interval::point(encoded, Value::String(&term).to_owned())
        });
        Intervals::union_of(points.collect())
    }
}

impl IndexMethod for Text {
    fn kind(&self) -> &'static str {
        KIND.name
    }

    fn parts<'a>(&self, doc: &'a Doc, out: &mut Slots<'a>) -> Result<()> {
        for path in &self.ordinary {
            if leads_to_array(doc, path) {
                return Err(Error::new(
                    ErrorCode::CannotBuildIndexKeys,
                    format!(
                        "Field '{path}' of text index contains an array in document: {}",
                        crate::text::document(doc)
                    ),
                ));
            }
        }
        let scores = self.spec.scores(doc)?;
        if scores.len() > 1 {
            out.set_multikey(self.position);
        }
        for (term, score) in scores {
            out.push(
                0,
                [Part::Text(stored(&term)), Part::Value(Value::Double(score))],
            );
        }
        Ok(())
    }

    fn is_affected(&self, touches: &dyn Fn(&str) -> bool) -> bool {
        self.spec
            .reads()
            .is_none_or(|paths| paths.iter().any(|path| touches(path)))
    }

    fn routes(&self, request: &PlanRequest<'_>) -> Vec<Route> {
        let Some(query) = &request.conditions.text else {
            return Vec::new();
        };
        let spec = &request.index.spec;
        let mut route = Route::ordinary(spec, request.multikey, request.conditions);
        let prefix = route.bounds.fields.iter().take(self.position);
        if !prefix.clone().all(Intervals::all_points) {
            return Vec::new();
        }
        let terms = Text::terms(query);
        route.is_exact = false;
        route.may_repeat = terms.as_slice().len() > 1;
        if let Some(field) = route.bounds.fields.get_mut(self.position) {
            *field = terms;
        }
        vec![route]
    }

    fn text(&self) -> Option<&Arc<TextSpec>> {
        Some(&self.spec)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::index::keys::IndexKeys;
    use frond_bson::doc;

    fn keys(spec: &Doc, doc: &Doc) -> Result<Vec<DocBuf>, crate::error::Error> {
        let spec = IndexSpec::parse(spec)?;
        let mut keys = IndexKeys::default();
        keys.generate(&spec, doc, 5)?;
        let fields = |(fields, lost): (&[u8], &[u8])| {
            crate::index::covered::fields_document(&spec, fields, lost).unwrap()
        };
        Ok(keys.iter().map(fields).collect())
    }

    #[test]
    fn specifications_are_stored_as_mongodb_stores_them() {
        let given = doc! {"key": {"x": 1, "b": "text", "a": "text", "y": -1}, "weights": {"a": 5}};
        let spec = IndexSpec::parse(&given).unwrap();
        assert_eq!(spec.name, "x_1_b_text_a_text_y_-1");
        assert_eq!(spec.key, doc! {"x": 1, "_fts": "text", "_ftsx": 1, "y": -1});
        assert_eq!(spec.doc.get_doc("weights").unwrap(), &doc! {"a": 5, "b": 1});
        assert_eq!(spec.doc.get_str("default_language"), Some("english"));
        assert_eq!(spec.doc.get_str("language_override"), Some("language"));
        assert_eq!(spec.doc.get_i32("textIndexVersion"), Some(3));
        let again = IndexSpec::parse(&spec.doc).unwrap();
        assert_eq!((again.doc, again.fields), (spec.doc, spec.fields));
    }

    #[test]
    fn documents_have_a_key_for_each_term() {
        let spec = doc! {"key": {"x": 1, "a": "text", "y": 1}};
        assert_eq!(
            keys(&spec, &doc! {"x": 1, "a": "the tea cakes", "y": 2}).unwrap(),
            [
                doc! {"x": 1, "_fts": "cake", "_ftsx": 0.75, "y": 2},
                doc! {"x": 1, "_fts": "tea", "_ftsx": 0.75, "y": 2}
            ]
        );
        assert!(keys(&spec, &doc! {"x": 1, "a": 5}).unwrap().is_empty());
        let error = keys(&spec, &doc! {"x": [1], "a": "tea"}).unwrap_err();
        assert_eq!(error.code(), ErrorCode::CannotBuildIndexKeys);
        let long = "x".repeat(1000);
        let found = keys(&spec, &doc! {"a": long.as_str()}).unwrap();
        assert_eq!(found[0].get_str("_fts").unwrap().len(), 240);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (wrong, part) in [
            (
                doc! {"key": {"a": "text", "x": 1, "b": "text"}},
                "must all be adjacent",
            ),
            (
                doc! {"key": {"a": "text", "x": 5}},
                "1 or -1 for non-text key",
            ),
            (
                doc! {"key": {"a": "text"}, "weights": {"a": 0}},
                "exclusive interval",
            ),
            (
                doc! {"key": {"a": "text"}, "weights": {"a": 100000}},
                "exclusive interval",
            ),
            (
                doc! {"key": {"a": "text"}, "weights": {"a": "x"}},
                "needs numeric type",
            ),
            (
                doc! {"key": {"a": "text"}, "weights": 5},
                "must be an object",
            ),
            (
                doc! {"key": {"a": "text"}, "weights": {"$a": 5}},
                "$ prefix",
            ),
            (
                doc! {"key": {"a": "text"}, "default_language": "klingon"},
                "default_language",
            ),
            (
                doc! {"key": {"a": "text"}, "language_override": 5},
                "language_override",
            ),
            (
                doc! {"key": {"a": "text"}, "textIndexVersion": "x"},
                "must be a number",
            ),
            (
                doc! {"key": {"a": "text"}, "textIndexVersion": 4},
                "bad textIndexVersion: 4",
            ),
            (doc! {"key": {"_fts": "text"}}, "expected _ftsx"),
        ] {
            let error = IndexSpec::parse(&wrong).unwrap_err();
            assert_eq!(error.code(), ErrorCode::CannotCreateIndex, "{wrong:?}");
            assert!(error.message().contains(part), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn there_is_one_text_index() {
        let spec = |doc: DocBuf| IndexSpec::parse(&doc).unwrap();
        let old = spec(doc! {"key": {"a": "text"}});
        assert!(old.find_same(&[&old]).is_ok());
        for (new, code) in [
            (doc! {"key": {"b": "text"}}, ErrorCode::IndexOptionsConflict),
            (
                doc! {"key": {"a": "text"}, "weights": {"a": 2}},
                ErrorCode::IndexOptionsConflict,
            ),
            (
                doc! {"key": {"x": 1, "a": "text"}},
                ErrorCode::CannotCreateIndex,
            ),
        ] {
            assert_eq!(spec(new).find_same(&[&old]).unwrap_err().code(), code);
        }
    }
}
