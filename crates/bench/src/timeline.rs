//! Documents over time, with enough points for the speed of any part of a run.

use std::time::Duration;

/// Points kept for a run, at most (and one for its end).
const POINTS: u64 = 2000;

/// A curve of documents over time: grows only, and holds a bounded number of points.
#[derive(Clone, Debug)]
pub struct Timeline {
    step: u64,
    next: u64,
    points: Vec<(f64, u64)>,
}

impl Timeline {
    /// For a run of `total` documents.
    pub fn new(total: u64) -> Self {
        let step = total.div_ceil(POINTS).max(1);
        Timeline {
            step,
            next: step,
            points: vec![(0.0, 0)],
        }
    }

    /// Notes that `documents` are in at `elapsed`. Most calls keep nothing.
    pub fn note(&mut self, elapsed: Duration, documents: u64) {
        if documents >= self.next {
            self.keep(elapsed, documents);
            self.next = (documents / self.step + 1) * self.step;
        }
    }

    /// Notes the end of the run, whole or not.
    pub fn end(&mut self, elapsed: Duration, documents: u64) {
        self.keep(elapsed, documents);
    }

    fn keep(&mut self, elapsed: Duration, documents: u64) {
        let seconds = elapsed.as_secs_f64();
        // Threads may report out of order by a moment; the curve does not go back.
        let (last_s, last_n) = self.last();
        if documents >= last_n {
            self.points.push((seconds.max(last_s), documents));
        }
    }

    fn last(&self) -> (f64, u64) {
        self.points.last().copied().unwrap_or((0.0, 0))
    }

    /// Seconds at which `documents` were in, by interpolation. `None` if they never were.
    pub fn seconds_at(&self, documents: f64) -> Option<f64> {
        let after = self
            .points
            .iter()
            .position(|(_, count)| *count as f64 >= documents)?;
        let (to_s, to_n) = *self.points.get(after)?;
        let Some((from_s, from_n)) = after.checked_sub(1).and_then(|i| self.points.get(i)) else {
            return Some(to_s);
        };
        let part = (documents - *from_n as f64) / (to_n - from_n).max(1) as f64;
        Some(from_s + (to_s - from_s) * part)
    }

    /// Documents a second between two counts of documents. `None` if the run did not get there
    /// or if it took no time that can be measured.
    pub fn speed(&self, from: f64, to: f64) -> Option<f64> {
        let seconds = self.seconds_at(to)? - self.seconds_at(from)?;
        (seconds > 0.0 && to > from).then(|| (to - from) / seconds)
    }

    /// Speed over a part of what has been inserted so far, given as two fractions of it.
    pub fn speed_of_part(&self, from: f64, to: f64) -> Option<f64> {
        let documents = self.last().1 as f64;
        self.speed(documents * from, documents * to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn speeds_are_interpolated_between_points() {
        let mut line = Timeline::new(1000);
        line.note(seconds(1.0), 100);
        line.note(seconds(2.0), 300);
        line.end(seconds(6.0), 1000);
        for (from, to, speed) in [
            (0.0, 100.0, Some(100.0)),
            (100.0, 300.0, Some(200.0)),
            (0.0, 300.0, Some(150.0)),
            (0.0, 200.0, Some(200.0 / 1.5)),
            (300.0, 1000.0, Some(175.0)),
            (950.0, 1000.0, Some(175.0)),
            (0.0, 1001.0, None),
            (300.0, 300.0, None),
        ] {
            let got = line.speed(from, to);
            let close = match (got, speed) {
                (Some(a), Some(b)) => (a - b).abs() < 1e-6,
                (a, b) => a == b,
            };
            assert!(close, "{from} to {to}: {got:?}");
        }
        assert!((line.speed_of_part(0.95, 1.0).unwrap() - 175.0).abs() < 1e-6);
    }

    #[test]
    fn points_are_bounded_and_never_go_back() {
        let mut line = Timeline::new(1_000_000);
        for n in 1..=1_000_000_u64 {
            line.note(seconds(n as f64 / 1000.0), n);
        }
        line.note(seconds(1.0), 5);
        assert!(line.points.len() as u64 <= POINTS + 1);
        assert!(line.points.is_sorted());
        assert!((line.speed_of_part(0.1, 0.2).unwrap() - 1000.0).abs() < 0.1);

        let empty = Timeline::new(10);
        assert_eq!(empty.speed_of_part(0.0, 1.0), None);
        assert_eq!(empty.speed_of_part(0.95, 1.0), None);
    }
}
