//! Running the targets in turns.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_client::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    More,
    Done,
    /// Nothing, since its time is up.
    TimeUp,
}

#[derive(Debug, Default)]
pub enum Ending {
    /// It has not ended yet.
    #[default]
    Open,
    Complete,
    TimeUp,
    /// The user asked to stop.
    Stopped,
    Failed(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Open => f.write_str("not begun"),
            Ending::Complete => f.write_str("complete"),
            Ending::TimeUp => f.write_str("ended by --minutes"),
            Ending::Stopped => f.write_str("stopped"),
            Ending::Failed(text) => f.write_str(text),
        }
    }
}

/// One target's part of a workload.
pub trait Runner {
    /// Does the next part of the work.
    fn turn(&mut self) -> Result<Turn>;

    /// Called once, after the last turn.
    fn ended(&mut self, ending: Ending);

    type Results;

    fn into_results(self) -> Self::Results;
}

/// Calls the runners in turns until all have ended. An error ends its runner; a stop by the user ends
/// all. Returns the first error.
pub fn alternate(runners: &mut [impl Runner], stop: &AtomicBool) -> Result<()> {
    let mut open: Vec<bool> = vec![true; runners.len()];
    let mut first_error = None;
    while open.contains(&true) {
        for (runner, open) in runners.iter_mut().zip(&mut open) {
            if !*open {
                continue;
            }
            let result = if stop.load(Ordering::Relaxed) {
                Err(Error::Stopped)
            } else {
                runner.turn()
            };
            let ending = match result {
                Ok(Turn::More) => continue,
                Ok(Turn::Done) => Ending::Complete,
                Ok(Turn::TimeUp) => Ending::TimeUp,
                Err(error) => {
                    let ending = match &error {
                        Error::Stopped => Ending::Stopped,
                        error => Ending::Failed(error.to_string()),
                    };
                    first_error.get_or_insert(error);
                    ending
                }
            };
            runner.ended(ending);
            *open = false;
        }
    }
    first_error.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Fake<'a> {
        name: &'static str,
        turns: Vec<Result<Turn>>,
        seen: &'a RefCell<Vec<String>>,
        stop: &'a AtomicBool,
    }

    impl Runner for Fake<'_> {
        type Results = ();

        fn into_results(self) {}

        fn turn(&mut self) -> Result<Turn> {
            self.seen.borrow_mut().push(self.name.to_owned());
            if self.turns.is_empty() {
                self.stop.store(true, Ordering::Relaxed);
                return Ok(Turn::More);
            }
            self.turns.remove(0)
        }

        fn ended(&mut self, ending: Ending) {
            self.seen
                .borrow_mut()
                .push(format!("{}: {ending}", self.name));
        }
    }

    fn run(runners: Vec<(&'static str, Vec<Result<Turn>>)>) -> (String, Result<()>) {
        let (seen, stop) = (RefCell::default(), AtomicBool::new(false));
        let mut runners: Vec<Fake<'_>> = runners
            .into_iter()
            .map(|(name, turns)| Fake {
                name,
                turns,
                seen: &seen,
                stop: &stop,
            })
            .collect();
        let result = alternate(&mut runners, &stop);
        drop(runners);
        (seen.into_inner().join(", "), result)
    }

    #[test]
    fn runners_alternate_until_each_is_done() {
        let (seen, result) = run(vec![
            ("a", vec![Ok(Turn::More), Ok(Turn::Done)]),
            ("b", vec![Ok(Turn::More), Ok(Turn::More), Ok(Turn::TimeUp)]),
        ]);
        assert_eq!(seen, "a, b, a, a: complete, b, b, b: ended by --minutes");
        assert!(result.is_ok());
    }

    #[test]
    fn an_error_ends_its_runner_only() {
        let wrong = || Err(Error::Wrong("five".to_owned()));
        let (seen, result) = run(vec![
            ("a", vec![wrong()]),
            ("b", vec![Ok(Turn::More), Ok(Turn::Done)]),
        ]);
        assert_eq!(seen, "a, a: wrong result: five, b, b, b: complete");
        assert!(matches!(result, Err(Error::Wrong(_))));
    }

    #[test]
    fn the_users_wish_ends_all() {
        let (seen, result) = run(vec![("a", vec![]), ("b", vec![Ok(Turn::More)])]);
        assert_eq!(seen, "a, b: stopped, a: stopped");
        assert!(matches!(result, Err(Error::Stopped)));
    }
}
