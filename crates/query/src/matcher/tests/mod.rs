//! Tables of filters, the documents that pass and those that do not, and the errors.

#![allow(clippy::unwrap_used)]

mod arrays;
mod not_utf8;
mod values;

use super::*;
use crate::testing::json;

/// Filters, each with documents that pass and documents that do not.
type Cases<'a> = &'a [(&'a str, &'a [&'a str], &'a [&'a str])];

fn check(cases: Cases<'_>) {
    for (filter, passing, failing) in cases {
        let parsed = Filter::parse(&json(filter)).unwrap_or_else(|e| panic!("{filter}: {e}"));
        for (documents, expected) in [(passing, true), (failing, false)] {
            for document in *documents {
                let got = parsed.try_matches(&json(document)).unwrap();
                assert_eq!(got, expected, "{filter} on {document}");
                assert_eq!(
                    parsed.matches(&json(document)),
                    expected,
                    "{filter} on {document}"
                );
            }
        }
    }
}

fn refuse(cases: &[(&str, i32, &str)]) {
    for (filter, code, message) in cases {
        let error = Filter::parse(&json(filter))
            .err()
            .unwrap_or_else(|| panic!("{filter} parsed"));
        assert_eq!(
            (error.code().code(), error.message()),
            (*code, *message),
            "{filter}"
        );
    }
}

#[test]
fn logical_operators() {
    check(&[
        (
            "{$and: [{a: 1}, {b: 2}]}",
            &["{a: 1, b: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        (
            "{$or: [{a: 1}, {b: 2}]}",
            &["{a: 1}", "{b: 2}"],
            &["{}", "{a: 2}"],
        ),
        ("{$or: [{a: 1}]}", &["{a: 1}"], &["{a: 2}"]),
        (
            "{$nor: [{a: 1}, {b: 2}]}",
            &["{}", "{a: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        ("{$and: [{}]}", &["{}"], &[]),
        (
            "{a: 1, $or: [{b: 1}, {b: 2}]}",
            &["{a: 1, b: 2}"],
            &["{a: 1}", "{b: 2}"],
        ),
        (
            "{a: {$not: {$gt: 5}}}",
            &["{a: 5}", "{}", "{a: 'x'}"],
            &["{a: 6}", "{a: [1, 6]}"],
        ),
        (
            "{a: {$not: /x/}}",
            &["{a: 'y'}", "{}", "{a: 1}"],
            &["{a: 'x'}"],
        ),
        ("{a: {$not: {$regex: 'x'}}}", &["{a: 'y'}"], &["{a: 'x'}"]),
        (
            "{a: {$not: {$gt: 5, $lt: 9}}}",
            &["{a: 5}", "{a: 9}"],
            &["{a: 7}"],
        ),
        (
            "{a: {$not: {$not: {$gt: 5}}}}",
            &["{a: 6}"],
            &["{a: 5}", "{}"],
        ),
        ("{a: 1, $comment: 'why'}", &["{a: 1}"], &["{a: 2}"]),
        ("{$alwaysTrue: 1}", &["{}"], &[]),
        ("{$alwaysFalse: 1}", &[], &["{}"]),
    ]);
    refuse(&[
        ("{$and: {a: 1}}", 2, "$and must be an array"),
        ("{$or: 1}", 2, "$or must be an array"),
        ("{$nor: []}", 2, "$and/$or/$nor must be a nonempty array"),
        (
            "{$or: [1]}",
            2,
            "$or/$and/$nor entries need to be full objects",
        ),
        ("{a: {$not: 1}}", 2, "$not needs a regex or a document"),
        ("{a: {$not: {}}}", 2, "$not cannot be empty"),
        ("{a: {$not: {b: 1}}}", 2, "unknown operator: b"),
        (
            "{$alwaysTrue: 2}",
            9,
            "$alwaysTrue must be an integer value of 1",
        ),
        (
            "{$alwaysFalse: 'x'}",
            9,
            "$alwaysFalse must be an integer value of 1",
        ),
    ]);
}

#[test]
fn regular_expressions() {
    check(&[
        (
            "{a: /^x/}",
            &[
                "{a: 'xy'}",
                "{a: ['a', 'x']}",
                "{a: Symbol('x')}",
                "{a: /^x/}",
            ],
            &["{a: 'yx'}", "{a: 1}", "{}", "{a: /^x/i}"],
        ),
        ("{a: /X/i}", &["{a: 'axb'}"], &["{a: 'y'}"]),
        ("{a: {$regex: 'x'}}", &["{a: 'x'}"], &["{a: 'X'}"]),
        (
            "{a: {$regex: 'x', $options: 'i'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        (
            "{a: {$options: 'i', $regex: 'x'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        (
            "{a: {$regex: /x/, $options: 'i'}}",
            &["{a: 'X'}"],
            &["{a: 'y'}"],
        ),
        ("{a: {$regex: /x/i}}", &["{a: 'X'}"], &["{a: 'y'}"]),
        (
            "{a: {$regex: 'x', $ne: 'xx'}}",
            &["{a: 'x'}"],
            &["{a: 'xx'}"],
        ),
    ]);
    refuse(&[
        ("{a: {$regex: 1}}", 2, "$regex has to be a string"),
        (
            "{a: {$regex: 'x', $options: 1}}",
            2,
            "$options has to be a string",
        ),
        ("{a: {$options: 'i'}}", 2, "$options needs a $regex"),
        (
            "{a: {$regex: 'x', $options: 'g'}}",
            51108,
            "invalid flag in regex options: g",
        ),
        (
            "{a: {$regex: /x/i, $options: 'm'}}",
            51075,
            "options set in both $regex and $options",
        ),
        (
            "{a: {$regex: 'a\\0b'}}",
            2,
            "Regular expression cannot contain an embedded null byte",
        ),
    ]);
    let error = Filter::parse(&json("{a: {$regex: '('}}")).unwrap_err();
    assert_eq!(error.code().code(), 51091);
    assert!(
        error
            .message()
            .starts_with("Regular expression is invalid: "),
        "{error}"
    );
}

#[test]
fn a_regular_expression_that_runs_away_is_an_error() {
    let filter = Filter::parse(&json("{a: /^(?=(a+)+)(a|a)*\\1b/}")).unwrap();
    let mut doc = frond_bson::DocBuf::new();
    doc.push("a", &("a".repeat(64) + "xb"));
    assert_eq!(
        filter.try_matches(&doc).unwrap_err().code().code(),
        5_073_414
    );
    assert!(!filter.matches(&doc));
}

#[test]
fn expressions() {
    let variables = json("{least: 3}");
    let environment = Environment {
        variables: Some(&variables),
        now_ms: 1_000,
        ..Environment::default()
    };
    for (filter, passing, failing) in [
        (
            "{$expr: {$gt: ['$a', '$b']}}",
            "{a: 2, b: 1}",
            "{a: 1, b: 2}",
        ),
        ("{$expr: {$gte: ['$a', '$$least']}}", "{a: 3}", "{a: 2}"),
        (
            "{b: 1, $expr: {$eq: ['$a', 1]}}",
            "{a: 1, b: 1}",
            "{a: 1, b: 2}",
        ),
        ("{$or: [{b: 1}, {$expr: '$a'}]}", "{a: true}", "{a: 0}"),
        ("{$nor: [{$expr: '$a'}]}", "{a: null}", "{a: 1}"),
        (
            "{$expr: {$lt: ['$a', '$$NOW']}}",
            "{a: Date(999)}",
            "{a: Date(1001)}",
        ),
    ] {
        let parsed = Filter::parse_with(&json(filter), &environment).unwrap();
        assert!(
            parsed.try_matches(&json(passing)).unwrap(),
            "{filter} on {passing}"
        );
        assert!(
            !parsed.try_matches(&json(failing)).unwrap(),
            "{filter} on {failing}"
        );
    }
    for (filter, code) in [
        ("{$expr: {$foo: 1}}", 168),
        ("{$expr: '$$unknown'}", 17276),
        ("{a: {$elemMatch: {$expr: true}}}", 2),
        ("{a: {$elemMatch: {b: 1, $expr: true}}}", 2),
    ] {
        let error = Filter::parse_with(&json(filter), &environment).unwrap_err();
        assert_eq!(error.code().code(), code, "{filter}: {error}");
    }
    let failing = Filter::parse_with(&json("{$expr: {$divide: [1, '$a']}}"), &environment).unwrap();
    assert!(failing.try_matches(&json("{a: 0}")).is_err());
    assert!(failing.try_matches(&json("{a: 1}")).unwrap());
    refuse(&[("{$expr: true}", 224, "$expr is not allowed in this context")]);
}

#[test]
fn unknown_and_unsupported_operators() {
    refuse(&[
        ("{a: {$foo: 1}}", 2, "unknown operator: $foo"),
        ("{a: {$and: [{}]}}", 2, "unknown operator: $and"),
        ("{a: {$gt: 1, b: 2}}", 2, "unknown operator: b"),
        (
            "{a: {$where: 'x'}}",
            2,
            "$where cannot be applied to a field",
        ),
        (
            "{$foo: 1}",
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' \
             symbol, consider using $getField or $setField.",
        ),
        (
            "{$or: [{$gt: 1}]}",
            2,
            "unknown top level operator: $gt. If you have a field name that starts with a '$' \
             symbol, consider using $getField or $setField.",
        ),
        ("{$where: 'x'}", 2, "$where is not allowed in this context"),
        (
            "{a: {$elemMatch: {$where: 'x'}}}",
            2,
            "$elemMatch cannot contain $where expression",
        ),
    ]);
}

#[test]
fn operators_of_queries_only() {
    let environment = Environment::default();
    for (filter, code, message) in [
        (
            "{$where: 'this.a'}",
            224,
            "server-side JavaScript is not allowed in this context",
        ),
        ("{$where: 5}", 2, "$where got bad type"),
        (
            "{$sampleRate: 'x'}",
            2,
            "argument to $sampleRate must be a numeric type",
        ),
        (
            "{$sampleRate: 1.5}",
            2,
            "numeric argument to $sampleRate must be in [0, 1]",
        ),
        (
            "{a: {$elemMatch: {$text: {$search: 'x'}}}}",
            2,
            "$text can only be applied to the top-level document",
        ),
        (
            "{$nor: [{$text: {$search: 'x'}}]}",
            2,
            "text expression not allowed in nor",
        ),
        (
            "{$or: [{$text: {$search: 'x'}}, {$text: {$search: 'y'}}]}",
            2,
            "Too many text expressions",
        ),
    ] {
        let error = Filter::parse_with(&json(filter), &environment)
            .err()
            .unwrap_or_else(|| panic!("{filter} parsed"));
        assert_eq!(
            (error.code().code(), error.message()),
            (code, message),
            "{filter}"
        );
    }
    let doc = json("{a: 1}");
    for (rate, expected) in [("0", 0..=0), ("1", 1000..=1000), ("0.5", 350..=650)] {
        let filter = json(&format!("{{$sampleRate: {rate}}}"));
        let filter = Filter::parse_with(&filter, &environment).unwrap();
        let passed = (0..1000).filter(|_| filter.matches(&doc)).count();
        assert!(expected.contains(&passed), "{rate}: {passed}");
    }
    let unbound = Filter::parse_with(&json("{$text: {$search: 'x'}}"), &environment).unwrap();
    assert_eq!(unbound.try_matches(&doc).unwrap_err().code().code(), 27);
}

#[test]
fn fields_of_references_are_fields() {
    for (filter, passing) in [
        ("{'r.$id': 1}", "{r: {$ref: 'c', $id: 1}}"),
        ("{r: {$elemMatch: {$id: 1}}}", "{r: [{$ref: 'c', $id: 1}]}"),
        ("{$id: 1}", "{$id: 1}"),
        (
            "{r: {$in: [{$ref: 'c', $id: 1}]}}",
            "{r: {$ref: 'c', $id: 1}}",
        ),
    ] {
        let parsed = Filter::parse(&json(filter)).unwrap();
        assert!(parsed.matches(&json(passing)), "{filter}");
        assert!(!parsed.matches(&json("{}")), "{filter}");
    }
}

#[test]
fn nesting_is_bounded() {
    fn nested(depth: usize) -> frond_bson::DocBuf {
        (0..depth).fold(json("{a: 1}"), |inner, _| {
            let mut outer = frond_bson::DocBuf::new();
            outer.push_array("$and", |clauses| clauses.push(&inner));
            outer
        })
    }
    assert!(
        Filter::parse(&nested(150))
            .unwrap()
            .matches(&json("{a: 1}"))
    );
    let error = Filter::parse(&nested(250)).unwrap_err();
    assert_eq!(error.code().code(), 15);
}

#[test]
fn conjunctions_are_flat() {
    for (filter, count) in [
        ("{$and: [{a: 1, b: 2}, {$and: [{c: 3}, {d: 4}]}], e: 5}", 5),
        ("{$and: [{}, {$and: [{}]}]}", 0),
        ("{a: {$gt: 1, $lt: 2}, b: {$all: [1, 2]}}", 4),
    ] {
        let parsed = Filter::parse(&json(filter)).unwrap();
        let Expr::And(children) = parsed.predicates() else {
            panic!("{filter}")
        };
        assert_eq!(children.len(), count, "{filter}");
        assert!(
            !children.iter().any(|child| matches!(child, Expr::And(_))),
            "{filter}"
        );
    }
}

#[test]
fn equalities_are_found() {
    for (filter, path, expected) in [
        ("{_id: 5}", "_id", Some("5")),
        ("{_id: {$eq: 'x'}, a: 1}", "_id", Some("\"x\"")),
        (
            "{$and: [{a: 1}, {$and: [{_id: 7}, {b: 1}]}]}",
            "_id",
            Some("7"),
        ),
        ("{_id: {$gt: 5}}", "_id", None),
        ("{$or: [{_id: 5}, {_id: 6}]}", "_id", None),
        ("{_id: {$ne: 5}}", "_id", None),
        ("{_id: /x/}", "_id", None),
    ] {
        let parsed = Filter::parse(&json(filter)).unwrap();
        let found = parsed
            .equality(path)
            .map(|value| crate::testing::show(&value));
        assert_eq!(found.as_deref(), expected, "{filter}");
    }
    assert!(Filter::all().is_empty() && !Filter::parse(&json("{a: 1}")).unwrap().is_empty());
}
