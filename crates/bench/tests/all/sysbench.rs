//! Runs `frond bench sysbench` against servers of every version, simulated by a small server that keeps the
//! documents.

#![allow(clippy::unwrap_used)]

use crate::store;

use std::collections::HashSet;
use std::process::ExitCode;

use frond_bson::{DocBuf, Value};
use frond_wire::OpCode;
use store::{Flaw, Version, bench, ending, figure, opcodes, start, summary};

/// Two collections of 130 documents.
const SMALL: [&str; 6] = [
    "--documents=130",
    "--collections=2",
    "--seconds=0.3",
    "--batch=50",
    "--load-threads=2",
    "--threads=1,3",
];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = SMALL.to_vec();
    args.extend(more);
    args
}

fn version(wire_version: Option<i32>) -> Version {
    Version {
        wire_version,
        batch: 101,
        ..Version::default()
    }
}

/// Ids are 1 to the count, each document has all its fields, and `c` its length.
fn check_documents(documents: &[DocBuf], count: i32) {
    let mut ids = HashSet::new();
    for document in documents {
        let Some(Value::Int32(id)) = document.get("_id") else {
            unreachable!("{document:?}");
        };
        assert!((1..=count).contains(&id) && ids.insert(id), "{id}");
        assert!(document.get_i32("k").unwrap() >= 1);
        assert_eq!(document.get_str("c").unwrap().len(), 119);
        assert_eq!(document.get_str("pad").unwrap().len(), 59);
    }
    assert_eq!(ids.len(), count as usize);
}

#[test]
fn servers_of_every_age_run_transactions() {
    use OpCode::{Delete, GetMore, Insert, KillCursors, Msg, Query, Update};
    for (wire_version, batch, expected) in [
        (None, 101, opcodes(&[Query, Insert, Update, Delete])),
        (None, 30, opcodes(&[Query, Insert, Update, Delete, GetMore])),
        (Some(2), 101, opcodes(&[Query])),
        (Some(3), 30, opcodes(&[Query, GetMore])),
        (Some(5), 30, opcodes(&[Query])),
        (Some(21), 101, opcodes(&[Query, Msg])),
        (Some(21), 30, opcodes(&[Query, Msg])),
    ] {
        let case = format!("wire version {wire_version:?}, batches of {batch}");
        let (port, state) = start(Version {
            batch,
            ..version(wire_version)
        });
        let folder = tempfile::tempdir().unwrap();
        let code = bench("sysbench", &[port], folder.path(), &small(&[]));
        assert_eq!(code, ExitCode::SUCCESS, "{case}");
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, expected, "{case}");
        assert!(!state.opcodes.contains(&(KillCursors as i32)), "{case}");
        for name in ["sbtest1", "sbtest2"] {
            check_documents(state.documents(name), 130);
        }
        assert_ne!(state.documents("sbtest1"), state.documents("sbtest2"));
        let indexed: Vec<_> = state
            .indexes
            .iter()
            .map(|(on, index)| (on, index.get_str("name")))
            .collect();
        let expected = ["sbtest1", "sbtest2"].map(str::to_owned);
        assert_eq!(
            indexed,
            [(&expected[0], Some("k_1")), (&expected[1], Some("k_1"))]
        );
        assert!(state.creates.is_empty(), "no compression was asked for");
        let summary = summary(folder.path(), "sysbench");
        let server = summary.get_doc("ended").unwrap().first().unwrap().0;
        assert_eq!(ending(&summary, server), "complete", "{case}");
        for name in ["1 thread", "3 threads", "load", "best thread level"] {
            assert!(
                figure(&summary, server, name).unwrap() > 0.0,
                "{case}: {name}"
            );
        }
        // One thread sees every document; each transaction has one of all kinds but the first.
        for what in [
            "lookups",
            "documents of ranges",
            "updates",
            "deletes",
            "inserts",
        ] {
            let name = format!("1 thread: {what} lost to other threads");
            assert_eq!(figure(&summary, server, &name), Some(0.0), "{case}");
        }
        let transactions: f64 = ["1 thread", "3 threads"]
            .iter()
            .filter_map(|level| figure(&summary, server, &format!("{level}: transactions")))
            .sum();
        for command in ["aggregate", "distinct"] {
            assert_eq!(
                state.count(command) as f64,
                transactions,
                "{case}: {command}"
            );
        }
        for (name, bytes) in [
            ("a document", 217.0),
            (
                "a document and its index entries on disk, after the load",
                118.5,
            ),
            (
                "a document and its index entries on disk, after the run",
                118.5,
            ),
        ] {
            assert_eq!(
                figure(&summary, server, name),
                Some(bytes),
                "{case}: {name}"
            );
        }
    }
}

#[test]
fn compressions_are_asked_for_one_after_the_other() {
    for (toku, wire_version) in [(false, Some(21)), (false, Some(3)), (true, None)] {
        let (port, state) = start(Version {
            toku,
            ..version(wire_version)
        });
        let folder = tempfile::tempdir().unwrap();
        let more = small(&["--compression=zlib,none"]);
        let code = bench("sysbench", &[port], folder.path(), &more);
        assert_eq!(code, ExitCode::SUCCESS);
        let state = state.lock().unwrap();
        let asked: Vec<String> = state
            .creates
            .iter()
            .map(|create| {
                if toku {
                    create.get_str("compression").unwrap().to_owned()
                } else {
                    let engine = create.get_doc("storageEngine").unwrap();
                    let tiger = engine.get_doc("wiredTiger").unwrap();
                    tiger.get_str("configString").unwrap().to_owned()
                }
            })
            .collect();
        let prefix = if toku { "" } else { "block_compressor=" };
        let expected = ["zlib", "zlib", "none", "none"].map(|name| format!("{prefix}{name}"));
        assert_eq!(asked, expected);
        let in_create = state.creates[0].contains_key("indexOptionDefaults");
        assert_eq!(in_create, wire_version == Some(21));
        let option = if toku { "compression" } else { "storageEngine" };
        assert!(
            state
                .indexes
                .iter()
                .all(|(_, index)| index.contains_key(option) != in_create)
        );
        // Transactions ran on the first one only.
        let summary = summary(folder.path(), "sysbench");
        let names: Vec<&str> = summary
            .get_doc("figures")
            .unwrap()
            .iter()
            .map(|(name, _)| name)
            .collect();
        for (name, there) in [
            (
                "a document and its index entries on disk, zlib after the load",
                true,
            ),
            (
                "a document and its index entries on disk, zlib after the run",
                true,
            ),
            (
                "a document and its index entries on disk, none after the load",
                true,
            ),
            (
                "a document and its index entries on disk, none after the run",
                false,
            ),
        ] {
            assert_eq!(names.contains(&name), there, "{name}");
        }
    }
}

#[test]
fn several_servers_take_turns_and_one_that_fails_leaves_the_others() {
    let (good, _) = start(version(Some(21)));
    let (bad, _) = start(Version {
        flaw: Flaw::Skips,
        ..version(Some(21))
    });
    let folder = tempfile::tempdir().unwrap();
    let code = bench("sysbench", &[good, bad], folder.path(), &small(&[]));
    assert_eq!(code, ExitCode::FAILURE);
    let summary = summary(folder.path(), "sysbench");
    assert_eq!(ending(&summary, "MongoDB 9.9.9 #1"), "complete");
    let bad = ending(&summary, "MongoDB 9.9.9 #2");
    assert!(bad.contains("range: 99 documents instead of 100"), "{bad}");
    for name in [
        "report.html",
        "summary.md",
        "results.csv",
        "sysbench.svg",
        "sysbench-2.svg",
    ] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.len() > 100, "{name}");
    }
}

#[test]
fn wrong_answers_are_noticed() {
    for (flaw, part) in [
        (Flaw::Skips, "range: 99 documents instead of 100"),
        (Flaw::Unsorted, "not in the order of c"),
        (Flaw::Loses(3), "129 documents instead of 130"),
        (Flaw::Refuses, "insert: 0 documents instead of 1"),
    ] {
        for wire_version in [None, Some(3), Some(21)] {
            let (port, _) = start(Version {
                flaw,
                ..version(wire_version)
            });
            let folder = tempfile::tempdir().unwrap();
            let more = small(&["--threads=1", "--batch=65"]);
            let more: Vec<&str> = more
                .into_iter()
                .filter(|arg| *arg != "--threads=1,3" && *arg != "--batch=50")
                .collect();
            let code = bench("sysbench", &[port], folder.path(), &more);
            assert_eq!(code, ExitCode::FAILURE, "{part}");
            let summary = summary(folder.path(), "sysbench");
            let server = summary.get_doc("ended").unwrap().first().unwrap().0;
            let ended = ending(&summary, server);
            assert!(ended.contains(part), "{wire_version:?}: {ended}");
        }
    }
}

#[test]
fn collections_that_hold_documents_are_not_touched_unasked() {
    let (port, state) = start(version(Some(21)));
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let more = small(&["--minutes=0.001"]);
    assert_eq!(
        bench("sysbench", &[port], first.path(), &more),
        ExitCode::SUCCESS
    );
    let summary = summary(first.path(), "sysbench");
    let server = summary.get_doc("ended").unwrap().first().unwrap().0;
    assert_eq!(ending(&summary, server), "ended by --minutes");
    let updates = state.lock().unwrap().count("update");
    assert_eq!(
        bench("sysbench", &[port], second.path(), &small(&[])),
        ExitCode::FAILURE
    );
    assert_eq!(state.lock().unwrap().count("update"), updates);
    assert!(state.lock().unwrap().dropped.is_empty());
    let more = small(&["--drop", "--minutes=0.001"]);
    assert_eq!(
        bench("sysbench", &[port], second.path(), &more),
        ExitCode::SUCCESS
    );
    assert_eq!(state.lock().unwrap().dropped.len(), 2);
}
