//! No reply is larger than clients accept: 16 MiB and 16 KiB for a document, 48,000,000 bytes for a message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use frond_bson::{ArrayBuf, DocBuf, Value, doc};
use frond_wire::{Flags, MAX_MESSAGE_BYTES};
use support::Running;

const REPLY_BYTES_MAX: usize = (16 << 20) + (16 << 10);

/// Document sequences of a command, by their names.
type Sequences<'a> = &'a [(&'a str, &'a [DocBuf])];

/// Runs a command with document sequences. The reply must fit.
fn reply(server: &Running, command: &DocBuf, beside: Sequences<'_>) -> DocBuf {
    let db = if command.contains_key("bulkWrite") {
        "admin"
    } else {
        "test"
    };
    let mut client = server.connect();
    let message = client.build(Flags::NONE, db, command, beside);
    assert!(
        message.len() <= MAX_MESSAGE_BYTES,
        "the request must fit too"
    );
    client.send(&message);
    let (header, _, reply) = client.receive_msg();
    let name = command.first().unwrap().0;
    assert!(header.length as usize <= MAX_MESSAGE_BYTES, "{name}");
    assert!(
        reply.len_bytes() <= REPLY_BYTES_MAX,
        "{name}: {}",
        reply.len_bytes()
    );
    reply
}

fn filled(directory: &tempfile::TempDir) -> Running {
    let server = Running::start(directory.path(), &[]);
    let documents: Vec<DocBuf> = (0..40)
        .map(|n| doc! {"_id": n, "a": f64::from(n), "text": "x".repeat(500_000)})
        .collect();
    let inserted = reply(&server, &doc! {"insert": "c"}, &[("documents", &documents)]);
    assert_eq!(inserted.get_i32("n"), Some(40));
    let index = doc! {"key": {"a": 1}, "name": "a_1"};
    reply(
        &server,
        &doc! {"createIndexes": "c", "indexes": [&index]},
        &[],
    );
    server
}

/// Documents as an array.
fn list(documents: impl Iterator<Item = DocBuf>) -> ArrayBuf {
    let mut list = ArrayBuf::new();
    for document in documents {
        list.push(&document);
    }
    list
}

/// All warnings in a document.
fn warnings(doc: &frond_bson::Doc, found: &mut Vec<String>) {
    for (name, value) in doc.iter() {
        match value {
            Value::Document(inner) | Value::Array(inner) => warnings(inner, found),
            Value::String(text) if name == "warning" => found.push(text.to_owned()),
            _ => {}
        }
    }
}

#[test]
fn an_explanation_of_a_million_values_leaves_bounds_and_the_query_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory);
    let values = |count: i32| (0..count).map(|n| f64::from(n) + 0.5).collect::<ArrayBuf>();
    let (million, fewer) = (values(1_000_000), values(400_000));
    let find =
        |field: &str, values: &ArrayBuf| doc! {"find": "c", "filter": {field: {"$in": values}}};
    let branches = list((0..40_000).map(|n| doc! {"a": n, "b": 1}));
    let group = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$match": {"a": {"$in": &fewer}}}, {"$group": {"_id": null}}, {"$match": {"a": {"$in": &fewer}}},
        {"$match": {"b": {"$in": &fewer}}},
    ]};
    let bounds = "index bounds omitted due to BSON size limit for explain";
    let query = "'parsedQuery' has been omitted due to BSON size limit";
    // A command, and the parts that its explanation says it leaves out.
    let cases: [(DocBuf, &str, &[&str]); 7] = [
        (find("a", &million), "executionStats", &[bounds, query]),
        (find("b", &million), "queryPlanner", &[query, "'filter'"]),
        (find("a", &fewer), "executionStats", &[bounds]),
        (
            doc! {"count": "c", "query": {"a": {"$in": &fewer}}},
            "queryPlanner",
            &[bounds],
        ),
        (
            doc! {"delete": "c", "deletes": [{"q": {"b": {"$in": &fewer}}, "limit": 0}]},
            "executionStats",
            &["'filter'"],
        ),
        (group, "executionStats", &[bounds, "'$match'", "'command'"]),
        (
            doc! {"find": "c", "filter": {"$or": &branches}},
            "executionStats",
            &["stats tree exceeded BSON size limit"],
        ),
    ];
    for (command, verbosity, omitted) in cases {
        let name = command.first().unwrap().0;
        let explain = doc! {"explain": &command, "verbosity": verbosity};
        let reply = reply(&server, &explain, &[]);
        assert_eq!(
            reply.get_f64("ok"),
            Some(1.0),
            "{name}: {:?}",
            reply.get_str("errmsg")
        );
        let mut found = Vec::new();
        warnings(&reply, &mut found);
        for text in omitted {
            assert!(
                found.iter().any(|one| one.contains(text)),
                "{name}: {text}: {found:?}"
            );
        }
    }
    // A small query is shown completely.
    let small = doc! {"explain": {"find": "c", "filter": {"a": {"$in": [1, 2]}}}};
    let reply = reply(&server, &small, &[]);
    assert!(!format!("{reply:?}").contains("omitted"), "{reply:?}");
    server.stop();
}

#[test]
fn values_quoted_in_errors_are_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory);
    let large = "y".repeat(15 << 20);
    let inserted = doc! {"_id": &large};
    let pair = [inserted.clone(), inserted.clone()];
    let cases: [(DocBuf, Sequences<'_>); 3] = [
        (
            doc! {"insert": "c", "ordered": false},
            &[("documents", &pair)],
        ),
        (
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": [{"$replaceWith": &inserted}]}]},
            &[],
        ),
        (
            doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"_id": &large}}}]},
            &[],
        ),
    ];
    for (command, beside) in cases {
        let reply = reply(&server, &command, beside);
        let errors = reply.get_array("writeErrors").unwrap();
        let first = errors.get_doc("0").unwrap();
        assert!(first.get_i32("code").is_some() && !first.get_str("errmsg").unwrap().is_empty());
    }
    let bulk = doc! {"bulkWrite": 1, "ordered": false, "ops": [{"insert": 0, "document": &inserted}], "nsInfo": [{"ns": "test.c"}]};
    assert_eq!(reply(&server, &bulk, &[]).get_i32("nErrors"), Some(1));
    // Commands that fail as a whole.
    let mut operator = DocBuf::new();
    operator.push(&format!("${large}"), 1);
    // The name of a command may be longer than a reply, because a request may have 48,000,000 bytes.
    let mut unknown = DocBuf::new();
    unknown.push(&"n".repeat(20 << 20), 1);
    let commands = [
        unknown,
        doc! {"find": "c", "filter": &operator},
        doc! {"find": "c", "filter": {"a": &operator}},
        doc! {"aggregate": "c", "cursor": {}, "pipeline": [&operator]},
        doc! {"find": "c", "filter": {"$expr": &operator}},
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$set": {"_id": &large}}},
        doc! {"find": "c", "sort": {"a": &large}},
        doc! {"insert": &large},
        operator.clone(),
    ];
    for command in commands {
        let reply = reply(&server, &command, &[]);
        assert_eq!(reply.get_f64("ok"), Some(0.0), "{}", command.len_bytes());
        assert!(!reply.get_str("errmsg").unwrap().is_empty());
    }
    // A validator that quotes the document, once for each rule.
    let rules = list((0..8).map(|_| doc! {"properties": {"text": {"bsonType": "int"}}}));
    let validator = doc! {"$jsonSchema": {"allOf": &rules}};
    reply(
        &server,
        &doc! {"create": "checked", "validator": &validator},
        &[],
    );
    let refused = doc! {"text": "z".repeat(3 << 20)};
    let answer = reply(
        &server,
        &doc! {"insert": "checked"},
        &[("documents", std::slice::from_ref(&refused))],
    );
    let error = answer
        .get_array("writeErrors")
        .unwrap()
        .get_doc("0")
        .unwrap()
        .to_owned();
    assert_eq!(error.get_i32("code"), Some(121));
    server.stop();
}

#[test]
fn a_reply_that_would_be_too_large_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(&directory);
    let joined = doc! {"aggregate": "c", "cursor": {}, "pipeline": [{"$group": {"_id": null, "all": {"$push": "$text"}}}]};
    // The large document is the second one.
    let second = doc! {"aggregate": "c", "cursor": {}, "pipeline": [
        {"$group": {"_id": {"$gt": ["$_id", 0]}, "all": {"$push": "$text"}}}, {"$sort": {"_id": 1}},
    ]};
    let large_ids = list((0..700).map(|n| doc! {"q": {"_id": format!("{n}{}", "i".repeat(30_000))}, "u": {"$set": {"a": 1}}, "upsert": true}));
    let upserts = doc! {"update": "other", "updates": &large_ids};
    let texts = doc! {"distinct": "unlike", "key": "text"};
    let unlike: Vec<DocBuf> = (0..40)
        .map(|n| doc! {"text": format!("{n}{}", "x".repeat(500_000))})
        .collect();
    reply(
        &server,
        &doc! {"insert": "unlike"},
        &[("documents", &unlike)],
    );
    for (command, code) in [(joined, 10334), (upserts, 10334), (texts, 17217)] {
        let reply = reply(&server, &command, &[]);
        assert_eq!(
            (reply.get_f64("ok"), reply.get_i32("code")),
            (Some(0.0), Some(code)),
            "{:?}",
            command.first().map(|(name, _)| name.to_owned())
        );
    }
    let first = reply(&server, &second, &[]);
    let cursor = first.get_doc("cursor").unwrap();
    assert_eq!(cursor.get_array("firstBatch").unwrap().count(), 1);
    let id = cursor.get_i64("id").unwrap();
    let more = doc! {"getMore": id, "collection": "c"};
    assert_eq!(reply(&server, &more, &[]).get_i32("code"), Some(10334));
    // The failure closed the cursor.
    assert_eq!(reply(&server, &more, &[]).get_i32("code"), Some(43));
    // A document of the full size still fits.
    let full = doc! {"_id": "full", "text": "x".repeat((16 << 20) - 60)};
    reply(
        &server,
        &doc! {"insert": "c"},
        &[("documents", std::slice::from_ref(&full))],
    );
    let command =
        doc! {"findAndModify": "c", "query": {"_id": "full"}, "update": {"$set": {"b": 1}}};
    let modified = reply(&server, &command, &[]);
    assert!(modified.get_doc("value").unwrap().len_bytes() > 16_000_000);
    let found = reply(&server, &doc! {"find": "c", "filter": {"_id": "full"}}, &[]);
    assert_eq!(found.get_f64("ok"), Some(1.0));
    server.stop();
}
