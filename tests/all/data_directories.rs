//! Data directories that earlier versions of the server have left behind, killed with a part of the data in the journal: today's
//! binary must verify them, open them, answer from them, and go on writing. `tests/data-directories/README.md` says how
//! to add one.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use frond_bson::{Doc, DocBuf, Value, doc};
use support::{Client, Running};

const ORDERS: i32 = 2000;
/// Orders that are in the journal only.
const LATE: i32 = 100;
const BIG: i32 = 3;
const BIG_KEYS: i32 = 2000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data-directories")
}

fn tar(arguments: &[&str], directory: &Path) {
    let mut command = Command::new("tar");
    let status = command.args(arguments).current_dir(directory).status();
    assert!(status.unwrap().success(), "tar {arguments:?}");
}

fn verify(directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frond"));
    let output = command
        .args(["verify", "--dbpath"])
        .arg(directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.ends_with("sound\n"),
        "{text}"
    );
}

fn command(name: &str, collection: &str) -> DocBuf {
    let mut command = DocBuf::new();
    command.push(name, collection);
    command
}

fn order(number: i32) -> DocBuf {
    let word = ["apple", "pear", "plum", "quince"][number as usize % 4];
    let (tag, group) = (number % 7, number % 10);
    doc! {
        "_id": number, "n": group, "u": number * 3, "word": word,
        "text": format!("{word} number {number}"), "tags": [tag, tag + 100],
        "place": {"type": "Point", "coordinates": [f64::from(group), f64::from(tag)]},
        "attributes": {"colour": word, "size": tag},
    }
}

fn insert(
    client: &mut Client<TcpStream>,
    collection: &str,
    documents: impl Iterator<Item = DocBuf>,
) {
    let mut insert = command("insert", collection);
    insert.push_array("documents", |list| {
        for document in documents {
            list.push(&document);
        }
    });
    insert.push("writeConcern", &doc! {"j": true});
    let reply = client.run("shop", &insert);
    assert!(reply.get("writeErrors").is_none(), "{reply:?}");
}

/// The indexes of `orders`: the name, the keys, the options.
fn indexes() -> Vec<(&'static str, DocBuf, DocBuf)> {
    vec![
        ("n_1", doc! {"n": 1}, doc! {}),
        ("n_-1_word_1", doc! {"n": -1, "word": 1}, doc! {}),
        ("tags_1", doc! {"tags": 1}, doc! {}),
        ("u_1", doc! {"u": 1}, doc! {"unique": true}),
        ("text_text", doc! {"text": "text"}, doc! {}),
        ("place_2dsphere", doc! {"place": "2dsphere"}, doc! {}),
        ("word_hashed", doc! {"word": "hashed"}, doc! {}),
        ("attributes.$**_1", doc! {"attributes.$**": 1}, doc! {}),
        (
            "partial",
            doc! {"u": -1},
            doc! {"partialFilterExpression": {"n": {"$gt": 5}}},
        ),
        (
            "word_de",
            doc! {"word": 1},
            doc! {"collation": {"locale": "de", "strength": 1}},
        ),
        (
            "clustering",
            doc! {"word": 1, "u": 1},
            doc! {"clustering": true},
        ),
        (
            "expires",
            doc! {"expires": 1},
            doc! {"expireAfterSeconds": 3600},
        ),
    ]
}

/// Fills a server as all stored directories are filled. It must not change: add a function for what is new, and collections of
/// its own.
fn fill(server: &Running) {
    let mut client = server.connect();
    let mut create = command("createIndexes", "orders");
    create.push_array("indexes", |list| {
        for (name, key, options) in indexes() {
            let mut index = options;
            index.push("name", name);
            index.push("key", &key);
            list.push(&index);
        }
    });
    client.run("shop", &create);
    insert(&mut client, "orders", (0..ORDERS - LATE).map(order));
    client.run(
        "shop",
        &doc! {"create": "images", "changeStreamPreAndPostImages": {"enabled": true}},
    );
    client.run(
        "shop",
        &doc! {"create": "capped", "capped": true, "size": 100_000, "max": 10},
    );
    client.run(
        "shop",
        &doc! {"create": "kept", "naturalOrder": "insertion"},
    );
    client.run(
        "shop",
        &doc! {"create": "plums", "viewOn": "orders", "pipeline": [{"$match": {"word": "plum"}}]},
    );
    insert(&mut client, "capped", (0..25).map(|n| doc! {"_id": n}));
    insert(&mut client, "kept", (0..100).map(|n| doc! {"_id": 100 - n}));
    insert(
        &mut client,
        "images",
        (0..10).map(|n| doc! {"_id": n, "v": 0}),
    );
    let big = |id: i32| {
        let mut document = doc! {"_id": id, "count": 0};
        document.push_doc("values", |values| {
            for key in 0..BIG_KEYS {
                values.push(
                    &format!("key{key:05}"),
                    &doc! {"n": key, "text": "some text of a value"},
                );
            }
        });
        document
    };
    insert(&mut client, "big", (0..BIG).map(big));
    client.run(
        "admin",
        &doc! {"createUser": "keeper", "pwd": "secret", "roles": ["root"]},
    );
    // A checkpoint; what follows is in the journal.
    client.run("admin", &doc! {"fsync": 1});
    insert(&mut client, "orders", (ORDERS - LATE..ORDERS).map(order));
    for id in 0..BIG {
        let update = doc! {
            "update": "big",
            "updates": [{"q": {"_id": id}, "u": {"$inc": {"count": id, "values.key00007.n": 1000}}}],
        };
        client.run("shop", &update);
    }
    client.run(
        "shop",
        &doc! {"update": "images", "updates": [{"q": {}, "u": {"$set": {"v": 1}}, "multi": true}], "writeConcern": {"j": true}},
    );
}

const LONG_COUNT: i32 = 24;
/// These are in the journal only.
const LONG_LATE: i32 = 4;

/// A text that differs from the others only at its end.
fn long_text(number: i32) -> String {
    format!("{}{number:02}", "long ".repeat(14_000))
}

fn long_document(number: i32) -> DocBuf {
    let text = long_text(number);
    let reversed = long_text(LONG_COUNT - number);
    doc! {"_id": text.as_str(), "n": number, "text": reversed.as_str()}
}

/// Fills the collection of long keys.
fn fill_long_keys(server: &Running) {
    let mut client = server.connect();
    client.run(
        "shop",
        &doc! {"createIndexes": "long", "indexes": [
            {"name": "text_1", "key": {"text": 1}},
            {"name": "unique", "key": {"text": -1, "n": 1}, "unique": true}
        ]},
    );
    let numbers = 0..LONG_COUNT - LONG_LATE;
    insert(&mut client, "long", numbers.map(long_document));
    client.run("admin", &doc! {"fsync": 1});
    insert(
        &mut client,
        "long",
        (LONG_COUNT - LONG_LATE..LONG_COUNT).map(long_document),
    );
}

fn ask_long_keys(client: &mut Client<TcpStream>) {
    let mut numbers = |find: &Doc| -> Vec<i64> {
        let found = documents(client, "shop", find);
        let numbers = found.iter().map(|document| document.get_i64("n").unwrap());
        numbers.collect()
    };
    let ascending: Vec<i64> = (0..LONG_COUNT.into()).collect();
    let descending: Vec<i64> = ascending.iter().rev().copied().collect();
    let all = |hint: &str, sort: DocBuf| {
        doc! {"find": "long", "hint": hint, "sort": &sort, "projection": {"n": 1}, "batchSize": 100}
    };
    assert_eq!(numbers(&all("_id_", doc! {"_id": 1})), ascending);
    assert_eq!(numbers(&all("text_1", doc! {"text": 1})), descending);
    assert_eq!(
        numbers(&all("unique", doc! {"text": -1, "n": 1})),
        ascending
    );
    for number in [0, 7, LONG_COUNT - 1] {
        let text = long_text(number);
        let find = doc! {"find": "long", "filter": {"_id": text.as_str()}};
        assert_eq!(numbers(&find), [i64::from(number)]);
        let find = doc! {"find": "long", "filter": {"text": {"$lt": text.as_str()}}, "hint": "text_1", "projection": {"n": 1}, "batchSize": 100};
        assert_eq!(numbers(&find).len(), number.max(1) as usize - 1);
    }
    client.run("shop", &doc! {"validate": "long", "full": true});
}

fn documents(client: &mut Client<TcpStream>, db: &str, find: &Doc) -> Vec<DocBuf> {
    let reply = client.run(db, find);
    let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
    let list = |value: Value<'_>| match value {
        Value::Document(document) => document.to_owned(),
        other => panic!("{other:?}"),
    };
    batch
        .unwrap()
        .iter()
        .map(|(_, value)| list(value))
        .collect()
}

/// Every question is answered as by the server that wrote the directory.
fn ask(client: &mut Client<TcpStream>) {
    let mut found = |filter: &Doc, hint: &str, collation: Option<&Doc>| {
        let mut find = command("find", "orders");
        find.push("filter", filter);
        find.push("batchSize", 10_000);
        if !hint.is_empty() {
            find.push("hint", hint);
        }
        if let Some(collation) = collation {
            find.push("collation", collation);
        }
        documents(client, "shop", &find)
    };
    let expected = |test: &dyn Fn(i32) -> bool| (0..ORDERS).filter(|n| test(*n)).count();
    let all = found(&doc! {}, "_id_", None);
    assert_eq!(all.len(), ORDERS as usize);
    for (number, document) in (0..).zip(&all) {
        assert_eq!(document.as_bytes(), order(number).as_bytes());
    }
    let german = doc! {"locale": "de", "strength": 1};
    let in_box = doc! {"place": {"$geoWithin": {"$centerSphere": [[0.0, 0.0], 0.001]}}};
    let cases: [(DocBuf, &str, usize); 9] = [
        (doc! {"n": 3}, "n_1", expected(&|n| n % 10 == 3)),
        (
            doc! {"n": {"$lt": 2}, "word": "pear"},
            "n_-1_word_1",
            expected(&|n| n % 10 < 2 && n % 4 == 1),
        ),
        (doc! {"tags": 103}, "tags_1", expected(&|n| n % 7 == 3)),
        (
            doc! {"u": {"$gte": 3000}},
            "u_1",
            expected(&|n| n * 3 >= 3000),
        ),
        (
            doc! {"$text": {"$search": "quince"}},
            "",
            expected(&|n| n % 4 == 3),
        ),
        (
            in_box,
            "place_2dsphere",
            expected(&|n| n % 10 == 0 && n % 7 == 0),
        ),
        (
            doc! {"word": "plum"},
            "word_hashed",
            expected(&|n| n % 4 == 2),
        ),
        (
            doc! {"attributes.size": 5},
            "attributes.$**_1",
            expected(&|n| n % 7 == 5),
        ),
        (
            doc! {"word": "apple", "u": {"$lt": 300}},
            "clustering",
            expected(&|n| n % 4 == 0 && n < 100),
        ),
    ];
    for (filter, hint, count) in cases {
        assert_eq!(found(&filter, hint, None).len(), count, "{filter:?}");
    }
    let partial = doc! {"n": {"$gt": 5}, "u": {"$gte": 0}};
    assert_eq!(
        found(&partial, "partial", None).len(),
        expected(&|n| n % 10 > 5)
    );
    let plums = found(&doc! {"word": "PLUM"}, "word_de", Some(&german));
    assert_eq!(plums.len(), expected(&|n| n % 4 == 2));

    assert_eq!(
        documents(client, "shop", &doc! {"find": "plums", "batchSize": 10_000}).len(),
        500
    );
    assert_eq!(
        documents(client, "shop", &doc! {"find": "capped"}).len(),
        10
    );
    let kept = documents(client, "shop", &doc! {"find": "kept"});
    assert_eq!(kept[0].get_i64("_id"), Some(100), "the order of insertion");
    let big = documents(client, "shop", &doc! {"find": "big", "sort": {"_id": 1}});
    assert_eq!(big.len(), BIG as usize);
    for (id, document) in (0..).zip(&big) {
        assert_eq!(document.get_i64("count"), Some(id));
        let values = document.get_doc("values").unwrap();
        assert_eq!(values.iter().count(), BIG_KEYS as usize);
        let value = |key: &str| values.get_doc(key).unwrap().get_i64("n");
        assert_eq!(
            (value("key00007"), value("key01999")),
            (Some(1007), Some(1999))
        );
    }
    let users = client.run("admin", &doc! {"usersInfo": "keeper"});
    assert_eq!(users.get_array("users").unwrap().iter().count(), 1);
    let updates =
        doc! {"find": "oplog.rs", "filter": {"ns": "shop.images", "op": "u"}, "batchSize": 1000};
    assert_eq!(documents(client, "local", &updates).len(), 10);
}

fn validate(client: &mut Client<TcpStream>) {
    for collection in ["orders", "big", "capped", "kept", "images"] {
        let mut validate = command("validate", collection);
        validate.push("full", true);
        let reply = client.run("shop", &validate);
        assert_eq!(
            reply.get_bool("valid"),
            Some(true),
            "{collection}: {reply:?}"
        );
    }
}

/// Opens, asks, changes and closes the directory.
fn use_directory(data: &Path) {
    verify(data);
    let server = Running::start(data, &["--oplog", "on"]);
    let mut client = server.connect();
    ask(&mut client);
    ask_long_keys(&mut client);
    validate(&mut client);
    // The images of documents before their last change are still there for change streams.
    insert(&mut client, "orders", (ORDERS..ORDERS + 10).map(order));
    client.run(
        "shop",
        &doc! {"delete": "orders", "deletes": [{"q": {"_id": {"$gte": ORDERS}}, "limit": 0}]},
    );
    let update = doc! {"update": "big", "updates": [{"q": {"_id": 0}, "u": {"$set": {"values.key00001.n": -1}}}]};
    client.run("shop", &update);
    client.run("admin", &doc! {"fsync": 1});
    server.stop();

    verify(data);
    let server = Running::start(data, &["--oplog", "on"]);
    let mut client = server.connect();
    ask(&mut client);
    ask_long_keys(&mut client);
    validate(&mut client);
    server.stop();
}

#[test]
fn directories_of_earlier_versions_are_opened_verified_and_changed() {
    if let Some(name) = std::env::var_os("FROND_WRITE_DATA_DIRECTORY") {
        write(&folder().join(name));
    }
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let archive = path.join("data.tar.gz");
        if !archive.exists() {
            continue;
        }
        println!("{}", archive.display());
        let temporary = tempfile::tempdir().unwrap();
        tar(&["xzf", archive.to_str().unwrap()], temporary.path());
        use_directory(&temporary.path().join("data"));
        count += 1;
    }
    assert!(count > 0, "no directories");
}

/// Makes a directory with today's binary.
fn write(target: &Path) {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path().join("data");
    fs::create_dir(&data).unwrap();
    let server = Running::start(&data, &["--oplog", "on"]);
    fill(&server);
    fill_long_keys(&server);
    server.signal("KILL");
    server.wait();
    fs::create_dir_all(target).unwrap();
    let archive = target.join("data.tar.gz");
    // The reserve is nothing but space.
    let arguments = [
        "--exclude=reserve.frond",
        "--exclude=diagnostic.data",
        "-czf",
    ];
    tar(
        &[&arguments[..], &[archive.to_str().unwrap(), "data"]].concat(),
        temporary.path(),
    );
}

/// A release adds its directory, so that all later versions are tested with it.
#[test]
fn every_released_version_has_a_directory() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let changes = fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
    let names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let released = changes
        .lines()
        .filter_map(|line| line.strip_prefix("## [")?.split(']').next())
        .filter(|version| *version != "Unreleased");
    for version in released {
        let prefix = format!("{version}-format-");
        assert!(
            names.iter().any(|name| name.starts_with(&prefix)),
            "FROND_WRITE_DATA_DIRECTORY={prefix}N cargo test --test all data_directories::"
        );
    }
}

/// Nothing in it is changed.
#[test]
fn a_directory_of_another_format_is_refused_and_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let data = temporary.path();
    Running::start(data, &[]).stop();
    let file = data.join("data.frond");
    let mut bytes = fs::read(&file).unwrap();
    for copy in [0, 2048, 4096, 6144] {
        // The version stands behind the eight bytes that mark the file.
        bytes[copy + 8..copy + 12].copy_from_slice(&1000_u32.to_le_bytes());
    }
    fs::write(&file, &bytes).unwrap();
    let path = data.to_str().unwrap();
    let output = support::frond(&["--dbpath", path, "--port", "0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(100));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("format"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_frond"));
    let output = doctor
        .args(["doctor", "--skipSpeed", "--dbpath", path])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("format version 1000 is not 1"), "{text}");
}
