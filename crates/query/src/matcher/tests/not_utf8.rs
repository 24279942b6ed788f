//! Strings and expressions that are not UTF-8: comparisons are by bytes, patterns match none of them.

use super::*;
use crate::Environment;
use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};

fn text(bytes: &[u8]) -> OwnedValue {
    OwnedValue::string(bytes.to_vec())
}

/// A regular expression that is not UTF-8.
fn dirty_regex() -> DocBuf {
    let mut bytes = doc! {"r": Value::Regex { pattern: "z", options: "" }}.into_vec();
    let at = bytes.iter().position(|byte| *byte == b'z').unwrap();
    bytes[at] = 0xFF;
    Doc::validate(&bytes).unwrap().to_owned()
}

#[test]
fn comparisons_are_by_bytes() {
    let caf = text(b"caf\xE9");
    let other = text(b"caf\xEA");
    let document = doc! {"a": caf, "l": ["x", caf]};
    for (filter, expected) in [
        (doc! {"a": caf}, true),
        (doc! {"a": other}, false),
        (doc! {"a": "caf\u{fffd}"}, false),
        (doc! {"a": {"$ne": caf}}, false),
        (doc! {"a": {"$in": ["x", caf]}}, true),
        (doc! {"a": {"$nin": [other]}}, true),
        (doc! {"a": {"$gt": "caf"}}, true),
        (doc! {"a": {"$lt": other}}, true),
        (doc! {"a": {"$gte": caf, "$lte": caf}}, true),
        (doc! {"a": {"$type": "string"}}, true),
        (doc! {"l": caf}, true),
        (doc! {"l": {"$all": [caf, "x"]}}, true),
        (doc! {"l": {"$elemMatch": {"$eq": caf}}}, true),
        (doc! {"a": {"$regex": "c"}}, false),
        (doc! {"a": {"$not": {"$regex": "c"}}}, true),
        (doc! {"l": {"$regex": "x"}}, true),
        (doc! {"$expr": {"$eq": ["$a", caf]}}, true),
        (
            doc! {"$jsonSchema": {"properties": {"a": {"minLength": 4, "maxLength": 4}}}},
            true,
        ),
        (
            doc! {"$jsonSchema": {"properties": {"a": {"minLength": 5}}}},
            false,
        ),
        (
            doc! {"$jsonSchema": {"properties": {"a": {"pattern": "c"}}}},
            false,
        ),
        (
            doc! {"$jsonSchema": {"properties": {"a": {"enum": [caf]}}}},
            true,
        ),
    ] {
        let parsed = Filter::parse_with(&filter, &Environment::default())
            .unwrap_or_else(|error| panic!("{filter:?}: {error}"));
        assert_eq!(
            parsed.try_matches(&document).unwrap(),
            expected,
            "{filter:?}"
        );
    }
}

#[test]
fn patterns_have_to_be_utf8() {
    let regex = dirty_regex();
    let regex = regex.get("r").unwrap();
    let pattern = text(b"\xFF");
    for (filter, code) in [
        (doc! {"a": regex}, 51091),
        (doc! {"a": {"$regex": regex}}, 51091),
        (doc! {"a": {"$regex": pattern}}, 51091),
        (doc! {"a": {"$in": [regex]}}, 51091),
        (doc! {"a": {"$all": [regex]}}, 51091),
        (doc! {"a": {"$not": regex}}, 51091),
        (doc! {"a": {"$ne": regex}}, 2),
        (doc! {"a": {"$gt": regex}}, 2),
    ] {
        let error = Filter::parse(&filter).unwrap_err();
        assert_eq!(error.code().code(), code, "{filter:?}: {error}");
    }
    // One that is stored is found by its bytes.
    let filter = doc! {"r": {"$eq": regex}};
    assert!(Filter::parse(&filter).unwrap().matches(&dirty_regex()));
}
