//! The section of a run of aggregations.

use super::options::Work;
use super::runner::{Query, Results};
use crate::documents::groups::KEYS;
use crate::format::thousands;
use crate::meter::{median, milliseconds, rate};
use crate::report::{Higher, Lower, ResultRows, Section};

pub fn build(work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "Documents of 77 bytes {{_id, k, v, date, city}} without a secondary index. {} values of k: how many documents each \
         has, and the sum of their v, of all documents and of the quarter with a small v; and all documents of one k.",
        thousands(KEYS as f64)
    );
    let mut section = Section::new("groups", "W6: groups and scans", about);
    section.settings = work.settings();
    let (mut result_rows, mut details) = (ResultRows::new(results), ResultRows::new(results));
    result_rows.add(Higher, "load", "documents/s", |target| {
        rate(target.documents, target.load)
    });
    for (at, query) in Query::ALL.into_iter().enumerate() {
        let times = |target: &Results| -> Vec<f64> {
            let times = target.times.get(at).into_iter().flatten();
            times.map(milliseconds).collect()
        };
        let name = query.name();
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
        target.sizes.storage()
    });
    section.result_rows = result_rows.list;
    section.details = details.list;
    section.headline = format!("{}, median", Query::All.name());
    section
}
