//! The section of a run of everyday operations.

use super::model::Step;
use super::options::Work;
use super::runner::Results;
use crate::meter::{median, milliseconds, rate};
use crate::report::{Higher, Lower, ResultRows, Section};

pub fn build(work: &Work, results: &[Results]) -> Section {
    let about = "Documents {_id, k, v, u, m, city, w} of integers and a short string, with indexes on k and v, and a thousand \
                 documents that k refers to. One connection sends one request after the other. Each operation is done in each \
                 round, the short ones many times; the figures are the medians of the rounds."
        .to_owned();
    let mut section = Section::new("everyday", "W9: everyday operations", about);
    section.settings = work.settings();
    let (mut result_rows, mut details) = (ResultRows::new(results), ResultRows::new(results));
    result_rows.add(Higher, "load", "documents/s", |target| {
        rate(target.documents, target.load)
    });
    for (at, step) in Step::ALL.into_iter().enumerate() {
        let times = |target: &Results| -> Vec<f64> {
            let times = target.times.get(at).into_iter().flatten();
            times.map(milliseconds).collect()
        };
        let name = step.name();
        result_rows.add(Lower, format!("{name}, median"), "ms", |target| {
            median(times(target))
        });
        for round in 0..work.rounds as usize {
            let name = format!("{name}, round {}", round + 1);
            details.add(Lower, name, "ms", |target| {
                times(target).get(round).copied()
            });
        }
    }
    result_rows.add(Lower, "a document on disk", "bytes", |target| {
        target.sizes.on_disk()
    });
    section.result_rows = result_rows.list;
    section.details = details.list;
    section.headline = format!("{}, median", Step::Point.name());
    section
}
