//! The section of a run with documents of a limited lifetime.

use std::time::Duration;

use super::options::Work;
use super::runner::{Results, Stock};
use crate::harness::Run;
use crate::meter::{Outcome, P50, P99, Percentile, Percentiles, rate};
use crate::report::chart::{self, Traces};
use crate::report::{Chart, Higher, Lower, Neither, Panel, ResultRows, Section, resident_max_mib};

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "The documents of W1, created now, are inserted at full speed for {} periods of {} seconds. A document expires after one \
         period, so that from the second period on as many expire as are inserted. Early is the first period, steady the rest, \
         exit the last tenth of the time. The backlog is the documents that have expired and are still there.",
        work.periods,
        work.retention()
    );
    let mut section = Section::new("rolling", "W7: rolling data", about);
    section.settings = work.settings();
    section.result_rows = result_rows(work, results).list;
    section.headline = "exit speed (last tenth)".to_owned();
    let columns = run.columns();
    section.charts.push(chart::over_count(&Traces {
        title: "Documents inserted a second",
        unit: "documents",
        columns: &columns,
        rows: results.iter().map(|target| &target.rows[..]).collect(),
    }));
    let backlog = columns.curves(results, |target| {
        let samples = target.samples.iter();
        samples
            .map(|sample| (sample.elapsed.as_secs_f64(), sample.backlog as f64))
            .collect()
    });
    if !backlog.is_empty() {
        let panel = Panel::tall(
            "Expired documents that are still there",
            "documents",
            backlog,
        );
        let seconds = work.time().as_secs_f64();
        section
            .charts
            .push(Chart::new(vec![panel], seconds, "seconds"));
    }
    section
}

/// The speed between two moments of the run, from the lines of the trace.
fn speed(target: &Results, from: Duration, to: Duration) -> Option<f64> {
    let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
    let mut inside = target
        .rows
        .iter()
        .filter(|row| (from..=to).contains(&row.elapsed_s));
    let first = inside.next()?;
    let last = inside.next_back()?;
    let seconds = last.elapsed_s - first.elapsed_s;
    (seconds > 0.0).then(|| (last.count - first.count) as f64 / seconds)
}

fn disk(stock: &Stock) -> Option<f64> {
    Some(stock.sizes.storage_bytes? as f64 + stock.sizes.index_bytes.unwrap_or(0) as f64)
}

/// Bytes on disk for each document that has not expired.
fn disk_each(stock: &Stock) -> Option<f64> {
    let each = disk(stock)? / stock.retained as f64;
    each.is_finite().then_some(each)
}

/// Figures without any value get no row.
fn result_rows<'a>(work: &Work, results: &'a [Results]) -> ResultRows<'a, Results> {
    let latency = |outcome: &Outcome, (_, pick): Percentile| {
        let latencies = &outcome.latencies;
        (!latencies.is_empty()).then(|| pick(&Percentiles::from_latencies(latencies)))
    };
    let (first, whole) = (work.first_period(), work.time());
    let mut result_rows = ResultRows::new(results);
    let mut add = |better, name: &str, unit, value: &dyn Fn(&Results) -> Option<f64>| {
        result_rows.add_known(better, name, unit, value);
    };
    let documents = "documents/s";
    add(Neither, "documents inserted", "", &|t| {
        Some(t.outcome.documents as f64)
    });
    add(Neither, "time", "s", &|t| {
        Some(t.outcome.elapsed.as_secs_f64())
    });
    add(Higher, "speed of the first period", documents, &|t| {
        speed(t, Duration::ZERO, first)
    });
    add(Higher, "steady speed", documents, &|t| {
        speed(t, first, whole)
    });
    add(Higher, "exit speed (last tenth)", documents, &|t| {
        speed(t, whole.mul_f64(0.9), whole)
    });
    add(Neither, "documents that have expired", "", &|t| {
        let last = t.last?;
        Some(last.inserted.saturating_sub(last.sizes.documents?) as f64)
    });
    add(Lower, "backlog at the end", "documents", &|t| {
        Some(t.samples.last()?.backlog as f64)
    });
    add(Lower, "backlog, highest", "documents", &|t| {
        let highest = t.samples.iter().map(|sample| sample.backlog).max();
        highest.map(|documents| documents as f64)
    });
    add(Neither, "documents that have not expired", "", &|t| {
        Some(t.last?.retained as f64)
    });
    add(Lower, "size on disk at the end", "MiB", &|t| {
        Some(disk(&t.last?)? / f64::from(1 << 20))
    });
    add(
        Neither,
        "disk for a document, first period",
        "bytes",
        &|t| disk_each(&t.full?),
    );
    add(
        Lower,
        "disk for a retained document, at the end",
        "bytes",
        &|t| disk_each(&t.last?),
    );
    add(Lower, "disk / disk of the retained documents", "", &|t| {
        let ratio = disk_each(&t.last?)? / disk_each(&t.full?)?;
        ratio.is_finite().then_some(ratio)
    });
    for percentile in [P50, P99] {
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
    add(Neither, "resident memory of the server, max", "MiB", &|t| {
        resident_max_mib(&t.rows)
    });
    result_rows
}
