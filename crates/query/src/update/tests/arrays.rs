//! Operators on arrays, and positional paths.

use super::*;

#[test]
fn set_on_arrays() {
    check(&[
        (
            "{_id: 1, a: [1, 2]}",
            "{$set: {'a.1': 5}}",
            "{_id: 1, a: [1, 5]}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.3': 5}}",
            "{_id: 1, a: [1, null, null, 5]}",
        ),
        (
            "{_id: 1, a: [{b: 1}, {b: 2}], z: 1}",
            "{$set: {'a.0.b': 5, 'a.1.c': 6, 'a.2.d': 7}}",
            "{_id: 1, a: [{b: 5}, {b: 2, c: 6}, {d: 7}], z: 1}",
        ),
        (
            "{_id: 1, a: [[1, 2], [3]]}",
            "{$set: {'a.1.0': 9, 'a.0.1': 8}}",
            "{_id: 1, a: [[1, 8], [9]]}",
        ),
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$unset: {'a.1': 1, 'a.7': 1}}",
            "{_id: 1, a: [1, null, 3]}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.b': 1}}",
            28,
            "Cannot create field 'b' in element {a: [ 1 ]}",
        ),
        ("{_id: 1, a: [1]}", "{$set: {'a.01': 1}}", 28, "'01'"),
        (
            "{_id: 1, a: []}",
            "{$set: {'a.2000000': 1}}",
            34,
            "backfill",
        ),
    ]);
}

#[test]
fn push_appends_and_arranges() {
    check(&[
        ("{_id: 1}", "{$push: {a: 1}}", "{_id: 1, a: [1]}"),
        (
            "{_id: 1, a: [1], b: 1}",
            "{$push: {a: [2]}}",
            "{_id: 1, a: [1, [2]], b: 1}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$push: {a: {$each: [2, 3]}}}",
            "{_id: 1, a: [1, 2, 3]}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$push: {a: {x: 1}}}",
            "{_id: 1, a: [1, {x: 1}]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [9], $position: 0}}}",
            "{_id: 1, a: [9, 1, 2]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [9], $position: -1}}}",
            "{_id: 1, a: [1, 9, 2]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [9], $position: 50}}}",
            "{_id: 1, a: [1, 2, 9]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [9], $position: -50}}}",
            "{_id: 1, a: [9, 1, 2]}",
        ),
        (
            "{_id: 1, a: [3, 1]}",
            "{$push: {a: {$each: [2], $sort: 1}}}",
            "{_id: 1, a: [1, 2, 3]}",
        ),
        (
            "{_id: 1, a: [3, 1]}",
            "{$push: {a: {$each: [2], $sort: -1, $slice: 2}}}",
            "{_id: 1, a: [3, 2]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [3], $slice: -2}}}",
            "{_id: 1, a: [2, 3]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$push: {a: {$each: [3], $slice: 0}}}",
            "{_id: 1, a: []}",
        ),
        (
            "{_id: 1, a: [{n: {m: 2}, k: 1}, 5, {n: {m: 1}}]}",
            "{$push: {a: {$each: [{n: {m: 3}}], $sort: {'n.m': -1}}}}",
            "{_id: 1, a: [{n: {m: 3}}, {n: {m: 2}, k: 1}, {n: {m: 1}}, 5]}",
        ),
        (
            "{_id: 1, a: [{x: 1, y: 1}, {x: 0, y: 2}, {x: 1, y: 3}]}",
            "{$push: {a: {$each: [], $sort: {x: 1, y: -1}}}}",
            "{_id: 1, a: [{x: 0, y: 2}, {x: 1, y: 3}, {x: 1, y: 1}]}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: 5}",
            "{$push: {a: 1}}",
            2,
            "The field 'a' must be an array but is of type int in document {_id: 1}",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: 1}}}",
            2,
            "must be an array but it was of type: int",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $foo: 1}}}",
            2,
            "Unrecognized clause in $push: $foo",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $slice: 'x'}}}",
            2,
            "$slice must be an integer",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $position: 1.5}}}",
            2,
            "$position must be an integer",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $sort: 2}}}",
            2,
            "either 1 or -1",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $sort: {}}}}",
            2,
            "empty",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $sort: {'x.': 1}}}}",
            2,
            "empty part",
        ),
        (
            "{_id: 1}",
            "{$push: {a: {$each: [], $sort: 'x'}}}",
            2,
            "$sort is invalid",
        ),
    ]);
}

#[test]
fn pull_removes_matching_elements() {
    check(&[
        (
            "{_id: 1, a: [1, 2, 1, 3]}",
            "{$pull: {a: 1}}",
            "{_id: 1, a: [2, 3]}",
        ),
        (
            "{_id: 1, a: [1, 2.0, 3]}",
            "{$pull: {a: 2}}",
            "{_id: 1, a: [1, 3]}",
        ),
        (
            "{_id: 1, a: [1, 5, 9]}",
            "{$pull: {a: {$gte: 5}}}",
            "{_id: 1, a: [1]}",
        ),
        (
            "{_id: 1, a: ['x', 'ay']}",
            "{$pull: {a: /y/}}",
            "{_id: 1, a: ['x']}",
        ),
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$pull: {a: {$in: [1, 3]}}}",
            "{_id: 1, a: [2]}",
        ),
        (
            "{_id: 1, a: [{x: 1, y: 2}, {x: 2}, 1]}",
            "{$pull: {a: {x: 1}}}",
            "{_id: 1, a: [{x: 2}, 1]}",
        ),
        (
            "{_id: 1, a: [{x: 1}, {x: 5}]}",
            "{$pull: {a: {x: {$gt: 3}}}}",
            "{_id: 1, a: [{x: 1}]}",
        ),
        (
            "{_id: 1, a: [{x: 1}, {y: 1}, {z: 1}]}",
            "{$pull: {a: {$or: [{x: 1}, {y: 1}]}}}",
            "{_id: 1, a: [{z: 1}]}",
        ),
        (
            "{_id: 1, a: [1, null, 2]}",
            "{$pull: {a: null}}",
            "{_id: 1, a: [1, 2]}",
        ),
        (
            "{_id: 1, a: [[1], 1]}",
            "{$pull: {a: [1]}}",
            "{_id: 1, a: [1]}",
        ),
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$pullAll: {a: [1, 3, 7]}}",
            "{_id: 1, a: [2]}",
        ),
        (
            "{_id: 1, a: [{x: 1, y: 1}, {x: 1}]}",
            "{$pullAll: {a: [{x: 1}]}}",
            "{_id: 1, a: [{x: 1, y: 1}]}",
        ),
        ("{_id: 1}", "{$pull: {a: 1}}", "{_id: 1}"),
        (
            "{_id: 1, a: [[1, 2], [3]]}",
            "{$pull: {'a.0': 1}}",
            "{_id: 1, a: [[2], [3]]}",
        ),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: 1}",
            "{$pull: {a: 1}}",
            2,
            "Cannot apply $pull to a non-array value",
        ),
        (
            "{_id: 1, a: 1}",
            "{$pullAll: {a: [1]}}",
            2,
            "Cannot apply $pullAll to a non-array value",
        ),
        (
            "{_id: 1}",
            "{$pullAll: {a: 1}}",
            2,
            "$pullAll requires an array argument but was given a int",
        ),
        (
            "{_id: 1}",
            "{$pull: {a: {$foo: 1}}}",
            2,
            "unknown operator: $foo",
        ),
    ]);
}

#[test]
fn add_to_set_and_pop() {
    check(&[
        ("{_id: 1}", "{$addToSet: {a: 1}}", "{_id: 1, a: [1]}"),
        (
            "{_id: 1, a: [1]}",
            "{$addToSet: {a: 2}}",
            "{_id: 1, a: [1, 2]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$addToSet: {a: {$each: [2, 3, 3, 4]}}}",
            "{_id: 1, a: [1, 2, 3, 4]}",
        ),
        (
            "{_id: 1, a: [{x: 1, y: 2}]}",
            "{$addToSet: {a: {y: 2, x: 1}}}",
            "{_id: 1, a: [{x: 1, y: 2}, {y: 2, x: 1}]}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$addToSet: {a: [1]}}",
            "{_id: 1, a: [1, [1]]}",
        ),
        (
            "{_id: 1}",
            "{$addToSet: {a: {$each: []}}}",
            "{_id: 1, a: []}",
        ),
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$pop: {a: 1}}",
            "{_id: 1, a: [1, 2]}",
        ),
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$pop: {a: -1}}",
            "{_id: 1, a: [2, 3]}",
        ),
        (
            "{_id: 1, a: {b: [1]}}",
            "{$pop: {'a.b': 1}}",
            "{_id: 1, a: {b: []}}",
        ),
        ("{_id: 1}", "{$pop: {a: 1}}", "{_id: 1}"),
    ]);
    check_errors(&[
        (
            "{_id: 1, a: 1}",
            "{$addToSet: {a: 1}}",
            2,
            "Field named 'a' has non-array type int",
        ),
        (
            "{_id: 1}",
            "{$addToSet: {a: {$each: 1}}}",
            14,
            "must be an array but it was of type int",
        ),
        (
            "{_id: 1}",
            "{$addToSet: {a: {$each: [], $slice: 1}}}",
            2,
            "unexpected fields after $each",
        ),
        (
            "{_id: 1, a: 1}",
            "{$pop: {a: 1}}",
            14,
            "Path 'a' contains an element of non-array type 'int'",
        ),
        (
            "{_id: 1}",
            "{$pop: {a: 2}}",
            9,
            "$pop expects 1 or -1, found: 2",
        ),
        (
            "{_id: 1}",
            "{$pop: {a: 'x'}}",
            9,
            "Expected a number in: a: \"x\"",
        ),
        (
            "{_id: 1}",
            "{$pop: {a: 1.5}}",
            9,
            "Expected an integer: a: 1.5",
        ),
    ]);
}

#[test]
fn positional_operators() {
    for (doc, update, filters, positional, expected) in [
        (
            "{_id: 1, a: [1, 2, 3]}",
            "{$set: {'a.$': 9}}",
            "[]",
            Some(1),
            "{_id: 1, a: [1, 9, 3]}",
        ),
        (
            "{_id: 1, a: [{b: 1}, {b: 2}]}",
            "{$inc: {'a.$.b': 5, 'a.0.b': 1}}",
            "[]",
            Some(1),
            "{_id: 1, a: [{b: 2}, {b: 7}]}",
        ),
        (
            "{_id: 1, a: [{b: 1}]}",
            "{$set: {'a.$.b': 5, 'a.0.c': 1}}",
            "[]",
            Some(0),
            "{_id: 1, a: [{b: 5, c: 1}]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$inc: {'a.$[]': 1}}",
            "[]",
            None,
            "{_id: 1, a: [2, 3]}",
        ),
        (
            "{_id: 1, a: []}",
            "{$inc: {'a.$[]': 1}}",
            "[]",
            None,
            "{_id: 1, a: []}",
        ),
        (
            "{_id: 1, a: [1, 5, 9], z: 1}",
            "{$set: {'a.$[e]': 0}}",
            "[{e: {$gte: 5}}]",
            None,
            "{_id: 1, a: [1, 0, 0], z: 1}",
        ),
        (
            "{_id: 1, a: [{k: 'x', v: [1, 2]}, {k: 'y', v: [3, 4]}]}",
            "{$inc: {'a.$[e].v.$[n]': 10}}",
            "[{'e.k': 'y'}, {n: {$gt: 3}}]",
            None,
            "{_id: 1, a: [{k: 'x', v: [1, 2]}, {k: 'y', v: [3, 14]}]}",
        ),
        (
            "{_id: 1, a: [{k: 1}, {k: 2}]}",
            "{$set: {'a.$[x].m': 1, 'a.$[y].n': 2}}",
            "[{'x.k': {$gte: 1}}, {'y.k': 2}]",
            None,
            "{_id: 1, a: [{k: 1, m: 1}, {k: 2, m: 1, n: 2}]}",
        ),
        (
            "{_id: 1, a: [1, 2]}",
            "{$unset: {'a.$[]': 1}}",
            "[]",
            None,
            "{_id: 1, a: [null, null]}",
        ),
        (
            "{_id: 1, a: [{b: 1}, {c: 1}]}",
            "{$set: {'a.$[e].d': 1}}",
            "[{$or: [{'e.b': 1}, {'e.c': 7}]}]",
            None,
            "{_id: 1, a: [{b: 1, d: 1}, {c: 1}]}",
        ),
    ] {
        let filters = json(&format!("{{f: {filters}}}"));
        let filters: Vec<&Doc> = filters
            .get_array("f")
            .unwrap()
            .values()
            .map(|v| v.as_doc().unwrap())
            .collect();
        let context = ApplyContext {
            positional,
            ..context()
        };
        let update = Update::parse(&json(update), &filters).unwrap();
        let applied = update.apply(&json(doc), &context).unwrap();
        assert_eq!(applied.doc, json(expected), "{doc} {update:?}");
        assert_eq!(update.needs_positional(), positional.is_some());
    }
}

#[test]
fn a_scalar_in_the_way_of_removed_elements_is_an_error() {
    let blocked = |part: &str, path: &str, element: &str| {
        format!("Cannot use the part ({part}) of ({path}) to traverse the element ({element})")
    };
    check_errors(&[
        (
            "{_id: 1, a: 'x'}",
            "{$pop: {'a.b': 1}}",
            28,
            &blocked("b", "a.b", "{a: \"x\"}"),
        ),
        (
            "{_id: 1, a: null}",
            "{$pull: {'a.b.c': 1}}",
            28,
            &blocked("b", "a.b.c", "{a: null}"),
        ),
        (
            "{_id: 1, a: {b: 1}}",
            "{$pullAll: {'a.b.0': [1]}}",
            28,
            &blocked("0", "a.b.0", "{b: 1}"),
        ),
        (
            "{_id: 1, a: [1]}",
            "{$pull: {'a.b': 1}}",
            28,
            &blocked("b", "a.b", "{a: [ 1 ]}"),
        ),
        (
            "{_id: 1, a: [1]}",
            "{$pull: {'a.0.b': 1}}",
            28,
            &blocked("b", "a.0.b", "{0: 1}"),
        ),
    ]);
    check(&[
        (
            "{_id: 1, a: 'x'}",
            "{$unset: {'a.b': 1}}",
            "{_id: 1, a: 'x'}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$unset: {'a.b': 1}}",
            "{_id: 1, a: [1]}",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$pull: {'a.7.b': 1}}",
            "{_id: 1, a: [1]}",
        ),
        ("{_id: 1, a: {}}", "{$pop: {'a.b.c': 1}}", "{_id: 1, a: {}}"),
    ]);
}

#[test]
fn positional_errors() {
    check_errors(&[
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.$': 1}}",
            2,
            "The positional operator did not find the match needed from the query.",
        ),
        (
            "{_id: 1}",
            "{$pull: {'a.$': 1}}",
            2,
            "The positional operator did not find the match needed from the query.",
        ),
        (
            "{_id: 1, a: 1}",
            "{$unset: {'a.$.b': 1}}",
            2,
            "The positional operator did not find the match needed from the query.",
        ),
        (
            "{_id: 1}",
            "{$set: {'a.$[]': 1}}",
            2,
            "The path 'a' must exist in the document in order to apply array updates.",
        ),
        (
            "{_id: 1, a: {}}",
            "{$set: {'a.b.$[]': 1}}",
            2,
            "The path 'a.b' must exist",
        ),
        (
            "{_id: 1, a: 1}",
            "{$set: {'a.$[]': 1}}",
            2,
            "Cannot apply array updates to non-array element a: 1",
        ),
        (
            "{_id: 1, a: [1]}",
            "{$set: {'a.$[e]': 1}}",
            2,
            "No array filter found for identifier 'e' in path 'a.$[e]'",
        ),
    ]);
    for (update, filters, code, message) in [
        (
            "{$set: {a: 1}}",
            "[{e: 1}]",
            9,
            "The array filter for identifier 'e' was not used in the update { $set: { a: 1 } }",
        ),
        (
            "{$set: {'a.$[e]': 1}}",
            "[{e: 1}, {e: 2}]",
            9,
            "same top-level field name e",
        ),
        (
            "{$set: {'a.$[e]': 1}}",
            "[{}]",
            9,
            "without a top-level field name",
        ),
        (
            "{$set: {'a.$[e]': 1}}",
            "[{e: 1, f: 1}]",
            9,
            "Expected a single top-level field name, found 'e' and 'f'",
        ),
        (
            "{$set: {'a.$[E]': 1}}",
            "[{E: 1}]",
            2,
            "beginning with a lowercase letter",
        ),
        ("{a: 1}", "[{e: 1}]", 9, "replacement"),
    ] {
        let filters = json(&format!("{{f: {filters}}}"));
        let filters: Vec<&Doc> = filters
            .get_array("f")
            .unwrap()
            .values()
            .map(|v| v.as_doc().unwrap())
            .collect();
        let error = Update::parse(&json(update), &filters).unwrap_err();
        assert_eq!(error.code().code(), code, "{update}: {error}");
        assert!(error.message().contains(message), "{update}: {error}");
    }
    // Two identifiers that take one element must not change the same value.
    let filters = json("{f: [{x: 1}, {y: 1}]}");
    let filters: Vec<&Doc> = filters
        .get_array("f")
        .unwrap()
        .values()
        .map(|v| v.as_doc().unwrap())
        .collect();
    let update = Update::parse(&json("{$set: {'a.$[x]': 2, 'a.$[y]': 3}}"), &filters).unwrap();
    let error = update
        .apply(&json("{_id: 1, a: [1]}"), &context())
        .unwrap_err();
    assert_eq!(error.code().code(), 40);
    assert_eq!(error.message(), "Update created a conflict at 'a.0'");
}
