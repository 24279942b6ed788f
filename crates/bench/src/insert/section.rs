//! The section of an insertion run.

use super::Work;
use super::runner::Results;
use crate::harness::{Run, Workload};
use crate::meter::{Outcome, Percentiles};
use crate::report::chart::{self, Traces};
use crate::report::{Figure, Section, resident_max_mib};

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let (title, about) = match work.elements {
        0 => (
            "W1: indexed insertion".to_owned(),
            "Documents {_id, URI, name, origin, creation, expiration} with random values go into a \
             collection with secondary indexes, from empty on. Early is from 10% to 20% of the \
             documents, exit the last 5%."
                .to_owned(),
        ),
        elements => (
            "W2: multikey insertion".to_owned(),
            format!(
                "The documents of W1, but URI is an array of {elements} strings, each of which \
                 makes an entry in its index. Early is from 10% to 20% of the documents, exit the \
                 last 5%."
            ),
        ),
    };
    let mut section = Section::new(work.name(), title, about);
    section.settings = work.settings(run.turns());
    for target in results {
        section.ended(&target.ending);
    }
    section.figures = figures(work, results);
    section.charts.push(chart::over_count(&Traces {
        title: "Documents a second".to_owned(),
        unit: "documents",
        columns: &run.columns(),
        rows: results
            .iter()
            .map(|target| target.rows.as_slice())
            .collect(),
    }));
    section
}

fn figures(work: &Work, results: &[Results]) -> Vec<Figure> {
    let entries = work.index_entries() as f64;
    let each =
        |value: &dyn Fn(&Results) -> Option<f64>| results.iter().map(value).collect::<Vec<_>>();
    let speed = |from: f64, to: f64, times: f64| {
        each(&|target| Some(target.outcome.timeline.speed_of_part(from, to)? * times))
    };
    let part = |target: &Results| {
        let early = target.outcome.timeline.speed_of_part(0.10, 0.20)?;
        Some(target.outcome.timeline.speed_of_part(0.95, 1.0)? / early)
    };
    let of = |outcome: &Outcome, pick: fn(&Percentiles) -> f64| {
        let latencies = &outcome.latencies;
        (!latencies.is_empty()).then(|| pick(&Percentiles::from_latencies(latencies)))
    };
    let latency = |pick| each(&|target| of(&target.outcome, pick));
    let find_latency = |pick| each(&|target| of(&target.finds, pick));
    let finds = |target: &Results| {
        let count = target.finds.documents as f64;
        (count > 0.0).then(|| count / target.finds.elapsed.as_secs_f64().max(1e-9))
    };
    let written = |pick: fn(&crate::system::Status) -> Option<f64>| {
        each(&|target| {
            let [before, after] = &target.status;
            let documents = target.outcome.documents as f64;
            Some((pick(after)? - pick(before)?).max(0.0) / documents).filter(|n| n.is_finite())
        })
    };
    let per_document = |bytes: fn(&Results) -> Option<u64>| {
        each(&|target| {
            let documents = target.sizes.documents.filter(|n| *n > 0)?;
            Some(bytes(target)? as f64 / documents as f64)
        })
    };
    let (documents, entry) = ("documents/s", "entries/s");
    let mut figures = vec![
        Figure::neutral(
            "documents",
            "",
            each(&|target| Some(target.outcome.documents as f64)),
        ),
        Figure::neutral(
            "time",
            "s",
            each(&|target| Some(target.outcome.elapsed.as_secs_f64())),
        ),
        Figure::higher("speed on average", documents, speed(0.0, 1.0, 1.0)),
        Figure::higher("speed from 10% to 20%", documents, speed(0.10, 0.20, 1.0)),
        Figure::higher("exit speed (last 5%)", documents, speed(0.95, 1.0, 1.0)),
        Figure::neutral("exit speed / early speed", "", each(&part)),
        Figure::higher("index entries on average", entry, speed(0.0, 1.0, entries)),
        Figure::higher("index entries at exit", entry, speed(0.95, 1.0, entries)),
        Figure::lower("batch latency p50", "ms", latency(|l| l.p50_ms)),
        Figure::lower("batch latency p95", "ms", latency(|l| l.p95_ms)),
        Figure::lower("batch latency p99", "ms", latency(|l| l.p99_ms)),
        Figure::lower("batch latency p99.9", "ms", latency(|l| l.p999_ms)),
        Figure::lower("batch latency max", "ms", latency(|l| l.max_ms)),
        Figure::higher("finds beside the inserts", "finds/s", each(&finds)),
        Figure::lower("find latency p50", "ms", find_latency(|l| l.p50_ms)),
        Figure::lower("find latency p99", "ms", find_latency(|l| l.p99_ms)),
        Figure::neutral("log bytes a document", "bytes", written(|s| s.log_bytes)),
        Figure::neutral(
            "data file bytes a document",
            "bytes",
            written(|s| s.data_bytes),
        ),
        Figure::neutral(
            "logical size of a document",
            "bytes",
            per_document(|target| target.sizes.logical_bytes),
        ),
        Figure::lower(
            "a document on disk",
            "bytes",
            per_document(|target| target.sizes.storage_bytes),
        ),
        Figure::lower(
            "its index entries on disk",
            "bytes",
            per_document(|target| target.sizes.index_bytes),
        ),
        Figure::neutral(
            "resident memory of the server, max",
            "MiB",
            each(&|target| resident_max_mib(&target.rows)),
        ),
    ];
    // Figures without any value get no row.
    figures.retain(|figure| figure.values.iter().any(Option::is_some));
    figures
}
