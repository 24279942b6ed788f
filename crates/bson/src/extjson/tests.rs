//! Tables of texts that are read, and texts that are not.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::{DocBuf, OwnedValue, doc};

#[test]
fn reads_every_form() {
    // (text, canonical form of what it means)
    let cases = [
        ("1", r#"{"$numberInt":"1"}"#),
        ("-2147483648", r#"{"$numberInt":"-2147483648"}"#),
        ("2147483648", r#"{"$numberLong":"2147483648"}"#),
        (
            "9223372036854775808",
            r#"{"$numberDouble":"9.223372036854776e18"}"#,
        ),
        ("1.0", r#"{"$numberDouble":"1.0"}"#),
        ("-1.5E+2", r#"{"$numberDouble":"-150.0"}"#),
        ("-0.0", r#"{"$numberDouble":"-0.0"}"#),
        (r#""a\u00e9\ud83d\ude00\n\/""#, "\"aé😀\\n/\""),
        (
            " [ 1 , true , null , \"x\" ] ",
            r#"[{"$numberInt":"1"},true,null,"x"]"#,
        ),
        ("{}", "{}"),
        ("[]", "[]"),
        (
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"$numberInt":"1"},"a":{"$numberInt":"2"}}"#,
        ),
        (
            r#"{"$date":"1970-01-01T00:00:01Z"}"#,
            r#"{"$date":{"$numberLong":"1000"}}"#,
        ),
        (r#"{"$date":-5}"#, r#"{"$date":{"$numberLong":"-5"}}"#),
        (
            r#"{"$binary":"AQI=","$type":"80"}"#,
            r#"{"$binary":{"base64":"AQI=","subType":"80"}}"#,
        ),
        (
            r#"{"$type":"0","$binary":"AQI="}"#,
            r#"{"$binary":{"base64":"AQI=","subType":"00"}}"#,
        ),
        (
            r#"{"$uuid":"c8edabc3-f738-4ca3-b68d-ab92a91478a3"}"#,
            r#"{"$binary":{"base64":"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}}"#,
        ),
        (
            r#"{"$binary":{"subType":"02","base64":"//8="}}"#,
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
        ),
        (
            r#"{"$timestamp":{"i":2,"t":4294967295}}"#,
            r#"{"$timestamp":{"t":4294967295,"i":2}}"#,
        ),
        (
            r#"{"$regularExpression":{"pattern":"^a","options":"xi"}}"#,
            r#"{"$regularExpression":{"pattern":"^a","options":"ix"}}"#,
        ),
        (
            r#"{"$scope":{"a":true},"$code":"f"}"#,
            r#"{"$code":"f","$scope":{"a":true}}"#,
        ),
        (r#"{"$numberDouble":"1"}"#, r#"{"$numberDouble":"1.0"}"#),
        (
            r#"{"$numberDecimal":"1.50"}"#,
            r#"{"$numberDecimal":"1.50"}"#,
        ),
        // Operators of queries are documents.
        (r#"{"$gt":1}"#, r#"{"$gt":{"$numberInt":"1"}}"#),
        (
            r#"{"$regex":"^a","$options":"i"}"#,
            r#"{"$regex":"^a","$options":"i"}"#,
        ),
        (r#"{"$type":"string"}"#, r#"{"$type":"string"}"#),
        (
            r#"{"$ref":"c","$id":1}"#,
            r#"{"$ref":"c","$id":{"$numberInt":"1"}}"#,
        ),
        (
            r#"{"x":1,"$oid":"q"}"#,
            r#"{"x":{"$numberInt":"1"},"$oid":"q"}"#,
        ),
    ];
    for (text, canonical) in cases {
        let value = parse_value(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(value_to_canonical(&value.as_value()), canonical, "{text}");
        let again = parse_value(canonical).unwrap();
        assert_eq!(again, value, "{text}");
    }
}

#[test]
fn refuses_what_is_wrong() {
    // (text, part of the message)
    let cases = [
        ("", "expected a value at byte 0"),
        ("nul", "expected a value"),
        ("{", "expected '\"' but found the end"),
        ("{a:1}", "expected '\"' but found 'a' at byte 1"),
        (r#"{"a" 1}"#, "expected ':' but found '1' at byte 5"),
        (r#"{"a":1 "b":2}"#, "expected '}'"),
        (r#"{"a":1,}"#, "expected '\"'"),
        ("[1,]", "expected a value"),
        ("[1 2]", "expected ']'"),
        ("1 2", "more text after the value at byte 2"),
        ("01", "leading zero"),
        ("-", "expected a digit"),
        ("1.", "expected a digit"),
        ("1e", "expected a digit"),
        ("NaN", "expected a value"),
        ("\"a", "unterminated string"),
        ("\"a\u{1}\"", "control character"),
        (r#""\x""#, "invalid escape"),
        (r#""\u12g4""#, "invalid \\u escape"),
        (r#""\ud800""#, "half a surrogate pair"),
        (r#""\ud800\u0041""#, "half a surrogate pair"),
        (r#""\udc00""#, "half a surrogate pair"),
        (r#"{"a\u0000b":1}"#, "zero byte in a field name at byte 1"),
        (r#"{"a":{"$oid":"12"}}"#, "invalid $oid at byte 5"),
        (
            r#"{"$oid":"507f1f77bcf86cd799439011","x":1}"#,
            "invalid $oid",
        ),
        (r#"{"$date":"yesterday"}"#, "invalid $date"),
        (r#"{"$date":1.5}"#, "invalid $date"),
        (r#"{"$numberInt":"2147483648"}"#, "invalid $numberInt"),
        (r#"{"$numberInt":1}"#, "invalid $numberInt"),
        (r#"{"$numberLong":"1.0"}"#, "invalid $numberLong"),
        (r#"{"$numberDouble":"one"}"#, "invalid $numberDouble"),
        (r#"{"$numberDouble":"inf"}"#, "invalid $numberDouble"),
        (r#"{"$numberDecimal":"x"}"#, "invalid $numberDecimal"),
        (
            r#"{"$binary":{"base64":"A","subType":"00"}}"#,
            "invalid $binary",
        ),
        (
            r#"{"$binary":{"base64":"AQI=","subType":"100"}}"#,
            "invalid $binary",
        ),
        (r#"{"$binary":"AQI="}"#, "invalid $binary"),
        (
            r#"{"$uuid":"c8edabc3f7384ca3b68dab92a91478a3"}"#,
            "invalid $uuid",
        ),
        (r#"{"$timestamp":{"t":-1,"i":2}}"#, "invalid $timestamp"),
        (
            r#"{"$timestamp":{"t":1,"i":2,"x":3}}"#,
            "invalid $timestamp",
        ),
        (
            r#"{"$regularExpression":{"pattern":"a"}}"#,
            "invalid $regularExpression",
        ),
        (
            r#"{"$regularExpression":{"pattern":"a\u0000","options":""}}"#,
            "invalid $regularExpression",
        ),
        (r#"{"$code":"f","$scope":1}"#, "invalid $code"),
        (
            r#"{"$dbPointer":{"$ref":"c","$id":1}}"#,
            "invalid $dbPointer",
        ),
        (r#"{"$undefined":false}"#, "invalid $undefined"),
        (r#"{"$minKey":2}"#, "invalid $minKey"),
    ];
    for (text, message) in cases {
        let error = parse_value(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    assert!(
        parse("[1]")
            .unwrap_err()
            .to_string()
            .contains("expected a document")
    );
    assert!(parse(r#"{"$minKey":1}"#).is_err());
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let text = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        let value = parse_value(&text(crate::MAX_DEPTH)).unwrap();
        assert!(value_to_relaxed(&value.as_value()) == text(crate::MAX_DEPTH));
        assert!(parse_value(&text(crate::MAX_DEPTH + 1)).is_err());
        assert!(parse_value(&open.repeat(1 << 20)).is_err());
    }
}

#[test]
fn documents_round_trip() {
    let d = doc! {"_id": 1, "a": {"b": [1i64, 2.5, {"c": null}]}, "": "x"};
    assert_eq!(parse(&to_canonical(&d)).unwrap(), d);
    assert_eq!(
        parse(&to_relaxed(&d))
            .unwrap()
            .path("a.b.1")
            .and_then(|v| v.as_f64()),
        Some(2.5)
    );
    assert_eq!(parse("{}").unwrap(), DocBuf::new());
    assert_eq!(OwnedValue::default(), OwnedValue::Null);
}

#[test]
fn legacy_reads_the_forms_of_the_shell() {
    // (value, canonical form of what it means)
    let cases = [
        ("NaN", r#"{"$numberDouble":"NaN"}"#),
        ("Infinity", r#"{"$numberDouble":"Infinity"}"#),
        ("+Infinity", r#"{"$numberDouble":"Infinity"}"#),
        ("-Infinity", r#"{"$numberDouble":"-Infinity"}"#),
        ("+5", r#"{"$numberInt":"5"}"#),
        ("-2147483648", r#"{"$numberInt":"-2147483648"}"#),
        (".5", r#"{"$numberDouble":"0.5"}"#),
        ("-.25e2", r#"{"$numberDouble":"-25.0"}"#),
        ("0x1F", r#"{"$numberInt":"31"}"#),
        ("-0X10", r#"{"$numberInt":"-16"}"#),
        (
            "0x7fffffffffffffff",
            r#"{"$numberLong":"9223372036854775807"}"#,
        ),
        ("undefined", r#"{"$undefined":true}"#),
        ("MinKey", r#"{"$minKey":1}"#),
        ("MaxKey()", r#"{"$maxKey":1}"#),
        ("'it\\'s \"x\"'", r#""it's \"x\"""#),
        ("\"it's\"", r#""it's""#),
        (
            "ObjectId(\"507f1f77bcf86cd799439011\")",
            r#"{"$oid":"507f1f77bcf86cd799439011"}"#,
        ),
        (
            "new ObjectId ( '507f1f77bcf86cd799439011' )",
            r#"{"$oid":"507f1f77bcf86cd799439011"}"#,
        ),
        (
            "ISODate(\"1970-01-01T00:00:01.500Z\")",
            r#"{"$date":{"$numberLong":"1500"}}"#,
        ),
        (
            "ISODate(\"1970-01-02\")",
            r#"{"$date":{"$numberLong":"86400000"}}"#,
        ),
        ("Date(5)", r#"{"$date":{"$numberLong":"5"}}"#),
        ("new Date(-5)", r#"{"$date":{"$numberLong":"-5"}}"#),
        (
            "new Date('1970-01-01T01:00:00+0100')",
            r#"{"$date":{"$numberLong":"0"}}"#,
        ),
        ("{$date: 1.5e3}", r#"{"$date":{"$numberLong":"1500"}}"#),
        (
            "{$date: ISODate('1970-01-01')}",
            r#"{"$date":{"$numberLong":"0"}}"#,
        ),
        ("NumberInt(5)", r#"{"$numberInt":"5"}"#),
        ("NumberInt('-0x5')", r#"{"$numberInt":"-5"}"#),
        ("NumberLong(5)", r#"{"$numberLong":"5"}"#),
        (
            "NumberLong(\"9223372036854775807\")",
            r#"{"$numberLong":"9223372036854775807"}"#,
        ),
        ("{$numberLong: '0x10'}", r#"{"$numberLong":"16"}"#),
        ("NumberDecimal(\"1.50\")", r#"{"$numberDecimal":"1.50"}"#),
        ("NumberDecimal(2)", r#"{"$numberDecimal":"2"}"#),
        (
            "BinData(128, \"AQI=\")",
            r#"{"$binary":{"base64":"AQI=","subType":"80"}}"#,
        ),
        (
            "BinData(2,\"//8=\")",
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
        ),
        (
            "HexData(0, '0102')",
            r#"{"$binary":{"base64":"AQI=","subType":"00"}}"#,
        ),
        (
            "UUID('c8edabc3f7384ca3b68dab92a91478a3')",
            r#"{"$binary":{"base64":"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}}"#,
        ),
        (
            "UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')",
            r#"{"$binary":{"base64":"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}}"#,
        ),
        (
            "MD5('c8edabc3f7384ca3b68dab92a91478a3')",
            r#"{"$binary":{"base64":"yO2rw/c4TKO2jauSqRR4ow==","subType":"05"}}"#,
        ),
        ("Timestamp(1, 2)", r#"{"$timestamp":{"t":1,"i":2}}"#),
        ("DBRef('c', 1)", r#"{"$ref":"c","$id":{"$numberInt":"1"}}"#),
        (
            "Dbref('c', ObjectId('507f1f77bcf86cd799439011'), 'd')",
            r#"{"$ref":"c","$id":{"$oid":"507f1f77bcf86cd799439011"},"$db":"d"}"#,
        ),
        (
            "DBPointer('d.c', ObjectId('507f1f77bcf86cd799439011'))",
            r#"{"$dbPointer":{"$ref":"d.c","$id":{"$oid":"507f1f77bcf86cd799439011"}}}"#,
        ),
        (
            r"/^a\/\d'}[\\n]/mi",
            r#"{"$regularExpression":{"pattern":"^a/\\d'}[\\n]","options":"im"}}"#,
        ),
        (
            "RegExp('a', 'i')",
            r#"{"$regularExpression":{"pattern":"a","options":"i"}}"#,
        ),
        (
            r#"{"$options": "mi", "$regex": "a"}"#,
            r#"{"$regularExpression":{"pattern":"a","options":"im"}}"#,
        ),
        (
            r#"{"$regex": "a"}"#,
            r#"{"$regularExpression":{"pattern":"a","options":""}}"#,
        ),
        ("Boolean('')", "false"),
        ("new Boolean(2)", "true"),
        ("Boolean()", "false"),
        ("{$undefined: null, }", r#"{"$undefined":true}"#),
        (
            "[true, false, null, {_id$: 'x', \"b\": [1,]},]",
            r#"[true,false,null,{"_id$":"x","b":[{"$numberInt":"1"}]}]"#,
        ),
        // Version 2 is read, too.
        (r#"{"$numberInt": "3"}"#, r#"{"$numberInt":"3"}"#),
    ];
    for (text, expected) in cases {
        let document = parse_legacy(&format!("{{ a : {text} }}"));
        let document = document.unwrap_or_else(|error| panic!("{text}: {error}"));
        let value = document.get("a").unwrap();
        assert_eq!(value_to_canonical(&value), expected, "{text}");
    }
}

#[test]
fn legacy_refuses_what_is_wrong() {
    let cases = [
        ("", "expected the name of a field"),
        ("1: 2", "expected the name of a field"),
        ("a: x", "expected a value at byte 4"),
        ("a: new 5", "expected a value at byte 4"),
        ("a: trueish", "expected a value"),
        (
            "a: ObjectId()",
            "ObjectId takes a text of 24 hexadecimal digits at byte 4",
        ),
        ("a: ObjectId('5')", "ObjectId takes"),
        ("a: ObjectId", "expected '('"),
        ("a: NumberLong(1.5)", "NumberLong takes"),
        ("a: NumberInt('2147483648')", "NumberInt takes"),
        ("a: ISODate('yesterday')", "ISODate takes"),
        ("a: Date(2020, 1, 1)", "Date takes"),
        ("a: BinData('x', 0)", "BinData takes"),
        ("a: BinData(256, '')", "BinData takes"),
        ("a: HexData(0, '012')", "HexData takes"),
        ("a: Timestamp(-1, 2)", "Timestamp takes"),
        ("a: DBPointer('c', 1)", "DBPointer takes"),
        ("a: 0x", "invalid hexadecimal number"),
        ("a: 0xFFFFFFFFFFFFFFFF", "invalid hexadecimal number"),
        ("a: 012", "leading zero"),
        ("a: .", "expected a digit"),
        ("a: +x", "expected a digit"),
        ("a: 'x", "unterminated string"),
        ("a: /x", "unterminated string"),
        ("a: /x\\", "unterminated string"),
        ("a: /x/q", "invalid regular expression"),
        ("a: {$oid: '5'}", "invalid $oid"),
        ("a: [,]", "expected a value"),
    ];
    for (text, message) in cases {
        let text = format!("{{{text}");
        let error = parse_legacy(&text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let deep = format!("{{a: {}", "Boolean(".repeat(1 << 20));
    assert!(parse_legacy(&deep).is_err());
    assert!(parse_legacy("5").is_err());
    assert!(parse("{a: 1}").is_err());
}
