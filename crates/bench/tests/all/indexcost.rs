//! Runs `frond bench indexcost` against servers of every version, simulated by a small server that keeps the
//! documents.

#![allow(clippy::unwrap_used)]

use crate::store;

use std::process::ExitCode;

use frond_bson::DocBuf;
use frond_wire::OpCode;
use store::{Flaw, Version, bench, ending, figure, opcodes, start, summary};

/// Two blocks of 4,096 names, so that the one that is looked for is there twice.
const SMALL: [&str; 3] = ["--documents=8192", "--batches=2", "--batch=500"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = SMALL.to_vec();
    args.extend(more);
    args
}

fn version(wire_version: Option<i32>) -> Version {
    Version {
        wire_version,
        batch: 1,
        unchecked_ids: true,
        ..Version::default()
    }
}

fn named(documents: &[DocBuf], name: &str) -> usize {
    let named = documents
        .iter()
        .filter(|doc| doc.get_str("name") == Some(name));
    named.count()
}

#[test]
fn servers_of_every_age_take_all_documents_and_find_the_name() {
    use OpCode::{GetMore, Insert, Msg, Query};
    for (wire_version, concern, expected) in [
        (None, None, opcodes(&[Query, Insert, GetMore])),
        (None, Some("1"), opcodes(&[Query, Insert, GetMore])),
        (Some(3), None, opcodes(&[Query, Insert, GetMore])),
        (Some(5), Some("1"), opcodes(&[Query])),
        (Some(21), None, opcodes(&[Query, Msg])),
        (Some(21), Some("1"), opcodes(&[Query, Msg])),
    ] {
        let case = format!("wire version {wire_version:?}, w: {concern:?}");
        let (port, state) = start(version(wire_version));
        let folder = tempfile::tempdir().unwrap();
        let mut more = small(&["--threads=2"]);
        if let Some(concern) = concern {
            more.extend(["--write-concern", concern]);
        }
        let code = bench("indexcost", &[port], folder.path(), &more);
        assert_eq!(code, ExitCode::SUCCESS, "{case}");
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, expected, "{case}");
        for name in ["w5", "w5_indexed"] {
            let documents = state.documents(name);
            assert_eq!(documents.len(), 8192, "{case}");
            assert_eq!(named(documents, "Shekhar Gulati"), 2, "{case}");
            assert_eq!(named(documents, "William Wright"), 2, "{case}");
        }
        let indexed: Vec<_> = state
            .indexes
            .iter()
            .map(|(on, index)| (on.as_str(), index.get_str("name")))
            .collect();
        assert_eq!(indexed, [("w5_indexed", Some("name_1"))], "{case}");
        if wire_version == Some(21) {
            // Each message of fire and forget, and none other.
            let messages = if concern.is_none() { 2 * 2 * 9 } else { 0 };
            assert_eq!(state.unanswered, messages, "{case}");
        }
        let summary = summary(folder.path(), "indexcost");
        let server = summary.get_doc("ended").unwrap().first().unwrap().0;
        assert_eq!(ending(&summary, server), "complete", "{case}");
        for (name, value) in [
            ("documents that it finds", 2.0),
            ("logical size of a document", 2401.0),
            ("batch 2 with the index: documents", 8192.0),
            ("batch 2 with the index: size", 8192.0 * 2401.0),
        ] {
            assert_eq!(
                figure(&summary, server, name),
                Some(value),
                "{case}: {name}"
            );
        }
        let rates: Vec<f64> = ["without the index", "with the index"]
            .iter()
            .map(|side| figure(&summary, server, &format!("{side}, on average")).unwrap())
            .collect();
        let ratio = figure(&summary, server, "with / without, on average").unwrap();
        assert!((ratio - rates[1] / rates[0]).abs() < 1e-9, "{case}");
        let worst = figure(&summary, server, "with / without, worst batch").unwrap();
        for batch in 1..=2 {
            let name = format!("batch {batch}: with / without");
            assert!(figure(&summary, server, &name).unwrap() >= worst, "{case}");
            for side in ["without", "with"] {
                let name = format!("batch {batch} {side} the index: find 2");
                assert!(figure(&summary, server, &name).unwrap() > 0.0, "{case}");
            }
        }
    }
}

#[test]
fn lost_documents_and_wrong_finds_are_noticed() {
    for (flaw, part) in [
        (Flaw::Loses(7), "documents instead of"),
        (
            Flaw::Skips,
            "w5_indexed: 1 documents of Shekhar Gulati instead of 2",
        ),
    ] {
        let (port, _) = start(Version {
            flaw,
            ..version(Some(21))
        });
        let folder = tempfile::tempdir().unwrap();
        let code = bench("indexcost", &[port], folder.path(), &small(&[]));
        assert_eq!(code, ExitCode::FAILURE, "{part}");
        let summary = summary(folder.path(), "indexcost");
        let server = summary.get_doc("ended").unwrap().first().unwrap().0;
        let ended = ending(&summary, server);
        assert!(ended.contains(part), "{ended}");
    }
}

#[test]
fn servers_take_turns_and_a_full_collection_is_not_touched() {
    let (one, first) = start(version(Some(21)));
    let (other, second) = start(version(Some(3)));
    let folder = tempfile::tempdir().unwrap();
    let more = small(&["--journal", "--write-concern=1", "--finds=0"]);
    let code = bench("indexcost", &[one, other], folder.path(), &more);
    assert_eq!(code, ExitCode::SUCCESS);
    for state in [&first, &second] {
        // 18 messages into each collection, all of which ask for the journal.
        assert_eq!(state.lock().unwrap().journaled, 36);
        assert_eq!(state.lock().unwrap().count("find"), 0);
    }
    for name in ["report.html", "summary.md", "results.csv", "indexcost.svg"] {
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text.len() > 100, "{name}");
    }
    let code = bench("indexcost", &[one], folder.path(), &small(&[]));
    assert_eq!(code, ExitCode::FAILURE);
    assert_eq!(first.lock().unwrap().journaled, 36);
    assert_eq!(first.lock().unwrap().documents("w5").len(), 8192);
}
