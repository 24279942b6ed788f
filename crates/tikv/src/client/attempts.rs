//! When a request is sent again, and when it is given up.
//!
//! A request may be the reason why a node ends: it needs memory there, or meets an error of the node. The region's next leader gets
//! the same request then, and after that the last copy. So an operation whose request has gone to two nodes that do not answer any
//! more is given up, with an error that names them: of three copies one has not seen the request. An operation that waits
//! while one node is gone, for the next leader, is tried until its time is over.

use std::time::Duration;

use crate::client::backoff::Backoff;
use crate::client::failure::Fault;

/// Nodes that an operation may lose before it is given up.
const LOST_MAX: usize = 2;
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause after an answer that asks for another attempt.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The first pause after a broken connection: the next peer does not get the request at once.
const PAUSE_AFTER_BREAK: Duration = Duration::from_millis(50);

/// The failed attempts of one operation.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The kind of its requests.
    kind: &'static str,
    failed: u32,
    /// The nodes that did not answer its requests, and nothing else either.
    lost: Vec<String>,
    answered: Backoff,
    broken: Backoff,
}

/// The consequence of a failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    AgainAfter(Duration),
    /// The time of the operation is over, or the request would fail again. The text has the last failure.
    GiveUp(String),
    /// Nodes have ended or hang since they got the request: drivers must not repeat it either. The text names the nodes.
    Withhold(String),
}

impl Attempts {
    pub(crate) fn new(kind: &'static str) -> Attempts {
        Attempts {
            kind,
            failed: 0,
            lost: Vec::new(),
            answered: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            broken: Backoff::new(PAUSE_AFTER_BREAK, PAUSE_MAX),
        }
    }

    /// Notes that a node which has got the request does not answer any more.
    pub(crate) fn note_lost(&mut self, address: &str) {
        if !self.lost.iter().any(|lost| lost == address) {
            self.lost.push(address.to_owned());
        }
    }

    /// After a failure, with the time that the operation has left.
    pub(crate) fn after(&mut self, fault: Fault, text: &str, left: Duration) -> Next {
        self.failed += 1;
        if self.lost.len() >= LOST_MAX {
            return Next::Withhold(self.describe(text));
        }
        if fault == Fault::Lasting {
            return Next::GiveUp(self.describe(text));
        }
        let pause = match fault {
            Fault::Connection | Fault::Unreached => self.broken.pause(),
            Fault::Passing | Fault::Slow | Fault::Lasting => self.answered.pause(),
        };
        if pause >= left {
            return Next::GiveUp(self.describe(text));
        }
        Next::AgainAfter(pause)
    }

    /// The error of an operation that was given up: its request, its peers, the last failure.
    fn describe(&self, text: &str) -> String {
        let Attempts { kind, failed, .. } = self;
        let times = if *failed == 1 { "attempt" } else { "attempts" };
        match self.lost.as_slice() {
            [] => format!("{kind}, after {failed} {times}: {text}"),
            [one] => format!("{kind}, after {failed} {times}; {one} does not answer: {text}"),
            lost if lost.len() < LOST_MAX => {
                format!(
                    "{kind}, after {failed} {times}; {} do not answer: {text}",
                    lost.join(", ")
                )
            }
            lost => format!(
                "{kind}, after {failed} {times}: it is not sent to further nodes, because those that got it do not answer any more \
                 ({}): {text}",
                lost.join(", ")
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn text(next: Next) -> String {
        match next {
            Next::GiveUp(text) => text,
            next => panic!("{next:?}"),
        }
    }

    fn pause(next: Next) -> Duration {
        match next {
            Next::AgainAfter(pause) => pause,
            next => panic!("{next:?}"),
        }
    }

    #[test]
    fn a_request_is_not_sent_to_all_nodes_in_turn() {
        let mut attempts = Attempts::new("a page of a range");
        assert!(
            pause(attempts.after(Fault::Connection, "broken", MINUTE)) >= PAUSE_AFTER_BREAK / 2
        );
        for _ in 0..50 {
            // A node that fails again counts once.
            attempts.note_lost("10.0.0.1:20160");
            pause(attempts.after(Fault::Connection, "refused", MINUTE));
        }
        attempts.note_lost("10.0.0.2:20160");
        let Next::Withhold(text) = attempts.after(Fault::Connection, "broken", MINUTE) else {
            panic!("it is sent again");
        };
        for part in [
            "a page of a range",
            "10.0.0.1:20160, 10.0.0.2:20160",
            "broken",
            "52 attempts",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn a_request_is_repeated_until_the_time_of_its_operation_is_over() {
        for fault in [
            Fault::Passing,
            Fault::Slow,
            Fault::Connection,
            Fault::Unreached,
        ] {
            let mut attempts = Attempts::new("a look-up");
            for _ in 0..30 {
                assert!(pause(attempts.after(fault, "elsewhere", MINUTE)) <= PAUSE_MAX);
            }
            let text = text(attempts.after(fault, "elsewhere", Duration::from_millis(1)));
            assert_eq!(text, "a look-up, after 31 attempts: elsewhere");
        }
        let mut attempts = Attempts::new("a look-up");
        attempts.note_lost("10.0.0.1:20160");
        let text = text(attempts.after(Fault::Slow, "no answer", Duration::ZERO));
        assert_eq!(
            text,
            "a look-up, after 1 attempt; 10.0.0.1:20160 does not answer: no answer"
        );
    }

    #[test]
    fn a_lasting_failure_is_not_tried_again() {
        let text = text(Attempts::new("a look-up").after(Fault::Lasting, "refused", MINUTE));
        assert_eq!(text, "a look-up, after 1 attempt: refused");
    }
}
