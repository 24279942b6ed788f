//! The charts of a run of Sysbench.

use super::chapter::Report;
use super::lane::{Ended, Ran};
use crate::report::plot::{self, Curve, Panel};
use crate::report::{Axis, Chart, Row};

impl Report<'_> {
    /// A curve for each server.
    fn curves(&self, points: impl Fn(&Ended) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let servers = self.labels.iter().zip(self.lanes).enumerate();
        servers
            .map(|(index, (label, lane))| Curve {
                name: label.clone(),
                color: plot::color(index),
                width: 2,
                points: points(lane),
            })
            .collect()
    }

    /// Rate and latency over the number of threads.
    pub(super) fn by_threads(&self) -> Chart {
        let first = self.work.compressions().first().copied().flatten();
        let points = |lane: &Ended, value: &dyn Fn(&Ran) -> Option<f64>| {
            let levels = lane.levels.iter().filter(|ran| ran.compression == first);
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
                    curves: self.curves(|lane| points(lane, &|ran| ran.level.transactions_per_s())),
                },
                Panel {
                    height: 230,
                    title: "95% of transactions within".to_owned(),
                    unit: "milliseconds",
                    curves: self.curves(|lane| points(lane, &|ran| Some(ran.level.whole.p95_ms))),
                },
            ],
            x_max: f64::from(most).log2().max(1.0),
            x_unit: "threads".to_owned(),
            axis: Axis::PowersOfTwo,
        }
    }

    /// Rate and latency over time.
    pub(super) fn over_time(&self) -> Chart {
        let end = |lane: &Ended| lane.rows.last().map_or(0.0, |row| row.elapsed_s);
        let levels: Vec<String> = self.work.threads.iter().map(u16::to_string).collect();
        let title = format!(
            "Transactions a second over time, with {} threads",
            levels.join(", ")
        );
        let over = |value: fn(&Row) -> f64| {
            self.curves(|lane| {
                lane.rows
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
            x_max: self.lanes.iter().map(end).fold(1.0, f64::max),
            x_unit: "seconds of transactions".to_owned(),
            axis: Axis::Linear,
        }
    }
}
