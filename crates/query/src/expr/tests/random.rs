//! Random operators over extreme operands: an answer or an error, never a panic.

use super::parse::{Arguments, Entry};
use super::*;
use frond_bson::{ArrayBuf, DocBuf, ObjectId, Timestamp, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn extremes() -> Vec<OwnedValue> {
    let decimal = |text: &str| OwnedValue::Decimal128(text.parse().unwrap());
    vec![
        OwnedValue::Null,
        OwnedValue::Undefined,
        false.into(),
        true.into(),
        0.into(),
        1.into(),
        (-1).into(),
        3.into(),
        i32::MIN.into(),
        i32::MAX.into(),
        i64::MIN.into(),
        i64::MAX.into(),
        0.5.into(),
        (-0.0).into(),
        1e300.into(),
        f64::NAN.into(),
        f64::INFINITY.into(),
        f64::NEG_INFINITY.into(),
        decimal("0.1"),
        decimal("-9E6144"),
        decimal("1E-6176"),
        decimal("NaN"),
        decimal("Infinity"),
        OwnedValue::DateTime(0),
        OwnedValue::DateTime(i64::MIN),
        OwnedValue::DateTime(i64::MAX),
        OwnedValue::Timestamp(Timestamp {
            time: u32::MAX,
            increment: 1,
        }),
        OwnedValue::ObjectId(ObjectId([255; 12])),
        "".into(),
        "a".into(),
        "añb€c".into(),
        OwnedValue::string(b"a\xFFb".to_vec()),
        OwnedValue::string(b"\xC3".to_vec()),
        OwnedValue::string(b"$v\xFF".to_vec()),
        "2024-02-30T99:99".into(),
        "+99:99".into(),
        "%Y-%G-%V-%u %B %Z%".into(),
        "day".into(),
        "month".into(),
        "int".into(),
        "$$NOW".into(),
        "$v".into(),
        "$l".into(),
        "$l.x".into(),
        "$none".into(),
        "$$ROOT".into(),
        ArrayBuf::new().into(),
        frond_bson::array![1, "x", null, [2], {"k": "a", "v": 1}].into(),
        frond_bson::array![["a", 1], ["b", 2]].into(),
        doc! {}.into(),
        doc! {"x": 1, "k": "a", "v": "$v"}.into(),
        OwnedValue::Regex {
            pattern: "(a|b)+".into(),
            options: "i".into(),
        },
        OwnedValue::MinKey,
        OwnedValue::MaxKey,
    ]
}

/// Names that operators with named arguments use.
const NAMES: &[&str] = &[
    "input",
    "regex",
    "options",
    "date",
    "timezone",
    "format",
    "onNull",
    "onError",
    "unit",
    "amount",
    "startDate",
    "endDate",
    "binSize",
    "startOfWeek",
    "dateString",
    "to",
    "field",
    "value",
    "n",
    "sortBy",
    "as",
    "in",
    "cond",
    "initialValue",
    "limit",
    "chars",
    "find",
    "replacement",
    "inputs",
    "defaults",
    "useLongestLength",
    "if",
    "then",
    "else",
    "branches",
    "vars",
    "year",
    "isoWeekYear",
    "hour",
    "month",
];

fn operand(rng: &mut StdRng, pool: &[OwnedValue], depth: usize) -> OwnedValue {
    if depth < 3 && rng.random_range(0..4) == 0 {
        return expression(rng, pool, depth + 1).into();
    }
    pool[rng.random_range(0..pool.len())].clone()
}

fn expression(rng: &mut StdRng, pool: &[OwnedValue], depth: usize) -> DocBuf {
    let family = operators::FAMILIES[rng.random_range(0..operators::FAMILIES.len())];
    let Entry {
        operator,
        arguments: takes,
    } = &family[rng.random_range(0..family.len())];
    let mut doc = DocBuf::new();
    match (takes, rng.random_range(0..4)) {
        (Arguments::Named(names), 1..) => {
            let mut arguments = DocBuf::new();
            for name in names.iter() {
                if name.required || rng.random_range(0..2) == 0 {
                    arguments.push(name.name, &operand(rng, pool, depth));
                }
            }
            doc.push(operator.name, &arguments);
        }
        (Arguments::CustomOperator(_), 2..) => {
            let mut arguments = DocBuf::new();
            for _ in 0..rng.random_range(1..5) {
                let name = NAMES[rng.random_range(0..NAMES.len())];
                if !arguments.contains_key(name) {
                    arguments.push(name, &operand(rng, pool, depth));
                }
            }
            doc.push(operator.name, &arguments);
        }
        (Arguments::Count { min, .. }, 1..) => {
            let count = rng.random_range(*min..=min + 1);
            let list: ArrayBuf = (0..count)
                .map(|_| operand(rng, pool, depth))
                .collect::<Vec<_>>()
                .iter()
                .collect();
            doc.push(operator.name, &list);
        }
        _ => doc.push(operator.name, &operand(rng, pool, depth)),
    }
    doc
}

#[test]
fn nothing_panics() {
    let mut rng = StdRng::seed_from_u64(11);
    let pool = extremes();
    let (mut answers, mut refusals) = (0, 0);
    for _ in 0..60_000 {
        let expression = expression(&mut rng, &pool, 0);
        let mut root = doc! {"l": [{"x": 1}, 5, {"x": [1, 2]}]};
        root.push("v", &pool[rng.random_range(0..pool.len())]);
        let Ok(expr) = Expr::parse(&Value::Document(&expression), &Environment::default()) else {
            refusals += 1;
            continue;
        };
        match expr.eval_owned(&root, NOW) {
            Ok(Some(value)) => {
                let result = doc! {"result": value};
                Doc::validate(result.as_bytes()).unwrap_or_else(|e| panic!("{expression:?}: {e}"));
                answers += 1;
            }
            Ok(None) => answers += 1,
            Err(_) => refusals += 1,
        }
    }
    assert!(
        answers > 10_000 && refusals > 10_000,
        "{answers} {refusals}"
    );
}
