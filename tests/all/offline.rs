//! `frond verify` and `frond salvage` on the directories of a server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::path::Path;
use std::process::{Command, Output};

use frond_bson::doc;
use support::Running;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frond"));
    command.args(arguments).output().unwrap()
}

fn verify(directory: &Path) -> Output {
    run(&["verify", "--dbpath", directory.to_str().unwrap()])
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The files of a directory, without those below.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file());
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut files: Vec<_> = entries
        .map(|entry| (name(&entry), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Inserts documents with an index. Returns their number.
fn fill(server: &Running) -> i64 {
    let mut client = server.connect();
    let index = doc! {"key": doc! {"n": 1}, "name": "n_1"};
    let mut create = doc! {"createIndexes": "things"};
    create.push_array("indexes", |indexes| indexes.push(&index));
    client.run("shop", &create);
    let mut insert = doc! {"insert": "things"};
    insert.push_array("documents", |documents| {
        for number in 0..500 {
            documents.push(&doc! {"_id": number, "n": number % 9, "text": "some text of a thing"});
        }
    });
    insert.push("writeConcern", &doc! {"j": true});
    client.run("shop", &insert);
    500
}

#[test]
fn a_directory_is_verified_and_salvaged() {
    let directory = tempfile::tempdir().unwrap();
    let (data, new) = (directory.path().join("data"), directory.path().join("new"));
    std::fs::create_dir(&data).unwrap();
    let server = Running::start(&data, &[]);
    let documents = fill(&server);

    // A server uses the directory.
    let output = verify(&data);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("in use by another server"), "{error}");

    // After a crash, with all documents in the log.
    server.signal("KILL");
    server.wait();
    let before = files(&data);
    let output = verify(&data);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = out(&output);
    assert!(
        text.ends_with("sound\n") && text.contains("shop.things: 500 documents"),
        "{text}"
    );
    assert!(!text.contains("log: 0 commits"), "{text}");
    assert_eq!(files(&data), before, "verify changed a file");

    // Closed cleanly, then damaged.
    Running::start(&data, &[]).stop();
    assert_eq!(verify(&data).status.code(), Some(0));
    let path = data.join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    // One of the superblocks: the other one and the log still have all data.
    bytes[4096..8192].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let output = verify(&data);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("problem: data.frond at byte "), "{text}");

    let (from, to) = (data.to_str().unwrap(), new.to_str().unwrap());
    let output = run(&["salvage", "--dbpath", from, "--out", to]);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.ends_with("not everything was salvaged\n"), "{text}");
    assert!(
        text.contains("shop.things: 500 documents, 1 indexes built"),
        "{text}"
    );
    let output = verify(&new);
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
    let server = Running::start(&new, &[]);
    let mut client = server.connect();
    let count = client.run("shop", &doc! {"count": "things", "query": doc! {"n": 1}});
    assert_eq!(
        count.get_i64("n").or(count.get_i32("n").map(i64::from)),
        Some(documents / 9 + 1)
    );
    server.stop();
}

#[test]
fn wrong_directories_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let output = verify(&missing);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not exist"));
    let output = verify(directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("opening data.frond"));
    assert!(files(directory.path()).is_empty() && !missing.exists());
}
