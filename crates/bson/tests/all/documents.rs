//! Building and reading documents through the public interface.
#![allow(clippy::unwrap_used)]

use frond_bson::{
    ArrayBuf, Decimal128, Doc, DocBuf, ObjectId, OwnedValue, Timestamp, Value, array, doc, extjson,
};

/// One value of every type, with its name in MongoDB and its two JSON forms.
fn every_type<'a>(
    scope: &'a Doc,
    list: &'a Doc,
) -> Vec<(Value<'a>, &'static str, &'static str, &'static str)> {
    let id = ObjectId(*b"abcdefghijkl");
    vec![
        (
            Value::Double(1.0),
            "double",
            "1.0",
            r#"{"$numberDouble":"1.0"}"#,
        ),
        (
            Value::Double(f64::NAN),
            "double",
            r#"{"$numberDouble":"NaN"}"#,
            r#"{"$numberDouble":"NaN"}"#,
        ),
        (
            Value::Double(-0.0),
            "double",
            "-0.0",
            r#"{"$numberDouble":"-0.0"}"#,
        ),
        (
            Value::Double(1e300),
            "double",
            "1e300",
            r#"{"$numberDouble":"1e300"}"#,
        ),
        (
            Value::String("a\"\\\n\u{1}é"),
            "string",
            r#""a\"\\\n\u0001é""#,
            r#""a\"\\\n\u0001é""#,
        ),
        (
            Value::Document(scope),
            "object",
            r#"{"x":1}"#,
            r#"{"x":{"$numberInt":"1"}}"#,
        ),
        (
            Value::Array(list),
            "array",
            r#"[1,"b"]"#,
            r#"[{"$numberInt":"1"},"b"]"#,
        ),
        (
            Value::Binary {
                subtype: 4,
                bytes: &[1, 2],
            },
            "binData",
            r#"{"$binary":{"base64":"AQI=","subType":"04"}}"#,
            r#"{"$binary":{"base64":"AQI=","subType":"04"}}"#,
        ),
        (
            Value::Binary {
                subtype: 2,
                bytes: &[2, 0, 0, 0, 0xFF, 0xFF],
            },
            "binData",
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
            r#"{"$binary":{"base64":"//8=","subType":"02"}}"#,
        ),
        (
            Value::Undefined,
            "undefined",
            r#"{"$undefined":true}"#,
            r#"{"$undefined":true}"#,
        ),
        (
            Value::ObjectId(id),
            "objectId",
            r#"{"$oid":"6162636465666768696a6b6c"}"#,
            r#"{"$oid":"6162636465666768696a6b6c"}"#,
        ),
        (Value::Bool(true), "bool", "true", "true"),
        (
            Value::DateTime(1_356_351_330_501),
            "date",
            r#"{"$date":"2012-12-24T12:15:30.501Z"}"#,
            r#"{"$date":{"$numberLong":"1356351330501"}}"#,
        ),
        (
            Value::DateTime(-1),
            "date",
            r#"{"$date":{"$numberLong":"-1"}}"#,
            r#"{"$date":{"$numberLong":"-1"}}"#,
        ),
        (Value::Null, "null", "null", "null"),
        (
            Value::Regex {
                pattern: "a/b",
                options: "i",
            },
            "regex",
            r#"{"$regularExpression":{"pattern":"a/b","options":"i"}}"#,
            r#"{"$regularExpression":{"pattern":"a/b","options":"i"}}"#,
        ),
        (
            Value::DbPointer { ns: "d.c", id },
            "dbPointer",
            r#"{"$dbPointer":{"$ref":"d.c","$id":{"$oid":"6162636465666768696a6b6c"}}}"#,
            r#"{"$dbPointer":{"$ref":"d.c","$id":{"$oid":"6162636465666768696a6b6c"}}}"#,
        ),
        (
            Value::JavaScript("f()"),
            "javascript",
            r#"{"$code":"f()"}"#,
            r#"{"$code":"f()"}"#,
        ),
        (
            Value::Symbol("s"),
            "symbol",
            r#"{"$symbol":"s"}"#,
            r#"{"$symbol":"s"}"#,
        ),
        (
            Value::JavaScriptWithScope { code: "f", scope },
            "javascriptWithScope",
            r#"{"$code":"f","$scope":{"x":1}}"#,
            r#"{"$code":"f","$scope":{"x":{"$numberInt":"1"}}}"#,
        ),
        (Value::Int32(-7), "int", "-7", r#"{"$numberInt":"-7"}"#),
        (
            Value::Timestamp(Timestamp {
                time: 4_000_000_000,
                increment: 2,
            }),
            "timestamp",
            r#"{"$timestamp":{"t":4000000000,"i":2}}"#,
            r#"{"$timestamp":{"t":4000000000,"i":2}}"#,
        ),
        (
            Value::Int64(1 << 40),
            "long",
            "1099511627776",
            r#"{"$numberLong":"1099511627776"}"#,
        ),
        (
            Value::Decimal128("1.50".parse::<Decimal128>().unwrap()),
            "decimal",
            r#"{"$numberDecimal":"1.50"}"#,
            r#"{"$numberDecimal":"1.50"}"#,
        ),
        (
            Value::MinKey,
            "minKey",
            r#"{"$minKey":1}"#,
            r#"{"$minKey":1}"#,
        ),
        (
            Value::MaxKey,
            "maxKey",
            r#"{"$maxKey":1}"#,
            r#"{"$maxKey":1}"#,
        ),
    ]
}

#[test]
fn every_type_is_written_and_read_back() {
    let (scope, list) = (doc! {"x": 1}, array![1, "b"]);
    let mut all = DocBuf::new();
    for (value, name, relaxed, canonical) in every_type(&scope, list.as_doc()) {
        let mut d = DocBuf::new();
        d.push("v", value);
        all.push("v", value);
        let read = Doc::validate(d.as_bytes()).unwrap().get("v").unwrap();
        assert_eq!(read, value);
        assert_eq!(OwnedValue::from(read), value);
        assert_eq!(read.type_name(), name);
        assert_eq!(frond_bson::type_code_of_name(name), Some(value.type_code()));
        assert_eq!(d.len_bytes(), 8 + value.len_bytes(), "{name}");
        assert_eq!(extjson::value_to_relaxed(&read), relaxed);
        assert_eq!(extjson::value_to_canonical(&read), canonical);
    }
    assert_eq!(Doc::validate(all.as_bytes()).unwrap().count(), 26);
}

#[test]
fn bytes_are_those_of_the_specification() {
    // The two examples of bsonspec.org.
    assert_eq!(
        doc! {"hello": "world"}.as_bytes(),
        b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00"
    );
    assert_eq!(
        doc! {"BSON": ["awesome", 5.05, 1986]}.as_bytes(),
        b"1\x00\x00\x00\x04BSON\x00&\x00\x00\x00\x020\x00\x08\x00\x00\x00awesome\x00\x011\x00333333\x14@\x102\x00\xc2\x07\x00\x00\x00\x00"
    );
}

#[test]
fn closures_and_literals_build_the_same() {
    let mut built = DocBuf::new();
    built.push("a", 1);
    built.push_doc("b", |w| {
        w.push("c", true);
        w.push_array("d", |a| {
            a.push(1);
            a.push_doc(|w| w.push("e", "x"));
            a.push_array(|a| a.push(2i64));
            assert_eq!(a.len(), 3);
        });
        assert_eq!(w.get_bool("c"), Some(true));
    });
    built.push("f", Option::<i32>::None);
    let key = String::from("a");
    let literal =
        doc! {key: 1, "b": {"c": true, "d": [1, {"e": "x"}, [2i64]]}, ("f".to_owned()): null,};
    assert_eq!(built, literal);
    Doc::validate(built.as_bytes()).unwrap();

    let result: Result<(), &str> = built.push_doc("g", |_| Err("no"));
    assert_eq!(result, Err("no"));
    assert_eq!(built.get_doc("g").map(Doc::is_empty), Some(true));
    let mut inner = built.clone();
    inner.clear();
    assert_eq!(inner, DocBuf::default());
}

#[test]
fn literals_take_owned_and_borrowed_values() {
    let (text, inner, list) = (String::from("t"), doc! {"x": 1}, array![1, 2]);
    let d = doc! {"a": text, "b": &inner, "c": list, "d": inner, "e": Some(3), "f": OwnedValue::Int32(1),
    "g": [1, 2].len() as i64, "h": -5, "i": Value::MinKey};
    let expected =
        r#"{"a":"t","b":{"x":1},"c":[1,2],"d":{"x":1},"e":3,"f":1,"g":2,"h":-5,"i":{"$minKey":1}}"#;
    assert_eq!(format!("{d:?}"), expected);
    assert_eq!(doc! {}, DocBuf::new());
    assert_eq!(array![].as_doc(), Doc::empty());
}

#[test]
fn getters_and_paths() {
    let d = doc! {"i": 5, "l": 6i64, "d": 7.0, "f": 7.5, "s": "x", "b": false, "o": {"p": [10, {"q": 11}]},
    "dec": "8.0".parse::<Decimal128>().unwrap(), "i": 99, "": 1};
    let numbers = [
        ("i", Some(5)),
        ("l", Some(6)),
        ("d", Some(7)),
        ("f", None),
        ("s", None),
        ("dec", Some(8)),
        ("none", None),
    ];
    for (key, expected) in numbers {
        assert_eq!(d.get_i64(key), expected, "{key}");
    }
    assert_eq!(d.get_f64("f"), Some(7.5));
    assert_eq!(d.get_str("s"), Some("x"));
    assert_eq!(d.get_bool("b"), Some(false));
    assert_eq!(d.get(""), Some(Value::Int32(1)));
    let paths = [
        ("o.p.0", Some(10)),
        ("o.p.1.q", Some(11)),
        ("o.p.q", None),
        ("o.p.01", None),
        ("i.x", None),
        ("s", None),
        ("i", Some(5)),
    ];
    for (path, expected) in paths {
        assert_eq!(
            d.path(path).and_then(|v| v.as_i64_lossless()),
            expected,
            "{path}"
        );
    }
    assert_eq!(d.iter().map(|(k, _)| k).collect::<String>(), "ildfsbodeci");
}

#[test]
fn integral_doubles_convert_exactly() {
    let cases = [
        (0.0, Some(0)),
        (-0.0, Some(0)),
        (1.5, None),
        (9_007_199_254_740_993.0, Some(9_007_199_254_740_992)),
        (9_223_372_036_854_775_807.0, None),
        (-9_223_372_036_854_775_808.0, Some(i64::MIN)),
        (f64::NAN, None),
        (f64::INFINITY, None),
    ];
    for (double, expected) in cases {
        assert_eq!(
            Value::Double(double).as_i64_lossless(),
            expected,
            "{double}"
        );
    }
}

#[test]
fn truth() {
    let falsy = [
        Value::Null,
        Value::Undefined,
        Value::Int32(0),
        Value::Int64(0),
        Value::Double(-0.0),
        Value::Bool(false),
        Value::Decimal128("0E3".parse().unwrap()),
    ];
    for value in falsy {
        assert!(!value.truthy(), "{value:?}");
    }
    for value in [
        Value::Double(f64::NAN),
        Value::String(""),
        Value::Int32(-1),
        Value::MinKey,
        Value::DateTime(0),
    ] {
        assert!(value.truthy(), "{value:?}");
    }
}

#[test]
fn zero_bytes_cannot_break_a_document() {
    let mut d = DocBuf::new();
    d.push(
        "a\0b",
        Value::Regex {
            pattern: "x\0y",
            options: "i\0",
        },
    );
    d.push("s", "kept\0whole");
    let read = Doc::validate(d.as_bytes()).unwrap();
    assert_eq!(
        read.get("a"),
        Some(Value::Regex {
            pattern: "x",
            options: "i"
        })
    );
    assert_eq!(read.get_str("s"), Some("kept\0whole"));
}

#[test]
fn long_arrays_count_on() {
    let a: ArrayBuf = (0..1001).collect();
    assert_eq!(a.get("0"), Some(Value::Int32(0)));
    assert_eq!(a.get("999"), Some(Value::Int32(999)));
    assert_eq!(a.get("1000"), Some(Value::Int32(1000)));
    Doc::validate(a.as_bytes()).unwrap();
}

#[test]
fn documents_and_arrays_become_fields_in_their_own_buffers() {
    let mut list = ArrayBuf::new();
    list.push(1);
    list.push("two");
    list.reserve(100);
    let place = list.as_doc().as_bytes().as_ptr();
    let mut inner = list.into_field("list");
    inner.push("id", 7i64);
    let outer = inner.into_field("inner");
    assert_eq!(outer, doc! {"inner": {"list": [1, "two"], "id": 7i64}});
    assert_eq!(outer.as_doc().as_bytes().as_ptr(), place);
    Doc::validate(outer.as_bytes()).unwrap();
}
