//! The built server on a small file system that becomes full.
//!
//! It mounts a tmpfs, which needs rights that not every machine gives. Where that fails, the test says so and passes: the
//! tests of the engine on a simulated disk (`crates/tree/tests/all/simulation/full_disk.rs`) remain.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_wire::Flags;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use support::{Client, Running, frond, wait_until};

const OUT_OF_DISK_SPACE: i32 = 14031;
/// Documents of one insert, and their size.
const BATCH: i32 = 100;
const DOCUMENT_BYTES: usize = 2000;

/// A mounted tmpfs, unmounted on drop.
struct SmallDisk {
    directory: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` if this machine does not allow it.
    fn mount(mib: u32) -> Option<SmallDisk> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "frond-test"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { directory }),
            other => {
                println!("skipped: a tmpfs cannot be mounted here: {other:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn database(&self) -> PathBuf {
        self.path().join("db")
    }

    /// A server with its default settings.
    fn serve(&self) -> Running {
        std::fs::create_dir_all(self.database()).unwrap();
        let database = self.database();
        let arguments = ["--dbpath", database.to_str().unwrap(), "--port", "0"];
        Running::spawn(frond(&arguments))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, so that it also works while a process still has files there.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// A document that does not compress.
fn document(id: i32) -> DocBuf {
    let mut bytes = [0_u8; DOCUMENT_BYTES];
    SmallRng::seed_from_u64(id as u64).fill(&mut bytes[..]);
    let mut doc = doc! {"_id": id, "a": id % 1000};
    doc.push(
        "b",
        Value::Binary {
            subtype: 0,
            bytes: &bytes,
        },
    );
    doc
}

/// Inserts documents; how many were stored, and the first error.
fn insert(
    client: &mut Client<TcpStream>,
    collection: &str,
    ids: std::ops::Range<i32>,
) -> (i32, Option<DocBuf>) {
    let documents: Vec<DocBuf> = ids.map(document).collect();
    let command = doc! {"insert": collection};
    let message = client.build(Flags::NONE, "test", &command, &[("documents", &documents)]);
    client.send(&message);
    let reply = client.receive_msg().2;
    assert_eq!(reply.get_f64("ok"), Some(1.0), "{reply:?}");
    let errors = reply.get_array("writeErrors");
    let error = errors.and_then(|errors| match errors.iter().next() {
        Some((_, Value::Document(error))) => Some(error.to_owned()),
        _ => None,
    });
    (reply.get_i32("n").unwrap(), error)
}

/// Consecutive refused writes that prove that the disk stays full. Before each the server is idle: flushed data is
/// smaller, so there may be room again.
const REFUSED: u32 = 3;

/// Inserts until the disk is full and stays so; how many documents there are then.
fn fill(server: &Running, client: &mut Client<TcpStream>, collection: &str, from: i32) -> i32 {
    let mut stored = from;
    let mut refused = 0;
    loop {
        let (n, error) = insert(client, collection, stored..stored + BATCH);
        stored += n;
        let Some(error) = error else {
            refused = 0;
            continue;
        };
        assert_eq!(error.get_i32("code"), Some(OUT_OF_DISK_SPACE), "{error:?}");
        refused += 1;
        if refused == REFUSED {
            return stored;
        }
        server.wait_until_idle();
    }
}

/// Waits until an insert succeeds.
fn wait_for_room(client: &mut Client<TcpStream>, id: i32) {
    wait_until("room on the disk", || {
        let (n, error) = insert(client, "back", id..id + 1);
        if let Some(error) = &error {
            assert_eq!(error.get_i32("code"), Some(OUT_OF_DISK_SPACE), "{error:?}");
        }
        n == 1
    });
}

/// The section of the disk in `serverStatus`.
fn disk_space(client: &mut Client<TcpStream>) -> DocBuf {
    let status = client.run("admin", &doc! {"serverStatus": 1});
    let space = |status: &Doc| {
        status
            .get_doc("frond")?
            .get_doc("disk space")
            .map(Doc::to_owned)
    };
    space(&status).unwrap()
}

fn code(client: &mut Client<TcpStream>, command: &Doc) -> Option<i32> {
    let reply = client.reply("test", command);
    reply.get_i32("code").or_else(|| {
        let errors = reply.get_array("writeErrors")?;
        match errors.iter().next()? {
            (_, Value::Document(error)) => error.get_i32("code"),
            _ => None,
        }
    })
}

#[test]
fn a_full_disk_passes() {
    let Some(disk) = SmallDisk::mount(160) else {
        return;
    };
    let server = disk.serve();
    let mut client = server.connect();
    client.run(
        "test",
        &doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
    );
    client.run("test", &doc! {"insert": "other", "documents": [{"_id": 1}]});
    let stored = fill(&server, &mut client, "c", 0);
    assert!(stored > 20_000, "only {stored} documents fit into 160 MiB");
    server.line_with("The disk is nearly full");
    let space = disk_space(&mut client);
    assert_eq!(space.get("low"), Some(Value::Bool(true)), "{space:?}");

    // Reads and counts go on, and writes of all kinds get the code.
    assert_eq!(client.count("c"), i64::from(stored));
    let found = client.run("test", &doc! {"find": "c", "filter": {"a": 7}, "limit": 1});
    assert!(found.get_doc("cursor").is_some());
    for command in [
        doc! {"update": "other", "updates": [{"q": {"_id": 1}, "u": {"$set": {"x": 1}}}]},
        doc! {"findAndModify": "other", "query": {"_id": 1}, "update": {"$set": {"x": 1}}},
        doc! {"createIndexes": "c", "indexes": [{"key": {"b": 1}, "name": "b"}]},
        doc! {"aggregate": "c", "pipeline": [{"$out": "copy"}], "cursor": {}},
        doc! {"create": "new"},
    ] {
        assert_eq!(
            code(&mut client, &command),
            Some(OUT_OF_DISK_SPACE),
            "{command:?}"
        );
    }

    // Acknowledged writes survive a kill, and the server starts on the full disk.
    server.signal("KILL");
    server.wait();
    let server = disk.serve();
    let mut client = server.connect();
    assert_eq!(client.count("c"), i64::from(stored));

    let deleted = client.run(
        "test",
        &doc! {"delete": "c", "deletes": [{"q": {"_id": {"$lt": stored / 2}}, "limit": 0}]},
    );
    assert_eq!(deleted.get_i32("n"), Some(stored / 2), "{deleted:?}");
    wait_for_room(&mut client, 1);
    assert_eq!(client.count("c"), i64::from(stored - stored / 2));

    // Full again, and emptied by a drop.
    let more = fill(&server, &mut client, "d", 0);
    assert!(more > 5000, "only {more} documents fit after the deletion");
    client.run("test", &doc! {"dropIndexes": "c", "index": "a"});
    client.run("test", &doc! {"drop": "c"});
    wait_for_room(&mut client, 2);
    assert_eq!(client.count("d"), i64::from(more));
    server.line_with("The disk has room again");
    server.signal("KILL");
    server.wait();
    let server = disk.serve();
    let mut client = server.connect();
    assert_eq!(client.count("d"), i64::from(more));
    assert_eq!(client.count("back"), 2);
    server.stop();
}

#[test]
fn a_disk_that_another_program_filled_passes() {
    let Some(disk) = SmallDisk::mount(160) else {
        return;
    };
    let server = disk.serve();
    let mut client = server.connect();
    let (stored, error) = insert(&mut client, "c", 0..2000);
    assert_eq!((stored, error), (2000, None));
    let blocker = disk.path().join("blocker");
    let dd = Command::new("dd")
        .arg("if=/dev/zero")
        .arg(format!("of={}", blocker.display()))
        .args(["bs=1M"])
        .output()
        .unwrap();
    assert!(!dd.status.success(), "it fills the disk");
    let stored = fill(&server, &mut client, "c", stored);
    assert_eq!(client.count("c"), i64::from(stored));
    client.run(
        "test",
        &doc! {"delete": "c", "deletes": [{"q": {"_id": {"$lt": 100}}, "limit": 0}]},
    );
    assert_eq!(client.count("c"), i64::from(stored - 100));
    std::fs::remove_file(&blocker).unwrap();
    wait_for_room(&mut client, 1);
    server.signal("KILL");
    server.wait();
    let server = disk.serve();
    let mut client = server.connect();
    assert_eq!(client.count("c"), i64::from(stored - 100));
    server.stop();
}

/// Deleting small documents writes more to the log and to the leaves than it frees at once. Compaction filled the disk
/// up to the last block, and then no checkpoint could free what it had replaced: the deletion failed, and the disk stayed
/// full. It also failed where one child of a node had more pending messages than there was room, and where the snapshot
/// of its own search kept what it had deleted.
#[test]
fn small_documents_are_deleted_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount(48) else {
        return;
    };
    let server = disk.serve();
    let mut client = server.connect();
    let mut create = doc! {"createIndexes": "c"};
    create.push_array("indexes", |indexes| {
        for field in ["a", "b", "c"] {
            indexes.push(&doc! {"key": doc! {field: 1}, "name": field});
        }
    });
    client.run("test", &create);
    let mix = |number: i64| (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (mut stored, mut refused) = (0i64, 0);
    while refused < REFUSED {
        let documents: Vec<DocBuf> = (stored..stored + 1000)
            .map(|id| {
                let random = mix(id);
                let (b, c) = (mix((random >> 1) as i64), mix((random >> 2) as i64 | 1));
                doc! {"_id": id, "a": (random >> 8) as i64, "b": (b >> 7) as i64, "c": (c >> 9) as i64}
            })
            .collect();
        let insert = doc! {"insert": "c"};
        let message = client.build(Flags::NONE, "test", &insert, &[("documents", &documents)]);
        client.send(&message);
        let reply = client.receive_msg().2;
        stored += i64::from(reply.get_i32("n").unwrap());
        if reply.get("writeErrors").is_some() {
            refused += 1;
            server.wait_until_idle();
        } else {
            refused = 0;
        }
    }
    assert!(stored > 100_000, "{stored}");
    assert_eq!(client.count("c"), stored);
    let delete = doc! {"delete": "c", "deletes": [{"q": {"_id": {"$gte": 10}}, "limit": 0}]};
    let deleted = client.run("test", &delete);
    assert_eq!(
        deleted.get_i32("n"),
        Some(stored as i32 - 10),
        "{deleted:?}"
    );
    wait_for_room(&mut client, 1);
    assert_eq!(client.count("c"), 10);
    server.stop();
}
