//! Conditions on arrays, and the positional index.

use super::*;

#[test]
fn arrays() {
    check(&[
        (
            "{a: {$all: [1, 2]}}",
            &["{a: [2, 3, 1]}"],
            &["{a: [1]}", "{a: 1}", "{}"],
        ),
        ("{a: {$all: [1]}}", &["{a: 1}", "{a: [1]}"], &["{a: 2}"]),
        ("{a: {$all: []}}", &[], &["{a: []}", "{}", "{a: 1}"]),
        (
            "{a: {$all: [[1, 2]]}}",
            &["{a: [1, 2]}", "{a: [[1, 2]]}"],
            &["{a: [2, 1]}"],
        ),
        (
            "{a: {$all: [/^x/, 'y']}}",
            &["{a: ['xz', 'y']}"],
            &["{a: ['y']}"],
        ),
        ("{a: {$all: [null]}}", &["{}", "{a: null}"], &["{a: 1}"]),
        (
            "{a: {$all: [{$elemMatch: {b: 1}}, {$elemMatch: {b: 2}}]}}",
            &["{a: [{b: 2}, {b: 1}]}"],
            &["{a: [{b: 1}]}", "{a: {b: 1}}"],
        ),
        (
            "{a: {$size: 2}}",
            &["{a: [1, 2]}", "{a: [[], []]}"],
            &["{a: [1]}", "{a: [[1, 2]]}", "{}"],
        ),
        (
            "{a: {$size: 0}}",
            &["{a: []}"],
            &["{}", "{a: null}", "{a: 'x'}"],
        ),
        ("{a: {$size: 1.0}}", &["{a: [5]}"], &[]),
        (
            "{'a.b': {$size: 1}}",
            &["{a: [{b: [1]}]}", "{a: {b: [1]}}"],
            &["{a: [{b: 1}]}"],
        ),
        (
            "{a: {$elemMatch: {b: 1, c: 2}}}",
            &["{a: [{b: 1, c: 2}]}", "{a: [5, {b: [1], c: 2}]}"],
            &["{a: [{b: 1}, {c: 2}]}", "{a: {b: 1, c: 2}}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$gt: 1, $lt: 3}}}",
            &["{a: [0, 2]}"],
            &["{a: [0, 4]}", "{a: 2}", "{a: [[2]]}"],
        ),
        (
            "{a: {$elemMatch: {$in: [1, 2]}}}",
            &["{a: [2]}"],
            &["{a: 2}"],
        ),
        (
            "{a: {$elemMatch: {$not: {$gt: 5}}}}",
            &["{a: [9, 1]}"],
            &["{a: [9]}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$elemMatch: {$eq: 1}}}}",
            &["{a: [[1]]}"],
            &["{a: [1]}", "{a: 1}"],
        ),
        (
            "{a: {$elemMatch: {$or: [{b: 1}, {c: 1}]}}}",
            &["{a: [{c: 1}]}"],
            &["{a: [{d: 1}]}"],
        ),
        (
            "{a: {$elemMatch: {'0': 5}}}",
            &["{a: [[5]]}"],
            &["{a: [5]}"],
        ),
        (
            "{a: {$elemMatch: {$ne: 1}}}",
            &["{a: [1, 2]}"],
            &["{a: [1]}"],
        ),
        (
            "{a: {$elemMatch: {}}}",
            &["{a: [{}]}", "{a: [[]]}"],
            &["{a: [1]}", "{a: []}"],
        ),
        (
            "{a: {$elemMatch: {$ref: 'c', $id: 1}}}",
            &["{a: [{$ref: 'c', $id: 1}]}"],
            &["{a: [{$ref: 'c'}]}"],
        ),
        (
            "{'a.b': {$elemMatch: {$eq: 1}}}",
            &["{a: [{b: [1]}]}"],
            &["{a: [{b: 1}]}"],
        ),
    ]);
    refuse(&[
        ("{a: {$all: 1}}", 2, "$all needs an array"),
        ("{a: {$all: [{$gt: 1}]}}", 2, "no $ expressions in $all"),
        (
            "{a: {$all: [1, {$elemMatch: {}}]}}",
            2,
            "no $ expressions in $all",
        ),
        (
            "{a: {$all: [{$elemMatch: {}}, 1]}}",
            2,
            "$all/$elemMatch has to be consistent",
        ),
        ("{a: {$elemMatch: 1}}", 2, "$elemMatch needs an Object"),
        (
            "{a: {$elemMatch: {$gt: 1, b: 1}}}",
            2,
            "unknown operator: b",
        ),
        (
            "{a: {$elemMatch: {$where: 'x'}}}",
            2,
            "$elemMatch cannot contain $where expression",
        ),
        (
            "{a: {$size: 'x'}}",
            2,
            "Failed to parse $size. Expected a number in: $size: \"x\"",
        ),
        (
            "{a: {$size: 1.5}}",
            2,
            "Failed to parse $size. Expected an integer: $size: 1.5",
        ),
        (
            "{a: {$size: -1}}",
            2,
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        ),
    ]);
}
