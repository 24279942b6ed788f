//! The notation of figures, tested with invented runs, and sentences with and without figures.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::pages::fill::fill;
use crate::pages::page::{pieces, rewrite};
use crate::pages::runs::Runs;
use crate::pages::unbacked::unbacked;

const RESULTS: &str = "workload,server,figure,unit,value
insert,Frond 0.1.0,speed on average,documents/s,203708.229
insert,PostgreSQL 15.18,speed on average,documents/s,12434.5
insert,null server,speed on average,documents/s,4864230
insert,Frond 0.1.0,find,ms,4396.2
insert,PostgreSQL 15.18,find,ms,1527.04
insert,Frond 0.1.0,a tie,,2
insert,PostgreSQL 15.18,a tie,,2
insert,Frond 0.1.0,\"plain, w: 0: log bytes an update\",bytes,127.3
";

const SUMMARY: &str = r#"{"servers": ["Frond 0.1.0"], "Client's machine": [["cores", "2"]], "workloads": {"insert": {
    "settings": {"journal": "waited for", "documents in an insert": "1000"},
    "ended": {"Frond 0.1.0": "complete", "PostgreSQL 15.18": "ended by --minutes"}}}}"#;

const SUMMARY_OF_OLD: &str = r#"{"workload": "insert", "documents_per_s": 142999.13, "settings": {"journal": "no", "batch": "500"},
    "facts": {"client's cores": "4"}}"#;

const RECORDS: &str = r#"{"engine": "tree", "phase": "load", "threads": 1, "values": {"cpu": 7.818, "p99": 137.2}}
{"engine": "rocksdb", "phase": "load", "threads": 1, "values": {"cpu": 25.1, "p99": 42.4}}
"#;

const MARKDOWN: &str = "# A run

| what | Frond | PostgreSQL |
| --- | ---: | ---: |
| memory limit | 512 MiB | 512 MiB |
| on disk | 2,089 | 3,903 |

## Later

| what | Frond |
| --- | --- |
| on disk | 7 |

```
16 KiB pages reads          median 105 µs, 99% 4381 µs
16 KiB pages reads          median 103 µs, 99% 3728 µs
```
";

/// Two runs: `new` in today's format, `old` in the previous one.
fn made_up() -> (TempDir, Runs) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("2026-01-02-new/results.csv", RESULTS);
    write("2026-01-02-new/summary.json", SUMMARY);
    write("2026-01-02-new/records.jsonl", RECORDS);
    write("2026-01-02-new/run.md", MARKDOWN);
    write(
        "2026-01-02-new/run.txt",
        "ping, median    35,083/s\nfind / ping     1.031\n",
    );
    write("2025-03-04-old/summary.json", SUMMARY_OF_OLD);
    write(
        "runs.txt",
        "# Remark\n\nnew = 2026-01-02-new\nold = 2025-03-04-old\n",
    );
    let runs = Runs::read(folder.path().to_owned(), &folder.path().join("runs.txt")).unwrap();
    (folder, runs)
}

#[test]
fn references_become_the_figures_of_their_run() {
    let (_folder, runs) = made_up();
    for (text, expected) in [
        ("no figure, {_id: 1}", "no figure, {_id: 1}"),
        (
            "{{new run.md; section = Later; what = written or on disk; Frond}}",
            "7",
        ),
        (
            "{{path: new insert.svg or run.txt}}",
            "../benchmarks/runs/2026-01-02-new/run.txt",
        ),
        ("{{new; insert; speed on average; Frond}}/s", "203,708/s"),
        (
            "{{new; insert; plain, w: 0: log bytes an update; Frond}} bytes",
            "127 bytes",
        ),
        (
            "{{new; insert; plain, w: 0: log bytes an update; Frond as 1 decimal}}",
            "127.3",
        ),
        (
            "{{new; insert; speed on average; null server as millions}} million",
            "4.86 million",
        ),
        (
            "{{new; insert; find; PostgreSQL as thousands as 1 decimal}} s",
            "1.5 s",
        ),
        ("{{new; insert; a tie; Frond as thousandths}}", "2,000"),
        ("{{new; insert; server; Post}}", "PostgreSQL 15.18"),
        ("{{new; insert; ended; Post}}", "ended by --minutes"),
        ("{{new; insert; settings; journal}}", "waited for"),
        ("{{new; insert; settings; documents in an insert}}", "1,000"),
        ("{{new; machine; cores}} cores", "2 cores"),
        (
            "{{new; insert; find; Frond ÷ new; insert; find; PostgreSQL}}",
            "2.88",
        ),
        ("{{new run.md; what = memory limit; PostgreSQL}}", "512 MiB"),
        (
            "{{new run.md; section = A run; what = on disk; Frond}}",
            "2,089",
        ),
        (
            "{{new run.md; section = Later; what = on disk; Frond}}",
            "7",
        ),
        (
            "{{new run.md; nth = 2; 16 KiB pages reads median # µs}}",
            "103",
        ),
        ("{{new run.md; greatest; pages reads median # µs}}", "105"),
        (
            "{{new run.txt; ping, median #/s}} {{new run.txt; find / ping #}}",
            "35,083 1.03",
        ),
        ("{{new records.jsonl; engine = tree; values.cpu}}", "7.82"),
        (
            "{{new records.jsonl; engine = rocksdb; threads = 1; values.p99}}",
            "42.4",
        ),
        (
            "{{new results.csv; figure = find; server = Frond; value}}",
            "4,396",
        ),
        (
            "{{must: new; insert; settings; journal = waited for}}yes",
            "yes",
        ),
        (
            "{{must: new run.md; what = memory limit; Frond = 512 MiB}}yes",
            "yes",
        ),
        (
            "[run]({{path: new run.md}}), {{date: new}}",
            "[run](../benchmarks/runs/2026-01-02-new/run.md), 2026-01-02",
        ),
    ] {
        assert_eq!(
            fill(text, &runs, "../benchmarks/").as_deref(),
            Ok(expected),
            "{text}"
        );
    }
}

#[test]
fn the_winner_of_a_row_is_bold_whoever_it_is() {
    let (_folder, runs) = made_up();
    for (text, expected) in [
        (
            "{{more: new; insert; speed on average; Frond vs PostgreSQL}}",
            "**203,708** | 12,434 | 16.4",
        ),
        (
            "{{less: new; insert; find; Frond vs PostgreSQL}}",
            "4,396 | **1,527** | 0.35",
        ),
        (
            "{{more: new; insert; find; PostgreSQL vs Frond}}",
            "1,527 | **4,396** | 0.35",
        ),
        (
            "{{more: new; insert; a tie; Frond vs PostgreSQL}}",
            "**2** | **2** | 1.00",
        ),
        (
            "{{less: new records.jsonl; phase = load; engine = tree vs rocksdb; values.cpu}}",
            "**7.82** | 25.1 | 3.21",
        ),
        (
            "{{less: new records.jsonl; engine = tree vs rocksdb; values.p99 as 1 decimal}}",
            "137.2 | **42.4** | 0.31",
        ),
        (
            "{{share: new; insert; speed on average; Frond vs null server}}",
            "203,708 | 4,864,230 | 0.04",
        ),
    ] {
        assert_eq!(fill(text, &runs, "").as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_reference_without_a_figure_is_an_error_that_says_why() {
    let (_folder, runs) = made_up();
    for (text, why) in [
        ("{{neu; insert; find; Frond}}", "no run is named \"neu\""),
        ("{{new; insert; found; Frond}}", "0 rows fit"),
        ("{{new; multikey; find; Frond}}", "0 rows fit"),
        ("{{new; insert; find; MySQL}}", "0 rows fit"),
        ("{{new; insert; find}}", "neither"),
        ("{{new gone.csv; x = 1; y}}", "gone.csv"),
        ("{{new run.md; what = on disk; Frond}}", "2 rows fit"),
        (
            "{{new run.md; what: on disk; Frond}}",
            "not `column = value`",
        ),
        (
            "{{new run.md; nth = 3; pages reads median # µs}}",
            "2 rows fit",
        ),
        (
            "{{new; insert; find; Frond as furlongs}}",
            "not a way to show a number",
        ),
        ("{{more: new; insert; find; Frond}}", "no `A vs B`"),
        (
            "{{more: new; insert; server; Frond vs PostgreSQL}}",
            "is no number",
        ),
        ("{{path: new gone.md}}", "no file gone.md"),
        (
            "{{must: old; insert; settings; journal = waited for}}",
            "not waited for",
        ),
        ("{{new; insert; find; Frond", "no }}"),
        ("{{old; insert; find; Frond}}", "the summary.json of old"),
    ] {
        let error = fill(text, &runs, "").expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn another_run_in_runs_txt_changes_every_figure_of_it() {
    let (folder, _) = made_up();
    let page = "<!-- figures: w1 -->\n<!-- /figures -->\n";
    let text = "{{date: w1}}: {{w1; insert; speed on average; Frond}}/s, {{w1; insert; settings; documents in an insert}} in a \
                batch, journal {{w1; insert; settings; journal}}, {{w1; machine; cores}} cores";
    let with = |run: &str| {
        let list = folder.path().join("list.txt");
        fs::write(&list, format!("w1 = {run}\n")).unwrap();
        let runs = Runs::read(folder.path().to_owned(), &list).unwrap();
        rewrite(page, |_| fill(text, &runs, "")).unwrap()
    };
    let part = |inside: &str| format!("<!-- figures: w1 -->\n{inside}\n<!-- /figures -->\n");
    assert_eq!(
        with("2026-01-02-new"),
        part("2026-01-02: 203,708/s, 1,000 in a batch, journal waited for, 2 cores")
    );
    assert_eq!(
        with("2025-03-04-old"),
        part("2025-03-04: 142,999/s, 500 in a batch, journal not waited for, 4 cores")
    );
}

#[test]
fn a_run_that_changes_changes_the_page() {
    let (folder, runs) = made_up();
    let text = "{{new; insert; speed on average; Frond}}";
    assert_eq!(fill(text, &runs, "").as_deref(), Ok("203,708"));
    let results = RESULTS.replace("203708.229", "213708.229");
    fs::write(folder.path().join("2026-01-02-new/results.csv"), results).unwrap();
    let again = Runs::read(folder.path().to_owned(), &folder.path().join("runs.txt")).unwrap();
    assert_eq!(fill(text, &again, "").as_deref(), Ok("213,708"));
}

#[test]
fn a_part_without_an_end_and_one_without_a_text_are_errors() {
    for page in [
        "<!-- figures: a -->\n1/s\n",
        "<!-- figures: a\n1/s\n<!-- /figures -->\n",
        "<!-- figures: a -->\n<!-- figures: b -->\n<!-- /figures -->\n",
    ] {
        assert!(pieces(page).is_err(), "{page}");
    }
    let page = "before\n<!-- figures: a -->\n1/s\n<!-- /figures -->\nafter\n";
    assert_eq!(
        rewrite(page, |name| Ok(format!("2/s of {name}\n\n"))).as_deref(),
        Ok("before\n<!-- figures: a -->\n2/s of a\n<!-- /figures -->\nafter\n")
    );
    assert!(rewrite(page, |_| Err("no such file".to_owned())).is_err());
    let list = Path::new("no such list");
    assert!(Runs::read(list.to_owned(), list).is_err());
}

#[test]
fn text_that_looks_measured_is_refused() {
    for (sentence, figure) in [
        (
            "143,000 documents a second on average",
            "143,000 documents a second",
        ),
        (
            "it does 28 million entries per second",
            "28 million entries per second",
        ),
        ("941 transactions/s", "941 transactions/s"),
        ("takes 30 to 40 µs", "40 µs"),
        ("a read took 12.5µs", "12.5µs"),
        ("up to 880 MiB were pending", "880 MiB"),
        ("with 1.5 GB of documents", "1.5 GB"),
        ("writes 130 bytes of log", "130 bytes"),
        ("89 times less than before", "89 times"),
        ("indexes eight times larger than memory", "eight times"),
        ("it is many times faster", "times faster"),
        ("5x the speed", "5x"),
        ("a ratio of 0.56", "0.56"),
        ("with a third of the processor time", "a third"),
        ("twice as fast", "twice"),
        ("half of its commits", "half of"),
        ("25% less memory", "25%"),
        ("in two seconds", "two seconds"),
        ("it has 10,400,000 documents", "10,400,000"),
        ("load of 10 million", "10 million"),
        ("load of two million", "two million"),
        ("from 39 to 42529 of them", "42529"),
        ("a full scan\nin 9\nminutes", "9 minutes"),
        (
            "| | Frond |\n| --- | --- |\n| load | **42529** |\n",
            "**42529**",
        ),
    ] {
        let found = unbacked(sentence, []);
        assert!(
            found.iter().any(|found| found.contains(figure)),
            "{sentence}: {found:?}"
        );
    }
}

#[test]
fn text_without_figures_is_accepted() {
    for sentence in [
        "since 2013, error 8000, on 2 cores",
        "`--cacheSizeGB 0.38` and `100 ms`",
        "```sh\nmake bench DOCUMENTS=10000000 # 512 MiB\n```",
        "[a run](runs/2026-11-22-w1/run.md#1.5-times)",
        "four indexes, three of them over arrays of 100 strings",
        "one client, one process on one machine",
    ] {
        assert_eq!(unbacked(sentence, []), Vec::<String>::new(), "{sentence}");
    }
    let sentence = "The log is synced each\n100 ms.";
    assert_eq!(
        unbacked(sentence, ["synced each 100 ms"]),
        Vec::<String>::new()
    );
    assert_eq!(unbacked(sentence, ["synced each 10 ms"]).len(), 1);
}
