//! The section of an insertion run.

use super::Work;
use super::runner::Results;
use crate::harness::{Run, Workload};
use crate::meter::{MAX, Outcome, P50, P95, P99, P999, Percentile, Percentiles, rate};
use crate::report::chart::{self, Traces};
use crate::report::{Higher, Lower, Neither, ResultRows, Section, resident_max_mib};
use crate::system::Status;

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let (title, about) = match work.elements {
        0 => (
            "W1: indexed insertion",
            "Documents {_id, URI, name, origin, creation, expiration} with random values go into a \
             collection with secondary indexes, from empty on. Early is from 10% to 20% of the \
             documents, exit the last 5%."
                .to_owned(),
        ),
        elements => (
            "W2: multikey insertion",
            format!(
                "The documents of W1, but URI is an array of {elements} strings, each of which \
                 makes an entry in its index. Early is from 10% to 20% of the documents, exit the \
                 last 5%."
            ),
        ),
    };
    let mut section = Section::new(work.name(), title, about);
    section.settings = work.settings(run.turns());
    section.result_rows = result_rows(work, results).list;
    section.charts.push(chart::over_count(&Traces {
        title: "Documents a second",
        unit: "documents",
        columns: &run.columns(),
        rows: results.iter().map(|target| &target.rows[..]).collect(),
    }));
    section
}

/// Figures without any value get no row.
fn result_rows<'a>(work: &Work, results: &'a [Results]) -> ResultRows<'a, Results> {
    let speed = |target: &Results, from, to| target.outcome.timeline.speed_of_part(from, to);
    let early = |target: &Results| speed(target, 0.10, 0.20);
    let exit = |target: &Results| speed(target, 0.95, 1.0);
    let average = |target: &Results| speed(target, 0.0, 1.0);
    let entries = work.index_entries() as f64;
    let latency = |outcome: &Outcome, (_, pick): Percentile| {
        let latencies = &outcome.latencies;
        (!latencies.is_empty()).then(|| pick(&Percentiles::from_latencies(latencies)))
    };
    let mut result_rows = ResultRows::new(results);
    let mut add = |better, name: &str, unit, value: &dyn Fn(&Results) -> Option<f64>| {
        result_rows.add_known(better, name, unit, value);
    };
    let (documents, entry) = ("documents/s", "entries/s");
    add(Neither, "documents", "", &|t| {
        Some(t.outcome.documents as f64)
    });
    add(Neither, "time", "s", &|t| {
        Some(t.outcome.elapsed.as_secs_f64())
    });
    add(Higher, "speed on average", documents, &average);
    add(Higher, "speed from 10% to 20%", documents, &early);
    add(Higher, "exit speed (last 5%)", documents, &exit);
    add(Neither, "exit speed / early speed", "", &|t| {
        Some(exit(t)? / early(t)?)
    });
    add(Higher, "index entries on average", entry, &|t| {
        Some(average(t)? * entries)
    });
    add(Higher, "index entries at exit", entry, &|t| {
        Some(exit(t)? * entries)
    });
    for percentile in [P50, P95, P99, P999, MAX] {
        let name = format!("batch latency {}", percentile.0);
        add(Lower, &name, "ms", &|t| latency(&t.outcome, percentile));
    }
    add(Higher, "finds beside the inserts", "finds/s", &|t| {
        rate(t.finds.documents, t.finds.elapsed)
    });
    for percentile in [P50, P99] {
        let name = format!("find latency {}", percentile.0);
        add(Lower, &name, "ms", &|t| latency(&t.finds, percentile));
    }
    let written = |target: &Results, pick: fn(&Status) -> Option<f64>| {
        let [before, after] = &target.status;
        let documents = target.outcome.documents as f64;
        Some((pick(after)? - pick(before)?).max(0.0) / documents).filter(|n| n.is_finite())
    };
    add(Neither, "log bytes a document", "bytes", &|t| {
        written(t, |s| s.log_bytes)
    });
    add(Neither, "data file bytes a document", "bytes", &|t| {
        written(t, |s| s.data_bytes)
    });
    add(Neither, "logical size of a document", "bytes", &|t| {
        t.sizes.logical()
    });
    add(Lower, "a document on disk", "bytes", &|t| t.sizes.storage());
    add(Lower, "its index entries on disk", "bytes", &|t| {
        t.sizes.indexes()
    });
    add(Neither, "resident memory of the server, max", "MiB", &|t| {
        resident_max_mib(&t.rows)
    });
    result_rows
}
