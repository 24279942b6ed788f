//! Paths, variables, literals, conditions, comparison.

use super::*;

const DOC: &str = "{_id: 1, a: {b: {c: 5}}, n: null, l: [{x: 1, y: [{z: 1}, {z: 2}]}, 7, {x: 2}, {w: 3}, [{x: 9}]], s: 'text', t: true}";

/// Surroundings with these variables.
fn with(variables: &Doc) -> Environment<'_> {
    Environment {
        variables: Some(variables),
        ..Environment::default()
    }
}

#[test]
fn paths_follow_documents_and_map_arrays() {
    check(
        DOC,
        &[
            ("'$_id'", "1"),
            ("'$a.b.c'", "5"),
            ("'$a.b.x'", "<missing>"),
            ("'$s.b'", "<missing>"),
            ("'$n'", "null"),
            // Of the names that begin with a dollar sign, those of a DBRef are fields.
            ("'$s.$ref'", "<missing>"),
            (
                "{$let: {vars: {d: {$literal: {$id: 5}}}, in: '$$d.$id'}}",
                "5",
            ),
            ("'$l.x'", "[1, 2]"),
            ("'$l.y.z'", "[[1, 2]]"),
            ("'$l.0'", "[]"),
            ("'$$ROOT.a.b'", "{c: 5}"),
            ("'$$CURRENT.s'", "'text'"),
            ("'$$REMOVE'", "<missing>"),
            ("'$$NOW'", "Date(1700000000000)"),
            ("'plain'", "'plain'"),
            ("{$literal: '$a'}", "'$a'"),
            (
                "{x: '$a.b.c', y: '$none', z: {w: [1, '$none']}}",
                "{x: 5, z: {w: [1, null]}}",
            ),
            ("{}", "{}"),
            ("[1, '$s']", "[1, 'text']"),
        ],
    );
    check_errors(
        DOC,
        &[
            ("'$'", 16872, "by itself is not a valid FieldPath"),
            ("'$a.'", 40353, "must not end with a '.'"),
            ("'$a..b'", 15998, "empty"),
            ("'$a.$b'", 16410, "$getField"),
            ("'$$x'", 17276, "Use of undefined variable: x"),
            ("{$foo: 1}", 168, "Unrecognized expression '$foo'"),
            ("{$function: {}}", 31261, "body"),
            ("{$add: 1, b: 2}", 15983, "exactly one field"),
            ("{'a.b': 1}", 16412, "'.'"),
            ("{a: 1, $add: 1}", 16410, "$add"),
            (
                "{$abs: [1, 2]}",
                16020,
                "Expression $abs takes exactly 1 arguments. 2 were passed in.",
            ),
            (
                "{$range: [1]}",
                28667,
                "Expression $range takes at least 2 arguments, and at most 3, but 1 were passed in.",
            ),
        ],
    );
}

#[test]
fn variables_are_bound_and_shadowed() {
    check(
        DOC,
        &[
            (
                "{$let: {vars: {x: 5, y: '$a.b.c'}, in: {$add: ['$$x', '$$y']}}}",
                "10",
            ),
            ("{$let: {vars: {x: '$a'}, in: '$$x.b.c'}}", "5"),
            (
                "{$let: {vars: {x: 1}, in: {$let: {vars: {x: {$add: ['$$x', 1]}, y: '$$x'}, in: ['$$x', '$$y']}}}}",
                "[2, 1]",
            ),
            ("{$let: {vars: {x: '$none'}, in: '$$x'}}", "<missing>"),
            ("{$let: {vars: {}, in: 3}}", "3"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$let: {vars: {X: 1}, in: 1}}",
                9,
                "'X' starts with an invalid character",
            ),
            ("{$let: {vars: {x: 1, y: '$$x'}, in: 1}}", 17276, "x"),
            ("{$let: {in: 1}}", 16876, "vars"),
            ("{$let: {vars: {}}}", 16877, "in"),
            ("{$let: {vars: {}, in: 1, z: 1}}", 16875, "z"),
            ("{$let: 1}", 16874, "object"),
        ],
    );
    let constants = json("{k: {v: 4}}");
    let parse = |text: &str| Expr::parse(&value(text).as_value(), &with(&constants));
    let doc = json("{}");
    let result = parse("{$add: ['$$k.v', 1]}")
        .unwrap()
        .eval_owned(&doc, NOW)
        .unwrap();
    assert_eq!(result, Some(5.into()));
    assert!(parse("'$$other'").is_err());
}

#[test]
fn conditions() {
    check(
        DOC,
        &[
            ("{$cond: ['$t', 1, 2]}", "1"),
            (
                "{$cond: {if: {$gt: ['$a.b.c', 7]}, then: 1, else: {$literal: 'no'}}}",
                "'no'",
            ),
            ("{$cond: ['$n', 1, '$none']}", "<missing>"),
            ("{$ifNull: ['$none', '$n', 'd']}", "'d'"),
            ("{$ifNull: ['$s', 'd']}", "'text'"),
            ("{$ifNull: ['$none', '$n']}", "null"),
            (
                "{$switch: {branches: [{case: false, then: 1}, {case: '$t', then: 2}], default: 3}}",
                "2",
            ),
            (
                "{$switch: {branches: [{case: false, then: 1}], default: 3}}",
                "3",
            ),
            // The branch that is not chosen is not evaluated.
            ("{$cond: ['$t', 1, {$divide: [1, 0]}]}", "1"),
            ("{$and: [false, {$divide: [1, 0]}]}", "false"),
            ("{$or: [1, {$divide: [1, 0]}]}", "true"),
            ("{$and: []}", "true"),
            ("{$or: []}", "false"),
            ("{$and: ['$t', 'x', 1]}", "true"),
            ("{$not: ['$none']}", "true"),
            ("{$not: [{$literal: 0.5}]}", "false"),
        ],
    );
    check_errors(
        DOC,
        &[
            ("{$cond: [1, 2]}", 16020, "$cond"),
            ("{$cond: {if: 1, then: 2}}", 17082, "else"),
            ("{$cond: {if: 1, then: 2, else: 3, x: 4}}", 17083, "x"),
            (
                "{$switch: {branches: [{case: false, then: 1}]}}",
                40066,
                "no default",
            ),
            ("{$switch: {branches: []}}", 40068, "at least one branch"),
            ("{$switch: {branches: 1}}", 40061, "array"),
            ("{$switch: {branches: [{case: 1}]}}", 40065, "then"),
            (
                "{$switch: {branches: [{case: 1, then: 1, x: 1}]}}",
                40063,
                "x",
            ),
            ("{$ifNull: [1]}", 28667, "$ifNull"),
        ],
    );
}

#[test]
fn comparison_uses_the_order_of_all_types() {
    check(
        DOC,
        &[
            ("{$cmp: [1, 2]}", "-1"),
            ("{$cmp: ['b', 'a']}", "1"),
            ("{$eq: [1, 1.0]}", "true"),
            ("{$ne: [1, NumberLong(1)]}", "false"),
            ("{$lt: [5, 'a']}", "true"),
            ("{$gt: [{a: 1}, 'a']}", "true"),
            ("{$gte: [[1], [1]]}", "true"),
            ("{$lte: ['$none', null]}", "true"),
            ("{$eq: ['$none', null]}", "false"),
            ("{$eq: ['$none', '$nothing']}", "true"),
            ("{$lt: [null, '$none']}", "false"),
        ],
    );
    check_errors(
        DOC,
        &[(
            "{$eq: [1]}",
            16020,
            "exactly 2 arguments. 1 were passed in.",
        )],
    );
}

#[test]
fn fields_that_are_read_are_known() {
    let expr = Expr::parse(
        &value("{$map: {input: '$l', as: 'e', in: {$add: ['$$e.x', '$a.b', {$switch: {branches: [{case: '$t', then: '$$ROOT'}]}}]}}}").as_value(),
        &Environment::default(),
    )
    .unwrap();
    let mut fields = Vec::new();
    expr.fields(|path| fields.push(path));
    assert_eq!(fields, ["l", "a.b", "t", ""]);
    let field = Expr::parse(&value("'$a.b'").as_value(), &Environment::default()).unwrap();
    assert_eq!(field.as_field().as_deref(), Some("a.b"));
    assert_eq!(
        Expr::parse(&Value::Int32(5), &Environment::default())
            .unwrap()
            .as_constant(),
        Some(Value::Int32(5))
    );
}

#[test]
fn every_operator_has_one_name_of_its_own() {
    let mut names: Vec<&str> = (operators::FAMILIES.iter())
        .flat_map(|family| family.iter().map(|entry| entry.operator.name))
        .collect();
    let count = names.len();
    assert!(count > 140, "{count}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.iter().all(|name| name.starts_with('$')));
}

#[test]
fn variables_of_a_command_are_evaluated_once() {
    let cases = [
        ("{}", "{}"),
        ("{a: 1, b: 'x', c: null}", "{a: 1, b: 'x', c: null}"),
        ("{y: {$literal: 'bar'}}", "{y: 'bar'}"),
        ("{y: {$literal: '$bar'}}", "{y: '$bar'}"),
        (
            "{a: {$add: [1, 2]}, b: [{$multiply: [2, 3]}]}",
            "{a: 3, b: [6]}",
        ),
        ("{a: 2, b: {$add: ['$$a', 1]}}", "{a: 2, b: 3}"),
        (
            "{a: {b: {c: {$concat: ['x', 'y']}}}}",
            "{a: {b: {c: 'xy'}}}",
        ),
        (
            "{a: {$map: {input: [1, 2], in: {$add: ['$$this', 1]}}}}",
            "{a: [2, 3]}",
        ),
    ];
    for (expressions, values) in cases {
        assert_eq!(
            evaluate_variables(&json(expressions), &surroundings()).unwrap(),
            json(values),
            "{expressions}"
        );
    }
    let now = evaluate_variables(&json("{t: '$$NOW', z: '$$REMOVE'}"), &surroundings()).unwrap();
    assert!(matches!(now.get("t"), Some(Value::DateTime(NOW))));
    // A missing value is a missing value where the variable is used.
    let kind = Expr::parse(&value("{$type: '$$z'}").as_value(), &with(&now)).unwrap();
    let kind = kind.eval_owned(Doc::empty(), NOW).unwrap().unwrap();
    assert_eq!(kind.as_value().as_str(), Some("missing"));

    let errors = [
        ("{a: '$x'}", 4_890_500),
        ("{a: '$$ROOT'}", 4_890_500),
        ("{a: {$add: [1, '$x.y']}}", 4_890_500),
        ("{a: '$$b', b: 1}", 17276),
        ("{a: {$nonsense: 1}}", 168),
        ("{A: 1}", 9),
        ("{'a.b': 1}", 9),
        ("{'': 1}", 9),
        ("{$a: 1}", 9),
        ("{a: {$divide: [1, 0]}}", 2),
    ];
    for (expressions, code) in errors {
        let error = evaluate_variables(&json(expressions), &surroundings()).unwrap_err();
        assert_eq!(error.code().code(), code, "{expressions}: {error}");
    }
}

#[test]
fn sizes_random_numbers_and_disabled_operators() {
    check(
        "{s: 'äb', d: {a: 1}}",
        &[
            ("{$binarySize: '$s'}", "3"),
            ("{$binarySize: BinData(0, '0102')}", "2"),
            ("{$binarySize: '$none'}", "null"),
            ("{$bsonSize: '$d'}", "12"),
            ("{$bsonSize: null}", "null"),
            (
                "{$and: [{$gte: [{$rand: {}}, 0]}, {$lt: [{$rand: []}, 1]}]}",
                "true",
            ),
            ("'$$USER_ROLES'", "[]"),
            ("{$let: {vars: {CURRENT: '$d'}, in: '$a'}}", "1"),
        ],
    );
    check_errors(
        "{}",
        &[
            ("{$binarySize: 1}", 51276, "int"),
            ("{$bsonSize: 'x'}", 31393, "string"),
            ("{$rand: 1}", 3040501, "arguments"),
            ("{$function: 5}", 31260, "int"),
            (
                "{$function: {body: '$a', args: [], lang: 'js'}}",
                31432,
                "constant",
            ),
            (
                "{$function: {body: 5, args: [], lang: 'js'}}",
                31262,
                "string or code",
            ),
            ("{$function: {body: 'x', lang: 'js'}}", 31263, "args"),
            ("{$function: {body: 'x', args: []}}", 31418, "lang"),
            (
                "{$function: {body: 'x', args: [], lang: 'c'}}",
                31419,
                "'js'",
            ),
            (
                "{$function: {body: 'x', args: [], lang: 'js'}}",
                224,
                "not allowed",
            ),
            ("'$$CLUSTER_TIME'", 51144, "CLUSTER_TIME"),
        ],
    );
}

fn surroundings() -> Environment<'static> {
    Environment {
        now_ms: NOW,
        ..Environment::default()
    }
}

#[test]
fn the_cluster_time_is_known_in_a_replica_set() {
    let variables = json("{t: Timestamp(7, 2)}");
    let time = match variables.get("t") {
        Some(Value::Timestamp(time)) => time,
        other => panic!("{other:?}"),
    };
    let environment = Environment {
        cluster_time: Some(time),
        ..surroundings()
    };
    for (expression, expected) in [
        ("'$$CLUSTER_TIME'", Some("Timestamp(7, 2)")),
        ("'$$CLUSTER_TIME.t'", None),
        ("{$tsSecond: '$$CLUSTER_TIME'}", Some("NumberLong(7)")),
    ] {
        let expr = Expr::parse(&value(expression).as_value(), &environment).unwrap();
        let result = expr.eval_owned(Doc::empty(), NOW).unwrap();
        let shown = |value: Option<OwnedValue>| value.map(|value| canonical(&value.as_value()));
        assert_eq!(shown(result), shown(expected.map(value)), "{expression}");
    }
    let values = evaluate_variables(&json("{t: '$$CLUSTER_TIME'}"), &environment).unwrap();
    assert_eq!(values, variables);
}
