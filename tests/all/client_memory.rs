//! Memory that clients make the server hold, in a control group of 512 MiB with default settings.

#![allow(clippy::unwrap_used)]

use crate::memory_group;
use crate::support;

use frond_bson::{DocBuf, doc};
use frond_wire::{Compressor, Flags, compress};
use memory_group::{MemoryGroup, resident};
use support::{Running, frond, wait_until};

const LIMIT: u64 = 512 << 20;
const RESIDENT_MAX: u64 = 480 << 20;

/// A server with default settings in a group of its own.
struct Confined {
    server: Running,
    _directory: tempfile::TempDir,
    _group: MemoryGroup,
}

fn confined(test: &str) -> Option<Confined> {
    let group = MemoryGroup::new(test, LIMIT)?;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let server = Running::spawn(group.command(&frond(&["--dbpath", path, "--port", "0"])));
    Some(Confined {
        server,
        _directory: directory,
        _group: group,
    })
}

/// Another client finds a document some times, while the clients of the test keep what they hold.
fn others_are_served(server: &Running) {
    let mut client = server.connect();
    let find = doc! {"find": "small", "filter": {"_id": 1}};
    for _ in 0..100 {
        let reply = client.run("test", &find);
        let batch = reply.get_doc("cursor").unwrap().get_array("firstBatch");
        assert_eq!(batch.unwrap().count(), 1);
    }
}

fn insert_small(server: &Running) {
    let insert = doc! {"insert": "small", "documents": [{"_id": 1}]};
    server.connect().run("test", &insert);
}

/// Sixty such clients had the server killed.
#[test]
fn clients_that_do_not_read_15_mib_replies_do_not_get_the_server_killed() {
    for (name, documents, bytes) in [("many", 1000, 15 << 10), ("one", 1, 15 << 20)] {
        let Some(confined) = confined(&format!("unread-{name}")) else {
            return;
        };
        let server = &confined.server;
        insert_small(server);
        let text = "x".repeat(bytes);
        for from in (0..documents).step_by(500) {
            let list: Vec<DocBuf> = (from..documents.min(from + 500))
                .map(|id| doc! {"_id": id, "x": &text})
                .collect();
            let mut client = server.connect();
            let insert = doc! {"insert": "large"};
            let message = client.build(Flags::NONE, "test", &insert, &[("documents", &list)]);
            client.send(&message);
            assert_eq!(client.receive_msg().2.get_f64("ok"), Some(1.0));
        }
        let find = doc! {"find": "large", "batchSize": 1000};
        let unread: Vec<_> = (0..200)
            .map(|_| {
                let mut client = server.connect();
                let message = client.build(Flags::NONE, "test", &find, &[]);
                client.send(&message);
                client
            })
            .collect();
        others_are_served(server);
        let (most, now) = resident(server.pid());
        assert!(most <= RESIDENT_MAX, "{name}: {most} bytes, now {now}");
        // A client that reads gets its documents, unless the waiting clients need so much memory that it is refused at once.
        let mut reader = server.connect();
        let mut reply = reader.reply("test", &find);
        let mut found = 0;
        while reply.get_i32("code") != Some(146) {
            let cursor = reply.get_doc("cursor").unwrap();
            let batch = cursor
                .get_array("firstBatch")
                .or(cursor.get_array("nextBatch"));
            found += batch.unwrap().count();
            let id = cursor.get_i64("id").unwrap();
            if id == 0 {
                break;
            }
            reply = reader.run("test", &doc! {"getMore": id, "collection": "large"});
        }
        let is_refused = name == "one" && reply.get_i32("code") == Some(146);
        assert!(
            is_refused || found == documents as usize,
            "{name}: {reply:?}"
        );
        drop(unread);
        let (most, now) = resident(server.pid());
        assert!(most <= RESIDENT_MAX, "{name}: {most} bytes, now {now}");
        confined.server.stop();
    }
}

/// Up to eighty queries at a time each read the page of their document, before anything counted its memory.
#[test]
fn clients_that_each_find_another_15_mib_document_do_not_get_the_server_killed() {
    const DOCUMENTS: i32 = 40;
    let mut random = 1u64;
    let mut letter = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
        char::from(b'!' + (random >> 58) as u8)
    };
    let varied: String = (0..15 << 20).map(|_| letter()).collect();
    let same = "x".repeat(15 << 20);
    // Pages that take little on the device, and such that take as much there.
    for (name, clients, text) in [("own", 120, same), ("own-varied", 60, varied)] {
        let Some(confined) = confined(name) else {
            return;
        };
        let server = &confined.server;
        insert_small(server);
        let mut writer = server.connect();
        for id in 0..DOCUMENTS {
            let insert = doc! {"insert": "large", "documents": [{"_id": id, "x": &text}]};
            assert_eq!(writer.run("test", &insert).get_i32("n"), Some(1));
        }
        let readers: Vec<_> = (0..clients)
            .map(|number| {
                let mut client = server.connect();
                let find = doc! {"find": "large", "filter": {"_id": number % DOCUMENTS}};
                let message = client.build(Flags::NONE, "test", &find, &[]);
                client.send(&message);
                client
            })
            .collect();
        others_are_served(server);
        let (most, now) = resident(server.pid());
        assert!(most <= RESIDENT_MAX, "{name}: {most} bytes, now {now}");
        // All get their document, the error of scarce memory, or the end of a connection that has not read for long.
        let found: usize = std::thread::scope(|scope| {
            let readers = readers.into_iter().map(|mut client| {
                scope.spawn(move || {
                    let Some(message) = client.receive() else {
                        return 0;
                    };
                    let is_refused = message.len() < 15 << 20;
                    assert!(!is_refused || message.windows(4).any(|part| part == b"\x92\0\0\0"));
                    usize::from(!is_refused)
                })
            });
            let readers: Vec<_> = readers.collect();
            readers
                .into_iter()
                .map(|reader| reader.join().unwrap())
                .sum()
        });
        assert!(found > 0, "{name}");
        let (most, now) = resident(server.pid());
        println!("{name}: {found} found, at most {most} bytes, now {now}");
        assert!(most <= RESIDENT_MAX, "{name}: {most} bytes, now {now}");
        confined.server.stop();
    }
}

#[test]
fn writers_of_large_batches_do_not_get_the_server_killed() {
    let Some(confined) = confined("batches") else {
        return;
    };
    let server = &confined.server;
    insert_small(server);
    let text = "x".repeat(1 << 20);
    let batch: Vec<DocBuf> = (0..16).map(|n| doc! {"n": n, "x": &text}).collect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..64)
            .map(|number| {
                let (mut client, batch) = (server.connect(), &batch);
                scope.spawn(move || {
                    let insert = doc! {"insert": "c"};
                    let sequences: [(&str, &[DocBuf]); 1] = [("documents", batch)];
                    let mut message = client.build(Flags::NONE, "test", &insert, &sequences);
                    if number % 4 == 0 {
                        // These take little on their way, and as much as the others when they are decompressed.
                        message = compress(&message, Compressor::Snappy).unwrap();
                    }
                    client.send(&message);
                    let reply = client.receive().expect("a reply");
                    drop(reply);
                })
            })
            .collect();
        others_are_served(server);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    assert_eq!(server.connect().count("c"), 64 * 16);
    let (most, now) = resident(server.pid());
    assert!(most <= RESIDENT_MAX, "{most} bytes, now {now}");
    confined.server.stop();
}

/// A client that stops in the middle of a large message does not keep others from sending theirs.
#[test]
fn clients_that_stop_in_the_middle_of_large_messages_give_way() {
    let Some(confined) = confined("halves") else {
        return;
    };
    let server = &confined.server;
    insert_small(server);
    let text = "x".repeat(1 << 20);
    // The larger a message, the longer its client may take for it.
    let batch: Vec<DocBuf> = (0..10).map(|n| doc! {"n": n, "x": &text}).collect();
    let insert = doc! {"insert": "c"};
    let halves: Vec<_> = (0..30)
        .map(|_| {
            let mut client = server.connect();
            let message = client.build(Flags::NONE, "test", &insert, &[("documents", &batch)]);
            client.send(&message[..20 << 10]);
            client
        })
        .collect();
    let mut client = server.connect();
    let message = client.build(Flags::NONE, "test", &insert, &[("documents", &batch[..8])]);
    client.send(&message);
    assert_eq!(client.receive_msg().2.get_i32("n"), Some(8));
    drop(halves);
    let (most, now) = resident(server.pid());
    assert!(most <= RESIDENT_MAX, "{most} bytes, now {now}");
    confined.server.stop();
}

/// Many connections that have sent something and then nothing.
#[test]
fn an_idle_connection_takes_little_memory() {
    const MEMORY_EACH: u64 = 12 << 10;
    let Some(confined) = confined("idle") else {
        return;
    };
    let server = &confined.server;
    insert_small(server);
    let (_, before) = resident(server.pid());
    let limit = std::process::Command::new("sh")
        .args(["-c", "ulimit -n"])
        .output();
    let limit: usize = String::from_utf8(limit.unwrap().stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap_or(10_500);
    let count = limit.saturating_sub(200).min(10_000);
    let hello = doc! {"hello": 1, "client": {"application": {"name": "idle"}}};
    let mut idle: Vec<_> = (0..count)
        .map(|_| {
            let mut client = server.connect();
            client.run("admin", &hello);
            client
        })
        .collect();
    // Buffers of connections are freed some time after their last request.
    wait_until("little memory for each", || {
        let (_, now) = resident(server.pid());
        now.saturating_sub(before) / count as u64 <= MEMORY_EACH
    });
    let (most, _) = resident(server.pid());
    assert!(most <= RESIDENT_MAX, "{most}");
    others_are_served(server);
    for client in idle.iter_mut().step_by(97) {
        client.run("admin", &doc! {"ping": 1});
    }
    drop(idle);
    confined.server.stop();
}
