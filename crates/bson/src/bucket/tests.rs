#![allow(clippy::unwrap_used)]

use super::column::Column;
use super::*;
use crate::{
    Decimal128, Doc, DocBuf, ObjectId, OwnedValue, RawElement, Timestamp, Value, doc, extjson, tag,
};

fn literal(value: &Value<'_>) -> Vec<u8> {
    let mut bytes = vec![value.type_code(), 0];
    value.write_to(&mut bytes);
    bytes
}

/// Differences in words of one integer each, of which a control byte can have 16.
fn deltas(scale: u8, deltas: &[Option<i64>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in deltas.chunks(16) {
        bytes.push(scale | (chunk.len() - 1) as u8);
        for delta in chunk {
            let integer = match delta {
                Some(delta) => (delta << 1 ^ delta >> 63) as u64,
                None => (1 << 60) - 1,
            };
            bytes.extend_from_slice(&(14 | integer << 4).to_le_bytes());
        }
    }
    bytes
}

fn column(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = parts.concat();
    bytes.push(0);
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Option<OwnedValue>>, ColumnFault> {
    let mut column = Column::new(bytes, 1_000);
    let mut found = Vec::new();
    while let Some(cell) = column.next()? {
        found.push(cell.map(|(tag, value)| {
            let mut element = vec![tag, b'v', 0];
            element.extend_from_slice(value);
            let (element, rest) = RawElement::split(&element).unwrap();
            assert!(rest.is_empty());
            element.value().unwrap().to_owned()
        }));
    }
    Ok(found)
}

fn owned(values: &[Value<'_>]) -> Vec<Option<OwnedValue>> {
    values.iter().map(|value| Some(value.to_owned())).collect()
}

fn base64(text: &str) -> Vec<u8> {
    let text = format!(r#"{{"a": {{"$binary": {{"base64": "{text}", "subType": "07"}}}}}}"#);
    extjson::parse(&text)
        .unwrap()
        .get_binary("a")
        .unwrap()
        .to_vec()
}

fn id(hex: &str) -> Value<'static> {
    Value::ObjectId(hex.parse().unwrap())
}

#[test]
fn columns_that_mongodb_wrote() {
    let at = 1_705_438_119_448;
    let cases = [
        ("CQDoAwAAAAAAAAA=", vec![Value::DateTime(1_000)]),
        (
            "CQAYhggUjQEAAIAOAAAAAAAAAAA=",
            vec![Value::DateTime(at), Value::DateTime(at)],
        ),
        (
            "AQAAAAAAAAAAAJAuAAAAAAAAAAA=",
            vec![Value::Double(0.0), Value::Double(1.0)],
        ),
        (
            "BwBlpuun5tLoSOCMN1CALgAAAAAAAAAA",
            vec![
                id("65a6eba7e6d2e848e08c3750"),
                id("65a6eba7e6d2e848e08c3751"),
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(&base64(text)), Ok(owned(&expected)), "{text}");
    }
    // Five values between the least and the greatest one, which the bucket had beside them.
    let texts = read(&base64("AgACAAAAYQCBLAAAAgAgAADOPwwAAAAAAAA=")).unwrap();
    let texts: Vec<&OwnedValue> = texts.iter().map(|text| text.as_ref().unwrap()).collect();
    assert_eq!(texts.len(), 5);
    assert_eq!(texts.first().unwrap().as_value(), Value::String("a"));
    assert!(
        texts
            .iter()
            .any(|text| text.as_value() == Value::String("d"))
    );
    let ids = read(&base64("BwBpaQ5kKmiNEQMoTQyAK2AAEPwXANQA")).unwrap();
    assert_eq!(ids.len(), 5);
    assert!(ids.contains(&Some(id("69690e642a688d1103284d0c").to_owned())));
    assert!(ids.contains(&Some(id("69690ea22a688d1103284d10").to_owned())));
    let times = read(&base64("CQDpOGDCmwEAAICLLuFtJFWCTwA=")).unwrap();
    assert_eq!(times.len(), 5);
    assert!(times.contains(&Some(Value::DateTime(1_768_492_652_636).to_owned())));
    // One second apart: repeated differences of differences, with a few others between them.
    let hex = "0900482bdc4181010000870a7d0000000000001f0000000000000004000000000000000a00000000d0f77c01000000000000\
               001f0000000000000006000000000000000e0000000000000000";
    let times = read(&crate::unhex(&hex.replace(' ', "")).unwrap()).unwrap();
    assert_eq!(times.len(), 577);
    assert_eq!(
        times.first().unwrap(),
        &Some(Value::DateTime(1654667357000).to_owned())
    );
}

#[test]
fn differences_are_those_of_the_type() {
    let text = |text: &'static str| Value::String(text);
    let binary = |bytes: &'static [u8]| Value::Binary { subtype: 4, bytes };
    let decimal = |text: &str| Value::Decimal128(text.parse::<Decimal128>().unwrap());
    let time = |time, increment| Value::Timestamp(Timestamp { time, increment });
    let cases: Vec<(u8, Value<'_>, Vec<i64>, Vec<Value<'_>>)> = vec![
        (
            0x80,
            Value::Int32(5),
            vec![-7, 0, 1],
            vec![Value::Int32(-2), Value::Int32(-2), Value::Int32(-1)],
        ),
        (
            0x80,
            Value::Int64(1 << 60),
            vec![1 << 40],
            vec![Value::Int64((1 << 60) + (1 << 40))],
        ),
        (
            0x80,
            Value::Bool(false),
            vec![1, -1],
            vec![Value::Bool(true), Value::Bool(false)],
        ),
        (
            0x80,
            Value::DateTime(100),
            vec![10, 0, -5],
            vec![
                Value::DateTime(110),
                Value::DateTime(120),
                Value::DateTime(125),
            ],
        ),
        (0x80, time(1, 2), vec![1, 1], vec![time(1, 3), time(1, 5)]),
        (
            0x80,
            Value::Double(1.0),
            vec![1],
            vec![Value::Double(f64::from_bits(1.0_f64.to_bits() + 1))],
        ),
        (
            0x90,
            Value::Double(3.0),
            vec![-4],
            vec![Value::Double(-1.0)],
        ),
        (0xA0, Value::Double(1.5), vec![1], vec![Value::Double(1.6)]),
        (
            0xB0,
            Value::Double(1.25),
            vec![1, -200],
            vec![Value::Double(1.26), Value::Double(-0.74)],
        ),
        (
            0xC0,
            Value::Double(0.0001),
            vec![1],
            vec![Value::Double(0.0002)],
        ),
        (
            0xD0,
            Value::Double(0.5),
            vec![1],
            vec![Value::Double(0.500_000_01)],
        ),
        (
            0x80,
            text("ab1"),
            vec![1, 0, 256],
            vec![text("ab2"), text("ab2"), text("ac2")],
        ),
        (0x80, text(""), vec![97], vec![text("a")]),
        (
            0x80,
            Value::JavaScript("f"),
            vec![1],
            vec![Value::JavaScript("g")],
        ),
        (
            0x80,
            binary(&[1, 2, 3]),
            vec![1, 1 << 16],
            vec![binary(&[2, 2, 3]), binary(&[2, 2, 4])],
        ),
        (0x80, decimal("1"), vec![1], vec![decimal("2")]),
        (
            0x80,
            id("000000010000000000000001"),
            vec![1, 0],
            vec![
                id("000000010000000000000002"),
                id("000000010000000000000003"),
            ],
        ),
        (
            0x80,
            id("000000010000000000000001"),
            vec![256],
            vec![id("000000020000000000000001")],
        ),
        (0x80, Value::Null, vec![0], vec![Value::Null]),
        (
            0x80,
            text("longer than sixteen"),
            vec![0],
            vec![text("longer than sixteen")],
        ),
    ]; // fmt: skip
    for (scale, first, steps, expected) in cases {
        let steps: Vec<Option<i64>> = steps.into_iter().map(Some).collect();
        let bytes = column(&[literal(&first), deltas(scale, &steps)]);
        let mut all = owned(&[first]);
        all.extend(owned(&expected));
        assert_eq!(read(&bytes), Ok(all), "{first:?}");
    }
}

#[test]
fn missing_values_stay_missing() {
    let bytes = column(&[
        deltas(0x80, &[None, Some(0), Some(1)]),
        literal(&Value::Int32(1)),
        deltas(0x80, &[None, Some(2), None]),
        literal(&Value::String("x")),
        deltas(0x80, &[None, Some(0)]),
    ]);
    let mut expected = vec![None; 3];
    expected.extend(owned(&[Value::Int32(1)]));
    expected.push(None);
    expected.extend(owned(&[Value::Int32(3)]));
    expected.push(None);
    expected.extend(owned(&[Value::String("x")]));
    expected.push(None);
    expected.extend(owned(&[Value::String("x")]));
    assert_eq!(read(&bytes), Ok(expected));
}

#[test]
fn integers_are_repeated_behind_another_control_byte() {
    let repeat = [vec![0x80], 15_u64.to_le_bytes().to_vec()].concat();
    let bytes = column(&[literal(&Value::Int64(0)), deltas(0x80, &[Some(2)]), repeat]);
    let expected: Vec<Value<'_>> = (0..122).map(|n| Value::Int64(n * 2)).collect();
    assert_eq!(read(&bytes), Ok(owned(&expected)));
}

/// A row of objects: the control byte, the reference, and the parts.
fn objects(control: u8, reference: &Doc, parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![control];
    bytes.extend_from_slice(reference.as_bytes());
    bytes.extend(parts.concat());
    bytes.push(0);
    bytes
}

#[test]
fn objects_are_divided_into_their_fields() {
    let reference = doc! {"a": 1, "b": {"c": "x", "d": {}}, "e": {"f": true}, "g": [1, 2]};
    let some = |steps: &[i64]| {
        let steps: Vec<Option<i64>> = steps.iter().map(|step| Some(*step)).collect();
        deltas(0x80, &steps)
    };
    // Each field's words come when the field has none left: here all fields have two values.
    let divided = objects(
        0xF1,
        &reference,
        &[
            some(&[0, 1]),
            deltas(0x80, &[Some(0), None]),
            deltas(0x80, &[None, Some(0)]),
            some(&[0, 5]),
            some(&[0, 0]),
        ],
    );
    let expected = vec![
        doc! {"a": 1, "b": {"c": "x", "d": {}}, "g": [1, 2]},
        doc! {"a": 2, "b": {"d": {}}, "e": {"f": true}, "g": [6, 2]},
    ];
    let all = |docs: &[DocBuf]| -> Vec<Option<OwnedValue>> {
        let values = docs.iter().map(|doc| Some(Value::Document(doc).to_owned()));
        values.collect()
    };
    assert_eq!(
        read(&column(std::slice::from_ref(&divided))),
        Ok(all(&expected))
    );
    // The last object is repeated behind the row, and other values follow.
    let bytes = column(&[
        divided,
        deltas(0x80, &[Some(0), None]),
        literal(&Value::Int32(1)),
    ]);
    let mut repeated = all(&expected);
    repeated.extend(all(expected.get(1..).unwrap()));
    repeated.push(None);
    repeated.extend(owned(&[Value::Int32(1)]));
    assert_eq!(read(&bytes), Ok(repeated));
    // In the old form arrays are values.
    let old = objects(
        0xF0,
        &doc! {"a": 1, "g": [1, 2]},
        &[some(&[1]), literal(&Value::Array(doc! {"0": 7}.as_doc()))],
    );
    assert_eq!(read(&column(&[old])), Ok(all(&[doc! {"a": 2, "g": [7]}])));
    // Arrays at the top, of which one is missing as a whole.
    let arrays = objects(
        0xF2,
        &doc! {"0": 1, "1": 2},
        &[
            deltas(0x80, &[Some(0), None]),
            deltas(0x80, &[Some(3), None]),
        ],
    );
    let array = doc! {"0": 1, "1": 5};
    let expected = vec![Some(Value::Array(&array).to_owned()), None];
    assert_eq!(read(&column(&[arrays])), Ok(expected));
}

#[test]
fn damaged_columns_are_refused() {
    let int = literal(&Value::Int32(1));
    let word = |control: u8| [vec![control], 14_u64.to_le_bytes().to_vec()].concat();
    let delta = deltas(0x80, &[Some(1)]);
    let reference = doc! {"a": 1, "b": 2};
    for (bytes, fault) in [
        (vec![], ColumnFault::Truncated),
        (int.clone(), ColumnFault::Truncated),
        (vec![0, 0], ColumnFault::Trailing),
        (
            column(&[vec![tag::INT32, b'a', 0, 1, 0, 0, 0]]),
            ColumnFault::Control(tag::INT32),
        ),
        (column(&[vec![0x1F, 0]]), ColumnFault::Control(0x1F)),
        (
            column(&[int.clone(), word(0x90)]),
            ColumnFault::Control(0x90),
        ),
        (
            column(&[int.clone(), word(0xE0)]),
            ColumnFault::Control(0xE0),
        ),
        (
            column(&[int.clone(), word(0x20)]),
            ColumnFault::Control(0x20),
        ),
        (
            column(&[literal(&Value::Double(1.0)), word(0x70)]),
            ColumnFault::Control(0x70),
        ),
        (
            column(&[literal(&Value::Double(0.1)), word(0x90)]),
            ColumnFault::Scale,
        ),
        (
            column(&[literal(&Value::Null), delta.clone()]),
            ColumnFault::Delta(tag::NULL),
        ),
        (
            column(&[
                literal(&Value::Binary {
                    subtype: 0,
                    bytes: &[0; 17],
                }),
                delta.clone(),
            ]),
            ColumnFault::Delta(tag::BINARY),
        ),
        (
            column(&[int.clone(), vec![0x80, 0, 0, 0, 0, 0, 0, 0, 0]]),
            ColumnFault::Selector(0),
        ),
        (
            column(&[objects(0xF1, &doc! {}, std::slice::from_ref(&delta))]),
            ColumnFault::Reference,
        ),
        (
            column(&[objects(0xF1, &reference, &[])]),
            ColumnFault::Reference,
        ),
        (column(&[vec![0xF1, 9, 0, 0, 0]]), ColumnFault::Reference),
        (
            column(&[objects(0xF1, &reference, std::slice::from_ref(&delta))]),
            ColumnFault::Objects,
        ),
        (
            column(&[objects(
                0xF1,
                &reference,
                &[delta.clone(), deltas(0x80, &[Some(1), Some(1)])],
            )]),
            ColumnFault::Objects,
        ),
    ] {
        assert_eq!(read(&bytes), Err(fault), "{bytes:?}");
    } // fmt: skip
    let mut many = DocBuf::new();
    (0..1_100).for_each(|n| many.push(&n.to_string(), n));
    assert_eq!(
        read(&column(&[objects(0xF1, &many, &[])])),
        Err(ColumnFault::Fields)
    );
}

#[test]
fn no_change_of_a_byte_makes_a_column_panic() {
    let reference = doc! {"a": 1, "b": {"c": "x"}};
    let bytes = column(&[
        literal(&Value::String("text")),
        deltas(0x80, &[Some(1), None]),
        literal(&Value::Double(1.5)),
        deltas(0xA0, &[Some(1)]),
        objects(
            0xF1,
            &reference,
            &[deltas(0x80, &[Some(1)]), deltas(0x80, &[Some(1)])],
        ),
        literal(&id("65a6eba7e6d2e848e08c3750")),
        deltas(0x80, &[Some(7)]),
    ]);
    assert_eq!(read(&bytes).unwrap().len(), 8);
    for end in 0..bytes.len() {
        assert!(read(bytes.get(..end).unwrap()).is_err(), "{end}");
    }
    for at in 0..bytes.len() {
        for value in 0..=255 {
            let mut changed = bytes.clone();
            *changed.get_mut(at).unwrap() = value;
            let mut column = Column::new(&changed, 1_000);
            while let Ok(Some(_)) = column.next() {}
        }
    }
}

const SERIES: Series<'_> = Series {
    time_field: "t",
    meta_field: Some("m"),
};

fn unpack(bucket: &Doc, series: Series<'_>) -> Result<Vec<DocBuf>, BucketError> {
    let mut measurements = Measurements::new(bucket, series)?;
    let (mut found, mut out) = (Vec::new(), DocBuf::new());
    while measurements.next(&mut out)? {
        found.push(out.clone());
    }
    assert_eq!(measurements.number(), found.len());
    Ok(found)
}

fn bucket(version: i32, data: &Doc) -> DocBuf {
    let control = doc! {"version": version, "min": {}, "max": {}};
    doc! {"_id": ObjectId([7; 12]), "control": &control, "meta": {"s": 1}, "data": data}
}

fn compressed<'a>(bytes: &'a [u8]) -> Value<'a> {
    Value::Binary { subtype: 7, bytes }
}

#[test]
fn buckets_of_each_version_have_the_same_measurements() {
    let plain = doc! {
        "_id": {"0": 1, "1": 2, "2": 3},
        "t": {"0": Value::DateTime(5), "1": Value::DateTime(6), "2": Value::DateTime(8)},
        "v": {"1": "x"},
    };
    let ids = column(&[literal(&Value::Int32(1)), deltas(0x80, &[Some(1), Some(1)])]);
    let times = column(&[
        literal(&Value::DateTime(5)),
        deltas(0x80, &[Some(1), Some(1)]),
    ]);
    let values = column(&[
        deltas(0x80, &[None]),
        literal(&Value::String("x")),
        deltas(0x80, &[None]),
    ]);
    let packed = doc! {"_id": compressed(&ids), "t": compressed(&times), "v": compressed(&values)};
    let expected = vec![
        doc! {"t": Value::DateTime(5), "m": {"s": 1}, "_id": 1},
        doc! {"t": Value::DateTime(6), "m": {"s": 1}, "_id": 2, "v": "x"},
        doc! {"t": Value::DateTime(8), "m": {"s": 1}, "_id": 3},
    ];
    for (version, data) in [(1, &plain), (2, &packed), (3, &packed)] {
        let bucket = bucket(version, data);
        assert!(is_bucket(&bucket));
        assert_eq!(unpack(&bucket, SERIES).as_ref(), Ok(&expected), "{version}");
    }
}

#[test]
fn damaged_buckets_are_refused_by_name() {
    let times = column(&[literal(&Value::DateTime(5)), deltas(0x80, &[Some(0)])]);
    let one = column(&[literal(&Value::Int32(1))]);
    let three = column(&[literal(&Value::Int32(1)), deltas(0x80, &[Some(0), Some(0)])]);
    let time = doc! {"0": Value::DateTime(5)};
    let counted = |count: i64| {
        let control = doc! {"version": 2, "min": {}, "max": {}, "count": count};
        doc! {"_id": ObjectId([7; 12]), "control": &control, "data": {"t": compressed(&times)}}
    };
    for (bucket, expected) in [
        (bucket(4, &doc! {"t": &time}), "control.version is Int32(4)"),
        (bucket(1, &doc! {"a": {"0": 1}}), "its data.t must be there"),
        (
            bucket(1, &doc! {"t": {"0": 5}}),
            "its t of measurement 0 must be a date",
        ),
        (
            bucket(1, &doc! {"t": &time, "m": {"0": 1}}),
            "the name of the metaField",
        ),
        (bucket(1, &doc! {"t": &time, "t": &time}), "two columns"),
        (
            bucket(1, &doc! {"t": &time, "a": {"1": 1}}),
            "'a' has 2 values, and the bucket has 1",
        ),
        (
            bucket(1, &doc! {"t": compressed(&times)}),
            "its data.t must be a document",
        ),
        (
            bucket(2, &doc! {"t": &time}),
            "its data.t must be binary of subtype 7",
        ),
        (bucket(2, &doc! {"t": compressed(&one)}), "must be a date"),
        (
            bucket(2, &doc! {"t": compressed(&times), "a": compressed(&one)}),
            "'a' has 1 values, and the bucket has 2",
        ),
        (
            bucket(3, &doc! {"t": compressed(&times), "a": compressed(&three)}),
            "'a' has 3 values, and the bucket has 2",
        ),
        (
            bucket(2, &doc! {"t": compressed(&[9])}),
            "the column 't': the bytes end too early",
        ),
        (
            counted(1),
            "its control.count is 1, and it has 2 or more measurements",
        ),
        (
            counted(3),
            "its control.count is 3, and it has 2 measurements",
        ),
    ] {
        let text = unpack(&bucket, SERIES).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(
            text.starts_with("the bucket 070707070707070707070707: "),
            "{text}"
        );
    } // fmt: skip
    let without = Series {
        meta_field: None,
        ..SERIES
    };
    let fault = unpack(&bucket(1, &doc! {"t": &time}), without)
        .unwrap_err()
        .fault;
    assert_eq!(fault, Fault::Metadata);
}

#[test]
fn repeated_times_end_at_the_limit() {
    // Each word stands for 1,920 measurements.
    let words = [0xFF_u64.to_le_bytes(); 16].concat();
    let repeats: Vec<Vec<u8>> = (0..40)
        .map(|_| [&[0x8F], words.as_slice()].concat())
        .collect();
    let times = column(&[literal(&Value::DateTime(5)), repeats.concat()]);
    let bucket = bucket(2, &doc! {"t": compressed(&times)});
    let fault = unpack_count(&bucket).unwrap_err().fault;
    assert_eq!(fault, Fault::TooLarge("measurements"));
}

/// Counts the measurements, without holding them.
fn unpack_count(bucket: &Doc) -> Result<usize, BucketError> {
    let mut measurements = Measurements::new(bucket, SERIES)?;
    let mut out = DocBuf::new();
    while measurements.next(&mut out)? {}
    Ok(measurements.number())
}

#[test]
fn buckets_are_not_measurements() {
    let control = doc! { "version": 2, "min": {}, "max": {}, "count": 1 };
    for (document, expected) in [
        (
            doc! { "_id": 1, "control": &control, "meta": 5, "data": {} },
            true,
        ),
        (doc! { "_id": 1, "at": Value::DateTime(5), "t": 2 }, false),
        (doc! { "control": { "version": 1 }, "data": {} }, false),
        (doc! { "control": &control, "data": 5 }, false),
    ] {
        assert_eq!(is_bucket(&document), expected, "{document:?}");
    }
}
