//! The section of a run of counters.

use super::Work;
use super::runner::{Part, Results};
use crate::format::thousands;
use crate::harness::Run;
use crate::meter::{Outcome, P50, P99, Percentile, Percentiles, rate};
use crate::report::chart::{self, Traces};
use crate::report::{Higher, Lower, Neither, ResultRows, Section, resident_max_mib};

pub fn build(run: &Run, work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "{} counters {{_id, n}}, of which {} of a hundred are there before. 1 is added to random ones, which are made if they are \
         not there: first in batches of {}, then one at a time. Others read counters meanwhile, and check that each value lies \
         between the additions that were acknowledged before the read and those that had begun after it. At the end the values \
         are exact.",
        thousands(work.counters() as f64),
        work.preload * 100.0,
        thousands(f64::from(work.batch)),
    );
    let mut section = Section::new("counters", "W8: counters", about);
    section.settings = work.settings();
    section.result_rows = result_rows(results).list;
    section.headline = "additions in batches".to_owned();
    section.charts.push(chart::over_count(&Traces {
        title: "Additions in batches a second",
        unit: "additions",
        columns: &run.columns(),
        rows: results
            .iter()
            .map(|target| &target.parts[0].rows[..])
            .collect(),
    }));
    section
}

/// Figures without any value get no row.
fn result_rows(results: &[Results]) -> ResultRows<'_, Results> {
    let latency = |outcome: &Outcome, (_, pick): Percentile| {
        let latencies = &outcome.latencies;
        (!latencies.is_empty()).then(|| pick(&Percentiles::from_latencies(latencies)))
    };
    let mut result_rows = ResultRows::new(results);
    let mut add = |better, name: &str, unit, value: &dyn Fn(&Results) -> Option<f64>| {
        result_rows.add_known(better, name, unit, value);
    };
    let speed = |part: &Part| rate(part.outcome.documents, part.outcome.elapsed);
    let additions = "additions/s";
    add(Higher, "additions in batches", additions, &|t| {
        speed(&t.parts[0])
    });
    add(
        Higher,
        "exit speed (last 5% of the batches)",
        additions,
        &|t| t.parts[0].outcome.timeline.speed_of_part(0.95, 1.0),
    );
    add(Higher, "single additions", additions, &|t| {
        speed(&t.parts[1])
    });
    for (part, name) in [(0, "batch"), (1, "single addition")] {
        for percentile in [P50, P99] {
            let name = format!("{name} latency {}", percentile.0);
            add(Lower, &name, "ms", &|t| {
                latency(&t.parts[part].outcome, percentile)
            });
        }
    }
    for (part, name) in [(0, "batches"), (1, "single additions")] {
        add(Higher, &format!("reads beside {name}"), "reads/s", &|t| {
            let reads = &t.parts[part].reads;
            rate(reads.documents, reads.elapsed)
        });
        for percentile in [P50, P99] {
            let name = format!("read latency beside {name}, {}", percentile.0);
            add(Lower, &name, "ms", &|t| {
                latency(&t.parts[part].reads, percentile)
            });
        }
    }
    add(Neither, "reads that were checked", "", &|t| {
        let reads = t.parts.iter().map(|part| part.reads.documents).sum::<u64>();
        Some((reads + t.compared) as f64)
    });
    add(Neither, "counters at the end", "", &|t| {
        Some(t.total?.0 as f64)
    });
    add(Neither, "sum of the counters", "", &|t| {
        Some(t.total?.1 as f64)
    });
    add(Lower, "a counter on disk", "bytes", &|t| t.sizes.on_disk());
    add(Neither, "resident memory of the server, max", "MiB", &|t| {
        let maxima = t
            .parts
            .iter()
            .filter_map(|part| resident_max_mib(&part.rows));
        maxima.reduce(f64::max)
    });
    result_rows
}
