//! The options of a collection, checked by MongoDB's rules.

use frond_bson::{Doc, Value};
use frond_query::error::ErrorCode;

use crate::error::{Result, command};
use crate::index::spec::{check_collation, parse_tree_option};
use crate::keyspace::TreeOptions;

/// Options that MongoDB knows and this server does not have, unless they have the value that
/// switches them off.
pub(crate) const NOT_SUPPORTED: [&str; 14] = [
    "capped",
    "size",
    "max",
    "viewOn",
    "pipeline",
    "timeseries",
    "expireAfterSeconds",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
    "validator",
    "encryptedFields",
    "storageEngine",
    "indexOptionDefaults",
    "recordPreImages",
];

/// Options that say nothing without one of those above, or that old drivers send.
const IGNORED: [&str; 6] = [
    "validationLevel",
    "validationAction",
    "autoIndexId",
    "idIndex",
    "flags",
    "temp",
];

/// What `create` was given.
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    /// Compression and sizes of the collection's trees.
    pub tree: TreeOptions,
}

/// Whether a value switches its option off.
fn is_off(value: Value<'_>) -> bool {
    match value {
        Value::Null | Value::Undefined => true,
        Value::Document(doc) | Value::Array(doc) => doc.is_empty(),
        Value::Bool(_) => !value.truthy(),
        _ => false,
    }
}

impl CollectionOptions {
    /// Checks the options of `create`.
    ///
    /// # Errors
    /// `InvalidOptions` (72) for an option that MongoDB has and this server lacks, `IDLUnknownField`
    /// (40415) for one that neither has.
    pub fn parse(options: &Doc) -> Result<CollectionOptions> {
        let mut parsed = CollectionOptions::default();
        for (name, value) in options.iter() {
            if parse_tree_option(&mut parsed.tree, name, value)? {
                continue;
            }
            if name == "collation" {
                check_collation(value, ErrorCode::InvalidOptions)?;
            } else if NOT_SUPPORTED.contains(&name) {
                if !is_off(value) {
                    return Err(command(
                        ErrorCode::InvalidOptions,
                        format!("The collection option '{name}' is not supported by this server"),
                    ));
                }
            } else if name == "autoIndexId" && !value.truthy() {
                return Err(command(
                    ErrorCode::InvalidOptions,
                    "The collection option 'autoIndexId: false' is not supported by this server",
                ));
            } else if !IGNORED.contains(&name) {
                return Err(command(
                    ErrorCode::IDLUnknownField,
                    format!("BSON field 'create.{name}' is an unknown field."),
                ));
            }
        }
        Ok(parsed)
    }

    /// The options worth keeping: those that are not switched off, and none that old drivers send.
    pub fn stored_form(options: &Doc) -> frond_bson::DocBuf {
        let mut kept = frond_bson::DocBuf::new();
        for (name, value) in options.iter() {
            if !is_off(value) && !IGNORED.contains(&name) {
                kept.push(name, value);
            }
        }
        kept
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::keyspace::Compression;
    use frond_bson::doc;

    #[test]
    fn options_are_taken_or_refused_by_name() {
        for (options, code) in [
            (doc! {}, None),
            (doc! {"capped": false}, None),
            (doc! {"validator": {}, "validationLevel": "strict"}, None),
            (doc! {"collation": {"locale": "simple"}}, None),
            (doc! {"capped": true, "size": 1000}, Some(72)),
            (doc! {"collation": {"locale": "de"}}, Some(72)),
            (doc! {"viewOn": "x"}, Some(72)),
            (doc! {"autoIndexId": false}, Some(72)),
            (doc! {"nonsense": 1}, Some(40415)),
            (doc! {"compression": "best"}, Some(2)),
        ] {
            let parsed = CollectionOptions::parse(&options);
            assert_eq!(
                parsed.err().map(|error| error.code().code()),
                code,
                "{options:?}"
            );
        }
        let parsed = CollectionOptions::parse(&doc! {"compression": "lz4"}).unwrap();
        assert_eq!(parsed.tree.compression, Compression::Lz4);
        let given = doc! {"capped": false, "compression": "lz4", "flags": 1};
        assert_eq!(
            CollectionOptions::stored_form(&given),
            doc! {"compression": "lz4"}
        );
    }
}
