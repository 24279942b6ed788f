//! The files of reports, and the options that reach the server.

use crate::small_with;
use crate::store::{MODERN, NAME, bench, bench_at, start};

#[test]
fn every_workload_leaves_its_files() {
    for (workload, args, charts) in [
        ("insert", vec![], 1),
        ("manykeys", vec![], 1),
        ("sysbench", vec!["--threads=1,3"], 2),
        ("indexcost", vec!["--finds=0"], 1),
        ("rolling", vec!["--ttl-sleep=0"], 2),
        ("counters", vec![], 1),
        ("mixed", vec!["--read-rate=200"], 1),
    ] {
        let (port, _) = start(MODERN);
        let report = bench(workload, &[port], &small_with(workload, &args));
        report.assert_complete(workload);
        for name in ["report.html", "summary.md", "results.csv", "trace.csv"] {
            assert!(report.read(name).len() > 50, "{name}");
        }
        let html = report.read("report.html");
        assert!(html.contains("<svg") && html.contains("</html>"));
        for chart in 1..=charts {
            let name = match chart {
                1 => format!("{workload}.svg"),
                n => format!("{workload}-{n}.svg"),
            };
            assert!(report.read(&name).len() > 100, "{name}");
        }
        if workload == "manykeys" {
            // Two schemas, two write concerns, two rounds of each.
            assert_eq!(report.read("rounds.csv").lines().count(), 1 + 8);
            assert!(report.read("statistics.csv").lines().count() > 1);
            let trace = report.read("trace.csv");
            for name in ["manykeys plain load", "manykeys bucketed w:1"] {
                let start = format!("{name},{NAME},");
                assert!(trace.lines().any(|line| line.starts_with(&start)), "{name}");
            }
            for title in ["Updates: plain, w: 0", "Updates: bucketed, w: 1"] {
                assert!(report.read("manykeys.svg").contains(title), "{title}");
                assert!(html.contains(title), "{title}");
            }
            let line = format!("manykeys,{NAME},\"plain, w: 1: latency p50\",ms,");
            assert!(report.read("results.csv").contains(&line));
            let summary = report.read("summary.md");
            assert!(summary.contains("# W3: documents with very many keys"));
        }
    }
}

#[test]
fn journal_compression_and_indexes_are_passed_on() {
    for (workload, args, journaled, indexes) in [
        ("insert", vec!["--indexes=1"], 7, vec!["URI_1"]),
        // Two inserts, and the updates that are answered.
        (
            "manykeys",
            vec!["--no-index", "--schema=plain", "--batch=5"],
            2 + 40,
            vec![],
        ),
        // 18 messages into each collection.
        (
            "indexcost",
            vec!["--write-concern=1", "--finds=0"],
            36,
            vec!["name_1"],
        ),
    ] {
        let (port, state) = start(MODERN);
        let uri = format!("--uri=mongodb://127.0.0.1:{port}/test?compressors=zstd,snappy");
        let args = [&[&uri, "--journal"], &args[..]].concat();
        bench_at(workload, &small_with(workload, &args)).assert_complete(workload);
        let state = state.lock().unwrap();
        assert!(state.compressed);
        assert_eq!(
            (state.journaled, state.count("find") > 0),
            (journaled, workload == "manykeys")
        );
        let made: Vec<_> = state
            .indexes
            .iter()
            .map(|(_, index)| index.get_str("name").unwrap())
            .collect();
        assert_eq!(made, indexes);
    }
}
