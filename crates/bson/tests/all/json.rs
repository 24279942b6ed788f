//! Canonical Extended JSON keeps every value.
#![allow(clippy::unwrap_used)]

use crate::common;

use frond_bson::{OwnedValue, Value, compare, extjson};

/// Whether JSON can hold every bit: it has one NaN, and arrays without names.
fn representable(value: &Value<'_>) -> bool {
    match value {
        Value::Double(d) => !d.is_nan() || d.to_bits() == f64::NAN.to_bits(),
        Value::Decimal128(d) => d.to_string().parse() == Ok(*d),
        // The old subtype holds its length twice.
        Value::Binary { subtype: 2, .. } => false,
        // JSON is UTF-8.
        Value::NotUtf8(_) => false,
        // Written in alphabetical order.
        Value::Regex { options, .. } => options.chars().is_sorted(),
        Value::Array(a) => a
            .iter()
            .zip(0..)
            .all(|((name, v), i)| name == i.to_string() && representable(&v)),
        Value::Document(d) | Value::JavaScriptWithScope { scope: d, .. } => {
            d.values().all(|v| representable(&v))
        }
        _ => true,
    }
}

#[test]
fn random_values_round_trip() {
    let mut rng = common::seeded(6);
    let mut kept = 0;
    for _ in 0..50_000 {
        let value = common::value(&mut rng, 3);
        let value = value.as_value();
        let canonical = extjson::parse_value(&extjson::value_to_canonical(&value)).unwrap();
        // Random names have no "$", so nothing looks like a wrapper by chance.
        if representable(&value) {
            assert_eq!(canonical, value);
            kept += 1;
        }
        // The relaxed form keeps the values of numbers, if not their types.
        let relaxed = extjson::parse_value(&extjson::value_to_relaxed(&value)).unwrap();
        let plain = value.is_number() && !value.is_nan();
        assert!(
            !plain || compare(&relaxed.as_value(), &value).is_eq(),
            "{value:?}"
        );
        assert!(!matches!(value, Value::String(_)) || relaxed == value);
    }
    assert!(kept > 38_000, "{kept}");
    assert_eq!(OwnedValue::from("x"), Value::String("x"));
}
