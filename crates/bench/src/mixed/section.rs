//! The section of a run with reads beside a writer.

use super::Work;
use super::runner::{ALONE, BESIDE, Finds, Results};
use crate::format::thousands;
use crate::harness::Run;
use crate::meter::{MAX, Outcome, P50, P95, P99, P999, Percentile, Percentiles, rate};
use crate::report::chart::{self, Traces};
use crate::report::{Higher, Lower, Neither, ResultRows, Section, resident_max_mib};

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "{} documents of W1 are inserted at full speed; that of the second half is the full speed. Then connections find \
         documents of them at random, by turns one by its _id and ten in the order of an index: without a writer (alone), and \
         beside one that inserts more documents (beside).",
        thousands(work.documents() as f64)
    );
    let mut section = Section::new("mixed", "W10: reads beside a writer", about);
    section.settings = work.settings();
    section.result_rows = result_rows(results).list;
    section.headline = "find latency p99, beside / alone".to_owned();
    section.charts.push(chart::over_count(&Traces {
        title: "Finds a second beside the writer",
        unit: "finds",
        columns: &run.columns(),
        rows: results.iter().map(|target| &target.rows[..]).collect(),
    }));
    section
}

fn latency(outcome: &Outcome, (_, pick): Percentile) -> Option<f64> {
    let latencies = &outcome.latencies;
    (!latencies.is_empty()).then(|| pick(&Percentiles::from_latencies(latencies)))
}

/// A kind of finds, by its name in the report.
type Kind = (&'static str, fn(&Finds) -> &Outcome);

const KINDS: [Kind; 3] = [
    ("find", |finds| &finds.all),
    ("find by _id", |finds| &finds.points),
    ("find by an index", |finds| &finds.ranges),
];

/// Figures without any value get no row.
fn result_rows(results: &[Results]) -> ResultRows<'_, Results> {
    let mut result_rows = ResultRows::new(results);
    let mut add = |better, name: &str, unit, value: &dyn Fn(&Results) -> Option<f64>| {
        result_rows.add_known(better, name, unit, value);
    };
    let (documents, finds) = ("documents/s", "finds/s");
    add(
        Higher,
        "full speed (second half of the load)",
        documents,
        &|t| t.load.timeline.speed_of_part(0.5, 1.0),
    );
    add(Neither, "speed that the writer keeps to", documents, &|t| {
        t.writes_per_s
    });
    add(
        Higher,
        "documents written beside the finds",
        documents,
        &|t| rate(t.writes.documents, t.writes.elapsed),
    );
    for percentile in [P50, P99, MAX] {
        let name = format!("batch latency {}", percentile.0);
        add(Lower, &name, "ms", &|t| latency(&t.writes, percentile));
    }
    for (phase, place) in [(ALONE, "alone"), (BESIDE, "beside")] {
        add(Higher, &format!("finds {place}"), finds, &|t| {
            let all = &t.phases[phase].all;
            rate(all.documents, all.elapsed)
        });
    }
    for (kind, pick) in KINDS {
        for (phase, place) in [(ALONE, "alone"), (BESIDE, "beside")] {
            for percentile in [P50, P95, P99, P999, MAX] {
                let name = format!("{kind} latency {}, {place}", percentile.0);
                add(Lower, &name, "ms", &|t| {
                    latency(pick(&t.phases[phase]), percentile)
                });
            }
        }
        for percentile in [P50, P99, P999] {
            let name = format!("{kind} latency {}, beside / alone", percentile.0);
            add(Lower, &name, "", &|t| {
                let [alone, beside] = &t.phases;
                Some(latency(pick(beside), percentile)? / latency(pick(alone), percentile)?)
            });
        }
    }
    add(
        Lower,
        "a document with its index entries on disk",
        "bytes",
        &|t| t.sizes.on_disk(),
    );
    add(Neither, "resident memory of the server, max", "MiB", &|t| {
        resident_max_mib(&t.rows)
    });
    result_rows
}
