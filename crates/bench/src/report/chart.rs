//! The chart of a workload: speed, latency and memory over the operations done, a curve for each server.

use super::plot::{Curve, pale};
use super::{Chart, Columns, Panel, Row};

/// Points drawn for a curve, at most; a longer run is averaged.
const POINTS_MAX: usize = 1000;

/// The data of a chart of traces.
pub struct Traces<'a> {
    pub title: &'static str,
    /// The counted things, such as "documents".
    pub unit: &'static str,
    pub columns: &'a Columns,
    pub rows: Vec<&'a [Row]>,
}

/// Draws the traces over millions of operations.
pub fn over_count(traces: &Traces<'_>) -> Chart {
    let x = |row: &Row| row.count as f64 / 1e6;
    let thinned: Vec<Vec<Row>> = traces.rows.iter().map(|rows| thin(rows)).collect();
    let of_all = |value: &dyn Fn(&Row) -> Option<f64>| -> Vec<Curve> {
        traces.columns.curves(&thinned, |rows| {
            let points = rows.iter().filter_map(|row| Some((x(row), value(row)?)));
            points.collect()
        })
    };
    let speeds = speed_curves(of_all(&|row| Some(row.per_s)));
    let mut panels = vec![Panel::tall(traces.title, "a second", speeds)];
    let latency = of_all(&|row| (row.p99_ms > 0.0).then_some(row.p99_ms));
    let memory = of_all(&|row| row.memory.resident_mib);
    for panel in [
        Panel::low("99th percentile of the latency", "milliseconds", latency),
        Panel::low("Resident memory, reported by the servers", "MiB", memory),
    ] {
        if !panel.curves.is_empty() {
            panels.push(panel);
        }
    }
    // A run too short for one interval still gets its axis.
    let last = thinned.iter().filter_map(|rows| rows.last()).map(x);
    let x_max = last.fold(1e-6, f64::max);
    Chart::new(panels, x_max, format!("million {}", traces.unit))
}

/// Each curve twice: raw in a pale shade, and smoothed in its colour.
fn speed_curves(curves: Vec<Curve>) -> Vec<Curve> {
    let mut out = Vec::new();
    for curve in &curves {
        out.push(Curve {
            name: String::new(),
            color: pale(curve.color),
            width: 1,
            dashed: curve.dashed,
            points: curve.points.clone(),
        });
    }
    for curve in curves {
        let window = (curve.points.len() / 40).max(1);
        let points = moving_average(&curve.points, window);
        out.push(Curve { points, ..curve });
    }
    out
}

/// The mean of each point and its neighbours, `window` in all; fewer at the ends.
fn moving_average(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let half = window / 2;
    let mean = |index: usize| {
        let from = index.saturating_sub(half);
        let near = points.get(from..(index + half + 1).min(points.len()))?;
        Some(near.iter().map(|(_, y)| y).sum::<f64>() / near.len() as f64)
    };
    points
        .iter()
        .enumerate()
        .filter_map(|(index, (x, _))| Some((*x, mean(index)?)))
        .collect()
}

/// Joins neighbouring rows until there are few enough to draw. Speeds are averaged, latencies and
/// memory keep their worst, so that nothing bad is smoothed away.
fn thin(rows: &[Row]) -> Vec<Row> {
    let group = rows.len().div_ceil(POINTS_MAX).max(1);
    let worst = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let join = |rows: &[Row]| {
        let mut joined = *rows.last()?;
        joined.per_s = rows.iter().map(|row| row.per_s).sum::<f64>() / rows.len() as f64;
        for row in rows {
            joined.p50_ms = joined.p50_ms.max(row.p50_ms);
            joined.p99_ms = joined.p99_ms.max(row.p99_ms);
            joined.memory.resident_mib = worst(joined.memory.resident_mib, row.memory.resident_mib);
            joined.memory.cache_mib = worst(joined.memory.cache_mib, row.memory.cache_mib);
        }
        Some(joined)
    };
    rows.chunks(group).filter_map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u64) -> Vec<Row> {
        let row = |n: u64| Row {
            elapsed_s: n as f64,
            count: n * 1000,
            per_s: 1000.0,
            p50_ms: 1.0,
            p99_ms: if n == 1501 { 99.0 } else { 2.0 },
            ..Row::default()
        };
        (1..=count).map(row).collect()
    }

    #[test]
    fn long_runs_are_thinned_without_losing_their_worst() {
        assert_eq!(thin(&[]), []);
        assert_eq!(thin(&rows(10)).len(), 10);
        let thinned = thin(&rows(2500));
        assert!(thinned.len() <= POINTS_MAX);
        assert_eq!(thinned.last().unwrap().count, 2_500_000);
        assert!(thinned.iter().any(|row| row.p99_ms == 99.0));
        assert!(thinned.iter().all(|row| row.per_s == 1000.0));
    }

    #[test]
    fn averages_reach_to_both_sides() {
        let points: Vec<(f64, f64)> = (0..5).map(|n| (f64::from(n), f64::from(n * n))).collect();
        let expected = [0.5, 5.0 / 3.0, 14.0 / 3.0, 29.0 / 3.0, 12.5];
        let got = moving_average(&points, 3);
        assert_eq!(got.len(), 5);
        for ((_, y), expected) in got.iter().zip(expected) {
            assert!((y - expected).abs() < 1e-9, "{got:?}");
        }
        assert_eq!(moving_average(&points, 1), points);
    }
}
