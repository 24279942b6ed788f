//! Strings that are not UTF-8: operators on bytes give the bytes, what needs characters is an error.

use super::*;
use frond_bson::{DocBuf, OwnedValue};

/// `a` is "café" in Latin-1, `b` has white space around such bytes, `o` is UTF-8.
fn document() -> DocBuf {
    let mut doc = json("{_id: 1, o: 'x', e: ''}");
    for (name, text) in [
        ("a", &b"Caf\xE9"[..]),
        ("b", b" \xFF,\xFE "),
        ("c", b"\xE9"),
    ] {
        doc.push(name, &OwnedValue::string(text.to_vec()));
    }
    doc
}

fn eval(expression: &str) -> Result<Option<OwnedValue>> {
    let expression = value(expression);
    let expr = Expr::parse(&expression.as_value(), &Environment::default())?;
    expr.eval_owned(&document(), NOW)
}

#[test]
fn operators_on_bytes_give_the_bytes() {
    for (expression, expected) in [
        ("'$a'", &b"Caf\xE9"[..]),
        ("{$concat: ['$o', '$a', '$c']}", b"xCaf\xE9\xE9"),
        ("{$toUpper: '$a'}", b"CAF\xE9"),
        ("{$toLower: '$a'}", b"caf\xE9"),
        ("{$toString: '$a'}", b"Caf\xE9"),
        ("{$substrBytes: ['$a', 2, 2]}", b"f\xE9"),
        ("{$substr: ['$a', 0, 3]}", b"Caf"),
        ("{$trim: {input: '$b'}}", b"\xFF,\xFE"),
        ("{$ltrim: {input: '$b'}}", b"\xFF,\xFE "),
        ("{$rtrim: {input: '$b', chars: ' '}}", b" \xFF,\xFE"),
        (
            "{$replaceOne: {input: '$a', find: '$c', replacement: 'e'}}",
            b"Cafe",
        ),
        (
            "{$replaceAll: {input: '$b', find: ',', replacement: '$c'}}",
            b" \xFF\xE9\xFE ",
        ),
        ("{$arrayElemAt: [{$split: ['$b', ',']}, 1]}", b"\xFE "),
        ("{$arrayElemAt: [{$split: ['$a', '$c']}, 0]}", b"Caf"),
        ("{$ifNull: ['$a', 1]}", b"Caf\xE9"),
        ("{$max: ['$a', '$o']}", b"x"),
        ("{$min: ['$a', '$o']}", b"Caf\xE9"),
        ("{$first: {$setUnion: [['$a'], ['$a']]}}", b"Caf\xE9"),
        ("{$getField: {field: 'v', input: {v: '$a'}}}", b"Caf\xE9"),
        (
            "{$first: {$map: {input: {$objectToArray: {v: '$a'}}, in: '$$this.v'}}}",
            b"Caf\xE9",
        ),
    ] {
        let found = eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let found = found.unwrap_or_else(|| panic!("{expression} gave nothing"));
        assert_eq!(
            found.as_value().string_bytes(),
            Some(expected),
            "{expression}"
        );
    }
}

#[test]
fn operators_measure_and_compare_bytes() {
    for (expression, expected) in [
        ("{$strLenBytes: '$a'}", "4"),
        ("{$strLenCP: '$a'}", "4"),
        ("{$strLenCP: '$b'}", "5"),
        ("{$binarySize: '$a'}", "4"),
        ("{$indexOfBytes: ['$a', '$c']}", "3"),
        ("{$indexOfBytes: ['$a', 'x']}", "-1"),
        ("{$indexOfCP: ['$o', '$c']}", "-1"),
        ("{$strcasecmp: ['$a', '$a']}", "0"),
        ("{$strcasecmp: ['$a', 'CAF']}", "1"),
        ("{$cmp: ['$a', '$o']}", "-1"),
        ("{$eq: ['$a', '$a']}", "true"),
        ("{$eq: ['$a', '$c']}", "false"),
        ("{$in: ['$a', ['$o', '$a']]}", "true"),
        ("{$type: '$a'}", "'string'"),
        ("{$isNumber: '$a'}", "false"),
        ("{$size: {$split: ['$b', ',']}}", "2"),
        ("{$size: {$setUnion: [['$a'], ['$a', '$c']]}}", "2"),
        ("{$toBool: '$a'}", "true"),
        (
            "{$convert: {input: '$a', to: 'int', onError: 'no'}}",
            "'no'",
        ),
        (
            "{$convert: {input: '$a', to: 'date', onError: 'no'}}",
            "'no'",
        ),
        (
            "{$convert: {input: '$a', to: 'objectId', onError: 'no'}}",
            "'no'",
        ),
        (
            "{$convert: {input: '$a', to: 'decimal', onError: 'no'}}",
            "'no'",
        ),
        (
            "{$dateFromString: {dateString: '$a', onError: 'no'}}",
            "'no'",
        ),
        (
            "{$eq: [{$toHashedIndexKey: '$a'}, {$toHashedIndexKey: '$a'}]}",
            "true",
        ),
        (
            "{$eq: [{$toHashedIndexKey: '$a'}, {$toHashedIndexKey: '$c'}]}",
            "false",
        ),
    ] {
        let found = eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let found = found.unwrap_or_else(|| panic!("{expression} gave nothing"));
        assert_eq!(found, value(expected), "{expression}");
    }
    assert_eq!(
        eval("{$getField: {field: '$c', input: {v: 1}}}").ok(),
        Some(None)
    );
}

#[test]
fn what_needs_characters_or_a_name_is_an_error() {
    for (expression, code) in [
        ("{$substrCP: ['$a', 0, 1]}", 34456),
        ("{$indexOfCP: ['$a', 'C']}", 40095),
        ("{$trim: {input: '$o', chars: '$c'}}", 5_156_305),
        ("{$regexMatch: {input: '$a', regex: 'C'}}", 51156),
        ("{$regexFind: {input: '$a', regex: 'C'}}", 51156),
        ("{$regexFindAll: {input: '$a', regex: 'C'}}", 51156),
        ("{$regexMatch: {input: '$o', regex: '$c'}}", 51091),
        ("{$toInt: '$a'}", 241),
        ("{$toDate: '$a'}", 241),
        (
            "{$setField: {field: {$literal: 1}, input: {}, value: '$a'}}",
            4_161_107,
        ),
        ("{$arrayToObject: [[['$a', 1]]]}", 2),
        ("{$arrayToObject: [[{k: '$a', v: 1}]]}", 2),
    ] {
        match eval(expression) {
            Ok(found) => panic!("{expression} gave {found:?}"),
            Err(error) => assert_eq!(error.code().code(), code, "{expression}: {error}"),
        }
    }
    let path = OwnedValue::string(b"$a\xFF".to_vec());
    let error = Expr::parse(&path.as_value(), &Environment::default()).unwrap_err();
    assert_eq!(error.code().code(), 16410);
}

#[test]
fn bin_data_of_a_string_has_its_bytes() {
    let converted = eval("{$convert: {input: '$a', to: 'binData', format: 'utf8'}}").unwrap();
    let bytes = b"Caf\xE9".to_vec();
    assert_eq!(converted, Some(OwnedValue::Binary { subtype: 0, bytes }));
    let error = eval("{$convert: {input: '$a', to: 'binData', format: 'hex'}}").unwrap_err();
    assert_eq!(error.code().code(), 241);
}
