//! Reads the specification of an index and checks it by MongoDB's rules.

use std::sync::Arc;

use frond_bson::{Collator, Doc, DocBuf, Value};
use frond_error::ErrorCode;
use frond_query::matcher::Filter;
use frond_query::paths::{KeyPaths, Path};

use super::field::Holds;
use super::kinds;
use super::spec::{ID_INDEX_NAME, IndexSpec, Partial};
use super::ttl;
use crate::error::{Error, Result, command};
use crate::keyspace::{Compression, TreeOptions};
use crate::record_layout::RecordLayout;
use crate::text;
use crate::tree_options;

/// Most fields in one index.
const FIELDS_MAX: usize = 32;
/// Obsolete options that old drivers still send. They change nothing, as in MongoDB, and are kept for
/// `listIndexes`.
const LEFTOVERS: [&str; 2] = ["background", "dropDups"];

/// Kinds whose indexes compare strings by their bytes only.
const WITHOUT_COLLATION: [&str; 2] = ["2d", "text"];

/// Options of MongoDB that are not supported.
const NOT_SUPPORTED: [&str; 3] = ["bucketSize", "clustered", "columnstoreProjection"];

/// Options of MongoDB that are not supported, including those of unsupported kinds of indexes.
pub fn not_supported() -> Vec<&'static str> {
    let unsupported = kinds::KINDS.iter().filter(|kind| kind.parse.is_none());
    let mut names: Vec<&str> = unsupported.flat_map(|kind| kind.options).copied().collect();
    names.extend(NOT_SUPPORTED);
    names.sort_unstable();
    names
}

fn refuse(code: ErrorCode, message: impl Into<String>) -> Error {
    command(code, message)
}

fn cannot_create(message: impl Into<String>) -> Error {
    refuse(ErrorCode::CannotCreateIndex, message)
}

/// The name of an index whose specification has none: `a_1_b_-1`.
pub fn default_name(key: &Doc) -> String {
    let mut name = String::new();
    for (path, direction) in key.iter() {
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(path);
        name.push('_');
        match direction {
            Value::String(kind) => name.push_str(kind),
            Value::Double(number) if number == number.trunc() => {
                name.push_str(&format!("{number:.0}"));
            }
            other => name.push_str(&text::value(other)),
        }
    }
    name
}

/// The most bytes of a key pattern.
const KEY_PATTERN_BYTES_MAX: usize = 2048;

/// Checks a key pattern; its kind parses it, with its options.
fn parse_key(key: &Doc, spec: &Doc) -> Result<(&'static kinds::Kind, kinds::Parsed)> {
    if key.len_bytes() > KEY_PATTERN_BYTES_MAX {
        return Err(cannot_create("Index key pattern too large."));
    }
    if key.is_empty() {
        return Err(cannot_create("Index keys cannot be empty."));
    }
    for (place, (path, _)) in key.iter().enumerate() {
        if key.iter().take(place).any(|(other, _)| other == path) {
            return Err(refuse(
                ErrorCode::BadValue,
                format!(
                    "The field '{path}' appears multiple times in the index key pattern {}",
                    text::document(key)
                ),
            ));
        }
    }
    let kind = kinds::of_key(key)?;
    let Some(parse) = kind.parse else {
        return Err(cannot_create(format!(
            "Index type '{}' is not supported by this server",
            kind.name
        )));
    };
    let parsed = parse(&kinds::Request { key, spec })?;
    if parsed.fields.len() > FIELDS_MAX {
        return Err(refuse(
            ErrorCode::Location(13103),
            format!("too many compound keys: an index has at most {FIELDS_MAX}"),
        ));
    }
    Ok((kind, parsed))
}

/// Reads a flag, given as boolean or number.
fn flag(name: &str, value: Value<'_>) -> Result<bool> {
    match value {
        Value::Bool(_) => Ok(value.truthy()),
        number if number.is_number() => Ok(number.truthy()),
        other => Err(refuse(
            ErrorCode::TypeMismatch,
            format!(
                "The field '{name}' has value {name}: {}, which is not convertible to bool",
                text::value(other)
            ),
        )),
    }
}

/// Reads the option `collation`. An index of version 1 cannot have one.
fn collation_of(doc: &Doc) -> Result<Collator> {
    let collation = match doc.get("collation") {
        None => return Ok(Collator::default()),
        Some(Value::Document(collation)) => collation,
        Some(other) => {
            return Err(refuse(
                ErrorCode::TypeMismatch,
                format!(
                    "The field 'collation' must be an object, but got {}",
                    other.type_name()
                ),
            ));
        }
    };
    if collation.is_empty() {
        return Err(refuse(
            ErrorCode::BadValue,
            "The field 'collation' cannot be an empty object.",
        ));
    }
    let collator = frond_query::collation::parse(collation)?;
    if !collator.is_binary() && doc.get("v").and_then(|v| v.as_i64_lossless()) == Some(1) {
        return Err(cannot_create(format!(
            "Invalid index specification {}; cannot create an index with the 'collation' option and \
             'v: 1'",
            text::document(doc)
        )));
    }
    Ok(collator)
}

impl IndexSpec {
    /// Reads and checks a specification.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67), `InvalidIndexSpecificationOption` (197), `TypeMismatch` (14),
    /// `FailedToParse` (9) and `BadValue` (2), with the whole specification in the message.
    pub fn parse(doc: &Doc) -> Result<IndexSpec> {
        parse(doc).map_err(|error| match error {
            Error::Command(error) => error
                .context(format!("Error in specification {}", text::document(doc)))
                .into(),
            other => other,
        })
    }

    /// The specification without unknown options.
    pub fn known(doc: &Doc) -> DocBuf {
        let own = [
            "v",
            "key",
            "name",
            "ns",
            "unique",
            "sparse",
            "hidden",
            "collation",
        ];
        let more = [
            "partialFilterExpression",
            "expireAfterSeconds",
            "prepareUnique",
            "clustering",
        ];
        let mut kept = DocBuf::new();
        for (option, value) in doc.iter() {
            let mut kinds = kinds::KINDS.iter();
            let is_known = own.contains(&option)
                || more.contains(&option)
                || LEFTOVERS.contains(&option)
                || NOT_SUPPORTED.contains(&option)
                || ["compression", "pageSize", "readPageSize", "storageEngine"].contains(&option)
                || kinds.any(|kind| kind.options.contains(&option));
            if is_known {
                kept.push(option, value);
            }
        }
        kept
    }

    /// Refuses a specification without a name, which drivers give to indexes that have none.
    ///
    /// # Errors
    /// `FailedToParse` (9).
    pub fn check_has_name(doc: &Doc) -> Result<()> {
        if doc.contains_key("name") || !doc.contains_key("key") {
            return Ok(());
        }
        Err(refuse(
            ErrorCode::FailedToParse,
            format!(
                "Error in specification {} :: caused by :: The 'name' field is a required property \
                 of an index specification",
                text::document(doc)
            ),
        ))
    }

    /// A specification as it is for a collection that compares strings by `default`: an index without a
    /// collation of its own has that one, unless it asks for version 1. The same for compression.
    pub fn inheriting(doc: &Doc, default: &Collator, compression: Option<Compression>) -> DocBuf {
        let mut doc = doc.to_owned();
        let is_old = doc.get("v").and_then(|v| v.as_i64_lossless()) == Some(1);
        if let Some(collation) = default.spec()
            && !doc.contains_key("collation")
            && !is_old
        {
            doc.push("collation", collation);
        }
        if let Some(compression) = compression
            && !doc.contains_key("compression")
            && !doc.contains_key("storageEngine")
        {
            doc.push("compression", tree_options::codec_name(compression));
        }
        doc
    }

    /// The specification of the index on `_id`.
    pub fn id_index_doc() -> DocBuf {
        frond_bson::doc! {"v": 2, "key": {"_id": 1}, "name": ID_INDEX_NAME}
    }
}

fn parse(doc: &Doc) -> Result<IndexSpec> {
    let key = key_pattern(doc)?;
    let (kind, parsed) = parse_key(key, doc)?;
    let mut spec = IndexSpec {
        name: name_of(doc, key)?,
        paths: KeyPaths::new(
            parsed
                .fields
                .iter()
                .filter(|field| field.holds == Holds::Value)
                .map(|field| Path::new(&field.path)),
        )?,
        key: parsed.key.unwrap_or_else(|| key.to_owned()),
        fields: parsed.fields,
        method: parsed.method,
        unique: false,
        sparse: false,
        hidden: false,
        prepare_unique: false,
        clustering: false,
        expire_after: None,
        collator: collation_of(doc)?,
        partial: None,
        records: RecordLayout::default(),
        primary: false,
        tree: TreeOptions::default(),
        doc: DocBuf::new(),
    };
    let mut listed = DocBuf::new();
    for (option, value) in doc.iter() {
        read_option(doc, option, value, kind, &mut spec, &mut listed)?;
    }
    check_version(doc)?;
    check_id_index(&spec, doc)?;
    check_combination(&spec, doc, kind)?;
    listed.push_all(&parsed.options);
    spec.doc = listed_form(&spec, &listed);
    Ok(spec)
}

/// The key pattern of a specification.
fn key_pattern(doc: &Doc) -> Result<&Doc> {
    match doc.get("key") {
        Some(Value::Document(key)) => Ok(key),
        Some(other) => Err(refuse(
            ErrorCode::TypeMismatch,
            format!(
                "The field 'key' must be an object, but got {}",
                other.type_name()
            ),
        )),
        None => Err(refuse(
            ErrorCode::FailedToParse,
            "The 'key' field is a required property of an index specification",
        )),
    }
}

/// The name of an index, or the one that its key pattern gives it.
fn name_of(doc: &Doc, key: &Doc) -> Result<String> {
    Ok(match doc.get("name") {
        None => default_name(key),
        Some(Value::String("")) => return Err(cannot_create("index name cannot be empty")),
        Some(Value::String("*")) => {
            return Err(refuse(
                ErrorCode::BadValue,
                "The index name '*' is not valid.",
            ));
        }
        Some(Value::String(name)) if name.contains('\0') => {
            return Err(cannot_create("index name cannot contain NUL bytes"));
        }
        Some(Value::String(name)) => name.to_owned(),
        Some(other) => {
            return Err(refuse(
                ErrorCode::TypeMismatch,
                format!(
                    "The field 'name' must be a string, but got {}",
                    other.type_name()
                ),
            ));
        }
    })
}

/// Reads one option into the specification, and into what `listIndexes` shows of it.
fn read_option(
    doc: &Doc,
    option: &str,
    value: Value<'_>,
    kind: &kinds::Kind,
    spec: &mut IndexSpec,
    listed: &mut DocBuf,
) -> Result<()> {
    match option {
        // `ns` is obsolete too, and shown nowhere.
        "key" | "name" | "v" | "ns" => {}
        "unique" => spec.unique = flag(option, value)?,
        "sparse" => spec.sparse = flag(option, value)?,
        "hidden" => {
            spec.hidden = match value {
                Value::Bool(hidden) => hidden,
                other => {
                    return Err(refuse(
                        ErrorCode::TypeMismatch,
                        format!(
                            "The field 'hidden' must be a bool, but got {}",
                            other.type_name()
                        ),
                    ));
                }
            }
        }
        "prepareUnique" => spec.prepare_unique = flag(option, value)?,
        "clustering" => spec.clustering = flag(option, value)?,
        "expireAfterSeconds" if !spec.is_id_index() => {
            let seconds = ttl::parse(doc, value)?;
            spec.expire_after = Some(seconds);
            listed.push(option, seconds);
        }
        "partialFilterExpression" => spec.partial = Some(parse_partial(value, &spec.collator)?),
        // Read before, as the filter depends on it.
        "collation" => {}
        _ if tree_options::parse(&mut spec.tree, option, value)? => {
            listed.push(option, value);
        }
        "storageEngine" => {
            let Value::Document(options) = value else {
                return Err(refuse(
                    ErrorCode::TypeMismatch,
                    format!(
                        "The field 'storageEngine' must be an object, but got {}",
                        value.type_name()
                    ),
                ));
            };
            let compressor = tree_options::block_compressor(options)?;
            // The option with a name of its own has precedence.
            if let Some(compressor) = compressor.filter(|_| !doc.contains_key("compression")) {
                spec.tree.compression = compressor;
            }
            listed.push(option, value);
        }
        _ if LEFTOVERS.contains(&option) => listed.push(option, flag(option, value)?),
        // Its kind has parsed it and says how it is listed.
        _ if kind.options.contains(&option) => {}
        _ if kinds::KINDS
            .iter()
            .any(|kind| kind.options.contains(&option)) =>
        {
            foreign_option(doc, option)?;
            listed.push(option, value);
        }
        _ if NOT_SUPPORTED.contains(&option) => {
            return Err(cannot_create(format!(
                "The index option '{option}' is not supported by this server"
            )));
        }
        _ => {
            return Err(refuse(
                ErrorCode::InvalidIndexSpecificationOption,
                format!(
                    "The field '{option}' is not valid for an index specification. \
                         Specification: {}",
                    text::document(doc)
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses options that do not go together.
fn check_combination(spec: &IndexSpec, doc: &Doc, kind: &kinds::Kind) -> Result<()> {
    if spec.unique && spec.prepare_unique {
        return Err(cannot_create(format!(
            "Invalid index specification {}; cannot create an index with the 'unique' option and \
             the 'prepareUnique' option",
            text::document(doc)
        )));
    }
    if spec.sparse && spec.partial.is_some() {
        return Err(cannot_create(
            "cannot mix \"partialFilterExpression\" and \"sparse\" options",
        ));
    }
    if let Some(method) = &spec.method {
        method.check(spec)?;
    }
    if let Some(collation) = spec.collator.spec()
        && WITHOUT_COLLATION.contains(&kind.name)
    {
        return Err(cannot_create(format!(
            "Index type '{}' does not support collation: {}",
            kind.name,
            text::document(collation)
        )));
    }
    Ok(())
}

/// Refuses some of the options that belong to another kind of index.
fn foreign_option(doc: &Doc, option: &str) -> Result<()> {
    let owner = |kind: &&kinds::Kind| kind.own_only.contains(&option);
    match kinds::KINDS.iter().find(owner) {
        None => Ok(()),
        Some(kind) if kind.name == "wildcard" => Err(refuse(
            ErrorCode::BadValue,
            format!("The field '{option}' is only allowed in 'wildcard' indexes"),
        )),
        Some(kind) => Err(cannot_create(format!(
            "Invalid index specification {}; the field '{option}' can only be specified with {} indexes",
            text::document(doc),
            kind.name
        ))),
    }
}

/// As `listIndexes` shows it: only what differs from the defaults.
fn listed_form(spec: &IndexSpec, other_options: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    out.push("v", 2);
    out.push("key", &spec.key);
    out.push("name", spec.name.as_str());
    for (option, set) in [
        ("unique", spec.unique),
        ("sparse", spec.sparse),
        ("hidden", spec.hidden),
        ("prepareUnique", spec.prepare_unique),
        ("clustering", spec.clustering),
    ] {
        if set {
            out.push(option, true);
        }
    }
    if let Some(partial) = &spec.partial {
        out.push("partialFilterExpression", &partial.doc);
    }
    if let Some(collation) = spec.collator.spec() {
        out.push("collation", collation);
    }
    out.push_all(other_options);
    out
}

fn check_version(doc: &Doc) -> Result<()> {
    match doc.get("v") {
        None => Ok(()),
        Some(v) if matches!(v.as_i64_lossless(), Some(1 | 2)) => Ok(()),
        Some(v) if v.is_number() => Err(cannot_create(format!(
            "Invalid index specification {}; cannot create an index with v={}",
            text::document(doc),
            text::value(v)
        ))),
        Some(v) => Err(refuse(
            ErrorCode::TypeMismatch,
            format!("The field 'v' must be a number, but got {}", v.type_name()),
        )),
    }
}

/// The index on `_id` has one name and no options; its name is reserved.
fn check_id_index(spec: &IndexSpec, doc: &Doc) -> Result<()> {
    /// Options of an index on `_id`; those that say how it is stored are accepted and do nothing.
    const ALLOWED: [&str; 6] = ["v", "key", "name", "ns", "collation", "storageEngine"];
    if !spec.is_id_index() {
        if spec.name == ID_INDEX_NAME {
            return Err(refuse(
                ErrorCode::BadValue,
                format!(
                    "The index name '_id_' is reserved for the _id index, which must have key \
                     pattern {{ _id: 1 }}, found key: {}",
                    text::document(&spec.key)
                ),
            ));
        }
        return Ok(());
    }
    let mut tree = TreeOptions::default();
    for (option, value) in doc.iter() {
        if !ALLOWED.contains(&option) && !tree_options::parse(&mut tree, option, value)? {
            return Err(refuse(
                ErrorCode::InvalidIndexSpecificationOption,
                format!(
                    "The field '{option}' is not valid for an _id index specification. \
                     Specification: {}",
                    text::document(doc)
                ),
            ));
        }
    }
    Ok(())
}

fn parse_partial(value: Value<'_>, collator: &Collator) -> Result<Partial> {
    let Value::Document(doc) = value else {
        return Err(refuse(
            ErrorCode::TypeMismatch,
            format!(
                "The field 'partialFilterExpression' must be an object, but got {}",
                value.type_name()
            ),
        ));
    };
    let filter = Filter::parse_collated(doc, collator)?;
    super::partial::check_supported(&filter)?;
    Ok(Partial {
        doc: doc.to_owned(),
        filter: Arc::new(filter),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use frond_bson::doc;

    #[test]
    fn default_names_follow_the_key_pattern() {
        for (key, name) in [
            (doc! {"a": 1}, "a_1"),
            (doc! {"a": -1, "b.c": 1}, "a_-1_b.c_1"),
            (doc! {"a": 1.0, "b": -1i64}, "a_1_b_-1"),
            (doc! {"a": 2.5}, "a_2.5"),
            (doc! {"a": "text"}, "a_text"),
        ] {
            assert_eq!(default_name(&key), name);
        }
    }

    #[test]
    fn specifications_are_listed_with_what_differs_from_the_defaults() {
        for (spec, listed) in [
            (
                doc! {"key": {"a": 1}, "background": true, "v": 1, "ns": "x.y", "unique": false},
                doc! {"v": 2, "key": {"a": 1}, "name": "a_1", "background": true},
            ),
            (
                doc! {"key": {"a": 1}, "background": 0, "dropDups": true},
                doc! {"v": 2, "key": {"a": 1}, "name": "a_1", "background": false, "dropDups": true},
            ),
            (
                doc! {"name": "x", "key": {"a": -1}, "unique": 1, "sparse": true, "compression": "lz4"},
                doc! {"v": 2, "key": {"a": -1}, "name": "x", "unique": true, "sparse": true,
                "compression": "lz4"},
            ),
            (
                doc! {"key": {"a": 1}, "partialFilterExpression": {"b": {"$gt": 1}}, "hidden": true},
                doc! {"v": 2, "key": {"a": 1}, "name": "a_1", "hidden": true,
                "partialFilterExpression": {"b": {"$gt": 1}}},
            ),
        ] {
            let parsed = IndexSpec::parse(&spec).unwrap();
            assert_eq!(parsed.doc, listed);
            assert_eq!(IndexSpec::parse(&listed).unwrap().doc, listed);
        }
    }

    #[test]
    fn wrong_specifications_say_what_is_wrong() {
        for (spec, code, part) in [
            (doc! {"name": "x"}, 9, "'key' field is a required"),
            (doc! {"key": 1}, 14, "must be an object"),
            (doc! {"key": {}}, 67, "cannot be empty"),
            (doc! {"key": {"a": 0}}, 67, "cannot be 0"),
            (doc! {"key": {"a": true}}, 67, "of type bool"),
            (doc! {"key": {"": 1}}, 67, "empty field"),
            (doc! {"key": {"a..b": 1}}, 67, "empty field"),
            (doc! {"key": {"$a": 1}}, 67, "starts with '$'"),
            (
                doc! {"key": {"a": 1, "b": "hashed", "c": "2d"}},
                67,
                "more than one",
            ),
            (
                doc! {"key": {"a": 1}, "weights": {"a": 2}},
                67,
                "text indexes",
            ),
            (
                doc! {"key": {"a": 1}, "wildcardProjection": {"a": 1}},
                2,
                "'wildcard' indexes",
            ),
            (
                doc! {"key": {"a": "nonsense"}},
                67,
                "Unknown index plugin 'nonsense'",
            ),
            (doc! {"key": {"a": 1}, "name": ""}, 67, "cannot be empty"),
            (doc! {"key": {"a": 1}, "name": "a\0b"}, 67, "NUL bytes"),
            (doc! {"key": {"a": 1}, "name": "*"}, 2, "not valid"),
            (doc! {"key": {"a": 1}, "name": "_id_"}, 2, "reserved"),
            (doc! {"key": {"a": 1}, "v": 0}, 67, "v=0"),
            (doc! {"key": {"a": 1}, "unique": "yes"}, 14, "'unique'"),
            (doc! {"key": {"a": 1}, "dropDups": "yes"}, 14, "'dropDups'"),
            (doc! {"key": {"a": 1}, "hidden": 1}, 14, "'hidden'"),
            (
                doc! {"key": {"a": 1}, "unique": true, "prepareUnique": true},
                67,
                "'prepareUnique'",
            ),
            (
                doc! {"key": {"a": 1}, "collation": {"locale": "xx"}},
                2,
                "'locale'",
            ),
            (doc! {"key": {"a": 1}, "collation": {}}, 2, "empty object"),
            (
                doc! {"key": {"a": 1}, "collation": "de"},
                14,
                "must be an object",
            ),
            (
                doc! {"key": {"a": 1}, "v": 1, "collation": {"locale": "de"}},
                67,
                "'v: 1'",
            ),
            (doc! {"key": {"a": 1}, "pageSize": 1}, 67, "'pageSize'"),
            (doc! {"key": {"a": 1}, "nonsense": 1}, 197, "'nonsense'"),
            (doc! {"key": {"_id": 1}, "sparse": true}, 197, "'sparse'"),
            (
                doc! {"key": {"a": 1}, "sparse": true, "partialFilterExpression": {"a": 1}},
                67,
                "cannot mix",
            ),
        ] {
            let error = IndexSpec::parse(&spec).unwrap_err();
            assert_eq!(error.code().code(), code, "{spec:?}: {error}");
            assert!(error.message().contains(part), "{spec:?}: {error}");
            assert!(error.message().starts_with("Error in specification {"));
        }
    }
}
