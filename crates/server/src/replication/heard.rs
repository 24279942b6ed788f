//! The other members, as this server knows them by heartbeats.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_replset::State;
use parking_lot::Mutex;

use crate::host::clock::now_ms;

/// A heartbeat, or the answer to one: the part of a member, as it sees itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The number of its store in consensus.
    pub store: u64,
    pub set: String,
    /// Its `_id`, if its configuration has it.
    pub id: Option<i32>,
    /// Its host in its configuration.
    pub host: Option<String>,
    /// The number of its state.
    pub state: i32,
    pub term: i64,
    pub applied: Timestamp,
    pub durable: Timestamp,
    /// The version and the term of its configuration.
    pub config: Option<(i32, i64)>,
    /// The `_id` of the member that it receives the log from.
    pub source: Option<i32>,
    /// Its election, while it is the primary: the cluster time, and the date.
    pub election: Option<(Timestamp, i64)>,
    pub version: String,
    /// Its clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether its configuration, which is newer, does not have the member that it answers.
    pub removes: bool,
    /// Whether it applies writes late.
    pub is_delayed: bool,
    /// The configuration of a primary, if the member that it answers has another one.
    pub newer: Option<DocBuf>,
}

impl Report {
    pub fn to_doc(&self) -> DocBuf {
        let mut report = doc! {
            "store": i64::try_from(self.store).unwrap_or(i64::MAX),
            "set": &*self.set,
            "state": self.state,
            "term": self.term,
            "applied": self.applied,
            "durable": self.durable,
            "version": &*self.version,
            "now": Value::DateTime(self.now_ms),
        };
        if let Some(id) = self.id {
            report.push("id", id);
        }
        if let Some(host) = &self.host {
            report.push("host", &**host);
        }
        if self.removes {
            report.push("removes", true);
        }
        if self.is_delayed {
            report.push("delayed", true);
        }
        if let Some(newer) = &self.newer {
            report.push("newer", newer);
        }
        if let Some((version, term)) = self.config {
            report.push("config", &doc! {"version": version, "term": term});
        }
        if let Some(source) = self.source {
            report.push("source", source);
        }
        if let Some((time, ms)) = self.election {
            report.push(
                "election",
                &doc! {"time": time, "date": Value::DateTime(ms)},
            );
        }
        report
    }

    /// Reads one. Unknown fields are of a newer version.
    pub fn parse(doc: &Doc) -> Option<Report> {
        let time = |doc: &Doc, name: &str| match doc.get(name) {
            Some(Value::Timestamp(time)) => time,
            _ => Timestamp::default(),
        };
        let date = |doc: &Doc, name: &str| match doc.get(name) {
            Some(Value::DateTime(ms)) => ms,
            _ => 0,
        };
        let config = doc
            .get_doc("config")
            .and_then(|config| Some((config.get_i32("version")?, config.get_i64("term")?)));
        Some(Report {
            store: u64::try_from(doc.get_i64("store")?).ok()?,
            set: doc.get_str("set")?.to_owned(),
            id: doc.get_i32("id"),
            host: doc.get_str("host").map(str::to_owned),
            state: doc.get_i32("state")?,
            term: doc.get_i64("term")?,
            applied: time(doc, "applied"),
            durable: time(doc, "durable"),
            config,
            source: doc.get_i32("source"),
            election: (doc.get_doc("election"))
                .map(|election| (time(election, "time"), date(election, "date"))),
            version: doc.get_str("version").unwrap_or_default().to_owned(),
            now_ms: date(doc, "now"),
            removes: doc.get_bool("removes").unwrap_or(false),
            is_delayed: doc.get_bool("delayed").unwrap_or(false),
            newer: doc.get_doc("newer").map(Doc::to_owned),
        })
    }
}

/// Another member, with the times of its last answer and of its last request.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub report: Option<Report>,
    /// Since when it has answered without a break.
    pub up_since: Option<Instant>,
    pub answered: Option<Instant>,
    pub answered_ms: Option<i64>,
    pub asked_ms: Option<i64>,
    /// The mean time of an answer.
    pub ping: Option<Duration>,
    /// The error of the last heartbeat, or an empty text.
    pub error: String,
    /// The state that [`Heartbeats::changed`] has returned last.
    noted: Option<State>,
}

impl Heard {
    /// Its state: that of its last report, if it has answered within `timeout`.
    pub fn state(&self, timeout: Duration) -> State {
        match (&self.report, self.answered) {
            (Some(report), Some(at)) if at.elapsed() < timeout => State::of_number(report.state),
            (None, _) if self.error.is_empty() => State::Unknown,
            _ => State::Down,
        }
    }
}

/// The other members, by their `_id`.
#[derive(Debug, Default)]
pub struct Heartbeats {
    members: Mutex<HashMap<i32, Heard>>,
    /// The stores whose members have sent heartbeats to this server. A member without a configuration finds the others by them.
    askers: Mutex<HashMap<u64, Asker>>,
}

/// The last heartbeat that this server was sent by a member.
#[derive(Debug)]
struct Asker {
    host: String,
    asked: Instant,
    state: State,
    applied: Timestamp,
    is_delayed: bool,
}

/// Stores that are remembered: those of a set and of members that were replaced.
const ASKERS_MAX: usize = 256;

/// A member whose last heartbeat is older is not copied.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// A secondary is copied if it has about all that the primary has: it must have what the primary has dropped from its log.
const BEHIND_MAX_SECS: u32 = 10;

impl Heartbeats {
    /// A member has answered after this time.
    pub fn answered(&self, id: i32, report: Report, took: Duration) {
        let mut members = self.members.lock();
        let heard = members.entry(id).or_default();
        let now = Instant::now();
        heard.up_since.get_or_insert(now);
        heard.answered = Some(now);
        heard.answered_ms = Some(now_ms());
        heard.ping = Some(heard.ping.map_or(took, |mean| (mean * 4 + took) / 5));
        heard.report = Some(report);
        heard.error.clear();
    }

    /// A member has not answered.
    pub fn failed(&self, id: i32, error: String) {
        let mut members = self.members.lock();
        let heard = members.entry(id).or_default();
        heard.up_since = None;
        heard.answered = None;
        heard.error = error;
    }

    /// The hosts of members to copy, the best ones first: secondaries that are up to date, then the primary, whose store has the number
    /// `primary`. Only of members that have sent heartbeats to this server.
    pub fn sources(&self, primary: u64) -> Vec<String> {
        let askers = self.askers.lock();
        let newest = askers.values().map(|asker| asker.applied.time).max();
        let is_fit = |asker: &Asker| {
            asker.state == State::Secondary
                && !asker.is_delayed
                && asker.asked.elapsed() < ASKED_WITHIN
                && newest <= Some(asker.applied.time.saturating_add(BEHIND_MAX_SECS))
        };
        let mut found: Vec<_> = (askers.iter())
            .filter(|(store, asker)| **store != primary && is_fit(asker))
            .collect();
        found.sort_by_key(|(store, _)| **store);
        let primary = askers.get(&primary);
        let hosts = found.into_iter().map(|(_, asker)| asker).chain(primary);
        hosts.map(|asker| asker.host.clone()).collect()
    }

    /// Notes a heartbeat of a member.
    pub fn was_asked_by(&self, id: i32, report: Report) {
        if let Some(host) = &report.host {
            let mut askers = self.askers.lock();
            if askers.len() >= ASKERS_MAX {
                askers.clear();
            }
            let asker = Asker {
                host: host.clone(),
                asked: Instant::now(),
                state: State::of_number(report.state),
                applied: report.applied,
                is_delayed: report.is_delayed,
            };
            askers.insert(report.store, asker);
        }
        let mut members = self.members.lock();
        let heard = members.entry(id).or_default();
        heard.asked_ms = Some(now_ms());
        if heard.answered.is_some() {
            heard.report = Some(report);
        }
    }

    /// The state of a member, if it is another one than at the last call, and the error of the last heartbeat.
    pub fn changed(&self, id: i32, timeout: Duration) -> Option<(State, String)> {
        let mut members = self.members.lock();
        let heard = members.get_mut(&id)?;
        let state = heard.state(timeout);
        let is_other = heard.noted != Some(state);
        heard.noted = Some(state);
        is_other.then(|| (state, heard.error.clone()))
    }

    pub fn heard(&self, id: i32) -> Heard {
        self.members.lock().get(&id).cloned().unwrap_or_default()
    }

    /// Forgets those that are not members any more.
    pub fn keep(&self, is_member: impl Fn(i32) -> bool) {
        self.members.lock().retain(|id, _| is_member(*id));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let at = |time| Timestamp { time, increment: 1 };
        let full = Report {
            store: 77,
            set: "rs0".to_owned(),
            id: Some(2),
            host: Some("a:1".to_owned()),
            state: 1,
            term: 5,
            applied: at(9),
            durable: at(8),
            config: Some((3, 5)),
            source: Some(0),
            election: Some((at(4), 4000)),
            version: "1.0".to_owned(),
            now_ms: 12_345,
            removes: true,
            is_delayed: true,
            newer: Some(doc! {"_id": "rs0", "version": 4}),
        };
        assert_eq!(Report::parse(&full.to_doc()), Some(full.clone()));
        let empty = Report {
            set: "rs0".to_owned(),
            ..Report::default()
        };
        assert_eq!(Report::parse(&empty.to_doc()), Some(empty));
        assert_eq!(Report::parse(&doc! {"set": "rs0"}), None);
    }

    #[test]
    fn a_member_that_does_not_answer_is_down() {
        let beats = Heartbeats::default();
        let long = Duration::from_secs(1000);
        assert_eq!(beats.heard(1).state(long), State::Unknown);
        let report = Report {
            state: State::Secondary.number(),
            ..Report::default()
        };
        beats.answered(1, report, Duration::from_millis(5));
        assert_eq!(beats.heard(1).state(long), State::Secondary);
        assert_eq!(beats.heard(1).state(Duration::ZERO), State::Down);
        assert_eq!(
            beats.changed(1, long),
            Some((State::Secondary, String::new()))
        );
        assert_eq!(beats.changed(1, long), None);
        beats.failed(1, "refused".to_owned());
        assert_eq!(beats.heard(1).state(long), State::Down);
        let refused = Some((State::Down, "refused".to_owned()));
        assert_eq!(beats.changed(1, long), refused);
        assert_eq!(beats.changed(2, long), None, "nothing was heard of it");
        beats.keep(|_| false);
        assert_eq!(beats.heard(1).state(long), State::Unknown);
    }

    #[test]
    fn a_secondary_that_is_up_to_date_is_copied_before_the_primary() {
        let beats = Heartbeats::default();
        assert_eq!(beats.sources(1), Vec::<String>::new());
        let ask = |store: u64, state: State, time: u32, is_delayed: bool| {
            let report = Report {
                store,
                host: Some(format!("m{store}:1")),
                state: state.number(),
                applied: Timestamp { time, increment: 1 },
                is_delayed,
                ..Report::default()
            };
            beats.was_asked_by(i32::try_from(store).unwrap(), report);
        };
        ask(1, State::Primary, 1000, false);
        assert_eq!(beats.sources(1), ["m1:1"]);
        ask(2, State::Secondary, 900, false);
        ask(3, State::Secondary, 1000, true);
        ask(4, State::Recovering, 1000, false);
        assert_eq!(beats.sources(1), ["m1:1"], "the others lack something");
        ask(6, State::Secondary, 999, false);
        ask(5, State::Secondary, 991, false);
        assert_eq!(beats.sources(1), ["m5:1", "m6:1", "m1:1"]);
        assert_eq!(
            beats.sources(7),
            ["m5:1", "m6:1"],
            "the primary has not asked"
        );
    }
}
