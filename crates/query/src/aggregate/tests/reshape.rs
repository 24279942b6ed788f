//! `$project`, `$addFields`, `$unset`, `$replaceRoot`.

use super::*;

const INPUT: &str = "[{_id: 1, a: 1, b: {c: 2, d: 3}, l: [{x: 1, y: 2}, 5, {x: 3}], s: 'v'}]";

#[test]
fn inclusion() {
    check(
        INPUT,
        &[
            ("[{$project: {a: 1}}]", "[{_id: 1, a: 1}]"),
            (
                "[{$project: {_id: 0, s: true, a: 1.5}}]",
                "[{a: 1, s: 'v'}]",
            ),
            ("[{$project: {_id: 1}}]", "[{_id: 1}]"),
            ("[{$project: {'b.c': 1}}]", "[{_id: 1, b: {c: 2}}]"),
            ("[{$project: {b: {d: 1}}}]", "[{_id: 1, b: {d: 3}}]"),
            (
                "[{$project: {'l.x': 1, 'a.z': 1}}]",
                "[{_id: 1, l: [{x: 1}, {x: 3}]}]",
            ),
            ("[{$project: {none: 1}}]", "[{_id: 1}]"),
            // Computed fields come last, in the order of the specification.
            (
                "[{$project: {z: '$s', a: 1, y: {$add: ['$a', 1]}}}]",
                "[{_id: 1, a: 1, z: 'v', y: 2}]",
            ),
            (
                "[{$project: {s: '$a', a: '$s'}}]",
                "[{_id: 1, s: 1, a: 'v'}]",
            ),
            ("[{$project: {x: '$none'}}]", "[{_id: 1}]"),
            ("[{$project: {_id: '$s'}}]", "[{_id: 'v'}]"),
            (
                "[{$project: {n: {m: '$a', k: {$literal: 1}}}}]",
                "[{_id: 1, n: {m: 1, k: 1}}]",
            ),
            (
                "[{$project: {'b.n': '$a', 'b.c': 1}}]",
                "[{_id: 1, b: {c: 2, n: 1}}]",
            ),
            (
                "[{$project: {'l.n': '$a'}}]",
                "[{_id: 1, l: [{n: 1}, {n: 1}, {n: 1}]}]",
            ),
            (
                "[{$project: {l: {n: '$a', x: 1}}}]",
                "[{_id: 1, l: [{x: 1, n: 1}, {n: 1}, {x: 3, n: 1}]}]",
            ),
            (
                "[{$addFields: {'l.n': '$a'}}, {$project: {l: 1}}]",
                "[{_id: 1, l: [{x: 1, y: 2, n: 1}, {n: 1}, {x: 3, n: 1}]}]",
            ),
            ("[{$project: {'s.n': '$a'}}]", "[{_id: 1, s: {n: 1}}]"),
            (
                "[{$project: {x: ['$a', '$none', 7]}}]",
                "[{_id: 1, x: [1, null, 7]}]",
            ),
        ],
    );
}

#[test]
fn exclusion() {
    check(
        INPUT,
        &[
            ("[{$project: {b: 0, l: false}}]", "[{_id: 1, a: 1, s: 'v'}]"),
            (
                "[{$project: {_id: 0, b: {c: 0}, l: 0}}]",
                "[{a: 1, b: {d: 3}, s: 'v'}]",
            ),
            ("[{$project: {_id: 0}}, {$project: {a: 1}}]", "[{a: 1}]"),
            (
                "[{$unset: 'b'}, {$project: {l: 0}}]",
                "[{_id: 1, a: 1, s: 'v'}]",
            ),
            (
                "[{$unset: ['b.c', 'l.x', 'a.q']}]",
                "[{_id: 1, a: 1, b: {d: 3}, l: [{y: 2}, 5, {}], s: 'v'}]",
            ),
        ],
    );
    check_errors(
        INPUT,
        &[
            (
                "[{$project: {}}]",
                51272,
                "Invalid $project :: caused by :: projection specification must have at least one field",
            ),
            ("[{$project: 1}]", 15969, "must be an object"),
            (
                "[{$project: {a: 1, b: 0}}]",
                31254,
                "Invalid $project :: caused by :: Cannot do exclusion on field b in inclusion projection",
            ),
            (
                "[{$project: {a: 0, b: 1}}]",
                31253,
                "Cannot do inclusion on field b in exclusion projection",
            ),
            (
                "[{$project: {a: 0, b: '$a'}}]",
                31310,
                "exclusion projection",
            ),
            (
                "[{$project: {a: 1, 'a.b': 1}}]",
                31249,
                "Path collision at a.b remaining portion b",
            ),
            (
                "[{$project: {'a.b': 1, a: 1}}]",
                31250,
                "Path collision at a",
            ),
            ("[{$project: {a: {}}}]", 51270, "empty"),
            ("[{$project: {'a.': 1}}]", 40353, "end with a '.'"),
            ("[{$project: {$a: 1}}]", 16410, "$"),
            (
                "[{$project: {a: {$foo: 1}}}]",
                31325,
                "Invalid $project :: caused by :: Unknown expression $foo",
            ),
            ("[{$unset: 1}]", 31002, "string"),
            ("[{$unset: []}]", 31119, "at least one field"),
            ("[{$unset: ['a', 'a.b']}]", 31249, "collision"),
        ],
    );
}

#[test]
fn adding_fields() {
    check(
        INPUT,
        &[
            (
                "[{$addFields: {n: {$add: ['$a', 1]}}}, {$project: {b: 0, l: 0}}]",
                "[{_id: 1, a: 1, s: 'v', n: 2}]",
            ),
            // Old fields keep their place.
            (
                "[{$set: {a: '$s', z: 5}}, {$unset: ['b', 'l']}]",
                "[{_id: 1, a: 'v', s: 'v', z: 5}]",
            ),
            (
                "[{$set: {'b.c': 9, 'b.e': 8}}, {$project: {b: 1}}]",
                "[{_id: 1, b: {c: 9, d: 3, e: 8}}]",
            ),
            (
                "[{$set: {b: {c: 9}}}, {$project: {b: 1}}]",
                "[{_id: 1, b: {c: 9, d: 3}}]",
            ),
            (
                "[{$set: {'l.n': '$a'}}, {$project: {l: 1}}]",
                "[{_id: 1, l: [{x: 1, y: 2, n: 1}, {n: 1}, {x: 3, n: 1}]}]",
            ),
            (
                "[{$set: {'s.t.u': 1}}, {$project: {s: 1}}]",
                "[{_id: 1, s: {t: {u: 1}}}]",
            ),
            (
                "[{$set: {a: '$$REMOVE', e: {}}}, {$unset: ['b', 'l']}]",
                "[{_id: 1, s: 'v', e: {}}]",
            ),
            (
                "[{$set: {'x.y': '$none'}}, {$project: {x: 1}}]",
                "[{_id: 1, x: {}}]",
            ),
            (
                "[{$set: {a: 0, f: false}}, {$project: {a: 1, f: 1}}]",
                "[{_id: 1, a: 0, f: false}]",
            ),
            // All expressions see the document as it came.
            (
                "[{$set: {a: '$s', s: '$a'}}, {$project: {a: 1, s: 1}}]",
                "[{_id: 1, a: 'v', s: 1}]",
            ),
        ],
    );
    check_errors(
        INPUT,
        &[
            (
                "[{$addFields: {}}]",
                40177,
                "Invalid $addFields :: caused by :: specification must have at least one field",
            ),
            (
                "[{$set: 1}]",
                40272,
                "$set specification stage must be an object, got int",
            ),
            ("[{$set: {a: 1, 'a.b': 1}}]", 31249, "collision"),
            (
                "[{$set: {a: {$divide: [1, 0]}}}]",
                2,
                "can't $divide by zero",
            ),
        ],
    );
}

#[test]
fn replacing_documents() {
    check(
        INPUT,
        &[
            ("[{$replaceRoot: {newRoot: '$b'}}]", "[{c: 2, d: 3}]"),
            (
                "[{$replaceWith: {$mergeObjects: ['$b', {a: '$a'}]}}]",
                "[{c: 2, d: 3, a: 1}]",
            ),
            (
                "[{$unwind: '$l'}, {$match: {'l.x': 1}}, {$replaceWith: '$l'}]",
                "[{x: 1, y: 2}]",
            ),
        ],
    );
    check_errors(
        INPUT,
        &[
            (
                "[{$replaceRoot: {newRoot: '$a'}}]",
                40228,
                "'newRoot' expression  must evaluate to an object, but resulting value was: 1. Type of resulting value: 'int'. Input document: {_id: 1, a: 1",
            ),
            ("[{$replaceWith: '$none'}]", 40228, "MISSING"),
            ("[{$replaceRoot: 1}]", 40229, "got int"),
            ("[{$replaceRoot: {}}]", 40414, "newRoot"),
            ("[{$replaceRoot: {newRoot: '$b', x: 1}}]", 40415, "x"),
        ],
    );
}

#[test]
fn computed_values_do_not_nest_without_bound() {
    let stages = format!("[{}]", vec!["{$set: {a: {x: ['$a']}}}"; 150].join(","));
    let error = run("[{_id: 1, a: 1}]", &stages).unwrap_err();
    assert_eq!(error.code().code(), 15, "{error}");
}
