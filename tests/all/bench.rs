//! `frond bench` against the server of the same binary.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use frond_bson::{DocBuf, Value};
use support::{Running, wait_for, wait_until};
use tempfile::TempDir;

const FROND: &str = env!("CARGO_BIN_EXE_frond");

/// A server with its own folder and port. Dropping it kills it.
struct Server {
    running: Running,
    folder: TempDir,
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let running = Running::start(folder.path(), &["--unixSocketPrefix", path]);
        Server { running, folder }
    }

    fn bench(&self, out: &Path, more: &[&str]) -> Command {
        self.bench_of("insert", out, more)
    }

    fn bench_of(&self, workload: &str, out: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(FROND);
        command
            .args([
                "bench",
                workload,
                "--quiet",
                "--report-every",
                "0.1",
                "--uri",
            ])
            .arg(format!("mongodb://127.0.0.1:{}/bench", self.running.port))
            .arg("--out")
            .arg(out)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &process.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Polls until `ready` holds. A benchmark that ends before that fails the test with its error
/// output.
fn wait_while_running(bench: &mut Child, what: &str, mut ready: impl FnMut() -> bool) {
    wait_until(what, || {
        let is_ready = ready();
        if !is_ready && let Some(status) = bench.try_wait().unwrap() {
            let mut errors = String::new();
            if let Some(stderr) = &mut bench.stderr {
                stderr.read_to_string(&mut errors).unwrap();
            }
            panic!("{what}: the benchmark ended with {status}: {errors}");
        }
        is_ready
    });
}

/// Waits until the trace of a workload, as pairs of seconds and operations so far, is `ready`.
fn wait_for_trace(
    bench: &mut Child,
    out: &Path,
    workload: &str,
    ready: impl Fn(&[(f64, u64)]) -> bool,
) {
    let trace = out.join("trace.csv");
    wait_while_running(bench, "rows of trace.csv", || {
        let text = std::fs::read_to_string(&trace).unwrap_or_default();
        let row = |line: &str| {
            let mut cells = line.strip_prefix(workload)?.split(',').skip(2);
            Some((cells.next()?.parse().ok()?, cells.next()?.parse().ok()?))
        };
        let rows: Vec<(f64, u64)> = text.lines().filter_map(row).collect();
        ready(&rows)
    });
}

/// Waits until documents are in.
fn wait_for_documents(bench: &mut Child, out: &Path) {
    wait_for_trace(bench, out, "insert", |rows| {
        rows.iter().any(|(_, count)| *count > 0)
    });
}

fn wait(process: &mut Child) -> ExitStatus {
    wait_for("the end of the process", || process.try_wait().unwrap())
}

/// One workload on this server, as `summary.json` reports it.
struct Report {
    ended: String,
    figures: DocBuf,
    label: String,
}

impl Report {
    fn read(folder: &Path, workload: &str) -> Report {
        let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
        let summary = frond_bson::extjson::parse(&text).unwrap();
        let servers = summary.get_array("servers").unwrap();
        let Some(Value::String(label)) = servers.values().next() else {
            panic!("a server has a name: {text}");
        };
        assert!(label.starts_with("Frond "), "{label}");
        let chapter = summary.get_doc("workloads").unwrap().get_doc(workload);
        let chapter = chapter.unwrap();
        let ended = chapter.get_doc("ended").unwrap().get_str(label).unwrap();
        Report {
            ended: ended.to_owned(),
            figures: chapter.get_doc("figures").unwrap().to_owned(),
            label: label.to_owned(),
        }
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get_doc(name)?.get_f64(&self.label)
    }
}

#[test]
fn insertion_with_indexes_ends_with_a_whole_report() {
    let server = Server::start();
    let socket = server
        .folder
        .path()
        .join(format!("mongodb-{}.sock", server.running.port));
    let encoded = socket.to_str().unwrap().replace('/', "%2F");
    let unix = format!("mongodb://{encoded}/bench");
    for (name, more) in [
        ("acknowledged", &["--threads", "2"][..]),
        ("journaled", &["--journal", "--batch", "500"][..]),
        (
            "unacknowledged",
            &["--write-concern", "0", "--threads", "3"][..],
        ),
        ("local", &["--uri", &unix, "--indexes", "0"][..]),
    ] {
        let out = server.folder.path().join(name);
        // The last --uri wins, so the first is left out when a case has its own.
        let mut more = more.to_vec();
        more.extend(["--documents", "20000", "--drop"]);
        let mut command = if more.contains(&"--uri") {
            let mut command = Command::new(FROND);
            command.args(["bench", "insert", "--quiet", "--out"]);
            command.arg(&out).args(&more);
            command
        } else {
            server.bench(&out, &more)
        };
        let done = command.output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}: {text}");
        let report = Report::read(&out, "insert");
        assert_eq!(report.figure("documents"), Some(20_000.0), "{name}");
        assert_eq!(report.ended, "complete", "{name}");
        for file in [
            "trace.csv",
            "summary.md",
            "insert.svg",
            "report.html",
            "results.csv",
        ] {
            assert!(out.join(file).exists(), "{name}: {file}");
        }
    }
}

#[test]
fn arrays_make_an_index_entry_for_each_string() {
    let server = Server::start();
    let out = server.folder.path().join("multikey");
    let more = ["--documents", "500", "--elements", "30", "--batch", "100"];
    let done = server.bench_of("multikey", &out, &more).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let report = Report::read(&out, "multikey");
    let figure = |name| report.figure(name).unwrap();
    let entries = figure("index entries on average") / figure("speed on average");
    assert!((entries - 33.0).abs() < 1e-6, "{entries}");
}

#[test]
fn documents_with_many_keys_hold_what_the_model_says() {
    let server = Server::start();
    for (name, updates, more) in [
        ("default", 600, &["--random-values", "--rounds", "2"][..]),
        (
            "journaled",
            300,
            &[
                "--drop",
                "--connections",
                "3",
                "--write-concern",
                "1",
                "--journal",
                "--no-index",
            ][..],
        ),
    ] {
        let out = server.folder.path().join(name);
        let mut args = vec!["--documents", "20", "--keys", "400", "--updates", "300"];
        args.extend([
            "--reads",
            "10",
            "--verify",
            "all",
            "--compaction-wait",
            "0.1",
        ]);
        args.extend(more);
        let done = server.bench_of("manykeys", &out, &args).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}: {text}");
        let report = Report::read(&out, "manykeys");
        assert_eq!(report.ended, "complete", "{name}");
        let concerns = if updates == 600 {
            &[0, 1][..]
        } else {
            &[1][..]
        };
        for schema in ["plain", "bucketed"] {
            let compared = format!("{schema}: documents compared, all right");
            assert_eq!(report.figure(&compared), Some(20.0), "{name}: {schema}");
            for w in concerns {
                let of = format!("{schema}, w: {w}");
                let done = report.figure(&format!("{of}: updates"));
                assert_eq!(done, Some(f64::from(updates)), "{name}: {of}");
                let log = report.figure(&format!("{of}: log bytes an update"));
                assert!(log.unwrap() > 0.0, "{name}: {of}");
            }
            for read in ["after the load", "after the updates"] {
                let find = format!("{schema}: whole document by _id {read}, p50");
                assert!(report.figure(&find).is_some(), "{name}: {find}");
            }
        }
        assert!(report.figure("plain / bucketed, w: 1").is_some(), "{name}");
        let statistics = std::fs::read_to_string(out.join("statistics.csv")).unwrap();
        assert!(statistics.lines().count() > 1, "{name}");
        for file in ["rounds.csv", "summary.md", "manykeys.svg", "report.html"] {
            assert!(out.join(file).exists(), "{name}: {file}");
        }
    }
}

#[test]
fn documents_are_found_in_turns_with_pings() {
    let server = Server::start();
    let done = Command::new(FROND)
        .args([
            "bench",
            "roundtrip",
            "--documents",
            "1000",
            "--seconds",
            "1",
        ])
        .args(["--rounds", "1", "--threads", "2", "--uri"])
        .arg(format!("mongodb://127.0.0.1:{}/", server.running.port))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let text = String::from_utf8_lossy(&done.stdout);
    for figure in ["ping, median", "find by _id, median", "find / ping"] {
        assert!(text.contains(figure), "{text}");
    }
}

#[test]
fn each_operation_is_sent_again_and_again() {
    let server = Server::start();
    let done = Command::new(FROND)
        .args(["bench", "operations", "--documents", "1000"])
        .args(["--seconds", "0.1", "--threads", "2", "--uri"])
        .arg(format!("mongodb://127.0.0.1:{}/", server.running.port))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let text = String::from_utf8_lossy(&done.stdout);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("operation,requests,seconds,requests_per_s")
    );
    assert_eq!(lines.clone().count(), 12, "{text}");
    for line in lines {
        let requests = line.split(',').nth(1).and_then(|n| n.parse().ok());
        assert!(requests.is_some_and(|n: u64| n > 0), "{line}");
    }
}

#[test]
fn ctrl_c_leaves_the_report_of_what_was_done() {
    let server = Server::start();
    let out = server.folder.path().join("stopped");
    let mut bench = server
        .bench(&out, &["--documents", "500000000"])
        .spawn()
        .unwrap();
    wait_for_documents(&mut bench, &out);
    signal(&bench, "INT");
    assert_eq!(wait(&mut bench).code(), Some(130));
    let report = Report::read(&out, "insert");
    assert_eq!(report.ended, "stopped");
    assert!(report.figure("documents").unwrap() > 0.0);
    assert!(out.join("report.html").exists());
}

#[test]
fn ctrl_c_between_rounds_leaves_the_report_of_those_that_were_done() {
    let server = Server::start();
    let out = server.folder.path().join("stopped");
    let mut args = vec!["--documents", "5", "--keys", "50", "--updates", "100"];
    args.extend([
        "--rounds",
        "100000",
        "--schema",
        "plain",
        "--compaction-wait",
        "0",
    ]);
    let mut bench = server.bench_of("manykeys", &out, &args).spawn().unwrap();
    // The clock of each round starts at zero, so a row that goes back belongs to the second round.
    wait_for_trace(&mut bench, &out, "manykeys plain w:0", |rows| {
        !rows.is_sorted_by_key(|(elapsed_s, _)| *elapsed_s)
    });
    signal(&bench, "INT");
    assert_eq!(wait(&mut bench).code(), Some(130));
    let report = Report::read(&out, "manykeys");
    assert_eq!(report.ended, "stopped");
    assert!(report.figure("plain, w: 0: updates").unwrap() >= 100.0);
    assert!(out.join("report.html").exists());
}

#[test]
fn a_server_that_dies_is_an_error_with_a_report() {
    let server = Server::start();
    let out = server.folder.path().join("died");
    let mut bench = server
        .bench(&out, &["--documents", "500000000"])
        .spawn()
        .unwrap();
    wait_for_documents(&mut bench, &out);
    server.running.signal("KILL");
    assert_eq!(wait(&mut bench).code(), Some(1));
    let report = Report::read(&out, "insert");
    assert!(report.figure("documents").unwrap() > 0.0);
    assert!(report.ended.contains("server"), "{}", report.ended);
}

#[test]
fn documents_expire_at_the_speed_at_which_they_are_inserted() {
    let server = Server::start();
    let out = server.folder.path().join("rolling");
    for expire in ["ttl", "delete"] {
        let args = [
            "--drop",
            "--expire",
            expire,
            "--retention",
            "2",
            "--periods",
            "3",
        ];
        let done = server.bench_of("rolling", &out, &args).output().unwrap();
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{expire}: {text}");
        let report = Report::read(&out, "rolling");
        assert_eq!(report.ended, "complete");
        let figure = |name| report.figure(name).unwrap();
        let (inserted, expired) = (
            figure("documents inserted"),
            figure("documents that have expired"),
        );
        assert!(
            0.0 < expired && expired < inserted,
            "{expired} of {inserted}"
        );
        let there = figure("documents that have not expired") + figure("backlog at the end");
        assert!(there <= inserted - expired, "{there}");
        assert!(figure("exit speed (last tenth)") > 0.0);
        assert!(figure("find latency p99") > 0.0);
    }
}

#[test]
fn counters_have_the_values_that_were_added() {
    let server = Server::start();
    let out = server.folder.path().join("counters");
    let args = [
        "--documents",
        "5000",
        "--preload",
        "0.5",
        "--seconds",
        "0.5",
        "--single-seconds",
        "0.3",
        "--threads",
        "2",
        "--readers",
        "2",
    ];
    let done = server.bench_of("counters", &out, &args).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let report = Report::read(&out, "counters");
    assert_eq!(report.ended, "complete");
    let figure = |name| report.figure(name).unwrap();
    assert!(figure("additions in batches") > 0.0 && figure("single additions") > 0.0);
    assert!((2500.0..=5000.0).contains(&figure("counters at the end")));
    assert!(figure("sum of the counters") > 0.0);
    assert!(figure("reads that were checked") > 0.0);
}

#[test]
fn everyday_operations_answer_what_the_documents_hold() {
    let server = Server::start();
    let out = server.folder.path().join("everyday");
    let args = [
        "--documents",
        "3000",
        "--rounds",
        "3",
        "--repeats",
        "30",
        "--compaction-wait",
        "0.1",
    ];
    let done = server.bench_of("everyday", &out, &args).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let report = Report::read(&out, "everyday");
    assert_eq!(report.ended, "complete");
    for operation in [
        "count of all",
        "$lookup of 1,000 documents, one each",
        "skip of 100,000, limit 10",
        "delete of 1% by an index",
        "insert of 1,000 in a request",
    ] {
        let figure = report.figure(&format!("{operation}, median")).unwrap();
        assert!(figure > 0.0, "{operation}");
    }
}

#[test]
fn reads_are_measured_alone_and_beside_a_paced_writer() {
    let server = Server::start();
    let out = server.folder.path().join("mixed");
    let args = [
        "--documents",
        "5000",
        "--readers",
        "3",
        "--rounds",
        "2",
        "--seconds",
        "0.5",
        "--batch",
        "20",
        "--write-rate",
        "400",
    ];
    let done = server.bench_of("mixed", &out, &args).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    let report = Report::read(&out, "mixed");
    assert_eq!(report.ended, "complete");
    let figure = |name: &str| report.figure(name).unwrap();
    assert!(figure("documents written beside the finds") > 0.0);
    for phase in ["alone", "beside"] {
        assert!(figure(&format!("finds {phase}")) > 0.0);
        assert!(figure(&format!("find by _id latency p99, {phase}")) > 0.0);
        assert!(figure(&format!("find by an index latency p99, {phase}")) > 0.0);
    }
    assert!(figure("find latency p99, beside / alone") > 0.0);
}

#[test]
fn all_workloads_beside_a_server_that_stores_nothing() {
    let server = Server::start();
    let out = server.folder.path().join("all");
    let mut args = vec!["--null", "--turns", "2", "--compaction-wait", "0.1"];
    for with in [
        "insert --documents 3000 --batch 300 --readers 1",
        "multikey --documents 200 --batch 50",
        "manykeys --documents 5 --keys 50 --updates 100 --reads 5 --verify all",
        "sysbench --collections 2 --documents 500 --threads 1,4 --seconds 1 --compression zstd,zlib",
        "indexcost --documents 2000 --batches 2",
        "rolling --retention 2 --periods 1.5",
        "counters --documents 2000 --seconds 0.5 --single-seconds 0.2 --preload 0.5",
        "everyday --documents 2000 --rounds 2 --repeats 20",
        "mixed --documents 3000 --readers 2 --rounds 1 --seconds 0.5",
    ] {
        args.extend(["--with", with]);
    }
    let done = server.bench_of("all", &out, &args).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{text}");
    for workload in [
        "insert",
        "multikey",
        "manykeys",
        "sysbench",
        "indexcost",
        "rolling",
        "counters",
        "everyday",
        "mixed",
    ] {
        assert_eq!(Report::read(&out, workload).ended, "complete", "{workload}");
    }
    let sysbench = Report::read(&out, "sysbench");
    assert!(sysbench.figure("4 threads").unwrap() > 0.0);
    let results = std::fs::read_to_string(out.join("results.csv")).unwrap();
    assert!(
        results.contains("sysbench,null server,4 threads,transactions/s,"),
        "{results}"
    );
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("share of the null server") && page.ends_with("</html>\n"));
}
