//! Unusual documents over a socket: text that is not UTF-8, and names that begin with `$`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpStream;

use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc};
use support::{Client, Running};

fn text(bytes: &[u8]) -> OwnedValue {
    OwnedValue::string(bytes.to_vec())
}

fn find(client: &mut Client<TcpStream>, command: &Doc) -> Vec<DocBuf> {
    let reply = client.run("test", command);
    let batch = (reply.get_doc("cursor").unwrap()).get_array("firstBatch");
    (batch.unwrap().values())
        .filter_map(|value| value.as_doc().map(Doc::to_owned))
        .collect()
}

fn code(client: &mut Client<TcpStream>, command: &Doc) -> i32 {
    let reply = client.reply("test", command);
    let in_list = || {
        let errors = reply.get_array("writeErrors")?;
        errors.values().next()?.as_doc()?.get_i32("code")
    };
    reply.get_i32("code").or_else(in_list).unwrap_or(0)
}

/// Strings in the order of their bytes; every second one is not UTF-8.
const TEXTS: [&[u8]; 8] = [
    b"",
    b"\x80",
    b"Caf\xE9",
    b"a",
    b"a\xC3",
    "ä".as_bytes(),
    b"\xE9t\xE9",
    b"\xFF\xFE",
];

fn sorted() -> Vec<&'static [u8]> {
    let mut texts = TEXTS.to_vec();
    texts.sort();
    texts
}

fn values(documents: &[DocBuf], field: &str) -> Vec<Vec<u8>> {
    let bytes = |value: Value<'_>| value.string_bytes().map(<[u8]>::to_vec);
    (documents.iter())
        .map(|document| document.get(field).and_then(bytes).unwrap())
        .collect()
}

#[test]
fn text_that_is_not_utf8_is_stored_and_found_by_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();

    // As a value, as an `_id`, in arrays and as code.
    let documents: Vec<DocBuf> = (TEXTS.iter().zip(0..))
        .map(|(bytes, n)| {
            let mut document =
                doc! {"_id": text(bytes), "n": n, "t": text(bytes), "l": [1, text(bytes)]};
            document.push("in", &doc! {"deep": [text(bytes)]});
            document
        })
        .collect();
    let insert = doc! {"insert": "c"};
    let message = client.build(
        frond_wire::Flags::NONE,
        "test",
        &insert,
        &[("documents", &documents)],
    );
    client.send(&message);
    assert_eq!(client.receive_msg().2.get_i32("n"), Some(8));

    for index in [
        doc! {"key": {"t": 1}, "name": "t", "unique": true},
        doc! {"key": {"t": -1, "n": 1}, "name": "t_n"},
        doc! {"key": {"t": "hashed"}, "name": "hashed"},
        doc! {"key": {"l": 1}, "name": "l"},
        doc! {"key": {"$**": 1}, "name": "all"},
        doc! {"key": {"n": 1, "t": 1}, "name": "french", "collation": {"locale": "fr"}},
        doc! {"key": {"t": "text"}, "name": "words"},
    ] {
        client.run("test", &doc! {"createIndexes": "c", "indexes": [index]});
    }
    let hints: [Option<DocBuf>; 6] = [
        None,
        Some(doc! {"$natural": 1}),
        Some(doc! {"t": 1}),
        Some(doc! {"t": -1, "n": 1}),
        Some(doc! {"t": "hashed"}),
        Some(doc! {"_id": 1}),
    ];
    for hint in &hints {
        let with_hint = |mut command: DocBuf| {
            if let Some(hint) = hint {
                command.push("hint", hint);
            }
            command
        };
        let all = find(
            &mut client,
            &with_hint(doc! {"find": "c", "filter": {}, "sort": {"t": 1}}),
        );
        assert_eq!(values(&all, "t"), sorted(), "{hint:?}");
        for (bytes, document) in TEXTS.iter().zip(&documents) {
            let wanted = text(bytes);
            for filter in [
                doc! {"t": wanted},
                doc! {"_id": wanted},
                doc! {"l": wanted},
                doc! {"in.deep": wanted},
                doc! {"t": {"$in": [wanted, 5]}},
                doc! {"t": {"$gte": wanted, "$lte": wanted}},
            ] {
                let found = find(
                    &mut client,
                    &with_hint(doc! {"find": "c", "filter": filter}),
                );
                assert_eq!(found.len(), 1, "{filter:?} {hint:?}");
                assert_eq!(found[0], *document, "{filter:?} {hint:?}");
            }
            let below = find(
                &mut client,
                &with_hint(doc! {"find": "c", "filter": {"t": {"$lt": wanted}}}),
            );
            let expected = TEXTS.iter().filter(|other| other < &bytes).count();
            assert_eq!(below.len(), expected, "{bytes:?} {hint:?}");
        }
        // A pattern matches only UTF-8, with every plan.
        let found = find(
            &mut client,
            &with_hint(doc! {"find": "c", "filter": {"t": {"$regex": "^a"}}}),
        );
        assert_eq!(values(&found, "t"), [b"a"], "{hint:?}");
    }
    let covered = doc! {"find": "c", "filter": {"t": {"$gt": ""}}, "projection": {"_id": 0, "t": 1}, "hint": {"t": 1}};
    let found = find(&mut client, &covered);
    assert_eq!(values(&found, "t"), sorted()[1..]);

    // Collations and text search treat invalid bytes as U+FFFD, which ends a word.
    let collated = doc! {"find": "c", "filter": {"t": text(b"caf\xE8")}, "collation": {"locale": "fr", "strength": 1}};
    assert_eq!(values(&find(&mut client, &collated), "t"), [b"Caf\xE9"]);
    let words = doc! {"find": "c", "filter": {"$text": {"$search": "caf"}}};
    assert_eq!(values(&find(&mut client, &words), "t"), [b"Caf\xE9"]);

    let distinct = client.run("test", &doc! {"distinct": "c", "key": "t"});
    assert_eq!(distinct.get_array("values").unwrap().count(), 8);
    let group = doc! {"aggregate": "c", "pipeline": [{"$group": {"_id": "$t"}}, {"$sort": {"_id": 1}}], "cursor": {}};
    assert_eq!(values(&find(&mut client, &group), "_id"), sorted());

    // Updates, an upsert from a filter, a duplicate, a deletion.
    let update = doc! {"update": "c", "updates": [
        {"q": {"t": text(b"Caf\xE9")}, "u": {"$set": {"t": text(b"\xFF\xFF"), "u": text(b"\x81")}, "$push": {"l": text(b"\x82")}}},
        {"q": {"_id": text(b"new\xFF"), "t": text(b"new\xFF")}, "u": {"$setOnInsert": {"n": 99}}, "upsert": true},
        {"q": {"n": 99}, "u": [{"$set": {"s": {"$concat": ["$t", "!"]}}}]},
    ]};
    let updated = client.run("test", &update);
    assert_eq!(
        (updated.get_i32("n"), updated.get_i32("nModified")),
        (Some(3), Some(2))
    );
    let found = find(
        &mut client,
        &doc! {"find": "c", "filter": {"t": text(b"\xFF\xFF")}},
    );
    let expected = doc! {"_id": text(b"Caf\xE9"), "n": 2, "t": text(b"\xFF\xFF"), "l": [1, text(b"Caf\xE9"), text(b"\x82")],
    "in": {"deep": [text(b"Caf\xE9")]}, "u": text(b"\x81")};
    assert_eq!(found, std::slice::from_ref(&expected));
    let found = find(&mut client, &doc! {"find": "c", "filter": {"n": 99}});
    let inserted =
        doc! {"_id": text(b"new\xFF"), "t": text(b"new\xFF"), "n": 99, "s": text(b"new\xFF!")};
    assert_eq!(found, [inserted]);
    let twice = doc! {"insert": "c", "documents": [{"_id": 1, "t": text(b"\x80")}]};
    assert_eq!(code(&mut client, &twice), 11000);
    let delete = doc! {"delete": "c", "deletes": [{"q": {"t": text(b"\x80")}, "limit": 1}]};
    assert_eq!(client.run("test", &delete).get_i32("n"), Some(1));
    assert!(
        find(
            &mut client,
            &doc! {"find": "c", "filter": {"_id": text(b"\x80")}}
        )
        .is_empty()
    );

    // Names of collections and patterns must be UTF-8.
    assert_eq!(code(&mut client, &doc! {"find": text(b"c\xFF")}), 73);
    assert_eq!(
        code(
            &mut client,
            &doc! {"find": "c", "filter": {"t": {"$regex": text(b"\xFF")}}}
        ),
        51091
    );

    let check = client.run("test", &doc! {"validate": "c"});
    assert_eq!(check.get_bool("valid"), Some(true), "{check:?}");
    server.stop();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    for hint in [doc! {"$natural": 1}, doc! {"t": 1}] {
        let command = doc! {"find": "c", "filter": {"t": text(b"\xFF\xFF")}, "hint": hint};
        let found = find(&mut client, &command);
        assert_eq!(found, std::slice::from_ref(&expected));
    }
    server.stop();
}

#[test]
fn names_that_begin_with_a_dollar_are_stored_as_mongodb_stores_them() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let insert = doc! {"insert": "d", "documents": [{"_id": 1, "$top": 1, "n": {"$in": 1, "$*": {"x": 1, "y": 2}}}]};
    client.run("test", &insert);
    let one = |q: DocBuf, u: DocBuf, upsert: bool| {
        doc! {"update": "d", "updates": [{"q": q, "u": u, "upsert": upsert}]}
    };
    client.run(
        "test",
        &one(doc! {"_id": 1}, doc! {"$set": {"n.$p": 1}}, false),
    );
    client.run(
        "test",
        &one(doc! {"n.$p": 1}, doc! {"$unset": {"n.$*.x": 1}}, false),
    );
    client.run(
        "test",
        &one(doc! {"_id": 9}, doc! {"$set": {"$p": 1}}, true),
    );
    client.run("test", &one(doc! {"_id": 10}, doc! {"a": 1, "$p": 1}, true));
    let modify = doc! {"findAndModify": "d", "query": {"_id": 1}, "update": {"$inc": {"n.$in": 4}}, "new": true};
    let changed = client.run("test", &modify);
    let expected = doc! {"_id": 1, "$top": 1, "n": {"$in": 5, "$*": {"y": 2}, "$p": 1}};
    assert_eq!(changed.get_doc("value"), Some(&*expected));
    let pipeline = doc! {"update": "d", "updates": [
        {"q": {"_id": 9}, "u": [{"$replaceWith": {"$literal": {"$q": 2}}}]},
    ]};
    client.run("test", &pipeline);
    let found = find(
        &mut client,
        &doc! {"find": "d", "filter": {"_id": {"$gt": 1}}},
    );
    assert_eq!(
        found,
        [doc! {"_id": 9, "$q": 2}, doc! {"_id": 10, "a": 1, "$p": 1}]
    );
    for (command, expected) in [
        (one(doc! {"_id": 1}, doc! {"$set": {"$p": 1}}, false), 52),
        (one(doc! {"_id": 1}, doc! {"a": 1, "$p": 1}, false), 52),
        (one(doc! {"_id": 1}, doc! {"$set": {"$id": 1}}, false), 55),
        (one(doc! {"_id": 1}, doc! {"$set": {"n.$": 1}}, false), 2),
        (
            doc! {"insert": "d", "documents": [{"_id": {"a": {"$p": 1}}}]},
            52,
        ),
        (
            doc! {"insert": "d", "documents": [{"_id": {"$ref": "c", "$id": 1}}]},
            0,
        ),
        (one(doc! {"_id": 77}, doc! {"$set": {"$p": 1}}, false), 0),
    ] {
        assert_eq!(code(&mut client, &command), expected, "{command:?}");
    }
    server.stop();
}

#[test]
fn unique_text_indexes_are_built_and_refuse_the_same_entry() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    let mut client = server.connect();
    let documents =
        doc! {"insert": "u", "documents": [{"_id": 1, "a": "tea"}, {"_id": 2, "a": "tea shop"}]};
    client.run("test", &documents);
    let create = doc! {"createIndexes": "u", "indexes": [{"key": {"a": "text"}, "name": "a_text", "unique": true}]};
    client.run("test", &create);
    // An entry holds the score of its word, so another score makes another entry.
    let insert =
        |id: i32, words: &str| doc! {"insert": "u", "documents": [{"_id": id, "a": words}]};
    let reply = client.reply("test", &insert(3, "tea"));
    let errors = reply.get_array("writeErrors").unwrap();
    let error = errors.values().next().unwrap().as_doc().unwrap().to_owned();
    assert_eq!(error.get_i32("code"), Some(11000));
    assert_eq!(
        error.get_doc("keyPattern"),
        Some(&*doc! {"_fts": "text", "_ftsx": 1})
    );
    assert_eq!(
        error.get_doc("keyValue"),
        Some(&*doc! {"_fts": "tea", "_ftsx": 1.1})
    );
    assert_eq!(code(&mut client, &insert(3, "tea tea")), 0);
    let words = doc! {"find": "u", "filter": {"$text": {"$search": "tea"}}};
    assert_eq!(find(&mut client, &words).len(), 3);
    let listed = find(&mut client, &doc! {"listIndexes": "u"});
    assert_eq!(listed[1].get_bool("unique"), Some(true));

    // An ordinary one becomes unique if it has no duplicates.
    let create = doc! {"createIndexes": "v", "indexes": [{"key": {"a": "text"}, "name": "a_text"}]};
    client.run("test", &create);
    let insert =
        |id: i32, words: &str| doc! {"insert": "v", "documents": [{"_id": id, "a": words}]};
    for (id, words) in [(1, "tea"), (2, "tea"), (3, "milk")] {
        client.run("test", &insert(id, words));
    }
    let change = |option: &str| doc! {"collMod": "v", "index": {"name": "a_text", option: true}};
    client.run("test", &change("prepareUnique"));
    assert_eq!(code(&mut client, &insert(4, "milk")), 11000);
    assert_eq!(code(&mut client, &change("unique")), 359);
    client.run(
        "test",
        &doc! {"delete": "v", "deletes": [{"q": {"_id": 2}, "limit": 1}]},
    );
    client.run("test", &change("unique"));
    assert_eq!(code(&mut client, &insert(4, "milk")), 11000);
    let words = doc! {"find": "v", "filter": {"$text": {"$search": "milk tea"}}};
    assert_eq!(find(&mut client, &words).len(), 2);
    for refused in [doc! {"$**": 1}, doc! {"a": "hashed"}] {
        let create =
            doc! {"createIndexes": "u", "indexes": [{"key": refused, "name": "x", "unique": true}]};
        assert!(
            [67, 16764].contains(&code(&mut client, &create)),
            "{create:?}"
        );
    }
    server.stop();
}
