//! Servers that are wrong, full or slow, and the runs that notice it.

use std::process::ExitCode;

use crate::small_with;
use crate::store::{Flaw, MODERN, NAME, Version, bench, start};

#[test]
fn wrong_answers_are_noticed() {
    let one = "--threads=1";
    let plain = |concern| vec!["--schema=plain", "--write-concern", concern];
    for (workload, args, flaw, wire_versions, part) in [
        (
            "insert",
            vec!["--write-concern=0"],
            Flaw::Loses(1),
            &[Some(21)][..],
            "holds 2493 documents instead of 2500",
        ),
        (
            "manykeys",
            plain("0"),
            Flaw::LosesIncrements(50),
            &[Some(21)],
            "instead of",
        ),
        (
            "manykeys",
            plain("1"),
            Flaw::LosesIncrements(50),
            &[Some(21)],
            "instead of",
        ),
        (
            "manykeys",
            plain("0"),
            Flaw::LosesIncrements(6),
            &[Some(21)],
            "stats.events",
        ),
        (
            "manykeys",
            plain("1"),
            Flaw::ChangesNothing,
            &[Some(21)],
            "nModified: Some(0)",
        ),
        (
            "sysbench",
            vec![one, "--batch=65"],
            Flaw::Skips,
            &[None, Some(3), Some(21)],
            "range: 99 documents instead of 100",
        ),
        (
            "sysbench",
            vec![one, "--batch=65"],
            Flaw::Unsorted,
            &[None, Some(3), Some(21)],
            "not in the order of c",
        ),
        (
            "sysbench",
            vec![one, "--batch=65"],
            Flaw::Loses(3),
            &[None, Some(3), Some(21)],
            "129 documents instead of 130",
        ),
        (
            "sysbench",
            vec![one, "--batch=65"],
            Flaw::Refuses,
            &[None, Some(3), Some(21)],
            "insert: 0 documents instead of 1",
        ),
        (
            "indexcost",
            vec![],
            Flaw::Loses(7),
            &[Some(21)],
            "documents instead of",
        ),
        (
            "indexcost",
            vec![],
            Flaw::Skips,
            &[Some(21)],
            "w5_indexed: 1 documents of Shekhar Gulati instead of 2",
        ),
        ("groups", vec![], Flaw::Skips, &[Some(21)], "instead of"),
        // A counter that is not read is missed in the sum.
        (
            "counters",
            vec!["--readers=0", "--compare=0"],
            Flaw::LosesIncrements(50),
            &[Some(21)],
            "add up to",
        ),
        (
            "counters",
            vec!["--documents=5", "--skip-sum"],
            Flaw::LosesIncrements(6),
            &[Some(21)],
            "must be from",
        ),
    ] {
        for wire_version in wire_versions {
            let (port, _) = start(Version {
                flaw,
                ..Version::wire(*wire_version)
            });
            bench(workload, &[port], &small_with(workload, &args)).assert_failed(part);
        }
    }
}

#[test]
fn a_failed_document_ends_the_run_with_a_partial_report() {
    for wire_version in [None, Some(3), Some(21)] {
        let (port, _) = start(Version {
            flaw: Flaw::FailsFrom(1000),
            ..Version::wire(wire_version)
        });
        let report = bench("insert", &[port], &small_with("insert", &[]));
        report.assert_failed("E11000");
        assert_eq!(
            report.figure(0, "documents"),
            Some(800.0),
            "{wire_version:?}"
        );
        assert!(report.path("insert.svg").exists());
    }
}

#[test]
fn collections_that_hold_documents_are_not_touched_unasked() {
    let short = "--minutes=0.001";
    for (workload, first, collection) in [
        ("insert", vec![], "w1"),
        ("manykeys", vec![], "w3_plain"),
        ("sysbench", vec!["--threads=1", short], "sbtest1"),
        ("indexcost", vec!["--finds=0"], "w5"),
        ("groups", vec![], "w6"),
        ("counters", vec![], "w8"),
        ("mixed", vec![], "w10"),
    ] {
        let (port, state) = start(MODERN);
        let again = |args: &[&str]| bench(workload, &[port], &small_with(workload, args)).code;
        assert_eq!(again(&first), ExitCode::SUCCESS, "{workload}");
        let written = || {
            let state = state.lock().unwrap();
            (state.updates, state.documents(collection).to_vec())
        };
        let before = written();
        assert_eq!(again(&["--seed=2"]), ExitCode::FAILURE, "{workload}");
        assert!(written() == before, "{workload}");
        assert!(state.lock().unwrap().dropped.is_empty(), "{workload}");
        let dropped = again(&[&["--drop"][..], &first].concat());
        assert_eq!(dropped, ExitCode::SUCCESS, "{workload}");
        assert!(
            state.lock().unwrap().dropped.contains(collection),
            "{workload}"
        );
    }
}

#[test]
fn documents_may_be_kept_but_not_dropped_too() {
    let (port, state) = start(MODERN);
    let insert = |args: &[&str]| bench("insert", &[port], &small_with("insert", args)).code;
    assert_eq!(insert(&[]), ExitCode::SUCCESS);
    assert_eq!(insert(&["--seed=2", "--keep"]), ExitCode::SUCCESS);
    assert_eq!(insert(&["--drop", "--keep"]), ExitCode::FAILURE);
    assert_eq!(state.lock().unwrap().documents("w1").len(), 5000);
    assert!(state.lock().unwrap().dropped.is_empty());
}

#[test]
fn limits_and_unknown_connection_strings_are_refused_before_anything_is_written() {
    let (port, state) = start(MODERN);
    // This server names no maxWriteBatchSize, so it is one that takes 1,000.
    for args in [["--batch=1001"], ["--uri=mysql://127.0.0.1/"]] {
        let report = bench(
            "insert",
            &[port],
            &[&["--documents=2500"][..], &args].concat(),
        );
        assert_eq!(report.code, ExitCode::FAILURE);
        assert!(state.lock().unwrap().documents("w1").is_empty());
    }
}

#[test]
fn servers_take_turns_and_an_error_ends_only_its_own() {
    for (workload, args, flaw, part) in [
        ("insert", vec!["--turns=5"], Flaw::FailsFrom(600), "E11000"),
        (
            "manykeys",
            vec!["--schema=plain"],
            Flaw::LosesIncrements(50),
            "wrong result",
        ),
        (
            "sysbench",
            vec!["--threads=1,3"],
            Flaw::Skips,
            "range: 99 documents instead of 100",
        ),
        ("indexcost", vec![], Flaw::Skips, "instead of 2"),
    ] {
        let (good, _) = start(MODERN);
        let (bad, _) = start(Version { flaw, ..MODERN });
        let report = bench(workload, &[good, bad], &small_with(workload, &args));
        report.assert_failed(part);
        assert_eq!(report.servers, [1, 2].map(|n| format!("{NAME} #{n}")));
        assert_eq!(report.ending(0), "complete");
        let trace = report.read("trace.csv");
        assert!(trace.contains(&format!("{NAME} #2,")), "{trace}");
        if workload == "insert" {
            // Its second turn was the first one to fail.
            assert_eq!(report.figure(1, "documents"), Some(500.0));
            assert_eq!(report.figure(0, "documents"), Some(2500.0));
            let html = report.read("report.html");
            assert!(html.contains(&format!("times better than {NAME} #2")));
        }
    }
}

#[test]
fn manykeys_compares_each_server_with_its_own_model() {
    let (good, good_state) = start(MODERN);
    let (bad, bad_state) = start(Version {
        flaw: Flaw::LosesIncrements(50),
        ..MODERN
    });
    let args = small_with("manykeys", &["--null", "--schema=plain", "--connections=3"]);
    let report = bench("manykeys", &[good, bad], &args);
    assert_eq!(report.code, ExitCode::FAILURE);
    assert_eq!(report.ending(0), "complete");
    assert!(report.ending(1).contains("wrong result"));
    // It stores nothing, so there is nothing to compare.
    assert_eq!(report.ending(2), "complete");
    let compared = [0, 1, 2].map(|n| report.figure(n, "plain: documents compared, all right"));
    assert_eq!(compared, [Some(7.0), None, None]);
    assert!(report.figure(2, "plain, w: 1") > Some(0.0));
    for state in [good_state, bad_state] {
        assert_eq!(state.lock().unwrap().updates, 2 * 40);
    }
    let trace = report.read("trace.csv");
    let order: Vec<&str> = trace
        .lines()
        .filter(|line| line.starts_with("manykeys plain w:1,"))
        .filter_map(|line| line.split(',').nth(1))
        .collect();
    assert_eq!(order, [&report.servers[..], &report.servers].concat());
    for n in 1..=3 {
        assert!(report.path(&format!("statistics-{n}.csv")).exists());
    }
    assert!(
        report
            .read("summary.md")
            .contains("| null server | it stores nothing |")
    );
}

#[test]
fn a_server_whose_time_is_up_leaves_what_it_did() {
    let (port, state) = start(MODERN);
    let args = small_with("insert", &["--minutes=0.00001"]);
    let report = bench("insert", &[port], &args);
    assert_eq!(report.code, ExitCode::SUCCESS);
    assert_eq!(report.ending(0), "ended by --minutes");
    let done = report.figure(0, "documents").unwrap();
    assert!(done < 2500.0, "{done}");
    assert_eq!(state.lock().unwrap().documents("w1").len() as f64, done);

    // Too many updates for the time: each kind gets its share, and the model knows which were done.
    let (port, state) = start(MODERN);
    let args = [
        "--documents=7",
        "--keys=30",
        "--verify=all",
        "--schema=plain",
    ];
    let long = ["--minutes=0.01", "--updates=60000"];
    let report = bench("manykeys", &[port], &[&args[..], &long].concat());
    assert_eq!(report.code, ExitCode::SUCCESS);
    assert_eq!(report.ending(0), "ended by --minutes");
    let compared = report.figure(0, "plain: documents compared, all right");
    assert_eq!(compared, Some(7.0));
    let mut sum = 0.0;
    for w in ["0", "1"] {
        let updates = report
            .figure(0, &format!("plain, w: {w}: updates"))
            .unwrap();
        assert!(updates > 0.0 && updates < 6e4, "{updates:?}");
        sum += updates;
    }
    assert_eq!(state.lock().unwrap().updates as f64, sum);
}
