//! The order of keys is the order of values, and keys with their type bits restore the values.
#![allow(clippy::unwrap_used)]

use crate::common;

use std::cmp::Ordering;

use frond_bson::key::{self, Direction, TypeBits, TypeBitsReader};
use frond_bson::{DocBuf, OwnedValue, Value, compare, unhex};
use rand::RngExt;

const ROUNDS: usize = 150_000;

fn ascending(v: &OwnedValue) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode(&v.as_value(), &mut out);
    out
}

fn descending(v: &OwnedValue) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_descending(&v.as_value(), &mut out);
    out
}

fn check_pair(a: &OwnedValue, b: &OwnedValue) {
    let order = compare(&a.as_value(), &b.as_value());
    let (x, y) = (ascending(a), ascending(b));
    assert_eq!(x.cmp(&y), order, "{a:?} and {b:?}\n{x:x?}\n{y:x?}");
    assert_eq!(
        compare(&b.as_value(), &a.as_value()),
        order.reverse(),
        "{a:?} and {b:?}"
    );
    let (x, y) = (descending(a), descending(b));
    assert_eq!(
        x.cmp(&y),
        order.reverse(),
        "descending {a:?} and {b:?}\n{x:x?}\n{y:x?}"
    );
    // Self-delimiting: only equal encodings may start one another.
    assert!(order.is_eq() || !(x.starts_with(&y) || y.starts_with(&x)));
}

fn check_round_trip(value: &OwnedValue) {
    let mut bits = TypeBits::new();
    let mut bytes = Vec::new();
    key::encode_typed(
        &value.as_value(),
        Direction::Ascending,
        &mut bytes,
        &mut bits,
    );
    let first = bytes.len();
    key::encode_typed(
        &value.as_value(),
        Direction::Descending,
        &mut bytes,
        &mut bits,
    );
    assert_eq!(bytes[..first], ascending(value));
    assert_eq!(bytes[first..], descending(value));

    assert_eq!(
        key::skip(&bytes, Direction::Ascending),
        Some(first),
        "{value:?}"
    );
    assert_eq!(
        key::skip(&bytes[first..], Direction::Descending),
        Some(first),
        "{value:?}"
    );
    let mut reader = TypeBitsReader::new(bits.as_bytes());
    let (one, rest) = key::decode(&bytes, Direction::Ascending, &mut reader).unwrap();
    assert_eq!(rest, &bytes[first..]);
    let (two, rest) = key::decode(rest, Direction::Descending, &mut reader).unwrap();
    assert!(rest.is_empty());
    let mut original = Vec::new();
    value.as_value().write_to(&mut original);
    for got in [one, two] {
        assert_eq!(
            got.as_value().type_code(),
            value.as_value().type_code(),
            "{value:?}"
        );
        let mut restored = Vec::new();
        got.as_value().write_to(&mut restored);
        assert_eq!(restored, original, "{value:?} came back as {got:?}");
    }

    let (low, high) = key::bracket(&value.as_value(), Direction::Ascending);
    assert!((low..high).contains(&bytes[0]));
    let (low, high) = key::bracket(&value.as_value(), Direction::Descending);
    assert!((low..high).contains(&bytes[first]));
}

#[test]
fn order_of_random_values() {
    let mut rng = common::seeded(1);
    for _ in 0..ROUNDS {
        let a = common::value(&mut rng, 3);
        let b = common::value(&mut rng, 3);
        check_pair(&a, &b);
    }
}

#[test]
fn order_of_values_that_are_almost_equal() {
    let mut rng = common::seeded(2);
    let mut equal = 0;
    for _ in 0..ROUNDS {
        let a = common::value(&mut rng, 3);
        let b = common::changed(&mut rng, &a, 3);
        check_pair(&a, &b);
        equal += usize::from(compare(&a.as_value(), &b.as_value()).is_eq());
    }
    assert!(
        (ROUNDS / 10..ROUNDS * 9 / 10).contains(&equal),
        "{equal} equal pairs"
    );
}

/// Issue 13, text that is not UTF-8: the bytes are compared and come back, whatever they are.
#[test]
fn text_that_is_not_utf8_is_ordered_by_its_bytes() {
    let mut rng = common::seeded(8);
    let mut dirty = 0;
    for _ in 0..ROUNDS / 5 {
        let texts: Vec<Vec<u8>> = (0..2)
            .map(|_| {
                let bytes = [0, 1, b'a', b'b', 0x7F, 0x80, 0xA9, 0xC3, 0xED, 0xF4, 0xFF];
                (0..rng.random_range(0..5))
                    .map(|_| bytes[rng.random_range(0..bytes.len())])
                    .collect()
            })
            .collect();
        let values: Vec<OwnedValue> = texts.iter().cloned().map(OwnedValue::string).collect();
        let order = compare(&values[0].as_value(), &values[1].as_value());
        assert_eq!(order, texts[0].cmp(&texts[1]), "{texts:x?}");
        check_pair(&values[0], &values[1]);
        for (value, text) in values.iter().zip(&texts) {
            assert_eq!(value.as_value().string_bytes(), Some(&**text));
            assert_eq!(
                matches!(value, OwnedValue::String(_)),
                std::str::from_utf8(text).is_ok()
            );
            dirty += usize::from(matches!(value, OwnedValue::NotUtf8(_)));
            check_round_trip(value);
        }
    }
    assert!(dirty > ROUNDS / 10, "{dirty}");
}

/// A key without its bits is read as a value that is equal.
#[test]
fn keys_are_read_without_their_bits() {
    let mut rng = common::seeded(9);
    for _ in 0..ROUNDS / 5 {
        let value = common::number(&mut rng);
        let key = ascending(&value);
        let (read, rest) =
            key::decode(&key, Direction::Ascending, &mut TypeBitsReader::unknown()).unwrap();
        assert!(rest.is_empty());
        assert!(
            compare(&read.as_value(), &value.as_value()).is_eq(),
            "{value:?} {read:?}"
        );
    }
}

#[test]
fn random_values_round_trip() {
    let mut rng = common::seeded(3);
    for _ in 0..ROUNDS {
        check_round_trip(&common::value(&mut rng, 3));
        let base = common::number(&mut rng);
        check_round_trip(&base);
        check_round_trip(&common::near(&mut rng, &base));
    }
}

/// The digits before and behind the point, without zeros at the ends; the sign; by formatting alone.
fn plain(v: &OwnedValue) -> Option<(bool, String, String)> {
    let (text, exponent) = match v {
        OwnedValue::Int32(i) => (i.to_string(), 0),
        OwnedValue::Int64(i) => (i.to_string(), 0),
        OwnedValue::Double(d) if d.is_finite() => (format!("{d:.1080}"), 0),
        OwnedValue::Decimal128(d) if d.is_finite() => {
            let text = d.to_string();
            match text.split_once('E') {
                Some((digits, exponent)) => (digits.to_owned(), exponent.parse::<i32>().unwrap()),
                None => (text, 0),
            }
        }
        _ => return None,
    };
    let negative = text.starts_with('-');
    let text = text.trim_start_matches('-');
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = format!("{whole}{fraction}");
    let mut point = whole.len() as i32 + exponent;
    if point < 0 {
        digits.insert_str(0, &"0".repeat(point.unsigned_abs() as usize));
        point = 0;
    }
    if digits.len() < point as usize {
        digits.push_str(&"0".repeat(point as usize - digits.len()));
    }
    let (whole, fraction) = digits.split_at(point as usize);
    let (whole, fraction) = (
        whole.trim_start_matches('0'),
        fraction.trim_end_matches('0'),
    );
    let negative = negative && !(whole.is_empty() && fraction.is_empty());
    Some((negative, whole.to_owned(), fraction.to_owned()))
}

/// The order of two finite numbers by their digits.
fn by_digits(a: &OwnedValue, b: &OwnedValue) -> Option<Ordering> {
    let ((n, w, f), (m, x, g)) = (plain(a)?, plain(b)?);
    if n != m {
        return Some(m.cmp(&n));
    }
    let order = w
        .len()
        .cmp(&x.len())
        .then_with(|| w.cmp(&x))
        .then_with(|| f.cmp(&g));
    Some(if n { order.reverse() } else { order })
}

#[test]
fn numbers_compare_by_their_exact_digits() {
    let mut rng = common::seeded(4);
    for _ in 0..ROUNDS / 3 {
        let a = common::number(&mut rng);
        let b = common::near(&mut rng, &a);
        let c = common::near(&mut rng, &b);
        for (x, y) in [(&a, &b), (&b, &c), (&a, &c)] {
            check_pair(x, y);
            if let Some(order) = by_digits(x, y) {
                assert_eq!(
                    compare(&x.as_value(), &y.as_value()),
                    order,
                    "{x:?} and {y:?}"
                );
            }
        }
    }
}

#[test]
fn sizes_are_small() {
    let cases = [
        (Value::Int32(0), 1),
        (Value::Int32(1), 2),
        (Value::Int32(127), 2),
        (Value::Int64(-127), 2),
        (Value::Double(127.0), 2),
        (Value::Int32(128), 3),
        (Value::Int32(32_767), 3),
        (Value::Int32(1_000_000), 4),
        (Value::Int32(i32::MAX), 5),
        (Value::Int64(i64::MAX), 9),
        (Value::Double(0.1), 9),
        (Value::Double(19.99), 9),
        (Value::Double(1e300), 9),
        (Value::Decimal128("19.99".parse().unwrap()), 10),
        (Value::Decimal128("19.50".parse().unwrap()), 9),
        (Value::Decimal128("1000".parse().unwrap()), 3),
        (Value::Decimal128("0.05".parse().unwrap()), 12),
        (Value::String("abc"), 5),
        (Value::ObjectId(frond_bson::ObjectId([7; 12])), 13),
        (Value::Null, 1),
        (Value::Bool(true), 1),
        (Value::DateTime(5), 9),
        (
            Value::Binary {
                subtype: 4,
                bytes: &[1; 16],
            },
            19,
        ),
    ];
    for (value, size) in cases {
        let mut out = Vec::new();
        let mut bits = TypeBits::new();
        key::encode_typed(&value, Direction::Ascending, &mut out, &mut bits);
        assert_eq!(out.len(), size, "{value:?}");
        assert!(bits.as_bytes().len() <= 1, "{value:?}");
    }
}

#[test]
fn damaged_keys_are_refused_or_read_but_never_panic() {
    use common::{seeded, value};
    use rand::RngExt;
    let mut rng = seeded(5);
    for _ in 0..ROUNDS / 5 {
        let mut bits = TypeBits::new();
        let mut bytes = Vec::new();
        key::encode_typed(
            &value(&mut rng, 3).as_value(),
            Direction::Ascending,
            &mut bytes,
            &mut bits,
        );
        let mut lost = bits.as_bytes().to_vec();
        for damaged in [&mut bytes, &mut lost] {
            if !damaged.is_empty() {
                let at = rng.random_range(0..damaged.len());
                damaged[at] = rng.random();
            }
        }
        bytes.truncate(rng.random_range(0..=bytes.len()));
        for direction in [Direction::Ascending, Direction::Descending] {
            let _ = key::skip(&bytes, direction);
            if let Ok((value, rest)) =
                key::decode(&bytes, direction, &mut TypeBitsReader::new(&lost))
            {
                assert!(rest.len() < bytes.len());
                let mut doc = DocBuf::new();
                doc.push("v", &value);
                frond_bson::Doc::validate(doc.as_bytes()).unwrap();
            }
        }
    }
    // Nesting without end must not exhaust the stack.
    for open in [0x50u8, 0x46] {
        let deep: Vec<u8> = if open == 0x50 {
            vec![open; 1 << 20]
        } else {
            [0x46, 0x61, 0].repeat(1 << 19)
        };
        assert!(key::decode(&deep, Direction::Ascending, &mut TypeBitsReader::default()).is_err());
        assert_eq!(key::skip(&deep, Direction::Ascending), None);
    }
}

#[test]
fn prefix_ends() {
    let cases: [(&[u8], Option<&[u8]>); 5] = [
        (&[1, 2], Some(&[1, 3])),
        (&[1, 0xFF, 0xFF], Some(&[2])),
        (&[0xFF, 0xFE], Some(&[0xFF, 0xFF])),
        (&[0xFF, 0xFF], None),
        (&[], None),
    ];
    for (prefix, end) in cases {
        let mut bytes = prefix.to_vec();
        let some = key::prefix_end(&mut bytes);
        assert_eq!(some.then_some(&bytes[..]), end);
    }
}

/// Keys are stored on disk: these bytes must stay what they are. The README draws the format.
#[test]
fn stored_keys_are_still_read_and_written() {
    let mut last = Vec::new();
    let mut count = 0;
    for line in include_str!("../data/keys.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [key, lost, json] = fields[..] else {
            panic!("{line}")
        };
        let (key, lost) = (unhex(key).unwrap(), unhex(lost).unwrap());
        let value = frond_bson::extjson::parse_value(json).unwrap();

        let (decoded, rest) =
            key::decode(&key, Direction::Ascending, &mut TypeBitsReader::new(&lost)).unwrap();
        assert!(rest.is_empty(), "{json}");
        assert_eq!(
            frond_bson::extjson::value_to_canonical(&decoded.as_value()),
            json
        );

        let (mut bytes, mut bits) = (Vec::new(), TypeBits::new());
        key::encode_typed(
            &value.as_value(),
            Direction::Ascending,
            &mut bytes,
            &mut bits,
        );
        assert_eq!(bytes, key, "{json}");
        assert_eq!(bits.as_bytes(), lost, "{json}");
        assert!(last <= key, "{json} is out of order");
        last = key;
        count += 1;
    }
    assert_eq!(count, 54);
}

/// A document cannot hold these: the rest of such a text would be read as the next field.
#[test]
fn names_and_regular_expressions_with_a_zero_byte_are_no_keys() {
    let of_text = |text: &[u8]| {
        let at = text.windows(3).position(|part| part == b"axb").unwrap();
        let mut bad = text.to_vec();
        bad.splice(at + 1..at + 2, [1, 1]);
        bad
    };
    let named = ascending(&OwnedValue::Document(frond_bson::doc! {"axb": 1}));
    let regex = ascending(&OwnedValue::Regex {
        pattern: "axb".to_owned(),
        options: "i".to_owned(),
    });
    for good in [named, regex] {
        let mut bits = TypeBitsReader::unknown();
        assert!(key::decode(&good, Direction::Ascending, &mut bits).is_ok());
        let bad = of_text(&good);
        let error = key::decode(&bad, Direction::Ascending, &mut bits).unwrap_err();
        assert_eq!(error.kind(), frond_bson::ErrorKind::InvalidKey);
    }
}
