//! Tables of projections with their results, and the errors.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::meta::Metadata;
use crate::testing::{json, show};
use frond_bson::Value;

fn project(spec: &str, document: &str, filter: &str) -> Result<String> {
    let environment = Environment {
        variables: None,
        now_ms: 1_000,
        ..Environment::default()
    };
    let filter = Filter::parse(&json(filter))?;
    let projection = Projection::parse_with(&json(spec), &environment)?.matching(&filter);
    let projected = projection.apply(&json(document))?;
    Doc::validate(projected.as_bytes()).unwrap();
    Ok(show(&Value::Document(&projected)))
}

fn check(cases: &[(&str, &str, &str)]) {
    for (spec, document, expected) in cases {
        let expected = show(&Value::Document(&json(expected)));
        assert_eq!(
            project(spec, document, "{}").unwrap(),
            expected,
            "{spec} of {document}"
        );
    }
}

fn refuse(cases: &[(&str, i32, &str)]) {
    for (spec, code, message) in cases {
        let error = Projection::parse_with(&json(spec), &Environment::default()).expect_err(spec);
        assert_eq!(
            (error.code().code(), error.message()),
            (*code, *message),
            "{spec}"
        );
    }
}

#[test]
fn inclusion() {
    check(&[
        ("{a: 1}", "{_id: 1, a: 2, b: 3}", "{_id: 1, a: 2}"),
        (
            "{a: true, b: 0.5}",
            "{b: 3, a: 2, _id: 1}",
            "{b: 3, a: 2, _id: 1}",
        ),
        ("{a: 1, _id: 0}", "{_id: 1, a: 2, b: 3}", "{a: 2}"),
        ("{_id: 1}", "{_id: 1, a: 2}", "{_id: 1}"),
        ("{a: 1}", "{_id: 1}", "{_id: 1}"),
        (
            "{'a.b': 1}",
            "{_id: 1, a: {b: 1, c: 2}, d: 3}",
            "{_id: 1, a: {b: 1}}",
        ),
        (
            "{a: {b: 1}}",
            "{_id: 1, a: {b: 1, c: 2}}",
            "{_id: 1, a: {b: 1}}",
        ),
        (
            "{a: {b: 1, 'c.d': 1}}",
            "{a: {b: 1, c: {d: 2, e: 3}}}",
            "{a: {b: 1, c: {d: 2}}}",
        ),
        (
            "{'a.b': 1, a: {c: 1}}",
            "{a: {b: 1, c: 2, d: 3}}",
            "{a: {b: 1, c: 2}}",
        ),
        ("{'a.b': 1}", "{a: {c: 1}}", "{a: {}}"),
        ("{'a.b': 1}", "{a: 5}", "{}"),
        (
            "{'a.b': 1}",
            "{a: [1, {b: 2, c: 3}, [{b: 4}, 5], {}]}",
            "{a: [{b: 2}, [{b: 4}], {}]}",
        ),
        ("{'_id.x': 1}", "{_id: {x: 1, y: 2}, a: 1}", "{_id: {x: 1}}"),
        // A numeric component is a field name, not an index.
        ("{'a.0': 1}", "{a: [1, {'0': 2}]}", "{a: [{'0': 2}]}"),
        // A repeated name counts each time.
        (
            "{a: 1, b: 1}",
            "{a: 1, a: 2, _id: 3, b: 4}",
            "{a: 1, a: 2, _id: 3, b: 4}",
        ),
    ]);
}

#[test]
fn exclusion() {
    check(&[
        ("{}", "{_id: 1, a: 2}", "{_id: 1, a: 2}"),
        ("{a: 0}", "{_id: 1, a: 2, b: 3}", "{_id: 1, b: 3}"),
        ("{_id: 0}", "{_id: 1, a: 2}", "{a: 2}"),
        ("{_id: 1, a: 0}", "{_id: 1, a: 2, b: 3}", "{_id: 1, b: 3}"),
        ("{_id: 0, a: false}", "{_id: 1, a: 2, b: 3}", "{b: 3}"),
        ("{'a.b': 0}", "{a: {b: 1, c: 2}, d: 3}", "{a: {c: 2}, d: 3}"),
        ("{'a.b': 0}", "{a: 5}", "{a: 5}"),
        (
            "{'a.b': 0}",
            "{a: [1, {b: 2, c: 3}, [{b: 4}, 5]]}",
            "{a: [1, {c: 3}, [{}, 5]]}",
        ),
        (
            "{a: {b: {c: 0}}}",
            "{a: {b: {c: 1, d: 2}}}",
            "{a: {b: {d: 2}}}",
        ),
    ]);
}

#[test]
fn slices() {
    let numbers = "{_id: 1, a: [1, 2, 3, 4, 5], b: 6}";
    for (argument, expected) in [
        ("2", "[1, 2]"),
        ("-2", "[4, 5]"),
        ("0", "[]"),
        ("9", "[1, 2, 3, 4, 5]"),
        ("-9", "[1, 2, 3, 4, 5]"),
        ("2.9", "[1, 2]"),
        ("[1, 2]", "[2, 3]"),
        ("[-3, 2]", "[3, 4]"),
        ("[-9, 2]", "[1, 2]"),
        ("[9, 2]", "[]"),
    ] {
        let spec = format!("{{a: {{$slice: {argument}}}}}");
        let expected = format!("{{_id: 1, a: {expected}, b: 6}}");
        check(&[(&spec, numbers, &expected)]);
    }
    check(&[
        ("{b: 1, a: {$slice: 1}}", numbers, "{_id: 1, a: [1], b: 6}"),
        ("{b: 0, a: {$slice: 1}}", numbers, "{_id: 1, a: [1]}"),
        ("{_id: 0, a: {$slice: 1}}", numbers, "{a: [1], b: 6}"),
        ("{_id: 1, a: {$slice: 1}}", numbers, "{_id: 1, a: [1]}"),
        ("{b: {$slice: 1}}", numbers, numbers),
        (
            "{'a.b': {$slice: 1}}",
            "{a: {b: [1, 2], c: 3}}",
            "{a: {b: [1], c: 3}}",
        ),
        (
            "{'a.b': {$slice: 1}}",
            "{a: [{b: [1, 2]}, 4]}",
            "{a: [{b: [1]}, 4]}",
        ),
    ]);
}

#[test]
fn elem_match() {
    check(&[
        (
            "{a: {$elemMatch: {$gt: 2}}}",
            "{_id: 1, b: 2, a: [1, 3, 5]}",
            "{_id: 1, a: [3]}",
        ),
        (
            "{a: {$elemMatch: {b: 1}}}",
            "{_id: 1, a: [{b: 2}, {b: 1, c: 3}]}",
            "{_id: 1, a: [{b: 1, c: 3}]}",
        ),
        (
            "{a: {$elemMatch: {b: 9}}}",
            "{_id: 1, a: [{b: 2}]}",
            "{_id: 1}",
        ),
        ("{a: {$elemMatch: {$gt: 0}}}", "{_id: 1, a: 5}", "{_id: 1}"),
        (
            "{_id: 0, a: {$elemMatch: {$gt: 2}}}",
            "{_id: 1, a: [3]}",
            "{a: [3]}",
        ),
        // after the copied fields in an inclusion, in place in an exclusion
        (
            "{a: {$elemMatch: {$gt: 2}}, b: 1}",
            "{_id: 1, a: [3, 4], b: 2}",
            "{_id: 1, b: 2, a: [3]}",
        ),
        (
            "{a: {$elemMatch: {$gt: 2}}, b: 0}",
            "{_id: 1, a: [3, 4], b: 2, c: 1}",
            "{_id: 1, a: [3], c: 1}",
        ),
        (
            "{b: {$elemMatch: {$gt: 0}}, a: {$elemMatch: {$gt: 0}}}",
            "{a: [1], b: [2]}",
            "{b: [2], a: [1]}",
        ),
    ]);
}

#[test]
fn the_positional_operator_shows_the_element_that_the_filter_matched() {
    for (filter, spec, document, expected) in [
        (
            "{a: 5}",
            "{'a.$': 1}",
            "{_id: 1, a: [4, 5, 6], b: 1}",
            "{_id: 1, a: [5]}",
        ),
        (
            "{a: {$gt: 1, $lt: 5}}",
            "{'a.$': 1}",
            "{a: [1, 2, 3, 4, 5]}",
            "{a: [2]}",
        ),
        (
            "{a: 4}",
            "{'a.$': 1, b: 1}",
            "{a: [4, 5], b: [1]}",
            "{a: [4], b: [1]}",
        ),
        (
            "{a: 4}",
            "{b: {$slice: 1}, 'a.$': 1}",
            "{a: [4, 5], b: [1, 2]}",
            "{a: [4], b: [1]}",
        ),
        // Without an array nothing has to be found.
        ("{a: 5}", "{'a.$': 1}", "{a: 5}", "{a: 5}"),
        ("{}", "{'g.$': 1}", "{a: [1]}", "{}"),
        (
            "{x: 1}",
            "{'a.b.$': 1}",
            "{x: 1, a: {b: {c: 1}}}",
            "{a: {b: {c: 1}}}",
        ),
        // The array may be another one.
        (
            "{a: 2}",
            "{'b.$': 1}",
            "{a: [1, 2, 3], b: [4, 5, 6]}",
            "{b: [5]}",
        ),
        (
            "{$or: [{a: 2}, {a: 3}]}",
            "{'b.$': 1}",
            "{a: [1, 2, 3], b: [4, 5, 6]}",
            "{b: [5]}",
        ),
        (
            "{a: {$elemMatch: {$elemMatch: {$eq: 3}}}}",
            "{'b.$': 1}",
            "{a: [[1, 2], [3]], b: [4, 5]}",
            "{b: [5]}",
        ),
        (
            "{'a.b': 2}",
            "{'a.b.$': 1}",
            "{a: {b: [1, 2], c: 3}}",
            "{a: {b: [2]}}",
        ),
        // The first array on the path is reduced; what is in it is included by the path.
        (
            "{'a.b': 2}",
            "{'a.b.$': 1}",
            "{a: [{b: [1, 2], c: 3}, {b: 4}]}",
            "{a: [{b: [1, 2]}]}",
        ),
        (
            "{'x.y.z': 1}",
            "{'a.b.c.$': 1}",
            "{x: {y: {z: [0, 1, 2]}}, a: [{b: {c: [1, 2]}}, {b: {c: [4, 5], d: 1}}]}",
            "{a: [{b: {c: [4, 5]}}]}",
        ),
        (
            "{x: 1}",
            "{'a.b.c.$': 1}",
            "{x: [1], a: [{b: [[[{c: 1, d: 2}]]]}]}",
            "{a: [{b: [[[{c: 1}]]]}]}",
        ),
        (
            "{x: 1}",
            "{'a.b.$': 1, 'a.c': 1}",
            "{x: [0, 1], a: [{b: 1}, {b: 2, c: 3, d: 4}]}",
            "{a: [{b: 2, c: 3}]}",
        ),
    ] {
        let expected = show(&Value::Document(&json(expected)));
        assert_eq!(
            project(spec, document, filter).unwrap(),
            expected,
            "{spec} of {document} for {filter}"
        );
    }
    for (filter, spec, document, code) in [
        ("{}", "{'a.$': 1}", "{a: [1]}", 51246),
        ("{a: [1]}", "{'a.$': 1}", "{a: [1]}", 51246),
        ("{b: 1}", "{'a.$': 1}", "{a: [1], b: 1}", 51246),
        (
            "{$or: [{a: 1}, {b: 1}]}",
            "{'a.$': 1}",
            "{a: [1], b: 1}",
            51246,
        ),
        ("{a: {$not: {$gt: 5}}}", "{'a.$': 1}", "{a: [1]}", 51246),
        ("{$nor: [{a: 2}, {a: 3}]}", "{'a.$': 1}", "{a: [1]}", 51246),
        ("{}", "{'a.b.$': 1}", "{a: {b: [1]}}", 51246),
        ("{a: 6}", "{'b.$': 1}", "{a: [4, 5, 6], b: [1, 2]}", 51247),
        // An inclusion drops elements other than documents, and the index counts what remains.
        ("{'a.b': 1}", "{'a.b.$': 1}", "{a: [5, {b: 1}]}", 51247),
    ] {
        let error = project(spec, document, filter).unwrap_err();
        assert_eq!(
            error.code().code(),
            code,
            "{spec} of {document} for {filter}"
        );
    }
    assert!(
        Projection::parse(&json("{'a.b.$': 1}"))
            .unwrap()
            .needs_positional()
    );
    assert!(
        !Projection::parse(&json("{'a.b': 1}"))
            .unwrap()
            .needs_positional()
    );
}

#[test]
fn bad_projections() {
    refuse(&[
        (
            "{a: 1, b: 0}",
            31254,
            "Cannot do exclusion on field b in inclusion projection",
        ),
        (
            "{a: 0, b: 1}",
            31253,
            "Cannot do inclusion on field b in exclusion projection",
        ),
        (
            "{a: {b: 1, c: 0}}",
            31254,
            "Cannot do exclusion on field c in inclusion projection",
        ),
        (
            "{a: 0, 'b.$': 1}",
            31253,
            "Cannot do inclusion on field b.$ in exclusion projection",
        ),
        (
            "{a: 1, 'a.b': 1}",
            31249,
            "Path collision at a.b remaining portion b",
        ),
        (
            "{a: 1, 'a.b.c': 1}",
            31249,
            "Path collision at a.b.c remaining portion b.c",
        ),
        ("{'a.b': 1, a: 1}", 31250, "Path collision at a"),
        ("{'a.b': 1, 'a.b': 1}", 31250, "Path collision at a.b"),
        (
            "{a: {$slice: 1}, 'a.b': 1}",
            31249,
            "Path collision at a.b remaining portion b",
        ),
        ("{a: {}}", 51270, "Invalid empty sub-projection: a"),
        (
            "{'': 1}",
            40352,
            "FieldPath cannot be constructed with empty string",
        ),
        ("{'a.': 1}", 40353, "FieldPath must not end with a '.'."),
        (
            "{'a..b': 1}",
            15998,
            "FieldPath field names may not be empty strings.",
        ),
        (
            "{$a: 1}",
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ),
        (
            "{'a.$': 0}",
            31395,
            "positional projection cannot be used with exclusion",
        ),
        (
            "{'a.$': {b: 1}}",
            31271,
            "positional projection cannot be used with an expression or sub object",
        ),
        (
            "{'a.$': 'x'}",
            31308,
            "positional projection cannot be used with a literal",
        ),
        (
            "{'a.$': 1, 'b.$': 1}",
            31276,
            "Cannot specify more than one positional projection per query.",
        ),
        ("{'.$': 1}", 5392900, "Projection on field .$ is invalid"),
        (
            "{a: {$elemMatch: {b: 1}}, 'b.$': 1}",
            31256,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (
            "{'b.$': 1, a: {$elemMatch: {b: 1}}}",
            31255,
            "Cannot specify positional operator and $elemMatch.",
        ),
        (
            "{a: {$elemMatch: 1}}",
            31274,
            "elemMatch: Invalid argument, object required, but got int",
        ),
        (
            "{'a.b': {$elemMatch: {c: 1}}}",
            31275,
            "Cannot use $elemMatch projection on a nested field.",
        ),
        ("{a: {$elemMatch: {$foo: 1}}}", 2, "unknown operator: $foo"),
        (
            "{a: 0, b: 'x'}",
            31310,
            "Cannot use an expression b: \"x\" in an exclusion projection",
        ),
        (
            "{a: 0, b: {$add: [1, 2]}}",
            31252,
            "Cannot use expression other than $meta in exclusion projection",
        ),
    ]);
    let error = Projection::parse(&json("{'a.$.b': 1}")).unwrap_err();
    assert_eq!(error.code().code(), 31394);
    for (argument, reason) in [
        (
            "'x'",
            "Location31273: $slice only supports numbers and [skip, limit] arrays",
        ),
        (
            "[1]",
            "Location31272: $slice array argument should be of form [skip, limit]",
        ),
        (
            "['x', 1]",
            "Location31257: $slice expects the skip argument to be a number, got string",
        ),
        (
            "[1, 'x']",
            "Location31258: $slice expects the limit argument to be a number, got string",
        ),
        (
            "[1, 0]",
            "Location31259: $slice limit must be positive, got 0",
        ),
    ] {
        let error =
            Projection::parse(&json(&format!("{{a: {{$slice: {argument}}}}}"))).unwrap_err();
        assert!(error.message().contains(reason), "{error}");
        assert!(
            error
                .message()
                .starts_with("Invalid $slice syntax. The given syntax { $slice: ")
        );
    }
}

#[test]
fn deep_paths_are_refused() {
    let path = vec!["a"; 300].join(".");
    let error = Projection::parse(&json(&format!("{{'{path}': 1}}"))).unwrap_err();
    assert_eq!(
        (error.code().code(), error.message()),
        (15, "FieldPath is too long")
    );
    // also when each level has its own short path
    let nested = (0..150).fold("{a: 1}".to_string(), |inner, _| {
        format!("{{'a.a': {inner}}}")
    });
    assert_eq!(
        Projection::parse(&json(&nested)).unwrap_err().code().code(),
        15
    );
}

#[test]
fn computed_fields() {
    check(&[
        ("{b: '$a'}", "{_id: 1, a: 2}", "{_id: 1, b: 2}"),
        ("{b: 'text', _id: 0}", "{_id: 1, a: 2}", "{b: 'text'}"),
        ("{a: '$missing'}", "{_id: 1, a: 2}", "{_id: 1}"),
        (
            "{sum: {$add: ['$a', '$b']}, b: 1}",
            "{_id: 1, a: 2, b: 3}",
            "{_id: 1, b: 3, sum: 5}",
        ),
        // A field that exists moves behind the copied ones.
        (
            "{a: {$add: ['$a', 1]}, b: 1}",
            "{_id: 1, a: 2, b: 3}",
            "{_id: 1, b: 3, a: 3}",
        ),
        ("{y: ['$a', 1], x: '$a'}", "{a: 2}", "{y: [2, 1], x: 2}"),
        ("{'a.b': '$c'}", "{a: {b: 1, d: 2}, c: 3}", "{a: {b: 3}}"),
        (
            "{'a.b': '$c', 'a.d': 1}",
            "{a: {b: 1, d: 2}, c: 3}",
            "{a: {d: 2, b: 3}}",
        ),
        ("{'a.b': '$c'}", "{c: 3}", "{a: {b: 3}}"),
        // The document that replaces a scalar stands in its place.
        ("{'a.b': '$c', c: 1}", "{a: 1, c: 3}", "{a: {b: 3}, c: 3}"),
        (
            "{'a.b.c': {$literal: 1}}",
            "{a: {x: 1}}",
            "{a: {b: {c: 1}}}",
        ),
        (
            "{a: {b: {$literal: 1}, c: 1}}",
            "{a: {c: 2}}",
            "{a: {c: 2, b: 1}}",
        ),
        (
            "{now: '$$NOW', a: {$slice: ['$b', 1, 1]}}",
            "{b: [1, 2, 3]}",
            "{now: Date(1000), a: [2]}",
        ),
        ("{a: {$slice: ['$b', 2]}}", "{b: [1, 2, 3]}", "{a: [1, 2]}"),
    ]);
    refuse(&[("{a: {$foo: 1}}", 31325, "Unknown expression $foo")]);
    let error = Projection::parse(&json("{b: '$a'}")).unwrap_err();
    assert_eq!(error.code().code(), 224);
}

/// Elements that are no documents give way to new ones, whatever the form of the specification.
#[test]
fn computed_fields_below_arrays() {
    check(&[
        (
            "{'a.b': {$literal: 9}}",
            "{a: [{b: 1}, 5, null, {c: 2}]}",
            "{a: [{b: 9}, {b: 9}, {b: 9}, {b: 9}]}",
        ),
        (
            "{a: {b: {$literal: 9}}}",
            "{a: [{b: 1}, 5, null, {c: 2}]}",
            "{a: [{b: 9}, {b: 9}, {b: 9}, {b: 9}]}",
        ),
        (
            "{'a.b': '$c'}",
            "{a: [{b: 1}, [2, [], [{d: 1}]], []], c: 3}",
            "{a: [{b: 3}, [{b: 3}, [], [{b: 3}]], []]}",
        ),
        (
            "{'a.b': '$c', 'a.d': 1}",
            "{a: [{b: 1, d: 2}, 5, {e: 1}], c: 3}",
            "{a: [{d: 2, b: 3}, {b: 3}, {b: 3}]}",
        ),
        (
            "{'a.b': '$c', 'a.d.e': 1}",
            "{a: [{d: [7, {e: 1}]}, 5], c: 3}",
            "{a: [{d: [{e: 1}], b: 3}, {b: 3}]}",
        ),
        (
            "{'a.b.c': '$c', 'a.b.d': '$c'}",
            "{a: [{b: 5}, {b: [1, [2]]}, 7], c: 3}",
            "{a: [{b: {c: 3, d: 3}}, {b: [{c: 3, d: 3}, [{c: 3, d: 3}]]}, {b: {c: 3, d: 3}}]}",
        ),
        ("{'a.b': '$missing'}", "{a: [1, {b: 2}]}", "{a: [{}, {}]}"),
        // A field without a computed field below it is dropped as before.
        (
            "{'a.b': 1, d: '$c'}",
            "{a: [1, {b: 2}], c: 3}",
            "{a: [{b: 2}], d: 3}",
        ),
        // An exclusion can compute metadata, here without any.
        (
            "{'a.b': {$meta: 'textScore'}}",
            "{a: [1, {b: 2, c: 3}], d: 4}",
            "{a: [{}, {c: 3}], d: 4}",
        ),
        (
            "{'a.b': {$meta: 'textScore'}}",
            "{a: 1, d: 4}",
            "{a: {}, d: 4}",
        ),
    ]);
}

#[test]
fn computed_metadata_takes_the_place_of_a_field() {
    let projection = Projection::parse_with(
        &json("{s: {$meta: 'textScore'}, x: 0}"),
        &Environment::default(),
    )
    .unwrap();
    let meta = Metadata {
        text_score: Some(2.5),
        ..Metadata::default()
    };
    for (document, expected) in [
        ("{s: 1, a: 2, x: 3}", "{s: 2.5, a: 2}"),
        ("{a: 2, x: 3}", "{a: 2, s: 2.5}"),
    ] {
        let projected = projection.apply_with(&json(document), Some(&meta));
        assert_eq!(projected.unwrap(), json(expected), "{document}");
    }
}

#[test]
fn stages() {
    let environment = Environment::default();
    let stage = |spec: &str| Projection::parse_stage(&json(spec), &environment);
    let document = json("{_id: 1, a: [1, 2], b: 3}");
    for (spec, expected) in [
        ("{a: {$slice: ['$a', 1]}}", "{_id: 1, a: [1]}"),
        ("{b: 0}", "{_id: 1, a: [1, 2]}"),
        ("{_id: 0, c: '$b'}", "{c: 3}"),
    ] {
        assert_eq!(
            stage(spec).unwrap().apply(&document).unwrap(),
            json(expected),
            "{spec}"
        );
    }
    for (spec, code) in [
        ("{}", 51272),
        ("{'a.$': 1}", 31324),
        ("{a: {$elemMatch: {b: 1}}}", 168),
        ("{a: {$slice: 1}}", 28667),
        ("{a: 1, b: 0}", 31254),
    ] {
        assert_eq!(stage(spec).unwrap_err().code().code(), code, "{spec}");
    }
}

#[test]
fn many_fields() {
    let names: Vec<String> = (0..100).map(|number| format!("f{number}: 1")).collect();
    let text = format!("{{{}}}", names.join(", "));
    let mut document = json(&text);
    document.push("other", 1);
    let projected = Projection::parse(&json(&text))
        .unwrap()
        .apply(&document)
        .unwrap();
    assert_eq!(projected, json(&text));
}

#[test]
fn required_fields() {
    for (spec, expected) in [
        ("{a: 1, 'b.c': 1}", Some(&["a", "b.c", "_id"][..])),
        ("{a: 1, _id: 0}", Some(&["a"])),
        ("{a: {$slice: 1}, _id: 1}", Some(&["a", "_id"])),
        ("{a: 0}", None),
        ("{b: {$add: ['$a', '$c.d']}, _id: 0}", Some(&["a", "c.d"])),
        ("{b: '$$ROOT'}", None),
        ("{}", None),
        ("{'a.$': 1}", None),
    ] {
        let projection = Projection::parse_with(&json(spec), &Environment::default()).unwrap();
        assert_eq!(
            projection.needed_paths().as_deref(),
            expected
                .map(|paths| { paths.iter().map(ToString::to_string).collect::<Vec<_>>() })
                .as_deref(),
            "{spec}"
        );
    }
    assert!(Projection::parse(&json("{}")).unwrap().is_identity());
    assert!(
        Projection::parse(&json("{_id: 1, a: {$slice: 1}}"))
            .unwrap()
            .is_inclusion()
    );
}
