//! What an insertion run has to say.

use super::Work;
use super::lane::Ended;
use crate::contest::Contest;
use crate::meter::{Outcome, Percentiles};
use crate::report::chart::{self, Traces};
use crate::report::{Chapter, Figure, resident_max_mib};

/// The chapter of a run.
#[must_use]
pub fn of(contest: &Contest, work: &Work, lanes: &[Ended]) -> Chapter {
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
    let mut chapter = Chapter::new(work.name(), title, about);
    chapter.settings = work.settings(contest.turns());
    for lane in lanes {
        chapter.ended(&lane.ending);
    }
    chapter.figures = figures(work, lanes);
    let labels = contest.labels();
    let servers = labels.iter().zip(lanes);
    chapter.charts.push(chart::over_count(&Traces {
        title: "Documents a second".to_owned(),
        unit: "documents",
        servers: servers
            .map(|(label, lane)| (label.as_str(), lane.rows.as_slice()))
            .collect(),
    }));
    chapter
}

fn figures(work: &Work, lanes: &[Ended]) -> Vec<Figure> {
    let entries = work.index_entries() as f64;
    let each = |value: &dyn Fn(&Ended) -> Option<f64>| lanes.iter().map(value).collect::<Vec<_>>();
    let speed = |from: f64, to: f64, times: f64| {
        each(&|lane| Some(lane.outcome.timeline.speed_of_part(from, to)? * times))
    };
    let part = |lane: &Ended| {
        let early = lane.outcome.timeline.speed_of_part(0.10, 0.20)?;
        Some(lane.outcome.timeline.speed_of_part(0.95, 1.0)? / early)
    };
    let of = |outcome: &Outcome, pick: fn(&Percentiles) -> f64| {
        let latencies = &outcome.latencies;
        (!latencies.is_empty()).then(|| pick(&Percentiles::of(latencies)))
    };
    let latency = |pick| each(&|lane| of(&lane.outcome, pick));
    let find_latency = |pick| each(&|lane| of(&lane.finds, pick));
    let finds = |lane: &Ended| {
        let count = lane.finds.documents as f64;
        (count > 0.0).then(|| count / lane.finds.elapsed.as_secs_f64().max(1e-9))
    };
    let written = |pick: fn(&crate::monitor::Status) -> Option<f64>| {
        each(&|lane| {
            let [before, after] = &lane.status;
            let documents = lane.outcome.documents as f64;
            Some((pick(after)? - pick(before)?).max(0.0) / documents).filter(|n| n.is_finite())
        })
    };
    let per_document = |bytes: fn(&Ended) -> Option<u64>| {
        each(&|lane| {
            let documents = lane.sizes.documents.filter(|n| *n > 0)?;
            Some(bytes(lane)? as f64 / documents as f64)
        })
    };
    let (documents, entry) = ("documents/s", "entries/s");
    let mut figures = vec![
        Figure::told(
            "documents",
            "",
            each(&|lane| Some(lane.outcome.documents as f64)),
        ),
        Figure::told(
            "time",
            "s",
            each(&|lane| Some(lane.outcome.elapsed.as_secs_f64())),
        ),
        Figure::more("speed on average", documents, speed(0.0, 1.0, 1.0)),
        Figure::more("speed from 10% to 20%", documents, speed(0.10, 0.20, 1.0)),
        Figure::more("exit speed (last 5%)", documents, speed(0.95, 1.0, 1.0)),
        Figure::told("exit speed / early speed", "", each(&part)),
        Figure::more("index entries on average", entry, speed(0.0, 1.0, entries)),
        Figure::more("index entries at exit", entry, speed(0.95, 1.0, entries)),
        Figure::less("batch latency p50", "ms", latency(|l| l.p50_ms)),
        Figure::less("batch latency p95", "ms", latency(|l| l.p95_ms)),
        Figure::less("batch latency p99", "ms", latency(|l| l.p99_ms)),
        Figure::less("batch latency p99.9", "ms", latency(|l| l.p999_ms)),
        Figure::less("batch latency max", "ms", latency(|l| l.max_ms)),
        Figure::more("finds beside the inserts", "finds/s", each(&finds)),
        Figure::less("find latency p50", "ms", find_latency(|l| l.p50_ms)),
        Figure::less("find latency p99", "ms", find_latency(|l| l.p99_ms)),
        Figure::told("log bytes a document", "bytes", written(|s| s.log_bytes)),
        Figure::told(
            "data file bytes a document",
            "bytes",
            written(|s| s.data_bytes),
        ),
        Figure::told(
            "logical size of a document",
            "bytes",
            per_document(|lane| lane.sizes.logical_bytes),
        ),
        Figure::less(
            "a document on disk",
            "bytes",
            per_document(|lane| lane.sizes.storage_bytes),
        ),
        Figure::less(
            "its index entries on disk",
            "bytes",
            per_document(|lane| lane.sizes.index_bytes),
        ),
        Figure::told(
            "resident memory of the server, max",
            "MiB",
            each(&|lane| resident_max_mib(&lane.rows)),
        ),
    ];
    // What nobody was asked for, or nobody told, is no row.
    figures.retain(|figure| figure.values.iter().any(Option::is_some));
    figures
}
