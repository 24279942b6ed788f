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

/// Operators distinguish a missing argument from one that was not given.
#[test]
fn missing_arguments_are_given_arguments() {
    check(
        "{l: [1, null, 3], m: [1, 2, 3, 4], n: null, s: 'abc', d: Date(1709210096789)}",
        &[
            ("{$slice: ['$l', 1, '$none']}", "null"),
            ("{$slice: ['$l', 1, null]}", "null"),
            ("{$indexOfArray: ['$l', '$none']}", "-1"),
            ("{$indexOfArray: ['$l', null]}", "1"),
            ("{$indexOfArray: ['$none', 1]}", "null"),
            ("{$in: ['$none', '$l']}", "false"),
            (
                "{$filter: {input: '$m', cond: true, limit: '$none'}}",
                "[1, 2, 3, 4]",
            ),
            (
                "{$filter: {input: '$m', cond: true, limit: null}}",
                "[1, 2, 3, 4]",
            ),
            ("{$year: {date: '$d', timezone: '$none'}}", "null"),
            ("{$dateToString: {date: '$d', format: '$none'}}", "null"),
            ("{$dateToString: {date: 'x', format: null}}", "null"),
            ("{$dateToString: {date: '$d', timezone: '$none'}}", "null"),
            (
                "{$dateToString: {date: '$none', onNull: '$none'}}",
                "<missing>",
            ),
            ("{$dateToParts: {date: '$d', iso8601: '$none'}}", "null"),
            (
                "{$dateToParts: {date: '$d', timezone: null, iso8601: 'x'}}",
                "null",
            ),
            (
                "{$dateFromString: {dateString: '2024-01-01', format: '$none'}}",
                "null",
            ),
            (
                "{$dateFromString: {dateString: 'x', onError: '$none'}}",
                "<missing>",
            ),
            ("{$dateFromParts: {year: 2024, month: '$none'}}", "null"),
            ("{$dateFromParts: {year: 2024, timezone: '$none'}}", "null"),
            (
                "{$dateAdd: {startDate: '$d', unit: 'day', amount: '$none'}}",
                "null",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 'day', amount: 1, timezone: '$none'}}",
                "null",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: '$d', unit: 'week', startOfWeek: '$none'}}",
                "null",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: '$d', unit: 'day', startOfWeek: '$none'}}",
                "NumberLong(0)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'day', binSize: '$none'}}",
                "null",
            ),
            ("{$convert: {input: '$s', to: '$none'}}", "null"),
            (
                "{$convert: {input: '$none', to: 'int', onNull: '$none'}}",
                "<missing>",
            ),
            (
                "{$convert: {input: '$s', to: 'int', onError: '$none'}}",
                "<missing>",
            ),
            (
                "{$regexMatch: {input: '$s', regex: 'A', options: '$none'}}",
                "false",
            ),
            ("{$getField: {field: 'x', input: '$none'}}", "<missing>"),
            (
                "{$setField: {field: 's', input: {s: 1, t: 2}, value: '$none'}}",
                "{t: 2}",
            ),
            ("{$split: ['$s', '$none']}", "null"),
            (
                "{$replaceOne: {input: '$s', find: '$none', replacement: 'x'}}",
                "null",
            ),
            (
                "{$reduce: {input: '$m', initialValue: '$none', in: '$$value'}}",
                "<missing>",
            ),
            (
                "{$switch: {branches: [{case: false, then: 1}], default: '$none'}}",
                "<missing>",
            ),
            (
                "{$zip: {inputs: [[1], [2, 3]], useLongestLength: true, defaults: ['$none', 0]}}",
                "[[1, 2], [null, 3]]",
            ),
            ("{$zip: {inputs: ['$m', '$none']}}", "null"),
            ("{$eq: ['$none', '$n']}", "false"),
        ],
    );
    check_errors(
        "{l: [1], s: 'abc', d: Date(0)}",
        &[
            (
                "{$range: [0, 3, '$none']}",
                34447,
                "found value of type:missing",
            ),
            ("{$range: [0, 3, null]}", 34447, "found value of type:null"),
            (
                "{$indexOfArray: ['$l', 1, '$none']}",
                40096,
                "of type: missing",
            ),
            (
                "{$indexOfArray: ['$l', 1, 0, null]}",
                40096,
                "of type: null",
            ),
            (
                "{$indexOfBytes: ['$s', 'b', '$none']}",
                40096,
                "of type: missing",
            ),
            (
                "{$indexOfCP: ['$s', 'b', 0, '$none']}",
                40096,
                "of type: missing",
            ),
            ("{$indexOfCP: ['$s', '$none']}", 40094, "found: missing"),
            ("{$slice: ['$s', 1, '$none']}", 28724, "must be an array"),
            (
                "{$trim: {input: 1, chars: null}}",
                50699,
                "requires its input to be a string",
            ),
            (
                "{$filter: {input: '$l', cond: true, limit: NumberLong(3000000000)}}",
                327391,
                "32-bit integral",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'week', startOfWeek: 'x'}}",
                5439016,
                "value cannot be recognized as a day of a week: x",
            ),
            (
                "{$zip: {inputs: '$l'}}",
                34461,
                "inputs must be an array of expressions, found string",
            ),
            (
                "{$zip: {inputs: [[1]], defaults: 1}}",
                34462,
                "defaults must be an array of expressions, found int",
            ),
            (
                "{$zip: {inputs: [[1]], useLongestLength: 1}}",
                34463,
                "useLongestLength must be a bool, found int",
            ),
            ("{$zip: {inputs: []}}", 34465, "at least one input array"),
            ("{$zip: {inputs: [[1]], x: 1}}", 34464, "x"),
            ("{$zip: 1}", 34460, "only supports an object"),
        ],
    );
}

/// A single operand that is an array stands for its elements, for the operators that are accumulators, too.
#[test]
fn a_single_array_stands_for_its_elements() {
    check(
        "{l: [{a: 1}, null, {b: 2, a: 3}], m: [2, 4], p: [[1, 2], [2]], n: null}",
        &[
            ("{$mergeObjects: '$l'}", "{a: 3, b: 2}"),
            ("{$mergeObjects: ['$l']}", "{a: 3, b: 2}"),
            ("{$mergeObjects: [[{a: 1}, {c: 1}]]}", "{a: 1, c: 1}"),
            ("{$mergeObjects: [[]]}", "{}"),
            ("{$mergeObjects: '$n'}", "{}"),
            ("{$mergeObjects: '$none'}", "{}"),
            ("{$mergeObjects: []}", "{}"),
            ("{$sum: '$m'}", "6"),
            ("{$sum: [['$m']]}", "0"),
            ("{$avg: '$m'}", "3.0"),
            ("{$min: '$m'}", "2"),
            ("{$max: ['$m']}", "4"),
            ("{$stdDevPop: '$m'}", "1.0"),
            ("{$stdDevSamp: [[1, 1]]}", "0.0"),
            // These have one operand, or as many as are written.
            ("{$first: '$m'}", "2"),
            ("{$last: '$m'}", "4"),
            ("{$concatArrays: '$p'}", "[[1, 2], [2]]"),
            ("{$setUnion: '$p'}", "[[1, 2], [2]]"),
            ("{$setIntersection: '$p'}", "[[1, 2], [2]]"),
            ("{$allElementsTrue: '$p'}", "true"),
            ("{$anyElementTrue: ['$m']}", "true"),
            ("{$and: '$m'}", "true"),
            ("{$minN: {n: 1, input: '$m'}}", "[2]"),
        ],
    );
    check_errors(
        "{l: [{a: 1}, 5], m: [{a: 1}], s: ['a', 'b']}",
        &[
            ("{$mergeObjects: '$l'}", 40400, "but input 5 is of type int"),
            ("{$mergeObjects: ['$m', '$m']}", 40400, "is of type array"),
            ("{$mergeObjects: ['$m', {}]}", 40400, "is of type array"),
            ("{$add: '$l'}", 14, "not array"),
            ("{$concat: '$s'}", 16702, "not array"),
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
                146,
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
