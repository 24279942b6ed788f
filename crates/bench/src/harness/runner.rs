//! Running the targets in turns.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_client::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    More,
    Done,
    /// Nothing, since its time is up.
    TimeUp,
}

#[derive(Debug, PartialEq)]
pub enum Ending {
    Complete,
    TimeUp,
    /// The user asked to stop.
    Stopped,
    Failed(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
    fn turn(&mut self) -> Result<StepOutcome>;

    /// Called once, after the last turn.
    fn ended(&mut self);

    type Results;

    fn into_results(self) -> Self::Results;
}

/// Calls the runners in turns until all have ended; `prepare` is called before each turn with its number. An error ends its
/// runner; a stop by the user ends all. Returns how each ended, and the first error.
pub fn alternate(
    runners: &mut [impl Runner],
    stop: &AtomicBool,
    prepare: impl Fn(usize) -> Result<()>,
) -> (Vec<Ending>, Result<()>) {
    let mut endings: Vec<Option<Ending>> = runners.iter().map(|_| None).collect();
    let mut first_error = None;
    while endings.contains(&None) {
        for (turn, (runner, ending)) in runners.iter_mut().zip(&mut endings).enumerate() {
            if ending.is_some() {
                continue;
            }
            let prepared = prepare(turn);
            let result = if stop.load(Ordering::Relaxed) {
                Err(Error::Stopped)
            } else {
                prepared.and_then(|()| runner.turn())
            };
            *ending = Some(match result {
                Ok(StepOutcome::More) => continue,
                Ok(StepOutcome::Done) => Ending::Complete,
                Ok(StepOutcome::TimeUp) => Ending::TimeUp,
                Err(error) => {
                    let ending = match &error {
                        Error::Stopped => Ending::Stopped,
                        error => Ending::Failed(error.to_string()),
                    };
                    first_error.get_or_insert(error);
                    ending
                }
            });
            runner.ended();
        }
    }
    let endings = endings.into_iter().flatten().collect();
    (endings, first_error.map_or(Ok(()), Err))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Fake<'a> {
        name: &'static str,
        turns: Vec<Result<StepOutcome>>,
        seen: &'a RefCell<Vec<String>>,
        stop: &'a AtomicBool,
    }

    impl Runner for Fake<'_> {
        type Results = ();

        fn into_results(self) {}

        fn turn(&mut self) -> Result<StepOutcome> {
            self.seen.borrow_mut().push(self.name.to_owned());
            if self.turns.is_empty() {
                self.stop.store(true, Ordering::Relaxed);
                return Ok(StepOutcome::More);
            }
            self.turns.remove(0)
        }

        fn ended(&mut self) {
            self.seen.borrow_mut().push(format!("{} ends", self.name));
        }
    }

    #[test]
    fn runners_alternate_until_each_is_done_and_an_error_ends_its_own() {
        let more = || Ok(StepOutcome::More);
        let wrong = || Err(Error::Wrong("five".to_owned()));
        for (turns, order, ended, failed) in [
            (
                [
                    vec![more(), Ok(StepOutcome::Done)],
                    vec![more(), more(), Ok(StepOutcome::TimeUp)],
                ],
                "a, b, a, a ends, b, b, b ends",
                "complete, ended by --minutes",
                "",
            ),
            (
                [vec![wrong()], vec![more(), Ok(StepOutcome::Done)]],
                "a, a ends, b, b, b ends",
                "wrong result: five, complete",
                "wrong result: five",
            ),
            // The first one has no more turns: then the user asks to stop, which ends all.
            (
                [vec![], vec![more()]],
                "a, b ends, a ends",
                "stopped, stopped",
                "stopped",
            ),
        ] {
            let (seen, stop) = (RefCell::default(), AtomicBool::new(false));
            let mut runners: Vec<Fake<'_>> = ["a", "b"]
                .into_iter()
                .zip(turns)
                .map(|(name, turns)| Fake {
                    name,
                    turns,
                    seen: &seen,
                    stop: &stop,
                })
                .collect();
            let (endings, result) = alternate(&mut runners, &stop, |_| Ok(()));
            drop(runners);
            assert_eq!(seen.into_inner().join(", "), order);
            let endings: Vec<String> = endings.iter().map(Ending::to_string).collect();
            assert_eq!(endings.join(", "), ended);
            let error = result
                .err()
                .map_or_else(String::new, |error| error.to_string());
            assert!(
                error.contains(failed) && error.is_empty() == failed.is_empty(),
                "{error}"
            );
        }
    }
}
