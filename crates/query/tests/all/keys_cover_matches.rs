//! An index finds everything that a filter on its path matches: for random documents, every equality that holds on a
//! path has its value among the keys of that path.
#![allow(clippy::unwrap_used)]

use frond_bson::{ArrayBuf, DocBuf, Value, compare, doc};
use frond_query::matcher::Filter;
use frond_query::paths::{KeyPaths, ParallelArrays, Path};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NAMES: [&str; 3] = ["a", "b", "0"];

fn random_array(rng: &mut StdRng, depth: usize) -> ArrayBuf {
    let mut items = ArrayBuf::new();
    for _ in 0..rng.random_range(0..3) {
        match rng.random_range(0..6) {
            0 if depth > 0 => items.push(&random_array(rng, depth - 1)),
            1 | 2 if depth > 0 => items.push(&random_document(rng, depth - 1)),
            3 => items.push(Value::Null),
            _ => items.push(rng.random_range(0..3)),
        }
    }
    items
}

fn random_document(rng: &mut StdRng, depth: usize) -> DocBuf {
    let mut document = DocBuf::new();
    for name in NAMES {
        match rng.random_range(0..7) {
            0 | 1 => {}
            2 if depth > 0 => document.push(name, &random_document(rng, depth - 1)),
            3 | 4 if depth > 0 => document.push(name, &random_array(rng, depth - 1)),
            5 => document.push(name, Value::Null),
            _ => document.push(name, rng.random_range(0..3)),
        }
    }
    document
}

#[test]
fn every_equality_has_its_key() {
    let mut rng = StdRng::seed_from_u64(7);
    let (mut matched, mut ambiguous) = (0, 0);
    for round in 0..30_000 {
        let document = random_document(&mut rng, 4);
        let components = rng.random_range(1..4);
        let path: Vec<&str> = (0..components)
            .map(|_| NAMES[rng.random_range(0..NAMES.len())])
            .collect();
        let path = path.join(".");
        let number = rng.random_range(0..4);
        let value = match number {
            3 if Path::new(&path).has_index() => continue, // See `Path::has_index`.
            3 => Value::Null,
            number => Value::Int32(number),
        };
        let mut condition = DocBuf::new();
        condition.push(&path, value);
        if !Filter::parse(&condition).unwrap().matches(&document) {
            continue;
        }
        matched += 1;
        let mut found = false;
        let keys = KeyPaths::new([Path::new(&path)]).unwrap();
        let outcome = keys.for_each(&document, ParallelArrays::Product, |values| {
            let key = values[0].unwrap_or(Value::Null);
            found |= compare(&key, &value).is_eq();
            Ok(())
        });
        match outcome {
            Ok(_) => assert!(found, "round {round}: {path} = {value:?} in {document:?}"),
            Err(error) => {
                assert_eq!(error.code().code(), 16746, "{error}");
                ambiguous += 1;
            }
        }
    }
    // The test tests something.
    assert!(
        matched > 2_000 && ambiguous < matched / 10,
        "{matched} {ambiguous}"
    );
}

#[test]
fn compound_keys_keep_elements_together() {
    let mut rng = StdRng::seed_from_u64(11);
    let keys = KeyPaths::new(["a.b", "a.a"].map(Path::new)).unwrap();
    let mut matched = 0;
    for _ in 0..30_000 {
        let mut document = DocBuf::new();
        document.push("a", &random_array(&mut rng, 3));
        let (a, b) = (rng.random_range(0..3), rng.random_range(0..3));
        let filter = doc! {"a": {"$elemMatch": {"b": b, "a": a}}};
        if !Filter::parse(&filter).unwrap().matches(&document) {
            continue;
        }
        let mut found = false;
        let outcome = keys.for_each(&document, ParallelArrays::Product, |values| {
            let equal = |value: Option<Value<'_>>, number: i32| {
                compare(&value.unwrap_or(Value::Null), &Value::Int32(number)).is_eq()
            };
            found |= equal(values[0], b) && equal(values[1], a);
            Ok(())
        });
        if outcome.is_ok() {
            matched += 1;
            assert!(found, "{filter:?} in {document:?}");
        }
    }
    assert!(matched > 40, "{matched}");
}
