//! Strings and regular expressions.

use super::*;

const DOC: &str = "{s: 'Hello', u: 'añb€c', n: null, i: 5, d: Date(0)}";

#[test]
fn joining_case_and_length() {
    check(
        DOC,
        &[
            ("{$concat: ['$s', ' ', 'you']}", "'Hello you'"),
            ("{$concat: ['$s', '$none']}", "null"),
            ("{$concat: []}", "''"),
            ("{$toUpper: '$s'}", "'HELLO'"),
            ("{$toLower: '$s'}", "'hello'"),
            ("{$toUpper: '$n'}", "''"),
            ("{$toLower: '$i'}", "'5'"),
            ("{$toUpper: '$d'}", "'1970-01-01T00:00:00.000Z'"),
            ("{$strLenBytes: '$u'}", "8"),
            ("{$strLenCP: '$u'}", "5"),
            ("{$strcasecmp: ['$s', 'hELLO']}", "0"),
            ("{$strcasecmp: ['a', 'B']}", "-1"),
            ("{$strcasecmp: ['$n', 'a']}", "-1"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$concat: ['$s', 5]}",
                16702,
                "$concat only supports strings, not int",
            ),
            ("{$toUpper: [[1]]}", 16007, "array"),
            ("{$strLenBytes: '$n'}", 34473, "null"),
            ("{$strLenCP: '$none'}", 34471, "missing"),
        ],
    );
}

#[test]
fn parts_and_search() {
    check(
        DOC,
        &[
            ("{$substrBytes: ['$s', 1, 3]}", "'ell'"),
            ("{$substrBytes: ['$s', 1, -1]}", "'ello'"),
            ("{$substrBytes: ['$s', 9, 3]}", "''"),
            ("{$substr: ['$i', 0, 1]}", "'5'"),
            ("{$substrBytes: ['$u', 0, 3]}", "'añ'"),
            ("{$substrCP: ['$u', 1, 3]}", "'ñb€'"),
            ("{$substrCP: ['$n', 0, 3]}", "''"),
            ("{$split: ['a,b,,c', ',']}", "['a', 'b', '', 'c']"),
            ("{$split: ['$n', ',']}", "null"),
            ("{$indexOfBytes: ['$u', '€']}", "4"),
            ("{$indexOfCP: ['$u', '€']}", "3"),
            ("{$indexOfBytes: ['$s', 'l', 3]}", "3"),
            ("{$indexOfBytes: ['$s', 'l', 0, 2]}", "-1"),
            ("{$indexOfCP: ['$s', 'l', 4]}", "-1"),
            ("{$indexOfCP: ['$s', '', 2]}", "2"),
            ("{$indexOfBytes: ['$n', 'l']}", "null"),
            (
                "{$replaceOne: {input: 'aaa', find: 'a', replacement: 'b'}}",
                "'baa'",
            ),
            (
                "{$replaceAll: {input: 'aaa', find: 'a', replacement: 'b'}}",
                "'bbb'",
            ),
            (
                "{$replaceAll: {input: '$n', find: 'a', replacement: 'b'}}",
                "null",
            ),
            ("{$trim: {input: '  x \\n'}}", "'x'"),
            ("{$ltrim: {input: 'xxaxx', chars: 'x'}}", "'axx'"),
            ("{$rtrim: {input: 'xxaxx', chars: 'x'}}", "'xxa'"),
            ("{$trim: {input: '$n'}}", "null"),
            ("{$trim: {input: 'x', chars: null}}", "null"),
            ("{$trim: {input: ' x', chars: '$none'}}", "null"),
            ("{$ltrim: {input: ' x', chars: '$none'}}", "null"),
            ("{$rtrim: {input: ' x', chars: '$none'}}", "null"),
            ("{$ltrim: {input: ' x'}}", "'x'"),
        ],
    );
    check_errors(
        DOC,
        &[
            ("{$substrBytes: ['$u', 2, 1]}", 28656, "continuation byte"),
            (
                "{$substrBytes: ['$u', 0, 2]}",
                28657,
                "middle of a UTF-8 character",
            ),
            ("{$substrBytes: ['$s', -1, 2]}", 50752, "non-negative"),
            ("{$substrCP: ['$s', -1, 2]}", 34455, "nonnegative"),
            ("{$substrCP: ['$s', 'x', 2]}", 34450, "numeric"),
            ("{$split: ['$s', '']}", 40087, "non-empty"),
            ("{$split: [1, 'x']}", 40085, "first"),
            ("{$indexOfCP: [1, 'x']}", 40093, "first"),
            ("{$indexOfBytes: ['x', 1]}", 40092, "second"),
            (
                "{$replaceOne: {input: 1, find: 'a', replacement: 'b'}}",
                51746,
                "input",
            ),
            ("{$trim: {input: 1}}", 50699, "string"),
            ("{$trim: {input: 'x', chars: 1}}", 50700, "chars"),
            ("{$trim: {chars: 'x'}}", 50695, "input"),
        ],
    );
}

#[test]
fn regular_expressions() {
    check(
        DOC,
        &[
            (
                "{$regexMatch: {input: '$s', regex: '^h', options: 'i'}}",
                "true",
            ),
            ("{$regexMatch: {input: '$s', regex: /^h/}}", "false"),
            ("{$regexMatch: {input: '$n', regex: 'x'}}", "false"),
            (
                "{$regexMatch: {input: '$s', regex: {$concat: ['l', '+']}}}",
                "true",
            ),
            (
                "{$regexFind: {input: '$u', regex: '(b)(x)?(.)'}}",
                "{match: 'b€', idx: 2, captures: ['b', null, '€']}",
            ),
            ("{$regexFind: {input: '$s', regex: 'z'}}", "null"),
            (
                "{$regexFindAll: {input: 'a1b22', regex: '[0-9]+'}}",
                "[{match: '1', idx: 1, captures: []}, {match: '22', idx: 3, captures: []}]",
            ),
            ("{$regexFindAll: {input: '$none', regex: 'z'}}", "[]"),
            // After an empty match a character is skipped; after the last one there is no search.
            (
                "{$regexFindAll: {input: 'é1', regex: ''}}",
                "[{match: '', idx: 0, captures: []}, {match: '', idx: 1, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'baab', regex: 'a*'}}",
                "[{match: '', idx: 0, captures: []}, {match: 'aa', idx: 1, captures: []}, \
                  {match: '', idx: 3, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: '', regex: '(x)?'}}",
                "[{match: '', idx: 0, captures: [null]}]",
            ),
            (
                "{$regexFindAll: {input: 'ab', regex: '\\\\z'}}",
                "[{match: '', idx: 2, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'abab', regex: '^ab'}}",
                "[{match: 'ab', idx: 0, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'éab', regex: 'ab'}}",
                "[{match: 'ab', idx: 1, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'a1a2', regex: 'a\\\\K[0-9]'}}",
                "[{match: '1', idx: 1, captures: []}, {match: '2', idx: 3, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'abab', regex: 'b\\\\K'}}",
                "[{match: '', idx: 2, captures: []}, {match: '', idx: 4, captures: []}]",
            ),
            (
                "{$regexFindAll: {input: 'ab', regex: '(?|(a)|(b))(c)?'}}",
                "[{match: 'a', idx: 0, captures: ['a', null]}, {match: 'b', idx: 1, captures: ['b', null]}]",
            ),
            (
                "{$regexFind: {input: '((x))', regex: '(\\\\((?:[^()]|(?1))*\\\\))'}}",
                "{match: '((x))', idx: 0, captures: ['((x))']}",
            ),
        ],
    );
    check_errors(
        DOC,
        &[
            ("{$regexMatch: {input: 5, regex: 'x'}}", 51104, "int"),
            (
                "{$regexMatch: {input: 'x', regex: 5}}",
                51105,
                "string or regex",
            ),
            ("{$regexMatch: {input: 'x', regex: '('}}", 51091, "invalid"),
            (
                "{$regexMatch: {input: 'x', regex: 'x', options: 'q'}}",
                51108,
                "q",
            ),
            (
                "{$regexMatch: {input: 'x', regex: /x/i, options: 'm'}}",
                51107,
                "both",
            ),
            ("{$regexMatch: 'x'}", 51103, "object"),
            (
                "{$regexMatch: {input: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab', regex: '(a+)+$'}}",
                51156,
                "match limit exceeded",
            ),
            (
                "{$regexFindAll: {input: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab', regex: '(a+)+$'}}",
                51156,
                "match limit exceeded",
            ),
            (
                "{$regexFind: {input: 'é', regex: '\\\\C'}}",
                51156,
                "offset",
            ),
        ],
    );
}
