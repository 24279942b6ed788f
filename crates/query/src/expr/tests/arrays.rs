//! Arrays, sets, documents, and expressions on each element.

use super::*;

const DOC: &str = "{l: [3, 1, 2], d: [{k: 2, v: 'b'}, {k: 1, v: 'a'}], o: {a: 1, b: [2]}, n: null, s: 'x', e: []}";

#[test]
fn elements_and_parts() {
    check(
        DOC,
        &[
            ("{$arrayElemAt: ['$l', 0]}", "3"),
            ("{$arrayElemAt: ['$l', -1]}", "2"),
            ("{$arrayElemAt: ['$l', 7]}", "<missing>"),
            ("{$arrayElemAt: ['$l', -7]}", "<missing>"),
            ("{$arrayElemAt: ['$n', 1]}", "null"),
            ("{$first: '$l'}", "3"),
            ("{$last: '$l'}", "2"),
            ("{$first: '$e'}", "<missing>"),
            ("{$size: '$l'}", "3"),
            ("{$isArray: '$l'}", "true"),
            ("{$isArray: ['$s']}", "false"),
            ("{$slice: ['$l', 2]}", "[3, 1]"),
            ("{$slice: ['$l', -2]}", "[1, 2]"),
            ("{$slice: ['$l', 1, 1]}", "[1]"),
            ("{$slice: ['$l', -2, 1]}", "[1]"),
            ("{$slice: ['$l', -9, 2]}", "[3, 1]"),
            ("{$slice: ['$l', 9, 2]}", "[]"),
            ("{$slice: ['$n', 2]}", "null"),
            ("{$concatArrays: ['$l', [9], '$e']}", "[3, 1, 2, 9]"),
            ("{$concatArrays: ['$l', '$n']}", "null"),
            ("{$reverseArray: '$l'}", "[2, 1, 3]"),
            ("{$in: [1, '$l']}", "true"),
            ("{$in: [1.0, '$l']}", "true"),
            ("{$in: [7, '$l']}", "false"),
            ("{$indexOfArray: ['$l', 2]}", "2"),
            ("{$indexOfArray: ['$l', 3, 1]}", "-1"),
            ("{$indexOfArray: ['$l', 2, 0, 2]}", "-1"),
            ("{$range: [0, 5, 2]}", "[0, 2, 4]"),
            ("{$range: [3, 0, -1]}", "[3, 2, 1]"),
            ("{$range: [3, 0]}", "[]"),
            ("{$firstN: {n: 2, input: '$l'}}", "[3, 1]"),
            ("{$lastN: {n: 2, input: '$l'}}", "[1, 2]"),
            ("{$minN: {n: 2, input: '$l'}}", "[1, 2]"),
            ("{$maxN: {n: 2, input: [5, null, 9, 7]}}", "[9, 7]"),
            ("{$sortArray: {input: '$l', sortBy: 1}}", "[1, 2, 3]"),
            (
                "{$sortArray: {input: '$d', sortBy: {k: 1}}}",
                "[{k: 1, v: 'a'}, {k: 2, v: 'b'}]",
            ),
            (
                "{$zip: {inputs: ['$l', ['a', 'b']]}}",
                "[[3, 'a'], [1, 'b']]",
            ),
            (
                "{$zip: {inputs: [[1], ['a', 'b']], useLongestLength: true, defaults: [0, 'z']}}",
                "[[1, 'a'], [0, 'b']]",
            ),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$arrayElemAt: ['$s', 1]}",
                28689,
                "must be an array, but is string",
            ),
            ("{$arrayElemAt: ['$l', 'x']}", 28690, "numeric"),
            ("{$arrayElemAt: ['$l', 1.5]}", 28691, "32-bit"),
            (
                "{$size: '$s'}",
                17124,
                "The argument to $size must be an array, but was of type: string",
            ),
            ("{$size: '$none'}", 17124, "missing"),
            ("{$slice: ['$l', 1, 0]}", 28729, "must be positive"),
            ("{$slice: ['$s', 1]}", 28724, "string"),
            (
                "{$concatArrays: ['$s']}",
                28664,
                "$concatArrays only supports arrays, not string",
            ),
            (
                "{$in: [1, '$s']}",
                40081,
                "$in requires an array as a second argument, found: string",
            ),
            ("{$range: [0, 5, 0]}", 34449, "non-zero"),
            ("{$range: [0, 2147483647]}", 146, "$range"),
            ("{$range: ['x', 5]}", 34443, "string"),
            ("{$reverseArray: '$s'}", 34435, "string"),
            ("{$firstN: {n: 0, input: '$l'}}", 5787908, "greater than 0"),
            ("{$indexOfArray: ['$l', 1, -1]}", 40097, "nonnegative"),
            (
                "{$zip: {inputs: ['$l'], defaults: [1]}}",
                34466,
                "useLongestLength",
            ),
        ],
    );
}

#[test]
fn arrays_sort_by_paths_that_do_not_enter_arrays() {
    check(
        "{l: [{a: {b: 2}}, {a: {b: 1}}, {a: [{b: 0}]}], m: [{k: [9]}, {k: 3}], n: null}",
        &[
            (
                "{$sortArray: {input: '$l', sortBy: {'a.b': 1}}}",
                "[{a: [{b: 0}]}, {a: {b: 1}}, {a: {b: 2}}]",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: {'a.b': -1}}}",
                "[{a: {b: 2}}, {a: {b: 1}}, {a: [{b: 0}]}]",
            ),
            (
                "{$sortArray: {input: '$m', sortBy: {k: 1}}}",
                "[{k: 3}, {k: [9]}]",
            ),
            (
                "{$sortArray: {input: '$m', sortBy: {$k: 1}}}",
                "[{k: [9]}, {k: 3}]",
            ),
            ("{$sortArray: {input: '$none', sortBy: 1}}", "null"),
        ],
    );
    check_errors(
        "{l: [1], s: 1}",
        &[
            (
                "{$sortArray: 1}",
                2942500,
                "requires an object as an argument, found: int",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: 1, by: 1}}",
                2942501,
                "unknown argument: by",
            ),
            (
                "{$sortArray: {sortBy: 1}}",
                2942502,
                "requires 'input' to be specified",
            ),
            (
                "{$sortArray: {input: '$l'}}",
                2942503,
                "requires 'sortBy' to be specified",
            ),
            (
                "{$sortArray: {input: 1, sortBy: 1}}",
                2942504,
                "but was of type: int",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: {}}}",
                2942505,
                "BadValue: The sort pattern is empty when it should be a set of fields.",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: {'a..b': 1}}}",
                2942505,
                "empty part: a..b",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: {a: 2}}}",
                2942505,
                "must be either 1 or -1",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: {a: 'x'}}}",
                2942505,
                "must be either 1 or -1",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: 2}}",
                2942506,
                "must be either 1 or -1",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: '$s'}}",
                2942507,
                "use 1/-1 to sort the whole",
            ),
            (
                "{$sortArray: {input: '$l', sortBy: null}}",
                2942507,
                "use 1/-1 to sort the whole",
            ),
        ],
    );
}

#[test]
fn each_element() {
    check(
        DOC,
        &[
            (
                "{$filter: {input: '$l', as: 'x', cond: {$gt: ['$$x', 1]}}}",
                "[3, 2]",
            ),
            (
                "{$filter: {input: '$l', cond: {$gt: ['$$this', 1]}, limit: 1}}",
                "[3]",
            ),
            ("{$filter: {input: '$n', cond: true}}", "null"),
            ("{$map: {input: '$d', as: 'x', in: '$$x.v'}}", "['b', 'a']"),
            (
                "{$map: {input: '$l', in: {$multiply: ['$$this', 2]}}}",
                "[6, 2, 4]",
            ),
            (
                "{$map: {input: '$l', in: '$$this.none'}}",
                "[null, null, null]",
            ),
            (
                "{$map: {input: '$d', as: 'o', in: {$map: {input: '$l', as: 'i', in: {$add: ['$$o.k', '$$i']}}}}}",
                "[[5, 3, 4], [4, 2, 3]]",
            ),
            (
                "{$reduce: {input: '$l', initialValue: 0, in: {$add: ['$$value', '$$this']}}}",
                "6",
            ),
            (
                "{$reduce: {input: '$d', initialValue: '', in: {$concat: ['$$value', '$$this.v']}}}",
                "'ba'",
            ),
            ("{$reduce: {input: '$e', initialValue: 'i', in: 1}}", "'i'"),
            ("{$reduce: {input: '$n', initialValue: 0, in: 1}}", "null"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$filter: {input: '$s', cond: true}}",
                28651,
                "input to $filter must be an array not string",
            ),
            ("{$filter: {input: '$l'}}", 28650, "cond"),
            ("{$filter: {input: '$l', cond: true, x: 1}}", 28647, "x"),
            (
                "{$filter: {input: '$l', cond: true, limit: 0}}",
                327392,
                "greater than 0",
            ),
            (
                "{$map: {input: '$s', in: 1}}",
                16883,
                "input to $map must be an array not string",
            ),
            ("{$map: {input: '$l'}}", 16882, "in"),
            (
                "{$reduce: {input: '$s', initialValue: 0, in: 1}}",
                40080,
                "'input' be an array",
            ),
            ("{$reduce: {input: '$l', in: 1}}", 40078, "initialValue"),
            // Neither depth nor size grows without bound.
            (
                "{$reduce: {input: {$range: [0, 1000]}, initialValue: 0, in: {a: '$$value'}}}",
                15,
                "nested deeper",
            ),
            (
                "{$reduce: {input: {$range: [0, 1000]}, initialValue: 'xxxxxxxx', in: {$concat: ['$$value', '$$value']}}}",
                10334,
                "limit",
            ),
            (
                "{$reduce: {input: {$range: [0, 1000]}, initialValue: [1], in: {$concatArrays: ['$$value', '$$value']}}}",
                10334,
                "limit",
            ),
        ],
    );
}

#[test]
fn documents() {
    check(
        DOC,
        &[
            (
                "{$mergeObjects: ['$o', {b: 5, c: 6}]}",
                "{a: 1, b: 5, c: 6}",
            ),
            ("{$mergeObjects: ['$n', '$none']}", "{}"),
            ("{$mergeObjects: '$o'}", "{a: 1, b: [2]}"),
            (
                "{$objectToArray: '$o'}",
                "[{k: 'a', v: 1}, {k: 'b', v: [2]}]",
            ),
            ("{$arrayToObject: '$none'}", "null"),
            (
                "{$arrayToObject: {$literal: [['a', 1], ['b', 2], ['a', 3]]}}",
                "{a: 3, b: 2}",
            ),
            ("{$arrayToObject: [[{k: 'a', v: 1}]]}", "{a: 1}"),
            ("{$getField: 's'}", "'x'"),
            ("{$getField: {field: 'a', input: '$o'}}", "1"),
            (
                "{$getField: {field: {$concat: ['$s', 'y']}, input: {xy: 7}}}",
                "7",
            ),
            ("{$getField: 'none'}", "<missing>"),
            (
                "{$setField: {field: 'z.z', input: '$o', value: 1}}",
                "{a: 1, b: [2], 'z.z': 1}",
            ),
            (
                "{$setField: {field: 'a', input: '$o', value: '$$REMOVE'}}",
                "{b: [2]}",
            ),
            ("{$unsetField: {field: 'b', input: '$o'}}", "{a: 1}"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$mergeObjects: '$s'}",
                40400,
                "$mergeObjects requires object inputs",
            ),
            ("{$objectToArray: '$s'}", 40390, "string"),
            ("{$arrayToObject: '$s'}", 40386, "string"),
            ("{$arrayToObject: '$l'}", 40398, "int"),
            ("{$arrayToObject: {$literal: [['a']]}}", 40397, "size: 1"),
            ("{$arrayToObject: {$literal: [[1, 2]]}}", 40395, "int"),
            ("{$getField: 5}", 5654602, "String"),
            ("{$getField: {field: 'a'}}", 3041703, "input"),
            (
                "{$setField: {field: 'a', input: '$s', value: 1}}",
                4161105,
                "string",
            ),
        ],
    );
}

#[test]
fn sets() {
    check(
        DOC,
        &[
            ("{$setUnion: ['$l', [1, 5, 5]]}", "[1, 2, 3, 5]"),
            ("{$setUnion: ['$l', null]}", "null"),
            ("{$setIntersection: ['$l', [2, 3, 9]]}", "[2, 3]"),
            ("{$setIntersection: []}", "[]"),
            ("{$setDifference: ['$l', [1]]}", "[3, 2]"),
            ("{$setDifference: [[5, 5, 4], [1]]}", "[5, 4]"),
            ("{$setEquals: ['$l', [1, 2, 3, 3]]}", "true"),
            ("{$setEquals: ['$l', [1, 2]]}", "false"),
            ("{$setIsSubset: [[1, 1], '$l']}", "true"),
            ("{$setIsSubset: [[7], '$l']}", "false"),
            ("{$anyElementTrue: [[0, null, 1]]}", "true"),
            ("{$allElementsTrue: [[1, 0]]}", "false"),
            ("{$allElementsTrue: [[]]}", "true"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$setUnion: ['$s']}",
                17043,
                "All operands of $setUnion must be arrays. One argument is of type: string",
            ),
            ("{$setIntersection: ['$s']}", 17047, "string"),
            ("{$setDifference: ['$s', []]}", 17048, "First"),
            ("{$setDifference: [[], '$s']}", 17049, "Second"),
            ("{$setEquals: ['$s', []]}", 17044, "string"),
            ("{$setIsSubset: ['$s', []]}", 17046, "string"),
            ("{$anyElementTrue: ['$s']}", 17041, "string"),
        ],
    );
}
