//! The section of a run of aggregations.

use std::time::Duration;

use super::options::Work;
use super::runner::{Query, Results};
use crate::documents::groups::KEYS;
use crate::format::thousands;
use crate::report::{Figure, Section};

/// The section of a run.
pub fn build(work: &Work, results: &[Results]) -> Section {
    let about = format!(
        "Documents of 77 bytes {{_id, k, v, date, city}} without a secondary index. {} values of k: how many documents each \
         has, and the sum of their v, of all documents and of the quarter with a small v; and all documents of one k.",
        thousands(KEYS as f64)
    );
    let mut section = Section::new("groups", "W6: groups and scans", about);
    section.settings = work.settings();
    for target in results {
        section.ended(&target.ending);
    }
    let each = |value: &dyn Fn(&Results) -> Option<f64>| results.iter().map(value).collect();
    section.figures.push(Figure::higher(
        "load".to_owned(),
        "documents/s",
        each(&|target| {
            let seconds = target.load.as_secs_f64();
            (seconds > 0.0).then(|| target.documents as f64 / seconds)
        }),
    ));
    for (at, query) in Query::ALL.into_iter().enumerate() {
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let times = |target: &Results| -> Vec<f64> {
            let times = target.times.get(at).into_iter().flatten();
            times.map(ms).collect()
        };
        section.figures.push(Figure::lower(
            format!("{}, median", query.name()),
            "ms",
            each(&|target| median(times(target))),
        ));
        for round in 0..work.rounds as usize {
            section.details.push(Figure::lower(
                format!("{}, round {}", query.name(), round + 1),
                "ms",
                each(&|target| times(target).get(round).copied()),
            ));
        }
    }
    section.figures.push(Figure::lower(
        "a document on disk".to_owned(),
        "bytes",
        each(&|target| {
            let documents = target.sizes.documents.filter(|n| *n > 0)?;
            Some(target.sizes.storage_bytes? as f64 / documents as f64)
        }),
    ));
    section.headline = format!("{}, median", Query::All.name());
    section
}

/// The middle one, or the mean of the middle two.
fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    let (low, high) = (times.len().checked_sub(1)? / 2, times.len() / 2);
    Some((times.get(low)? + times.get(high)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (times, expected) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![4.0, 1.0], Some(2.5)),
            (vec![9.0, 1.0, 2.0], Some(2.0)),
        ] {
            assert_eq!(median(times), expected);
        }
    }
}
