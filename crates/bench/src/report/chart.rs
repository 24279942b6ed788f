//! The chart of a run: speed, latency and memory over the documents that are in.

use plotters::style::RGBColor;

use super::plot::{self, Curve, FIRST, PALE, Panel, SECOND};
use super::{Row, Summary, thousands};
use crate::error::Result;

const SPEED_HEIGHT: u32 = 400;
const PANEL_HEIGHT: u32 = 230;

/// Points drawn for a curve, at most; a longer run is averaged.
const POINTS_MAX: usize = 1000;

/// Draws the chart.
pub fn svg(summary: &Summary, rows: &[Row]) -> Result<String> {
    let rows = thin(rows);
    let documents = thousands(summary.documents as f64);
    let title = match summary.exit_speed {
        Some(speed) => format!("{documents} documents, exit speed {}/s", thousands(speed)),
        None => format!("{documents} documents"),
    };
    let slow = curve("99 of 100 faster", SECOND, 2, &rows, |row| Some(row.p99_ms));
    let median = curve("half faster", FIRST, 2, &rows, |row| Some(row.p50_ms));
    let mut panels = vec![
        Panel {
            height: SPEED_HEIGHT,
            title,
            unit: "documents/s",
            curves: speed_curves(&rows),
        },
        Panel {
            height: PANEL_HEIGHT,
            title: "Time for a batch".to_owned(),
            unit: "milliseconds",
            curves: vec![slow, median],
        },
    ];
    let memory = memory_curves(&rows);
    if !memory.is_empty() {
        panels.push(Panel {
            height: PANEL_HEIGHT,
            title: "Server's memory".to_owned(),
            unit: "MiB",
            curves: memory,
        });
    }
    // A run too short for one interval still gets its axis.
    let last = rows.last().map_or(0, |row| row.documents);
    plot::svg(&panels, (last as f64 / 1e6).max(1e-6), "million documents")
}

fn speed_curves(rows: &[Row]) -> Vec<Curve> {
    let now = curve("now", PALE, 1, rows, |row| Some(row.documents_per_s));
    let average = curve("on average", SECOND, 1, rows, |row| {
        Some(row.documents as f64 / row.elapsed_s.max(1e-9))
    });
    let window = (rows.len() / 40).max(1);
    let points = moving_average(&now.points, window);
    let smooth = Curve {
        name: "now, smoothed",
        color: FIRST,
        width: 2,
        points,
    };
    vec![now, average, smooth]
}

fn memory_curves(rows: &[Row]) -> Vec<Curve> {
    let mut curves = vec![
        curve("resident", SECOND, 2, rows, |row| row.figures.resident_mib),
        curve("cache", FIRST, 2, rows, |row| row.figures.cache_mib),
    ];
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn curve(
    name: &'static str,
    color: RGBColor,
    width: u32,
    rows: &[Row],
    value: impl Fn(&Row) -> Option<f64>,
) -> Curve {
    let points = rows
        .iter()
        .filter_map(|row| Some((row.documents as f64 / 1e6, value(row)?)));
    Curve {
        name,
        color,
        width,
        points: points.collect(),
    }
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
        joined.documents_per_s =
            rows.iter().map(|row| row.documents_per_s).sum::<f64>() / rows.len() as f64;
        for row in rows {
            joined.p50_ms = joined.p50_ms.max(row.p50_ms);
            joined.p99_ms = joined.p99_ms.max(row.p99_ms);
            joined.figures.resident_mib =
                worst(joined.figures.resident_mib, row.figures.resident_mib);
            joined.figures.cache_mib = worst(joined.figures.cache_mib, row.figures.cache_mib);
        }
        Some(joined)
    };
    rows.chunks(group).filter_map(join).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rows(count: u64) -> Vec<Row> {
        let row = |n: u64| Row {
            elapsed_s: n as f64,
            documents: n * 1000,
            documents_per_s: 1000.0,
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
        assert_eq!(thinned.last().unwrap().documents, 2_500_000);
        assert!(thinned.iter().any(|row| row.p99_ms == 99.0));
        assert!(thinned.iter().all(|row| row.documents_per_s == 1000.0));
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
