//! Documents, keys and extended JSON.

use std::cmp::Ordering;

use frond_bson::bucket::{Measurements, Series};
use frond_bson::key::{self, Direction, TypeBits, TypeBitsReader};
use frond_bson::{Doc, DocBuf, OwnedValue, Value, compare, compare_docs, doc, extjson};

/// A document with a value of every type.
pub fn every_type() -> DocBuf {
    let text = r#"{"double": 1.5, "text": "é\u0000x", "doc": {"a": {"b": [1, {"c": null}]}}, "array": [1, "x", []],
        "binary": {"$binary": {"base64": "AAEC", "subType": "00"}}, "old": {"$binary": {"base64": "AgAAAAEC", "subType": "02"}},
        "undefined": {"$undefined": true}, "id": {"$oid": "0102030405060708090a0b0c"}, "yes": true, "no": false,
        "date": {"$date": {"$numberLong": "-1"}}, "null": null, "regex": {"$regularExpression": {"pattern": "^a", "options": "i"}},
        "pointer": {"$dbPointer": {"$ref": "db.c", "$id": {"$oid": "0102030405060708090a0b0c"}}},
        "code": {"$code": "x"}, "symbol": {"$symbol": "s"}, "scope": {"$code": "x", "$scope": {"a": 1}},
        "int": {"$numberInt": "7"}, "timestamp": {"$timestamp": {"t": 1, "i": 2}}, "long": {"$numberLong": "9007199254740993"},
        "decimal": {"$numberDecimal": "1.50"}, "min": {"$minKey": 1}, "max": {"$maxKey": 1}, "huge": {"$numberDouble": "1e300"}}"#;
    extjson::parse(text).unwrap_or_default()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![every_type().into_vec(), doc! {}.into_vec()];
    for (name, value) in every_type().iter() {
        let mut one = DocBuf::new();
        one.push_value(name, &value);
        seeds.push(one.into_vec());
    }
    seeds
}

/// Validates; reads what passes.
pub fn run(input: &[u8]) {
    let Ok(document) = Doc::validate(input) else {
        if let Ok((document, rest)) = Doc::from_prefix(input) {
            assert_eq!(document.len_bytes() + rest.len(), input.len());
            walk(document);
        }
        return;
    };
    assert_eq!(document.as_bytes(), input);
    walk(document);
    let mut copy = DocBuf::new();
    for (name, value) in document.iter() {
        copy.push_value(name, &value.to_owned().as_value());
    }
    // Names of arrays are not kept, and nothing else is lost.
    assert_eq!(compare_docs(document, &copy), Ordering::Equal);
    let text = extjson::to_canonical(document);
    let again = extjson::parse(&text);
    // Names that look like extended JSON, and text that is not UTF-8, do not survive it.
    if let Ok(again) = again {
        walk(&again);
    }
    extjson::to_relaxed(document);
}

/// A bucket of each version. Its columns have literals, differences, repetitions, and objects that are divided.
pub fn bucket_seeds() -> Vec<Vec<u8>> {
    let plain = doc! {"t": {"0": Value::DateTime(5), "1": Value::DateTime(7)}, "v": {"1": "x"}};
    let unhex = |text: &str| frond_bson::unhex(text).unwrap_or_default();
    // A literal, a word of integers behind a control byte, and the end; objects have their reference first.
    let [times, texts] = [
        "09000500000000000000802e0000000000000000",
        "020002000000780000802e0000000000000000",
    ]
    .map(unhex);
    let deltas = unhex("802e00000000000000802e0000000000000000800e0000000000000000");
    let reference = doc! {"a": 1, "b": {"c": true}}.into_vec();
    let objects = [&[0xF1], reference.as_slice(), &deltas].concat();
    let column = |bytes| Value::Binary { subtype: 7, bytes };
    let packed = doc! {"t": column(&times), "v": column(&texts), "o": column(&objects)};
    let bucket = |version: i32, data: &Doc| {
        let control = doc! {"version": version, "min": {}, "max": {}};
        doc! {"_id": 1, "control": &control, "meta": {"s": 1}, "data": data}.into_vec()
    };
    vec![bucket(1, &plain), bucket(2, &packed), bucket(3, &packed)]
}

/// Unpacks a bucket. A few bytes may stand for a million of measurements, of which some are read.
pub fn run_buckets(input: &[u8]) {
    const READ_MAX: usize = 5_000;
    let Ok(bucket) = Doc::validate(input) else {
        return;
    };
    let series = Series {
        time_field: "t",
        meta_field: Some("m"),
    };
    let Ok(mut measurements) = Measurements::new(bucket, series) else {
        return;
    };
    let mut measurement = DocBuf::new();
    while measurements.number() < READ_MAX
        && matches!(measurements.next(&mut measurement), Ok(true))
    {
        assert!(Doc::validate(measurement.as_bytes()).is_ok());
        assert_eq!(measurement.first().map(|(name, _)| name), Some("t"));
    }
}

fn walk(document: &Doc) {
    let mut count = 0;
    for (name, value) in document.iter() {
        count += 1;
        let _ = document.get(name);
        if let Value::Document(inner) | Value::Array(inner) = value {
            walk(inner);
        }
    }
    assert_eq!(count, document.count());
    assert_eq!(count, document.iter_raw().count());
}

/// Keys of every type, in both directions.
pub fn key_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (_, value) in every_type().iter() {
        for direction in [Direction::Ascending, Direction::Descending] {
            let (mut key, mut bits) = (Vec::new(), TypeBits::new());
            key::encode_typed(&value, direction, &mut key, &mut bits);
            let mut seed = vec![direction as u8, bits.as_bytes().len() as u8];
            seed.extend_from_slice(bits.as_bytes());
            seed.extend_from_slice(&key);
            seeds.push(seed);
        }
    }
    // Values to encode and compare.
    seeds.extend(self::seeds());
    seeds
}

/// The bytes are a key with its direction and its type bits; and they may be a document whose values are encoded.
pub fn run_keys(input: &[u8]) {
    if let Ok(document) = Doc::validate(input) {
        order(document);
    }
    let [direction, len, rest @ ..] = input else {
        return;
    };
    let direction = match direction & 1 {
        0 => Direction::Ascending,
        _ => Direction::Descending,
    };
    let (bits, mut key) = rest
        .split_at_checked(usize::from(*len))
        .unwrap_or((&[], rest));
    let mut reader = TypeBitsReader::new(bits);
    while !key.is_empty() {
        let skipped = key::skip(key, direction);
        let Ok((value, after)) = key::decode(key, direction, &mut reader) else {
            return;
        };
        assert_eq!(skipped, Some(key.len() - after.len()));
        restored(&value.as_value());
        key = after;
    }
}

/// All pairs of values are in the order of their keys.
fn order(document: &Doc) {
    let values: Vec<Value<'_>> = document.values().take(16).collect();
    values.iter().for_each(restored);
    let keys: Vec<Vec<u8>> = values
        .iter()
        .map(|value| {
            let mut key = Vec::new();
            key::encode(value, &mut key);
            key
        })
        .collect();
    for (a, key_a) in values.iter().zip(&keys) {
        for (b, key_b) in values.iter().zip(&keys) {
            assert_eq!(key_a.cmp(key_b), compare(a, b), "{a:?} {b:?}");
        }
    }
}

/// A value equals what its key is decoded to, in both directions, and its key is skipped as a whole.
fn restored(value: &Value<'_>) {
    for direction in [Direction::Ascending, Direction::Descending] {
        let (mut key, mut bits) = (Vec::new(), TypeBits::new());
        key::encode_typed(value, direction, &mut key, &mut bits);
        assert_eq!(key::skip(&key, direction), Some(key.len()), "{value:?}");
        match key::decode(&key, direction, &mut bits.reader()) {
            Ok((again, rest)) => {
                assert!(rest.is_empty(), "{value:?}");
                assert_eq!(again, OwnedValue::from(*value), "{direction:?}");
            }
            Err(error) => panic!("{value:?} {direction:?}: {error:?}"),
        }
    }
}

/// The canonical and the relaxed form.
pub fn json_seeds() -> Vec<Vec<u8>> {
    let doc = every_type();
    vec![
        extjson::to_canonical(&doc).into_bytes(),
        extjson::to_relaxed(&doc).into_bytes(),
    ]
}

/// Writing a parsed value and parsing it again gives the same value.
pub fn run_json(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let Ok(value) = extjson::parse_value(text) else {
        return;
    };
    let canonical = extjson::value_to_canonical(&value.as_value());
    let _ = extjson::parse_value(&extjson::value_to_relaxed(&value.as_value()));
    let again = extjson::parse_value(&canonical);
    assert!(
        again.as_ref().is_ok_and(|again| *again == value),
        "{canonical} is {again:?}"
    );
}
