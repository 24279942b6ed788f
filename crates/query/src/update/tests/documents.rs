//! Conflicts, `_id`, upserts, limits and random updates.

use super::*;
use frond_bson::doc;
use frond_error::ErrorCode;

#[test]
fn conflicts_and_bad_updates() {
    check_errors(&[
        (
            "{_id: 1}",
            "{$set: {a: 1}, $inc: {a: 1}}",
            40,
            "Updating the path 'a' would create a conflict at 'a'",
        ),
        (
            "{_id: 1}",
            "{$set: {a: 1, 'a.b': 1}}",
            40,
            "Updating the path 'a.b' would create a conflict at 'a'",
        ),
        (
            "{_id: 1}",
            "{$set: {'a.b.c': 1}, $unset: {'a.b': 1}}",
            40,
            "Updating the path 'a.b' would create a conflict at 'a.b'",
        ),
        (
            "{_id: 1}",
            "{$set: {'a.$[]': 1, 'a.b': 1}}",
            40,
            "conflict at 'a'",
        ),
        (
            "{_id: 1}",
            "{$foo: {a: 1}}",
            9,
            "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update specified as an array",
        ),
        ("{_id: 1}", "{$set: {a: 1}, b: 2}", 9, "Unknown modifier: b"),
        ("{_id: 1}", "{a: 1, $set: {b: 2}}", 52, "$set"),
        (
            "{_id: 1}",
            "{$set: 5}",
            9,
            "Modifiers operate on fields but we found type int instead",
        ),
        (
            "{_id: 1, a: 1}",
            "{$set: {'a.b': 1}}",
            28,
            "Cannot create field 'b' in element {a: 1}",
        ),
        (
            "{_id: 1, a: {b: 'x'}}",
            "{$inc: {'a.b.c.d': 1}}",
            28,
            "Cannot create field 'c' in element {b: \"x\"}",
        ),
        ("{_id: 1}", "{$set: {'': 1}}", 56, "empty"),
        ("{_id: 1}", "{$set: {'a..b': 1}}", 56, "'a..b'"),
        ("{_id: 1}", "{$set: {$a: 1}}", 52, "$a"),
    ]);
}

#[test]
fn the_id_is_immutable() {
    check_errors(&[
        (
            "{_id: 1}",
            "{$set: {_id: 2}}",
            66,
            "Performing an update on the path '_id' would modify the immutable field '_id'",
        ),
        ("{_id: 1}", "{$set: {_id: 1.0}}", 66, "'_id'"),
        ("{_id: 1}", "{$unset: {_id: 1}}", 66, "'_id'"),
        ("{_id: 1}", "{$inc: {_id: 1}}", 66, "'_id'"),
        (
            "{_id: {a: 1}}",
            "{$set: {'_id.a': 2}}",
            66,
            "Performing an update on the path '_id.a' would modify the immutable field '_id'",
        ),
        (
            "{_id: 1}",
            "{_id: 2}",
            66,
            "After applying the update, the (immutable) field '_id' was found to have been altered to _id: 2",
        ),
    ]);
    check(&[
        ("{_id: 1, a: 1}", "{b: 2}", "{_id: 1, b: 2}"),
        ("{_id: 1, a: 1}", "{b: 2, _id: 1}", "{_id: 1, b: 2}"),
        (
            "{_id: 1, a: 1}",
            "{t: Timestamp(0, 0), d: {t: Timestamp(0, 0)}}",
            "{_id: 1, t: Timestamp(1700000000, 1), d: {t: Timestamp(0, 0)}}",
        ),
        (
            "{_id: {a: 1}}",
            "{$set: {'_id.a': 1, b: 1}}",
            "{_id: {a: 1}, b: 1}",
        ),
    ]);
}

#[test]
fn upserts_start_from_the_equalities() {
    for (filter, expected) in [
        ("{}", "{}"),
        ("{a: 1, b: {$gt: 5}}", "{a: 1}"),
        ("{b: 2, _id: 1}", "{_id: 1, b: 2}"),
        ("{'a.b': 1, 'a.c': 2}", "{a: {b: 1, c: 2}}"),
        ("{a: {$eq: 5}}", "{a: 5}"),
        ("{a: {$in: [5]}, b: {$in: [1, 2]}}", "{a: 5}"),
        ("{a: {$all: [5]}}", "{a: 5}"),
        ("{$and: [{a: 1}, {b: {$eq: 2}}]}", "{a: 1, b: 2}"),
        ("{$or: [{a: 1}]}", "{a: 1}"),
        ("{$or: [{a: 1}, {b: 1}]}", "{}"),
        ("{a: /x/}", "{}"),
        ("{a: {$not: {$eq: 1}}, b: null}", "{b: null}"),
        ("{a: {x: 1}}", "{a: {x: 1}}"),
        ("{a: {$gt: 1, $eq: 3}}", "{a: 3}"),
        ("{a: {$elemMatch: {b: 1}}}", "{}"),
    ] {
        assert_eq!(
            upsert_base(&json(filter)).unwrap(),
            json(expected),
            "{filter}"
        );
    }
    for filter in [
        "{a: 1, $and: [{a: 2}]}",
        "{a: 1, 'a.b': 1}",
        "{'a.b': 1, a: {b: 1}}",
        "{$and: [{a: 1}, {a: 1}]}",
    ] {
        assert_eq!(
            upsert_base(&json(filter)).unwrap_err().code().code(),
            54,
            "{filter}"
        );
    }
    for (filter, expected) in [("{a: 1, _id: 7}", "{_id: 7}"), ("{a: 1}", "{}")] {
        assert_eq!(
            upsert_base_for_replacement(&json(filter)).unwrap(),
            json(expected)
        );
    }
    let error = upsert_base_for_replacement(&json("{'_id.x': 1}")).unwrap_err();
    assert_eq!(error.code().code(), 111);
}

#[test]
fn upserts_insert() {
    let id: ObjectId = "0123456789abcdef01234567".parse().unwrap();
    let context = ApplyContext {
        is_upsert_insert: true,
        new_id: Some(id),
        ..context()
    };
    for (filter, update, expected) in [
        ("{_id: 1}", "{$set: {a: 1}}", "{_id: 1, a: 1}"),
        (
            "{a: 1}",
            "{$setOnInsert: {b: 2}, $inc: {c: 1}}",
            "{_id: ObjectId('0123456789abcdef01234567'), a: 1, b: 2, c: 1}",
        ),
        ("{a: 1}", "{$set: {_id: 5, a: 2}}", "{_id: 5, a: 2}"),
        (
            "{a: 1}",
            "{$setOnInsert: {'_id.x': 5}}",
            "{_id: {x: 5}, a: 1}",
        ),
        ("{a: 1, _id: 3}", "{b: 2}", "{_id: 3, b: 2}"),
        ("{a: 1}", "{b: 2, _id: 4}", "{_id: 4, b: 2}"),
        (
            "{a: {$gt: 1}}",
            "{}",
            "{_id: ObjectId('0123456789abcdef01234567')}",
        ),
        ("{_id: 1}", "{}", "{_id: 1}"),
    ] {
        let update = Update::parse(&json(update), &[]).unwrap();
        let base = update.upsert_base(&json(filter)).unwrap();
        let applied = update.apply(&base, &context).unwrap();
        assert_eq!(applied.doc, json(expected), "{filter}");
    }
    for (filter, update, code) in [
        ("{_id: 1}", "{$set: {_id: 2}}", 66),
        ("{_id: 1}", "{_id: 2}", 66),
        ("{a: 1}", "{$set: {_id: [1]}}", 53),
        ("{a: 1}", "{$set: {_id: /x/}}", 53),
        ("{a: 1}", "{$set: {_id: {$x: 1}}}", 52),
    ] {
        let update = Update::parse(&json(update), &[]).unwrap();
        let base = update.upsert_base(&json(filter)).unwrap();
        assert_eq!(
            update.apply(&base, &context).unwrap_err().code().code(),
            code,
            "{filter}"
        );
    }
}

#[test]
fn results_stay_within_bounds() {
    let mut doc = json("{_id: 1}");
    doc.push("a", &*"x".repeat(MAX_DOCUMENT_BYTES - 64));
    let update = Update::parse(
        &json("{$set: {b: 'this is longer than what is left of the sixteen megabytes allowed'}}"),
        &[],
    )
    .unwrap();
    assert_eq!(
        update.apply(&doc, &context()).unwrap_err().code().code(),
        17419
    );
    let upsert = ApplyContext {
        is_upsert_insert: true,
        ..context()
    };
    assert_eq!(
        update.apply(&doc, &upsert).unwrap_err().code().code(),
        17420
    );
    let mut deep = json("{x: 1}");
    for _ in 0..150 {
        let mut outer = DocBuf::new();
        outer.push("d", &deep);
        deep = outer;
    }
    let path = vec!["p"; 100].join(".");
    let mut set = DocBuf::new();
    set.push_doc("$set", |w| w.push(&path, &deep));
    assert_eq!(Update::parse(&set, &[]).unwrap_err().code().code(), 15);
    let mut from = json("{_id: 1}");
    from.push("a", &deep);
    let mut rename = DocBuf::new();
    rename.push_doc("$rename", |w| w.push("a", &*path));
    let rename = Update::parse(&rename, &[]).unwrap();
    assert_eq!(
        rename.apply(&from, &context()).unwrap_err().code().code(),
        15
    );
}

#[test]
fn conflicts_among_many_children_are_found() {
    for (last, at) in [("s.f3", "s.f3"), ("s.f19", "s.f19"), ("s.f4.x", "s.f4")] {
        let mut fields: Vec<String> = (0..20).rev().map(|i| format!("'s.f{i}': 1")).collect();
        fields.push(format!("'{last}': 2"));
        let error = run(
            "{}",
            &format!("{{$set: {{{}}}}}", fields.join(", ")),
            &context(),
        );
        let error = error.unwrap_err();
        assert_eq!(error.code().code(), 40);
        assert!(
            error.message().ends_with(&format!("conflict at '{at}'")),
            "{error}"
        );
    }
}

#[test]
fn many_children_are_found_by_name() {
    let mut doc = json("{_id: 1}");
    let mut set = DocBuf::new();
    let mut expected = json("{_id: 1}");
    for at in 0..200 {
        doc.push(&format!("f{at:03}"), at);
        expected.push(&format!("f{at:03}"), at + 1);
        set.push(&format!("f{at:03}"), 1);
    }
    let mut update = DocBuf::new();
    update.push("$inc", &set);
    let update = Update::parse(&update, &[]).unwrap();
    assert_eq!(update.apply(&doc, &context()).unwrap().doc, expected);
    assert!(update.paths_touched().affects("f007.x"));
    assert!(!update.paths_touched().affects("f201"));
}

/// Random documents and operators: the rewritten bytes are always a valid document, and what no path
/// touches is as it was.
#[test]
fn rewriting_never_damages_what_it_does_not_touch() {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand::rngs::StdRng::seed_from_u64(7);
    let names = ["a", "b", "c", "0", "1", "2"];
    for _ in 0..3000 {
        let doc = random_doc(&mut rng, 0);
        let mut whole = json("{_id: 1}");
        whole.push_all(&doc);
        whole.push("keep", "untouched");
        let mut update = DocBuf::new();
        for operator in ["$set", "$unset", "$inc", "$push", "$max", "$rename"] {
            let mut fields = DocBuf::new();
            for _ in 0..rng.random_range(0..3) {
                let depth = rng.random_range(1..4);
                let path: Vec<&str> = (0..depth)
                    .map(|_| names[rng.random_range(0..names.len())])
                    .collect();
                match operator {
                    "$rename" => fields.push(&path.join("."), "renamed.x"),
                    _ => fields.push(&path.join("."), rng.random_range(0..5)),
                }
            }
            update.push(operator, &fields);
        }
        let Ok(update) = Update::parse(&update, &[]) else {
            continue;
        };
        if let Ok(applied) = update.apply(&whole, &context()) {
            Doc::validate(applied.doc.as_bytes()).unwrap();
            assert_eq!(applied.doc.get_str("keep"), Some("untouched"));
            assert_eq!(applied.doc.get("_id"), whole.get("_id"));
            assert_eq!(applied.modified, applied.doc != whole);
            for element in whole.iter_raw() {
                if !update.paths_touched().affects(element.name()) {
                    assert_eq!(
                        applied.doc.get_raw(element.name()).unwrap().as_bytes(),
                        element.as_bytes()
                    );
                }
            }
        }
    }
}

fn random_doc(rng: &mut rand::rngs::StdRng, depth: usize) -> DocBuf {
    use rand::RngExt;
    let mut doc = DocBuf::new();
    for name in ["a", "b", "c", "0", "1"] {
        match rng.random_range(0..6) {
            0 => {}
            1 => doc.push(name, rng.random_range(0..5)),
            2 => doc.push(name, "text"),
            3 if depth < 3 => {
                let array: frond_bson::ArrayBuf = (random_doc(rng, depth + 1).values()).collect();
                doc.push(name, &array);
            }
            _ if depth < 3 => doc.push(name, &random_doc(rng, depth + 1)),
            _ => doc.push(name, 0.5),
        }
    }
    doc
}

/// The variables of code whose text is not UTF-8 are documents inside of it like others.
#[test]
fn nesting_is_bounded_inside_of_code_that_is_not_utf8() {
    let mut scope = doc! {"x": 1};
    for _ in 0..150 {
        scope = doc! {"x": &scope};
    }
    let mut code = b"\0\0\0\0\x02\0\0\0\xFF\0".to_vec();
    code.extend_from_slice(scope.as_bytes());
    let length = code.len() as u32;
    code[..4].copy_from_slice(&length.to_le_bytes());
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(b"\x0Fcode\0");
    bytes.extend_from_slice(&code);
    bytes.push(0);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let values = DocBuf::from_vec(bytes).unwrap();
    let code = values.get("code").unwrap();
    assert!(matches!(code, Value::NotUtf8(_)));
    let path = ["a"; 100].join(".");
    let mut set = DocBuf::new();
    set.push(&path, code);
    let spec = doc! {"$set": &set};
    let error = Update::parse(&spec, &[]).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Overflow, "{error}");
}
