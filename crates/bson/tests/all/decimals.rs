//! Decimal arithmetic against the results of another implementation, see data/decimal_arithmetic.py.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use frond_bson::Decimal128;

#[test]
fn arithmetic_agrees_with_the_stored_results() {
    let mut counts = BTreeMap::new();
    for line in include_str!("../data/decimal_arithmetic.csv").lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [a, op, b, expected] = fields[..] else {
            panic!("{line}")
        };
        let d = |text: &str| text.parse::<Decimal128>().unwrap();
        let got = match op {
            "=" => d(a),
            "+" => d(a) + d(b),
            "-" => d(a) - d(b),
            "*" => d(a) * d(b),
            "/" => d(a) / d(b),
            "%" => d(a) % d(b),
            "?" => Decimal128::from(d(a).compare(d(b)) as i32),
            _ => panic!("{line}"),
        };
        assert_eq!(got.to_string(), expected, "{line}");
        *counts.entry(op).or_insert(0) += 1;
    }
    assert!(
        counts.len() == 7 && counts.values().all(|&n| n >= 150),
        "{counts:?}"
    );
}
