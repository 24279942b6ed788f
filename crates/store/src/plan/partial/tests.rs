#![allow(clippy::unwrap_used)]

use frond_bson::{Doc, DocBuf, OwnedValue, doc};
use frond_query::collation;
use frond_query::matcher::Filter;

use super::*;

#[allow(dead_code)]
#[path = "../../../tests/all/plan_fuzz/generate.rs"]
mod generate;

use generate::Random;

fn no_case() -> Collator {
    collation::parse(&doc! {"locale": "en", "strength": 2}).unwrap()
}

fn decides(query: &Doc, of_query: &Collator, partial: &Doc, of_index: &Collator) -> bool {
    let query = Filter::parse_collated(query, of_query).unwrap();
    let partial = Filter::parse_collated(partial, of_index).unwrap();
    implies(&[query.predicates()], partial.predicates(), of_index)
}

fn check(cases: Vec<(DocBuf, DocBuf, bool)>) {
    for (query, partial, expected) in cases {
        assert_eq!(
            decides(&query, Collator::BINARY, &partial, Collator::BINARY),
            expected,
            "{query:?} implies {partial:?}"
        );
    }
}

#[test]
fn implication_by_single_conditions() {
    check(vec![
        (doc! {"a": 5}, doc! {"a": {"$gt": 3}}, true),
        (doc! {"a": 3}, doc! {"a": {"$gt": 3}}, false),
        (doc! {"a": {"$gte": 4}}, doc! {"a": {"$gt": 3}}, true),
        (doc! {"a": {"$gte": 3}}, doc! {"a": {"$gt": 3}}, false),
        (doc! {"a": {"$gt": 3}}, doc! {"a": {"$gte": 3}}, true),
        (doc! {"a": {"$gt": 2}}, doc! {"a": {"$gt": 3}}, false),
        (doc! {"a": {"$gt": 4}, "b": 1}, doc! {"a": {"$gt": 3}}, true),
        (doc! {"a": {"$in": [4, 5]}}, doc! {"a": {"$gt": 3}}, true),
        (doc! {"a": {"$in": [1, 5]}}, doc! {"a": {"$gt": 3}}, false),
        (
            doc! {"a": {"$in": [1, 5]}},
            doc! {"a": {"$in": [1, 3, 5]}},
            true,
        ),
        (doc! {"a": "x"}, doc! {"a": {"$gt": 3}}, false),
        (doc! {"b": 5}, doc! {"a": {"$gt": 3}}, false),
        (doc! {}, doc! {"a": 1}, false),
        (doc! {"a": 1}, doc! {}, true),
        (doc! {"$alwaysFalse": 1}, doc! {"a": 1}, true),
    ]);
}

#[test]
fn existence_follows_from_conditions_that_a_missing_field_does_not_meet() {
    let exists = || doc! {"a": {"$exists": true}};
    check(vec![
        (doc! {"a": 1}, exists(), true),
        (doc! {"a": null}, exists(), false),
        (doc! {"a": {"$lte": null}}, exists(), false),
        (doc! {"a": {"$lt": 9}}, exists(), true),
        (doc! {"a": {"$gt": OwnedValue::MinKey}}, exists(), false),
        (doc! {"a": {"$lt": OwnedValue::MaxKey}}, exists(), false),
        (doc! {"a": OwnedValue::MinKey}, exists(), true),
        (doc! {"a": {"$ne": 9}}, exists(), false),
        (doc! {"a": {"$ne": null}}, exists(), true),
        (doc! {"a": {"$nin": [null, 1]}}, exists(), true),
        (doc! {"a": {"$nin": [1]}}, exists(), false),
        (doc! {"a": {"$not": {"$gte": null}}}, exists(), true),
        (doc! {"$nor": [{"b": 1}, {"a": null}]}, exists(), true),
        // {a: []} has no value at this path, not even a missing one.
        (
            doc! {"a.b": {"$ne": null}},
            doc! {"a.b": {"$exists": true}},
            false,
        ),
        (doc! {"a": {"$in": [null, 1]}}, exists(), false),
        (doc! {"a": {"$in": [2, 1]}}, exists(), true),
        (doc! {"a": {"$type": "null"}}, exists(), true),
        (doc! {"a": {"$size": 0}}, exists(), true),
        (doc! {"a": {"$mod": [2, 0]}}, exists(), true),
        (doc! {"a": {"$regex": "x"}}, exists(), true),
        (doc! {"a": {"$bitsAllSet": 1}}, exists(), true),
        (doc! {"a": {"$elemMatch": {"b": null}}}, exists(), true),
        (
            doc! {"a": {"$geoWithin": {"$center": [[0, 0], 1]}}},
            exists(),
            true,
        ),
        (doc! {"a": {"$exists": true}}, exists(), true),
        (doc! {"a": {"$exists": false}}, exists(), false),
    ]);
}

#[test]
fn types_follow_from_types_and_from_all_values_of_a_class() {
    let string = || doc! {"u": {"$type": "string"}};
    let number = || doc! {"u": {"$type": "number"}};
    let array = || doc! {"u": {"$type": "array"}};
    check(vec![
        (doc! {"u": {"$eq": "s5", "$type": "string"}}, string(), true),
        (doc! {"u": {"$type": "string"}}, string(), true),
        (doc! {"u": {"$type": 2}}, string(), true),
        (doc! {"u": {"$type": ["string", "int"]}}, string(), false),
        (
            doc! {"u": {"$type": ["string", "int"]}},
            doc! {"u": {"$type": ["int", "long", "string"]}},
            true,
        ),
        // A symbol equals a string.
        (doc! {"u": "s5"}, string(), false),
        (
            doc! {"u": "s5"},
            doc! {"u": {"$type": ["string", "symbol"]}},
            true,
        ),
        (
            doc! {"u": {"$regex": "^s"}},
            doc! {"u": {"$type": ["string", "symbol"]}},
            false,
        ),
        (
            doc! {"u": {"$regex": "^s"}},
            doc! {"u": {"$type": ["string", "symbol", "regex"]}},
            true,
        ),
        (doc! {"u": 5}, number(), true),
        (doc! {"u": 5}, doc! {"u": {"$type": "int"}}, false),
        (doc! {"u": {"$lt": 5}}, number(), true),
        (doc! {"u": {"$in": [5, 6.5]}}, number(), true),
        (doc! {"u": {"$in": [5, "x"]}}, number(), false),
        (doc! {"u": {"$mod": [2, 1]}}, number(), true),
        (doc! {"u": {"$bitsAnySet": 1}}, number(), false),
        (
            doc! {"u": {"$bitsAnySet": 1}},
            doc! {"u": {"$type": ["number", "binData"]}},
            true,
        ),
        (doc! {"u": {"$lt": OwnedValue::MaxKey}}, number(), false),
        (doc! {"u": true}, doc! {"u": {"$type": "bool"}}, true),
        (
            doc! {"u": {"$gt": Value::DateTime(0)}},
            doc! {"u": {"$type": "date"}},
            true,
        ),
        (doc! {"u": null}, doc! {"u": {"$type": "null"}}, false),
        (doc! {"u": {"$size": 2}}, array(), true),
        (doc! {"u": {"$elemMatch": {"$gt": 1}}}, array(), true),
        (doc! {"u": [1]}, array(), true),
        (doc! {"u": {"$exists": true}}, string(), false),
    ]);
}

#[test]
fn null_nan_arrays_and_other_special_values() {
    check(vec![
        (doc! {"a": null}, doc! {"a": null}, true),
        (doc! {"a": null}, doc! {"a": {"$in": [1, null]}}, true),
        (doc! {"a": {"$gte": null}}, doc! {"a": null}, true),
        (doc! {"a": {"$gt": null}}, doc! {"a": {"$gt": null}}, true),
        (doc! {"a": {"$type": "null"}}, doc! {"a": null}, false),
        (doc! {"a": f64::NAN}, doc! {"a": {"$lt": 3}}, false),
        (doc! {"a": f64::NAN}, doc! {"a": f64::NAN}, true),
        (doc! {"a": f64::NAN}, doc! {"a": {"$gte": f64::NAN}}, true),
        (doc! {"a": {"$lte": f64::NAN}}, doc! {"a": f64::NAN}, true),
        (
            doc! {"a": {"$lt": 3}},
            doc! {"a": {"$lte": f64::NAN}},
            false,
        ),
        (doc! {"a": [1, 2]}, doc! {"a": [1, 2]}, true),
        (doc! {"a": [1, 2]}, doc! {"a": 1}, false),
        (doc! {"a": {"$gt": [2]}}, doc! {"a": {"$gt": [1]}}, true),
        (doc! {"a": {"$gt": [1]}}, doc! {"a": {"$gt": [2]}}, false),
        (doc! {"a": {"$gt": [2]}}, doc! {"a": {"$gt": 1}}, false),
        (doc! {"a": 5}, doc! {"a": {"$lt": OwnedValue::MaxKey}}, true),
        (
            doc! {"a": {"$gte": OwnedValue::MinKey}},
            doc! {"a": {"$gte": OwnedValue::MinKey}},
            true,
        ),
        (
            doc! {"a": {"$gte": OwnedValue::MinKey}},
            doc! {"a": {"$gt": OwnedValue::MinKey}},
            false,
        ),
        (doc! {"a": {"x": 1}}, doc! {"a": {"$gt": {"x": 0}}}, true),
        (
            doc! {"a": {"$regex": "^x"}},
            doc! {"a": {"$in": [1, {"x": 1}]}},
            false,
        ),
    ]);
}

#[test]
fn conjunctions_disjunctions_and_elements() {
    check(vec![
        (
            doc! {"$or": [{"a": 5}, {"a": 6}]},
            doc! {"a": {"$gt": 3}},
            true,
        ),
        (
            doc! {"$or": [{"a": 5}, {"b": 6}]},
            doc! {"a": {"$gt": 3}},
            false,
        ),
        (doc! {"a": 5, "b": 1}, doc! {"a": 5, "b": 1}, true),
        (doc! {"a": 5}, doc! {"a": 5, "b": 1}, false),
        (doc! {"a": 5}, doc! {"$or": [{"a": 5}, {"b": 1}]}, true),
        (doc! {"a": 7}, doc! {"$or": [{"a": 5}, {"b": 1}]}, false),
        // Each branch of the query implies another branch of the filter.
        (
            doc! {"$or": [{"a": 5}, {"b": 1}]},
            doc! {"$or": [{"b": {"$gt": 0}}, {"a": {"$gt": 3}}]},
            true,
        ),
        // Two conditions imply one branch together.
        (
            doc! {"a": 5, "b": 5},
            doc! {"$or": [{"a": 3}, {"a": 5, "b": {"$gt": 1}}]},
            true,
        ),
        (
            doc! {"$and": [{"c": 1}, {"$or": [{"a": 5, "b": 1}, {"a": 6}]}]},
            doc! {"a": {"$gte": 5}, "c": {"$exists": true}},
            true,
        ),
        (
            doc! {"a": {"$elemMatch": {"$gt": 5}}},
            doc! {"a": {"$gt": 3}},
            true,
        ),
        (
            doc! {"a": {"$elemMatch": {"$gt": 2}}},
            doc! {"a": {"$gt": 3}},
            false,
        ),
        (
            doc! {"a": {"$elemMatch": {"$elemMatch": {"$gt": 5}}}},
            doc! {"a": {"$gt": 3}},
            false,
        ),
        (
            doc! {"a": {"$elemMatch": {"b": 5}}},
            doc! {"a.b": {"$gt": 3}},
            true,
        ),
        (
            doc! {"a": {"$elemMatch": {"b": null}}},
            doc! {"a.b": null},
            false,
        ),
        (doc! {"a": {"$elemMatch": {"0": 5}}}, doc! {"a.0": 5}, false),
        (
            doc! {"a": {"$elemMatch": {"$or": [{"b.c": 5, "d": 1}, {"b.c": 6}]}}},
            doc! {"a.b.c": {"$gt": 3}},
            true,
        ),
        (
            doc! {"a": {"$not": {"$gt": 5}}},
            doc! {"a": {"$lte": 5}},
            false,
        ),
    ]);
}

#[test]
fn areas_follow_from_the_same_area_and_a_box_from_a_box_inside() {
    let within = |corner: i32| doc! {"p": {"$geoWithin": {"$box": [[0, 0], [corner, corner]]}}};
    let near = |radius: f64| doc! {"p": {"$geoWithin": {"$centerSphere": [[0, 0], radius]}}};
    let square = doc! {"$geometry": {
        "type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]],
    }};
    let (inside, meeting) = (
        doc! {"p": {"$geoWithin": &square}},
        doc! {"p": {"$geoIntersects": &square}},
    );
    check(vec![
        (within(3), within(3), true),
        (within(2), within(3), true),
        (within(4), within(3), false),
        (near(0.5), near(0.5), true),
        (near(0.4), near(0.5), false),
        (inside.clone(), inside.clone(), true),
        (meeting.clone(), meeting.clone(), true),
        (meeting.clone(), inside.clone(), false),
        (
            within(2),
            doc! {"q": {"$geoWithin": {"$box": [[0, 0], [3, 3]]}}},
            false,
        ),
        (inside, doc! {"p": {"$exists": true}}, true),
    ]);
}

#[test]
fn strings_by_the_collations_of_query_and_index() {
    let (binary, no_case) = (Collator::BINARY, &no_case());
    for (query, of_query, partial, of_index, expected) in [
        (doc! {"s": "a"}, no_case, doc! {"s": "A"}, no_case, true),
        (doc! {"s": "a"}, binary, doc! {"s": "A"}, binary, false),
        // The query finds "a" only, which the filter takes for "A".
        (doc! {"s": "a"}, binary, doc! {"s": "A"}, no_case, true),
        // The query finds "A" too.
        (doc! {"s": "a"}, no_case, doc! {"s": "a"}, binary, false),
        (
            doc! {"s": {"$in": ["a", 1]}},
            no_case,
            doc! {"s": {"$in": ["a", 1]}},
            binary,
            false,
        ),
        (
            doc! {"s": {"$in": [1]}},
            no_case,
            doc! {"s": {"$in": ["a", 1]}},
            binary,
            true,
        ),
        (
            doc! {"s": {"$gt": "b"}},
            no_case,
            doc! {"s": {"$gt": "A"}},
            no_case,
            true,
        ),
        (
            doc! {"s": {"$gt": "b"}},
            no_case,
            doc! {"s": {"$gt": "A"}},
            binary,
            false,
        ),
        (
            doc! {"s": {"$gt": "b"}},
            binary,
            doc! {"s": {"$gt": "A"}},
            no_case,
            false,
        ),
        (
            doc! {"s": {"x": "a"}},
            no_case,
            doc! {"s": {"x": "a"}},
            binary,
            false,
        ),
        (
            doc! {"s": "a"},
            no_case,
            doc! {"s": {"$exists": true}},
            binary,
            true,
        ),
        (
            doc! {"s": {"$type": "string", "$eq": "a"}},
            no_case,
            doc! {"s": {"$type": "string"}},
            binary,
            true,
        ),
    ] {
        assert_eq!(
            decides(&query, of_query, &partial, of_index),
            expected,
            "{query:?} implies {partial:?}"
        );
    }
}

/// A search of deeply nested filters ends.
#[test]
fn nested_filters_are_decided_in_bounded_time() {
    let nested = |value: i32| {
        (0..60).fold(doc! {"a": value}, |inner, level| match level % 2 {
            0 => doc! {"$or": [&inner, {"b": level}]},
            _ => doc! {"$and": [&inner, {"c": level}]},
        })
    };
    let partial = (0..40).fold(doc! {"a": 2}, |inner, level| match level % 2 {
        0 => doc! {"$or": [&inner, {"d": level}]},
        _ => doc! {"$and": [&inner, {"e": level}]},
    });
    assert!(!decides(
        &nested(1),
        Collator::BINARY,
        &partial,
        Collator::BINARY
    ));
}

/// Implications hold for random filters, on random documents.
#[test]
fn implied_filters_hold_for_every_document_that_passes() {
    let mut random = Random::new(20);
    let known: Vec<String> = ["a", "b", "a.b"].map(str::to_owned).into();
    let (mut implied, mut tested) = (0, 0);
    for round in 0..60_000 {
        let partial = random.partial_filter();
        let query = if random.one_in(2) {
            random.filter(&known, 2)
        } else {
            random.narrowed(&partial)
        };
        let collators = [random.collation(), random.collation()].map(|spec| {
            spec.map_or_else(Collator::default, |spec| collation::parse(&spec).unwrap())
        });
        let [of_query, of_index] = &collators;
        let environment = frond_storage::environment::environment(None, of_query);
        let (Ok(parsed), Ok(outer)) = (
            Filter::parse_with(&query, &environment),
            Filter::parse_collated(&partial, of_index),
        ) else {
            continue;
        };
        if !implies(&[parsed.predicates()], outer.predicates(), of_index) {
            continue;
        }
        implied += 1;
        for id in 0..12 {
            let document = random.document(id, 1 + round % 3);
            if parsed.matches(&document) {
                tested += 1;
                assert!(
                    outer.matches(&document),
                    "{query:?} does not imply {partial:?} for {document:?}, {of_query:?} {of_index:?}"
                );
            }
        }
    }
    assert!(
        implied > 1000 && tested > 1000,
        "{implied} implied, {tested} tested"
    );
}
