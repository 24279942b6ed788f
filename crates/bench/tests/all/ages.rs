//! The workloads against servers of every version: which opcodes, which commands, which documents.

use std::collections::HashSet;

use frond_bson::{DocBuf, Value};
use frond_wire::OpCode::{Delete, GetMore, Insert, KillCursors, Msg, Query, Update};

use crate::small_with;
use crate::store::{State, Version, bench, opcodes, start};

/// Names of the indexes, each behind its collection.
fn indexes(state: &State) -> Vec<String> {
    let indexes = state.indexes.iter();
    indexes
        .map(|(on, index)| format!("{on}.{}", index.get_str("name").unwrap()))
        .collect()
}

#[test]
fn indexed_insertion() {
    for (wire_version, concern, expected) in [
        (None, "1", &[Query, Insert][..]),
        (None, "0", &[Query, Insert]),
        (Some(3), "1", &[Query]),
        (Some(3), "0", &[Query, Insert]),
        (Some(21), "1", &[Query, Msg]),
        (Some(21), "0", &[Query, Msg]),
    ] {
        let case = format!("wire version {wire_version:?}, w: {concern}");
        let (port, state) = start(Version::wire(wire_version));
        let args = ["--write-concern", concern, "--threads=3", "--drop"];
        let report = bench("insert", &[port], &small_with("insert", &args));
        report.assert_complete(&case);
        assert_eq!(report.figure(0, "documents"), Some(2500.0), "{case}");
        let state = state.lock().unwrap();
        assert_eq!(state.documents("w1").len(), 2500, "{case}");
        let names = ["w1.URI_1", "w1.name_1", "w1.origin_1", "w1.creation_1"];
        assert_eq!(indexes(&state), names, "{case}");
        assert_eq!(state.opcodes, opcodes(expected), "{case}");
        assert_eq!(state.journaled, 0, "{case}");
        assert!(state.dropped.contains("w1"), "{case}");
    }
}

#[test]
fn finds_beside_inserts_leave_no_cursor_behind() {
    for (wire_version, expected) in [
        (None, &[Query, Insert, GetMore, KillCursors][..]),
        (Some(3), &[Query, GetMore, KillCursors]),
        (Some(5), &[Query]),
        (Some(21), &[Query, Msg]),
    ] {
        let (port, state) = start(Version {
            batch: 3,
            ..Version::wire(wire_version)
        });
        let args = ["--documents=3000", "--batch=10", "--readers=1"];
        bench("insert", &[port], &args).assert_complete("finds");
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, opcodes(expected), "{wire_version:?}");
        assert_eq!(state.documents("w1").len(), 3000, "{wire_version:?}");
        assert!(state.cursors.is_empty(), "{wire_version:?}");
        if wire_version >= Some(4) {
            // Ten documents come in batches of three.
            assert!(state.count("getMore") > 0);
        }
    }
}

#[test]
fn documents_of_many_keys() {
    for (wire_version, concern, expected) in [
        (None, "both", &[Query, Insert, Update][..]),
        (Some(3), "1", &[Query]),
        (Some(3), "0", &[Query, Update]),
        (Some(5), "both", &[Query, Update]),
        (Some(21), "both", &[Query, Msg]),
    ] {
        let case = format!("wire version {wire_version:?}, w: {concern}");
        let (port, state) = start(Version::wire(wire_version));
        let args = ["--write-concern", concern, "--connections=2"];
        let report = bench("manykeys", &[port], &small_with("manykeys", &args));
        report.assert_complete(&case);
        let state = state.lock().unwrap();
        let concerns = if concern == "both" { 2 } else { 1 };
        assert_eq!(state.updates, concerns * 2 * 40, "{case}");
        let fields = "appver_1_deploytype_1_g_1_guid_1_timeslice_1";
        let names = ["plain", "bucketed"].map(|schema| format!("w3_{schema}.{fields}"));
        assert_eq!(indexes(&state), names, "{case}");
        assert_eq!(state.opcodes, opcodes(expected), "{case}");
        for schema in ["plain", "bucketed"] {
            assert_eq!(state.documents(&format!("w3_{schema}")).len(), 7, "{case}");
            let compared = format!("{schema}: documents compared, all right");
            assert_eq!(report.figure(0, &compared), Some(7.0), "{case}");
            for w in ["0", "1"]
                .into_iter()
                .filter(|w| ["both", w].contains(&concern))
            {
                let of = format!("{schema}, w: {w}");
                assert!(report.figure(0, &of) > Some(0.0), "{case}");
                let updates = report.figure(0, &format!("{of}: updates"));
                assert_eq!(updates, Some(40.0), "{case}");
                // This server counts no bytes, so the report has none.
                let bytes = report.figure(0, &format!("{of}: log bytes an update"));
                assert_eq!(bytes, None, "{case}");
            }
        }
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
fn transactions() {
    for (wire_version, batch, expected) in [
        (None, 101, &[Query, Insert, Update, Delete][..]),
        (None, 30, &[Query, Insert, Update, Delete, GetMore]),
        (Some(2), 101, &[Query]),
        (Some(3), 30, &[Query, GetMore]),
        (Some(5), 30, &[Query]),
        (Some(21), 101, &[Query, Msg]),
        (Some(21), 30, &[Query, Msg]),
    ] {
        let case = format!("wire version {wire_version:?}, batches of {batch}");
        let (port, state) = start(Version {
            batch,
            ..Version::wire(wire_version)
        });
        let args = small_with("sysbench", &["--batch=50", "--threads=1,3"]);
        let report = bench("sysbench", &[port], &args);
        report.assert_complete(&case);
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, opcodes(expected), "{case}");
        for name in ["sbtest1", "sbtest2"] {
            check_documents(state.documents(name), 130);
        }
        assert_ne!(state.documents("sbtest1"), state.documents("sbtest2"));
        assert_eq!(indexes(&state), ["sbtest1.k_1", "sbtest2.k_1"], "{case}");
        assert!(state.creates.is_empty(), "no compression was asked for");
        let figure = |name: &str| report.figure(0, name);
        for name in ["1 thread", "3 threads", "load", "best thread level"] {
            assert!(figure(name) > Some(0.0), "{case}: {name}");
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
            assert_eq!(figure(&name), Some(0.0), "{case}");
        }
        let transactions: f64 = ["1 thread", "3 threads"]
            .iter()
            .filter_map(|level| figure(&format!("{level}: transactions")))
            .sum();
        for command in ["aggregate", "distinct"] {
            assert_eq!(
                state.count(command) as f64,
                transactions,
                "{case}: {command}"
            );
        }
        assert_eq!(figure("a document"), Some(217.0), "{case}");
        for when in ["load", "run"] {
            let name = format!("a document and its index entries on disk, after the {when}");
            assert_eq!(figure(&name), Some(118.5), "{case}: {name}");
        }
    }
}

#[test]
fn compressions_are_asked_for_one_after_the_other() {
    for (toku, wire_version) in [(false, Some(21)), (false, Some(3)), (true, None)] {
        let (port, state) = start(Version {
            toku,
            ..Version::wire(wire_version)
        });
        let args = small_with("sysbench", &["--threads=1,3", "--compression=zlib,none"]);
        let report = bench("sysbench", &[port], &args);
        report.assert_complete("compressions");
        let state = state.lock().unwrap();
        let asked = state.creates.iter().map(|create| {
            let value = if toku {
                create.get("compression")
            } else {
                create.path("storageEngine.wiredTiger.configString")
            };
            value.unwrap().as_str().unwrap().to_owned()
        });
        let prefix = if toku { "" } else { "block_compressor=" };
        let expected = ["zlib", "zlib", "none", "none"].map(|name| format!("{prefix}{name}"));
        assert_eq!(asked.collect::<Vec<_>>(), expected);
        let in_create = state.creates[0].contains_key("indexOptionDefaults");
        assert_eq!(in_create, wire_version == Some(21));
        let option = if toku { "compression" } else { "storageEngine" };
        let mut indexes = state.indexes.iter();
        assert!(indexes.all(|(_, index)| index.contains_key(option) != in_create));
        // Transactions ran on the first one only.
        let names = report.figure_names();
        for (when, there) in [
            ("zlib after the load", true),
            ("zlib after the run", true),
            ("none after the load", true),
            ("none after the run", false),
        ] {
            let name = format!("a document and its index entries on disk, {when}");
            assert_eq!(names.contains(&name), there, "{name}");
        }
    }
}

#[test]
fn the_cost_of_an_index() {
    let named = |documents: &[DocBuf], name: &str| {
        let documents = documents.iter();
        documents
            .filter(|doc| doc.get_str("name") == Some(name))
            .count()
    };
    for (wire_version, concern, expected) in [
        (None, None, &[Query, Insert, GetMore][..]),
        (None, Some("1"), &[Query, Insert, GetMore]),
        (Some(3), None, &[Query, Insert, GetMore]),
        (Some(5), Some("1"), &[Query]),
        (Some(21), None, &[Query, Msg]),
        (Some(21), Some("1"), &[Query, Msg]),
    ] {
        let case = format!("wire version {wire_version:?}, w: {concern:?}");
        let (port, state) = start(Version {
            batch: 1,
            ..Version::wire(wire_version)
        });
        let mut args = small_with("indexcost", &["--threads=2"]);
        args.extend(
            concern
                .iter()
                .flat_map(|concern| ["--write-concern", concern]),
        );
        let report = bench("indexcost", &[port], &args);
        report.assert_complete(&case);
        let state = state.lock().unwrap();
        assert_eq!(state.opcodes, opcodes(expected), "{case}");
        for name in ["w5", "w5_indexed"] {
            let documents = state.documents(name);
            assert_eq!(documents.len(), 8192, "{case}");
            assert_eq!(named(documents, "Shekhar Gulati"), 2, "{case}");
            assert_eq!(named(documents, "William Wright"), 2, "{case}");
        }
        assert_eq!(indexes(&state), ["w5_indexed.name_1"], "{case}");
        if wire_version == Some(21) {
            // Each message of fire and forget, and none other.
            let messages = if concern.is_none() { 2 * 2 * 9 } else { 0 };
            assert_eq!(state.unanswered, messages, "{case}");
        }
        let figure = |name: &str| report.figure(0, name).unwrap();
        for (name, value) in [
            ("documents that it finds", 2.0),
            ("logical size of a document", 2401.0),
            ("batch 2 with the index: documents", 8192.0),
            ("batch 2 with the index: size", 8192.0 * 2401.0),
        ] {
            assert_eq!(figure(name), value, "{case}: {name}");
        }
        let [without, with] =
            ["without", "with"].map(|side| figure(&format!("{side} the index, on average")));
        let ratio = figure("with / without, on average");
        assert!((ratio - with / without).abs() < 1e-9, "{case}");
        let worst = figure("with / without, worst batch");
        for batch in 1..=2 {
            assert!(
                figure(&format!("batch {batch}: with / without")) >= worst,
                "{case}"
            );
            for side in ["without", "with"] {
                let name = format!("batch {batch} {side} the index: find 2");
                assert!(figure(&name) > 0.0, "{case}");
            }
        }
    }
}

#[test]
fn groups_and_finds_are_timed() {
    let (port, state) = start(crate::store::MODERN);
    let report = bench("groups", &[port], &small_with("groups", &[]));
    report.assert_complete("groups");
    let state = state.lock().unwrap();
    assert_eq!(state.documents("w6").len(), 5000);
    assert_eq!(state.count("aggregate"), 4);
    for name in [
        "group all documents by k",
        "group a quarter of them by k",
        "find one k of 1,000",
    ] {
        let figure = |suffix: &str| report.figure(0, &format!("{name}, {suffix}")).unwrap();
        let mean = (figure("round 1") + figure("round 2")) / 2.0;
        assert!(
            (figure("median") - mean).abs() < 1e-9 && mean > 0.0,
            "{name}"
        );
    }
}
