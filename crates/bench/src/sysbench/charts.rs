//! The charts of a run of Sysbench.

use super::runner::{Ran, Results};
use super::section::SectionBuilder;
use crate::report::plot::{Curve, Panel};
use crate::report::{Axis, Chart, Row};

impl SectionBuilder<'_> {
    fn curves(&self, points: impl Fn(&Results) -> Vec<(f64, f64)>) -> Vec<Curve> {
        self.columns.curves(self.results, points)
    }

    /// Rate and latency over the number of threads.
    pub(super) fn by_threads(&self) -> Chart {
        let first = self.work.compressions().first().copied().flatten();
        let points = |target: &Results, value: &dyn Fn(&Ran) -> Option<f64>| {
            let levels = target.levels.iter().filter(|ran| ran.compression == first);
            let mut points: Vec<(f64, f64)> = levels
                .filter_map(|ran| Some((f64::from(ran.threads).log2(), value(ran)?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let most = self.work.threads.iter().max().copied().unwrap_or(1);
        Chart {
            panels: vec![
                Panel {
                    height: 400,
                    title: "Transactions a second by threads".to_owned(),
                    unit: "transactions/s",
                    curves: self
                        .curves(|target| points(target, &|ran| ran.level.transactions_per_s())),
                },
                Panel {
                    height: 230,
                    title: "95% of transactions within".to_owned(),
                    unit: "milliseconds",
                    curves: self
                        .curves(|target| points(target, &|ran| Some(ran.level.whole.p95_ms))),
                },
            ],
            x_max: f64::from(most).log2().max(1.0),
            x_unit: "threads".to_owned(),
            axis: Axis::Log2,
        }
    }

    /// Rate and latency over time.
    pub(super) fn over_time(&self) -> Chart {
        let end = |target: &Results| target.rows.last().map_or(0.0, |row| row.elapsed_s);
        let levels: Vec<String> = self.work.threads.iter().map(u16::to_string).collect();
        let title = format!(
            "Transactions a second over time, with {} threads",
            levels.join(", ")
        );
        let over = |value: fn(&Row) -> f64| {
            self.curves(|target| {
                target
                    .rows
                    .iter()
                    .map(|row| (row.elapsed_s, value(row)))
                    .collect()
            })
        };
        Chart {
            panels: vec![
                Panel {
                    height: 400,
                    title,
                    unit: "transactions/s",
                    curves: over(|row| row.per_s),
                },
                Panel {
                    height: 230,
                    title: "99% of transactions within".to_owned(),
                    unit: "milliseconds",
                    curves: over(|row| row.p99_ms),
                },
            ],
            x_max: self.results.iter().map(end).fold(1.0, f64::max),
            x_unit: "seconds of transactions".to_owned(),
            axis: Axis::Linear,
        }
    }
}
