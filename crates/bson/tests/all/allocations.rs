//! Reading, validating and key encoding allocate nothing per element.
#![allow(clippy::unwrap_used)]

use crate::common;

use allocation_counter::measure;
use frond_bson::key::{self, TypeBits};
use frond_bson::{Doc, DocBuf, Value, compare_docs};

/// A document of `n` elements of every common type, nested.
fn large(n: i32) -> DocBuf {
    let mut doc = DocBuf::new();
    for i in 0..n {
        doc.push(&format!("number {i}"), i);
        doc.push(&format!("double {i}"), f64::from(i) / 10.0);
        doc.push(&format!("text {i}"), "some text\0with a zero byte é");
        doc.push(
            &format!("decimal {i}"),
            "-19.99E-400".parse::<frond_bson::Decimal128>().unwrap(),
        );
        doc.push_doc(&format!("nested {i}"), |inner| {
            inner.push("a", Value::Null);
            inner.push_array("b", |a| (0..5).for_each(|x| a.push(x)));
        });
    }
    doc
}

#[test]
fn nothing_is_allocated_per_element() {
    let doc = large(1000);
    let copy = doc.clone();
    // The counter itself must count.
    assert!(measure(|| drop(doc.clone())).count_total > 0);

    let validated = measure(|| assert!(Doc::validate(doc.as_bytes()).is_ok()));
    assert_eq!(validated.count_total, 0, "validate");
    let read = measure(|| assert_eq!(doc.iter().count(), 5000));
    assert_eq!(read.count_total, 0, "iterate");
    let got = measure(|| assert!(doc.get("nested 999").is_some()));
    assert_eq!(got.count_total, 0, "get");
    let mut changed = copy.clone();
    changed.push("more", 1);
    let compared = measure(|| assert!(compare_docs(&doc, &changed).is_lt()));
    assert_eq!(compared.count_total, 0, "compare");

    let mut out = Vec::with_capacity(doc.len_bytes() * 2);
    let encoded = measure(|| key::encode(&Value::Document(&doc), &mut out));
    assert_eq!(encoded.count_total, 0, "encode");
    out.clear();
    let encoded = measure(|| key::encode_descending(&Value::Document(&doc), &mut out));
    assert_eq!(encoded.count_total, 0, "encode descending");
    out.clear();
    let mut bits = TypeBits::new();
    let typed = measure(|| {
        key::encode_typed(
            &Value::Document(&doc),
            key::Direction::Ascending,
            &mut out,
            &mut bits,
        );
    });
    assert!(
        typed.count_total <= 16,
        "only the bits' own growth: {}",
        typed.count_total
    );

    // Building grows one buffer, however deep the documents inside.
    let built = measure(|| drop(common::nested(100)));
    assert!(built.count_total <= 10, "build: {}", built.count_total);
}
