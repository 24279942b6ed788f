//! Random writes and transactions, and a stream that is dropped and resumed at random: every event comes once and in order,
//! and the events make the collections what they are.

use std::collections::BTreeMap;

use frond_bson::{DocBuf, Value, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const NAMES: [&str; 3] = ["d.a", "d.b", "e.a"];

type Model = BTreeMap<(String, i64), DocBuf>;

fn write(store: &DocumentStore, random: &mut StdRng) {
    let name = NAMES[random.random_range(0..NAMES.len())];
    let id = random.random_range(0..12_i64);
    let filter = doc! {"_id": id};
    let n = random.random_range(0..100);
    match random.random_range(0..10) {
        0..3 => {
            let doc = doc! {"_id": id, "n": n, "a": [1, 2, 3, n], "s": {"x": n, "y": {"z": n}}};
            // It may be there already.
            let inserted = store.insert(&ns(name), &[&doc], common::INSERT);
            if let Err(error) = inserted {
                assert_eq!(error.code().code(), 11000, "{error}");
            }
        }
        3..8 => {
            let operator = match random.random_range(0..7) {
                0 => doc! {"$inc": {"n": 1}},
                1 => doc! {"$set": {"s.x": n, "new": n}},
                2 => doc! {"$unset": {"s.y": 1, "new": 1}},
                3 => doc! {"$push": {"a": n}},
                4 => doc! {"$set": {"a.1": n, "s.y.z": n, "s.k": {"l": n}}},
                5 => doc! {"$pop": {"a": 1}, "$mul": {"n": 2}},
                _ => doc! {"n": n, "replaced": true},
            };
            if random.random_bool(0.15) {
                let pipeline = ArrayBuf::from_iter([
                    &*doc! {"$set": {"a": [n, {"b": n}], "s": {"x": "$n"}}},
                    &*doc! {"$unset": "new"},
                ]);
                update_in(store, name, &filter, Value::Array(&pipeline));
            } else {
                let pushes = operator.contains_key("$push") || operator.contains_key("$pop");
                let typed = doc! {"_id": id, "a": {"$type": "array"}};
                let filter = if pushes { &typed } else { &filter };
                update_in(store, name, filter, Value::Document(&operator));
            }
        }
        _ => {
            delete_in(store, name, &filter);
        }
    }
}

/// Applies an event as a client would.
fn apply(model: &mut Model, event: &Doc) {
    let place = event.get_doc("ns").unwrap();
    let (db, coll) = (place.get_str("db").unwrap(), place.get_str("coll").unwrap());
    let name = format!("{db}.{coll}");
    let kind = event.get_str("operationType").unwrap();
    if kind == "drop" {
        model.retain(|(of, _), _| *of != name);
        return;
    }
    let id = event
        .get_doc("documentKey")
        .unwrap()
        .get_i64("_id")
        .unwrap();
    let key = (name, id);
    match kind {
        "insert" => {
            let full = event.get_doc("fullDocument").unwrap();
            assert!(model.insert(key, full.to_owned()).is_none(), "{event:?}");
        }
        "replace" => {
            let full = event.get_doc("fullDocument").unwrap();
            assert!(model.insert(key, full.to_owned()).is_some(), "{event:?}");
        }
        "update" => {
            let stored = model.get_mut(&key).unwrap();
            // The stream is asked for the documents after the updates, so these are compared with the description.
            let after = event.get_doc("fullDocument").unwrap();
            let described = described(stored, event.get_doc("updateDescription").unwrap());
            assert_eq!(sorted(&described), sorted(after), "{event:?}");
            *stored = after.to_owned();
        }
        "delete" => assert!(model.remove(&key).is_some(), "{event:?}"),
        other => panic!("{other}"),
    }
}

/// Applies `updateDescription`: the truncated arrays, the removed fields, the new values.
fn described(before: &Doc, description: &Doc) -> DocBuf {
    let mut value = frond_bson::OwnedValue::from(Value::Document(before));
    for truncated in description.get_array("truncatedArrays").unwrap().values() {
        let truncated = truncated.as_doc().unwrap();
        let size = truncated.get_i64("newSize").unwrap() as usize;
        let path: Vec<&str> = truncated.get_str("field").unwrap().split('.').collect();
        value = change(value.as_value(), &path, &|old| {
            let array = old.unwrap().as_array().unwrap();
            let kept: ArrayBuf = array.values().take(size).collect();
            Some(frond_bson::OwnedValue::from(Value::Array(&kept)))
        });
    }
    for removed in description.get_array("removedFields").unwrap().values() {
        let path: Vec<&str> = removed.as_str().unwrap().split('.').collect();
        value = change(value.as_value(), &path, &|_| None);
    }
    for (path, new) in description.get_doc("updatedFields").unwrap().iter() {
        let path: Vec<&str> = path.split('.').collect();
        value = change(value.as_value(), &path, &|_| {
            Some(frond_bson::OwnedValue::from(new))
        });
    }
    value.as_value().as_doc().unwrap().to_owned()
}

type Replace<'r> = &'r dyn Fn(Option<Value<'_>>) -> Option<frond_bson::OwnedValue>;

/// A value with another one at a path.
fn change(value: Value<'_>, path: &[&str], replace: Replace<'_>) -> frond_bson::OwnedValue {
    let (doc, is_array) = match value {
        Value::Document(doc) => (doc, false),
        Value::Array(doc) => (doc, true),
        other => panic!("{other:?} at {path:?}"),
    };
    let (name, rest) = path.split_first().unwrap();
    let mut out = DocBuf::new();
    let mut found = false;
    let next = |old: Option<Value<'_>>| {
        if rest.is_empty() {
            replace(old)
        } else {
            Some(change(old.unwrap(), rest, replace))
        }
    };
    for (field, old) in doc.iter() {
        if field == *name {
            found = true;
            if let Some(new) = next(Some(old)) {
                out.push_value(field, &new.as_value());
            }
        } else {
            out.push_value(field, &old);
        }
    }
    if !found && let Some(new) = next(None) {
        out.push_value(name, &new.as_value());
    }
    if is_array {
        Value::Array(&out).into()
    } else {
        Value::Document(&out).into()
    }
}

/// A document with its fields sorted: descriptions do not say where a new field is.
fn sorted(doc: &Doc) -> String {
    fn show(value: Value<'_>) -> String {
        match value {
            Value::Document(doc) => sorted(doc),
            Value::Array(array) => format!("{:?}", array.values().map(show).collect::<Vec<_>>()),
            other => frond_bson::extjson::value_to_canonical(&other),
        }
    }
    let fields: BTreeMap<&str, String> = doc
        .iter()
        .map(|(name, value)| (name, show(value)))
        .collect();
    format!("{fields:?}")
}

fn contents(store: &DocumentStore) -> Model {
    let mut found = Model::new();
    for name in NAMES {
        let request = frond_store::FindRequest::default();
        let mut cursor = store.find(&ns(name), &request, &OpContext::new()).unwrap();
        while let Some(doc) = cursor.next().unwrap() {
            found.insert((name.to_owned(), doc.get_i64("_id").unwrap()), doc);
        }
    }
    found
}

fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut fixture = Fixture::with_oplog();
    for name in NAMES {
        let images = doc! {"changeStreamPreAndPostImages": {"enabled": true}};
        fixture.store.create_collection(&ns(name), &images).unwrap();
    }
    let spec = doc! {"fullDocument": "required"};
    let mut stream = watch(&fixture.store, On::Cluster, &spec);
    // It reads everything once, at the end.
    let begin = stream.resume_token().unwrap();
    let mut model = Model::new();
    let mut events: Vec<DocBuf> = Vec::new();
    for _ in 0..60 {
        let store = &fixture.store;
        for _ in 0..random.random_range(1..8) {
            if random.random_bool(0.2) {
                let transaction = store.begin();
                let inside = store.in_transaction(&transaction);
                for _ in 0..random.random_range(1..6) {
                    write(&inside, &mut random);
                    if !transaction.is_open() {
                        break;
                    }
                }
                if random.random_bool(0.8) && transaction.is_open() {
                    transaction.commit(LOGGED).unwrap();
                }
            } else {
                write(store, &mut random);
            }
        }
        if random.random_bool(0.5) {
            store.flush_log().unwrap();
        }
        let mut left = random.random_range(0..12);
        while left > 0
            && let Some(event) = stream.next().unwrap()
        {
            apply(&mut model, &event);
            events.push(event);
            left -= 1;
        }
        if random.random_bool(0.4) {
            let token = match events.last() {
                // Both are places to go on from, if nothing was read since.
                Some(event) if random.random_bool(0.5) => token_of(event),
                _ => stream.resume_token().unwrap(),
            };
            drop(stream);
            if random.random_bool(0.1) {
                fixture = fixture.reopen();
            }
            let option = if random.random_bool(0.5) {
                "resumeAfter"
            } else {
                "startAfter"
            };
            let mut resumed = spec.clone();
            resumed.push(option, &*token);
            stream = watch(&fixture.store, On::Cluster, &resumed);
        }
    }
    for event in all(&fixture.store, &mut stream) {
        apply(&mut model, &event);
        events.push(event);
    }
    let stored = contents(&fixture.store);
    assert_eq!(model.len(), stored.len(), "seed {seed}");
    for (key, doc) in &stored {
        let same = frond_bson::compare_docs(&model[key], doc);
        assert!(same.is_eq(), "seed {seed}: {:?} {doc:?}", model[key]);
    }
    let mut again = watch(&fixture.store, On::Cluster, &{
        let mut spec = spec.clone();
        spec.push("resumeAfter", &*begin);
        spec
    });
    assert_eq!(all(&fixture.store, &mut again), events, "seed {seed}");
    let data = |event: &DocBuf| token_of(event).get_str("_data").unwrap().to_owned();
    assert!(
        events
            .windows(2)
            .all(|pair| data(&pair[0]) < data(&pair[1]))
    );
}

#[test]
fn events_make_the_collections() {
    for seed in 0..12 {
        run(seed);
    }
}
