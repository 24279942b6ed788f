//! The elections that this server stood for: their causes, and how many there were.

use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use parking_lot::Mutex;

/// The time after which an intention to stand has led to no election.
const INTENTION_MAX: Duration = Duration::from_secs(30);

/// The cause of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no primary for the election timeout.
    Timeout,
    /// `replSetStepUp` was called.
    StepUp,
    /// The primary has a lower priority.
    Priority,
    /// The primary has chosen this server as its successor.
    HandedOver,
    /// This server is the only voter.
    OnlyVoter,
}

impl Cause {
    const ALL: [Cause; 5] = [
        Cause::Timeout,
        Cause::StepUp,
        Cause::Priority,
        Cause::HandedOver,
        Cause::OnlyVoter,
    ];

    /// MongoDB's name, as `replSetGetStatus` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Timeout => "electionTimeout",
            Cause::StepUp => "stepUpRequest",
            Cause::Priority => "priorityTakeover",
            Cause::HandedOver => "stepUpRequestSkipDryRun",
            Cause::OnlyVoter => "singleNodePromptElection",
        }
    }

    /// The number and the text of the line in the log, which are MongoDB's.
    pub fn line(self) -> (u32, &'static str) {
        match self {
            Cause::Timeout => (
                4_615_652,
                "Starting an election, since we've seen no PRIMARY in election timeout period",
            ),
            Cause::StepUp => (4_615_657, "Starting an election due to step up request"),
            Cause::Priority => (4_615_660, "Starting an election for a priority takeover"),
            Cause::HandedOver => (
                4_615_661,
                "Starting an election because the primary hands over to this server",
            ),
            Cause::OnlyVoter => (
                4_615_655,
                "Not starting an election, since we are the only voter; this server becomes the primary",
            ),
        }
    }
}

/// The reason for which a primary accepts no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It hands over to another member.
    HandsOver,
    /// Another member stands, or was elected.
    HigherTerm,
    /// No majority of the voters has answered for an election timeout.
    NoMajority,
}

impl Loss {
    /// The reason in the log.
    pub fn text(self) -> &'static str {
        match self {
            Loss::HandsOver => "it hands over to another member",
            Loss::HigherTerm => "another member stands for election or was elected",
            Loss::NoMajority => "no majority has answered within the election timeout",
        }
    }
}

/// Elections with one cause: those that this server stood for, and those among them that it won.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    stood: u64,
    won: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// The cause of the next election, and since when it is known.
    intention: Option<(Cause, Instant)>,
    /// The last term in which this server stood, and why.
    stood: Option<(u64, Cause)>,
    /// The last term that it won.
    won: Option<u64>,
    /// The term in which it hands over.
    handed_over: Option<u64>,
    /// In the order of [`Cause::ALL`].
    counts: [Count; Cause::ALL.len()],
    stepped_down_for_higher_term: u64,
}

impl Known {
    fn count(&mut self, cause: Cause) -> Option<&mut Count> {
        let at = Cause::ALL.iter().position(|one| *one == cause)?;
        self.counts.get_mut(at)
    }
}

/// The elections since the start of this server.
#[derive(Debug, Default)]
pub struct Elections(Mutex<Known>);

impl Elections {
    /// This server will stand for this cause. Without an intention the cause of an election is that there is no primary.
    pub fn intend(&self, cause: Cause) {
        let mut known = self.0.lock();
        // A primary that gets a request to hand over does so because of it.
        let is_asked = |(asked, at): &(Cause, Instant)| {
            cause == Cause::HandedOver
                && matches!(asked, Cause::StepUp | Cause::Priority)
                && at.elapsed() < INTENTION_MAX
        };
        if !known.intention.as_ref().is_some_and(is_asked) {
            known.intention = Some((cause, Instant::now()));
        }
    }

    /// This server does not stand for an earlier intention.
    pub fn forget_intention(&self) {
        self.0.lock().intention = None;
    }

    /// This server stands in a term. Returns the cause, unless the term is known.
    pub fn stands(&self, term: u64) -> Option<Cause> {
        let mut known = self.0.lock();
        if known.stood.is_some_and(|(last, _)| last >= term) {
            return None;
        }
        let intention = known.intention.take();
        let intention = intention.filter(|(_, at)| at.elapsed() < INTENTION_MAX);
        let cause = intention.map_or(Cause::Timeout, |(cause, _)| cause);
        known.stood = Some((term, cause));
        if let Some(count) = known.count(cause) {
            count.stood += 1;
        }
        Some(cause)
    }

    /// This server has won the election of a term. Returns the cause.
    pub fn won(&self, term: u64) -> Cause {
        self.stands(term);
        let mut known = self.0.lock();
        let cause = known.stood.map_or(Cause::Timeout, |(_, cause)| cause);
        if known.won != Some(term) {
            known.won = Some(term);
            if let Some(count) = known.count(cause) {
                count.won += 1;
            }
        }
        cause
    }

    /// The cause of the last election that this server stood for.
    pub fn last_cause(&self) -> Option<Cause> {
        self.0.lock().stood.map(|(_, cause)| cause)
    }

    /// This primary of a term hands over.
    pub fn hands_over(&self, term: u64) {
        self.0.lock().handed_over = Some(term);
    }

    /// This primary of a term accepts no more writes, and knows `newest` as the newest term.
    pub fn lost(&self, term: u64, newest: u64) -> Loss {
        let mut known = self.0.lock();
        if known.handed_over.take() == Some(term) {
            Loss::HandsOver
        } else if newest > term {
            known.stepped_down_for_higher_term += 1;
            Loss::HigherTerm
        } else {
            Loss::NoMajority
        }
    }

    /// The section `electionMetrics` of `serverStatus`. A new primary here has everything when it is elected, so it never catches up.
    pub fn to_doc(&self) -> DocBuf {
        let known = self.0.lock();
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let [timeout, step_up, priority, handed_over, only_voter] = known.counts;
        let both = |counts: &[Count]| {
            doc! {
                "called": whole(counts.iter().map(|count| count.stood).sum()),
                "successful": whole(counts.iter().map(|count| count.won).sum()),
            }
        };
        let mut section = doc! {
            "stepUpCmd": &both(&[step_up, handed_over]),
            "priorityTakeover": &both(&[priority]),
            "catchUpTakeover": &both(&[]),
            "electionTimeout": &both(&[timeout]),
            "freezeTimeout": &both(&[only_voter]),
            "numStepDownsCausedByHigherTerm": whole(known.stepped_down_for_higher_term),
        };
        for name in [
            "numCatchUps",
            "numCatchUpsSucceeded",
            "numCatchUpsAlreadyCaughtUp",
            "numCatchUpsSkipped",
            "numCatchUpsTimedOut",
            "numCatchUpsFailedWithError",
            "numCatchUpsFailedWithNewTerm",
            "numCatchUpsFailedWithReplSetAbortPrimaryCatchUpCmd",
        ] {
            section.push(name, 0i64);
        }
        section.push("averageCatchUpOps", 0.0);
        section
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn counts(elections: &Elections, name: &str) -> (i64, i64) {
        let section = elections.to_doc();
        let section = section.get_doc(name).unwrap();
        (
            section.get_i64("called").unwrap(),
            section.get_i64("successful").unwrap(),
        )
    }

    #[test]
    fn an_election_has_the_cause_that_was_intended() {
        let elections = Elections::default();
        assert_eq!(elections.last_cause(), None);
        assert_eq!(elections.stands(3), Some(Cause::Timeout));
        assert_eq!(elections.stands(3), None, "a term counts once");
        elections.intend(Cause::Priority);
        assert_eq!(elections.stands(4), Some(Cause::Priority));
        assert_eq!(elections.won(4), Cause::Priority);
        assert_eq!(elections.won(4), Cause::Priority);
        assert_eq!(elections.stands(5), Some(Cause::Timeout));
        assert_eq!(counts(&elections, "electionTimeout"), (2, 0));
        assert_eq!(counts(&elections, "priorityTakeover"), (1, 1));
        // An election may be won before it is noticed that the server stands.
        elections.intend(Cause::OnlyVoter);
        assert_eq!(elections.won(6), Cause::OnlyVoter);
        assert_eq!(counts(&elections, "freezeTimeout"), (1, 1));
    }

    #[test]
    fn a_primary_that_was_asked_is_no_reason_of_its_own() {
        let elections = Elections::default();
        elections.intend(Cause::StepUp);
        elections.intend(Cause::HandedOver);
        assert_eq!(elections.won(2), Cause::StepUp);
        elections.intend(Cause::HandedOver);
        assert_eq!(elections.won(3), Cause::HandedOver);
        assert_eq!(counts(&elections, "stepUpCmd"), (2, 2));
        elections.intend(Cause::Priority);
        elections.forget_intention();
        assert_eq!(elections.stands(4), Some(Cause::Timeout));
    }

    #[test]
    fn losses_have_reasons() {
        let elections = Elections::default();
        elections.hands_over(2);
        assert_eq!(elections.lost(2, 3), Loss::HandsOver);
        assert_eq!(elections.lost(3, 3), Loss::NoMajority);
        assert_eq!(elections.lost(3, 4), Loss::HigherTerm);
        elections.hands_over(5);
        assert_eq!(elections.lost(6, 7), Loss::HigherTerm);
        let section = elections.to_doc();
        assert_eq!(section.get_i64("numStepDownsCausedByHigherTerm"), Some(2));
    }
}
