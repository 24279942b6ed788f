//! Damaged blocks below a running server: what needs them fails and names them, and everything else goes on.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use frond_bson::{DocBuf, Value, doc};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{Client, Running, frond};

const COLLECTIONS: usize = 10;
/// The collections that are damaged, and the damaged blocks in each.
const DAMAGED: usize = 5;
const BLOCKS: usize = 4;
const DOCUMENTS: i32 = 2000;
/// mongod's code for damaged data.
const DATA_CORRUPTION_DETECTED: i64 = 301;

type Connection = Client<std::net::TcpStream>;

fn name(collection: usize) -> String {
    format!("c{collection}")
}

/// Text that does not compress well.
fn text(seed: i32) -> String {
    let mut random = SmallRng::seed_from_u64(seed as u64);
    (0..200)
        .map(|_| char::from(random.random_range(b' '..b' ' + 90)))
        .collect()
}

/// Inserts documents; returns the errors, by number.
fn insert(client: &mut Connection, collection: &str, ids: std::ops::Range<i32>) -> DocBuf {
    let mut insert = doc! {"insert": collection, "ordered": false};
    insert.push_array("documents", |documents| {
        for id in ids {
            documents.push(&doc! {"_id": id, "a": id % 100, "text": text(id)});
        }
    });
    client.reply("shop", &insert)
}

fn find(client: &mut Connection, collection: &str, id: i32) -> DocBuf {
    client.reply(
        "shop",
        &doc! {"find": collection, "filter": doc! {"_id": id}},
    )
}

/// The codes of a reply's write errors.
fn write_errors(reply: &DocBuf) -> Vec<i64> {
    let Some(Value::Array(errors)) = reply.get("writeErrors") else {
        return Vec::new();
    };
    let code = |error: Value<'_>| match error {
        Value::Document(error) => error.get_i64("code").unwrap(),
        other => panic!("{other:?}"),
    };
    errors.values().map(code).collect()
}

fn strings(doc: &frond_bson::Doc, field: &str) -> Vec<String> {
    let Some(Value::Array(list)) = doc.get(field) else {
        panic!("no {field}: {doc:?}")
    };
    list.values().map(|value| format!("{value:?}")).collect()
}

fn verify(data: &Path) -> String {
    let arguments = ["verify", "--dbpath", data.to_str().unwrap()];
    let mut command = Command::new(env!("CARGO_BIN_EXE_frond"));
    let output: Output = command.args(arguments).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The damaged blocks of each collection that a verification names.
fn blocks_in(report: &str) -> BTreeMap<u64, String> {
    let mut blocks = BTreeMap::new();
    for line in report.lines() {
        if let Some((ns, rest)) = line
            .strip_prefix("problem: shop.")
            .and_then(|rest| rest.split_once(": "))
            && let Some((_, at)) = rest.split_once("data.frond is damaged at byte ")
        {
            let at = at.split(':').next().unwrap().parse().unwrap();
            blocks.insert(at, ns.to_owned());
        }
    }
    blocks
}

/// Damages blocks of the first collections. Returns their offsets with the names of the collections.
fn damage(data: &Path) -> BTreeMap<u64, String> {
    let file = data.join("data.frond");
    let whole = std::fs::read(&file).unwrap();
    let flip = |places: &[usize]| {
        let mut bytes = whole.clone();
        for place in places {
            bytes[*place] ^= 1;
            bytes[*place + 1] ^= 1;
        }
        std::fs::write(&file, bytes).unwrap();
    };
    // The catalog is in tree 0.
    let places: Vec<usize> = (3 * 4096 + 700..whole.len() - 2)
        .step_by(24 << 10)
        .collect();
    let usable: Vec<usize> = places
        .chunks(20)
        .flat_map(|places| {
            flip(places);
            let report = verify(data);
            let has_catalog = report.lines().any(|line| line.contains(", tree 0:"));
            let blocks: Vec<u64> = blocks_in(&report).into_keys().collect();
            let names = move |place: &usize| {
                let at = *place as u64;
                blocks.iter().any(|block| (at - 8000..=at).contains(block))
            };
            let usable: Vec<usize> = places.iter().copied().filter(names).collect();
            if has_catalog { Vec::new() } else { usable }
        })
        .collect();
    flip(&usable);
    let all = blocks_in(&verify(data));
    let mut chosen = Vec::new();
    for collection in 0..DAMAGED {
        let own = all.iter().filter(|(_, ns)| **ns == name(collection));
        let own: Vec<u64> = own.map(|(block, _)| *block).collect();
        let step = own.len() / BLOCKS;
        assert!(step > 0, "too few blocks in {collection}: {all:?}");
        for block in own.iter().step_by(step).take(BLOCKS) {
            let after = usable.iter().find(|place| **place as u64 >= *block);
            chosen.push(*after.unwrap());
        }
    }
    flip(&chosen);
    blocks_in(&verify(data))
}

fn fill(data: &Path) {
    let server = Running::start(data, &[]);
    let mut client = server.connect();
    for collection in (0..COLLECTIONS).map(name) {
        let collection = collection.as_str();
        let create = doc! {"create": collection, "pageSize": 65536, "readPageSize": 4096};
        client.run("shop", &create);
        let mut create = doc! {"createIndexes": collection};
        let index = doc! {"key": doc! {"a": 1, "text": 1}, "name": "a", "pageSize": 65536, "readPageSize": 4096};
        create.push_array("indexes", |indexes| indexes.push(&index));
        client.run("shop", &create);
        for from in (0..DOCUMENTS).step_by(500) {
            let reply = insert(&mut client, collection, from..from + 500);
            assert_eq!(write_errors(&reply), []);
        }
    }
    server.stop();
}

/// Two flipped bytes in one leaf stopped the writes of all collections, and the next start of the server.
#[test]
fn damage_stays_local() {
    let directory = tempfile::tempdir().unwrap();
    let data: PathBuf = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    fill(&data);
    let blocks = damage(&data);
    assert_eq!(blocks.len(), DAMAGED * BLOCKS, "{blocks:?}");

    let mut next = DOCUMENTS;
    let mut failed = 0;
    for life in 0..4 {
        let server = Running::start(&data, &[]);
        let mut client = server.connect();
        for number in 0..COLLECTIONS {
            let collection = name(number);
            // Everything that was there, and was inserted in earlier lives.
            let mut own_failures = 0;
            for id in (0..next).step_by(3) {
                let reply = find(&mut client, &collection, id);
                if reply.get_f64("ok") == Some(1.0) {
                    let batch = reply.get_doc("cursor").unwrap().get("firstBatch");
                    let Some(Value::Array(batch)) = batch else {
                        panic!("{reply:?}")
                    };
                    // An insert may have failed because it could not look for its `_id`.
                    let found = batch.values().count();
                    assert!(found == 1 || (number < DAMAGED && id >= DOCUMENTS), "{id}");
                } else {
                    assert!(number < DAMAGED, "{collection} {id}: {reply:?}");
                    assert_eq!(reply.get_i64("code"), Some(DATA_CORRUPTION_DETECTED));
                    let message = reply.get_str("errmsg").unwrap();
                    let named = |block: &u64| message.contains(&format!("byte {block}:"));
                    assert!(blocks.keys().any(named), "{message}");
                    own_failures += 1;
                }
            }
            failed += own_failures;
            assert!(
                own_failures * 4 < next / 3,
                "{own_failures} of {next} in {collection}"
            );
            let reply = insert(&mut client, &collection, next..next + 300);
            let errors = write_errors(&reply);
            if number < DAMAGED {
                assert!(errors.iter().all(|code| *code == DATA_CORRUPTION_DETECTED));
                assert!(errors.len() < 100, "{reply:?}");
            } else {
                assert_eq!(errors, []);
            }
            let report = client.run("shop", &doc! {"validate": &collection});
            assert_eq!(
                report.get_bool("valid"),
                Some(number >= DAMAGED),
                "{report:?}"
            );
            let errors = strings(&report, "errors");
            for (block, ns) in &blocks {
                let named = errors
                    .iter()
                    .any(|error| error.contains(&format!("byte {block}:")));
                assert_eq!(named, *ns == collection, "{block}: {errors:?}");
            }
        }
        next += 300;
        // A sync makes the server flush and checkpoint.
        client.run("admin", &doc! {"fsync": 1});
        let status = client.run("admin", &doc! {"serverStatus": 1});
        let section = status.get_doc("frond").unwrap();
        let Some(Value::Array(listed)) = section.get("damage") else {
            panic!("{section:?}")
        };
        let listed: BTreeMap<u64, String> = listed
            .values()
            .map(|value| match value {
                Value::Document(block) => {
                    let ns = block.get_str("ns").unwrap().trim_start_matches("shop.");
                    (block.get_i64("offset").unwrap() as u64, ns.to_owned())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(listed, blocks);
        if life % 2 == 0 {
            server.stop();
        } else {
            server.signal("KILL");
            server.wait();
        }
        let named = blocks_in(&verify(&data));
        assert_eq!(named, blocks, "life {life}");
    }
    assert!(failed > 0);

    // A collection that is dropped takes its damage along.
    let server = Running::start(&data, &[]);
    let mut client = server.connect();
    for collection in (0..DAMAGED).map(name) {
        client.run("shop", &doc! {"drop": collection.as_str()});
    }
    server.stop();
    assert!(verify(&data).ends_with("sound\n"), "{}", verify(&data));
}

/// A damaged journal is cut only where an option allows it.
#[test]
fn a_damaged_journal_stops_the_start_unless_it_may_be_cut() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path();
    let server = Running::start(data, &[]);
    let mut client = server.connect();
    for id in 0..20 {
        let insert = doc! {
            "insert": "c", "documents": [{"_id": id, "text": text(id).repeat(20)}], "writeConcern": {"j": true}
        };
        assert_eq!(client.run("shop", &insert).get_i32("n"), Some(1));
    }
    server.signal("KILL");
    server.wait();

    // The commit of a document in the middle, which is incompressible enough to be found.
    let segment = std::fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("log-0")
        })
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).unwrap();

    let arguments = ["--port", "0", "--dbpath", data.to_str().unwrap()];
    let refused = frond(&arguments).output().unwrap();
    assert!(!refused.status.success());
    let text = String::from_utf8_lossy(&refused.stdout) + String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("--journalRecovery"), "{text}");

    let server = Running::start(data, &["--journalRecovery", "pointInTime"]);
    let mut client = server.connect();
    let aside = format!("{}.damaged-1", segment.display());
    assert!(Path::new(&aside).exists(), "{aside}");
    let found = client
        .run("shop", &doc! {"count": "c"})
        .get_i32("n")
        .unwrap();
    assert!((1..20).contains(&found), "{found}");
    server.stop();
    let server = Running::start(data, &[]);
    let mut client = server.connect();
    let count = client.run("shop", &doc! {"count": "c"});
    assert_eq!(count.get_i32("n"), Some(found));
    server.stop();
    assert!(verify(data).ends_with("sound\n"), "{}", verify(data));
}
