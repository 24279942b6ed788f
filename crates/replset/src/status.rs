//! The reply of `replSetGetStatus`.

use frond_bson::{DocBuf, Timestamp, Value, doc};

use crate::config::SetConfig;
use crate::position::{OpTime, Position};
use crate::state::State;

#[cfg(test)]
mod tests;

/// Positions that the member has.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpTimes {
    /// The last operation that a majority has.
    pub committed: Position,
    /// The one that reads with `majority` see.
    pub read_majority: OpTime,
    /// The last one in its trees.
    pub applied: Position,
    /// The last one that survives a crash of the machine.
    pub durable: Position,
    /// The last one in its log.
    pub written: Position,
}

/// The election that this primary won.
#[derive(Clone, Copy, Debug)]
pub struct CandidateMetrics<'a> {
    /// MongoDB's names: `electionTimeout`, `priorityTakeover`, `stepUpRequest`, `catchupTakeover` and so on.
    pub reason: &'a str,
    /// When it stood, in milliseconds since 1970, as all dates here.
    pub date_ms: i64,
    /// The term that the election began.
    pub term: i64,
    /// The last operation that a majority had.
    pub committed: OpTime,
    /// The last one that it had.
    pub last_seen: OpTime,
    /// Votes of a majority.
    pub votes_needed: usize,
    /// Its priority in the configuration at that time.
    pub priority: f64,
    /// The setting `electionTimeoutMillis` at that time.
    pub timeout_ms: i64,
    /// The `_id` of the primary before it.
    pub prior_primary: Option<i32>,
    /// When it wrote the first operation of its term.
    pub term_start_ms: Option<i64>,
    /// When a majority had that one.
    pub majority_write_ms: Option<i64>,
}

/// The vote that this member gave last.
#[derive(Clone, Copy, Debug)]
pub struct ParticipantMetrics<'a> {
    /// Whether it was a yes.
    pub voted_for_candidate: bool,
    /// The term of the election.
    pub term: i64,
    /// The date of its answer, in milliseconds since 1970.
    pub date_ms: i64,
    /// The `_id` of the candidate.
    pub candidate: i32,
    /// Why it was a no.
    pub reason: &'a str,
    /// The last operation that it had.
    pub last_applied: OpTime,
    /// The last one that it knew of any member.
    pub max_applied: OpTime,
    /// Its priority in the configuration at that time.
    pub priority: f64,
}

/// The copy of another member's data that a new member makes.
#[derive(Clone, Copy, Debug)]
pub struct InitialSync {
    /// The number of attempts that failed before this one.
    pub failed_attempts: i32,
    /// The beginning of this attempt, in milliseconds since 1970.
    pub start_ms: i64,
    /// Milliseconds from the beginning until now.
    pub elapsed_ms: i64,
    /// The size of the data of the source.
    pub total_bytes: u64,
    /// Bytes that it has.
    pub copied_bytes: u64,
}

/// Facts about the member that answers.
#[derive(Clone, Copy, Debug)]
pub struct SelfStatus<'a> {
    /// Seconds since its start.
    pub uptime_secs: u64,
    /// A word on why it cannot serve, for the operator.
    pub info: &'a str,
}

/// Facts about another member, from heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    /// Seconds for which it has answered without a break.
    pub uptime_secs: u64,
    /// When it last answered, if it did.
    pub last_heartbeat_ms: Option<i64>,
    /// When its last heartbeat arrived.
    pub last_received_ms: Option<i64>,
    /// The mean time of an answer.
    pub ping_ms: Option<i64>,
    /// The error of the last heartbeat, or an empty text.
    pub message: &'a str,
    /// The last operation on its disk.
    pub durable: Position,
    /// The last one in its log.
    pub written: Position,
}

/// An entry of the list of members.
#[derive(Clone, Copy, Debug)]
pub struct MemberStatus<'a> {
    pub id: i32,
    /// Its state, down if it does not answer.
    pub state: State,
    /// The last operation that it applied.
    pub applied: Position,
    /// The member that it receives the log from.
    pub sync_source: Option<i32>,
    /// The election that it won, while it is the primary: its time, and the date of that.
    pub elected: Option<(Timestamp, i64)>,
    /// The version and the term of its configuration; none if it has not answered.
    pub config: Option<(i32, i64)>,
    /// None for the member that answers.
    pub heard: Option<Heard<'a>>,
}

/// A set, as one member knows it.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// The configuration that it has.
    pub config: &'a SetConfig,
    /// Its `_id`. None if it was removed.
    pub own: Option<i32>,
    /// Its state, shown as `myState`.
    pub state: State,
    /// The time now, in milliseconds since 1970.
    pub now_ms: i64,
    /// The term that it knows.
    pub term: i64,
    /// The member that it receives the log from.
    pub sync_source: Option<i32>,
    /// Its positions, shown as `optimes`.
    pub optimes: OpTimes,
    /// The operation to which a start after a crash returns without the log.
    pub stable_recovery: Timestamp,
    /// The election that made it the primary, while it is that.
    pub candidate: Option<CandidateMetrics<'a>>,
    /// The last election in which this member voted.
    pub participant: Option<ParticipantMetrics<'a>>,
    /// While it copies data, if the request asks for it.
    pub initial_sync: Option<InitialSync>,
    /// Facts about itself, for its own entry.
    pub about_self: SelfStatus<'a>,
    /// The members that the status lists. Those that the configuration does not have are left out.
    pub members: &'a [MemberStatus<'a>],
}

fn date(ms: i64) -> Value<'static> {
    Value::DateTime(ms)
}

/// A count that drivers read as a 32-bit integer.
fn int(count: impl TryInto<i32>) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

impl Status<'_> {
    /// The reply without `ok` and the times of the cluster.
    pub fn to_doc(&self) -> DocBuf {
        let config = self.config;
        let mut status = doc! {
            "set": &*config.name,
            "date": date(self.now_ms),
            "myState": self.state.number(),
            "term": self.term,
            "syncSourceHost": self.host(self.sync_source),
            "syncSourceId": self.sync_source.unwrap_or(-1),
            "heartbeatIntervalMillis": i64::from(config.settings.heartbeat_interval_ms),
            "majorityVoteCount": int(config.majority()),
            "writeMajorityCount": int(config.majority()),
            "votingMembersCount": int(config.voters()),
            "writableVotingMembersCount": int(config.voters()),
            "optimes": self.optimes.to_doc(),
            "lastStableRecoveryTimestamp": self.stable_recovery,
        };
        if let Some(metrics) = &self.candidate {
            status.push("electionCandidateMetrics", &metrics.to_doc());
        }
        if let Some(metrics) = &self.participant {
            status.push("electionParticipantMetrics", &metrics.to_doc());
        }
        if let Some(progress) = &self.initial_sync {
            status.push("initialSyncStatus", &progress.to_doc());
        }
        status.push_array("members", |list| {
            for member in &config.members {
                if let Some(known) = self.members.iter().find(|known| known.id == member.id) {
                    list.push(&self.member(known, &member.host));
                }
            }
        });
        status
    }

    /// The host of a member, empty for none.
    fn host(&self, id: Option<i32>) -> &str {
        let member = id.and_then(|id| self.config.member(id));
        member.map_or("", |member| &*member.host)
    }

    fn member(&self, known: &MemberStatus<'_>, host: &str) -> DocBuf {
        let is_self = self.own == Some(known.id);
        let is_up = is_self || !matches!(known.state, State::Down | State::Unknown);
        let heard = known.heard.as_ref();
        let uptime = heard.map_or(self.about_self.uptime_secs, |heard| heard.uptime_secs);
        let durable = heard.map_or(self.optimes.durable, |heard| heard.durable);
        let written = heard.map_or(self.optimes.written, |heard| heard.written);
        let optime = known.applied.op.to_doc();
        let mut doc = doc! {
            "_id": known.id,
            "name": host,
            "health": if is_up { 1.0 } else { 0.0 },
            "state": known.state.number(),
            "stateStr": known.state.name(),
            "uptime": int(uptime),
            "optime": &optime,
        };
        if heard.is_some() {
            doc.push("optimeDurable", &durable.op.to_doc());
        }
        // `rs.printSecondaryReplicationInfo()` subtracts these dates.
        doc.push("optimeDate", op_date(known.applied.op));
        if heard.is_some() {
            doc.push("optimeDurableDate", op_date(durable.op));
        }
        doc.push("optimeWritten", &written.op.to_doc());
        doc.push("optimeWrittenDate", op_date(written.op));
        doc.push("lastAppliedWallTime", known.applied.date());
        doc.push("lastDurableWallTime", durable.date());
        doc.push("lastWrittenWallTime", written.date());
        if let Some(heard) = heard {
            for (name, time) in [
                ("lastHeartbeat", heard.last_heartbeat_ms),
                ("lastHeartbeatRecv", heard.last_received_ms),
            ] {
                // As in MongoDB, the epoch if there was none.
                doc.push(name, date(time.unwrap_or(0)));
            }
            if let Some(ping) = heard.ping_ms {
                doc.push("pingMs", ping);
            }
            doc.push("lastHeartbeatMessage", heard.message);
        }
        doc.push("syncSourceHost", self.host(known.sync_source));
        doc.push("syncSourceId", known.sync_source.unwrap_or(-1));
        doc.push(
            "infoMessage",
            if is_self { self.about_self.info } else { "" },
        );
        if let Some((time, ms)) = known.elected {
            doc.push("electionTime", time);
            doc.push("electionDate", date(ms));
        }
        let (version, term) = known.config.unwrap_or((-1, -1));
        doc.push("configVersion", version);
        doc.push("configTerm", int(term));
        if is_self {
            doc.push("self", true);
            doc.push("lastHeartbeatMessage", "");
        }
        doc
    }
}

/// The second of an operation time, as a date.
fn op_date(op: OpTime) -> Value<'static> {
    date(i64::from(op.ts.time) * 1000)
}

impl OpTimes {
    fn to_doc(self) -> DocBuf {
        doc! {
            "lastCommittedOpTime": self.committed.op.to_doc(),
            "lastCommittedWallTime": self.committed.date(),
            "readConcernMajorityOpTime": self.read_majority.to_doc(),
            "appliedOpTime": self.applied.op.to_doc(),
            "durableOpTime": self.durable.op.to_doc(),
            "writtenOpTime": self.written.op.to_doc(),
            "lastAppliedWallTime": self.applied.date(),
            "lastDurableWallTime": self.durable.date(),
            "lastWrittenWallTime": self.written.date(),
        }
    }
}

impl CandidateMetrics<'_> {
    fn to_doc(self) -> DocBuf {
        let mut doc = doc! {
            "lastElectionReason": self.reason,
            "lastElectionDate": date(self.date_ms),
            "electionTerm": self.term,
            "lastCommittedOpTimeAtElection": self.committed.to_doc(),
            "lastSeenOpTimeAtElection": self.last_seen.to_doc(),
            "numVotesNeeded": int(self.votes_needed),
        };
        doc.push("priorityAtElection", self.priority);
        doc.push("electionTimeoutMillis", self.timeout_ms);
        if let Some(id) = self.prior_primary {
            doc.push("priorPrimaryMemberId", id);
        }
        for (name, time) in [
            ("newTermStartDate", self.term_start_ms),
            ("wMajorityWriteAvailabilityDate", self.majority_write_ms),
        ] {
            if let Some(ms) = time {
                doc.push(name, date(ms));
            }
        }
        doc
    }
}

impl ParticipantMetrics<'_> {
    fn to_doc(self) -> DocBuf {
        let mut doc = doc! {
            "votedForCandidate": self.voted_for_candidate,
            "electionTerm": self.term,
            "lastVoteDate": date(self.date_ms),
            "electionCandidateMemberId": self.candidate,
            "voteReason": self.reason,
            "lastAppliedOpTimeAtElection": self.last_applied.to_doc(),
            "maxAppliedOpTimeInSet": self.max_applied.to_doc(),
        };
        doc.push("priorityAtElection", self.priority);
        doc
    }
}

impl InitialSync {
    fn to_doc(self) -> DocBuf {
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let mut doc = doc! {
            "failedInitialSyncAttempts": self.failed_attempts,
            "initialSyncStart": date(self.start_ms),
            "totalInitialSyncElapsedMillis": self.elapsed_ms,
        };
        if let Some(remaining) = self.remaining_ms() {
            doc.push("remainingInitialSyncEstimatedMillis", remaining);
        }
        doc.push("approxTotalDataSize", bytes(self.total_bytes));
        doc.push("approxTotalBytesCopied", bytes(self.copied_bytes));
        doc
    }

    /// The rest at the speed until now; none before the first byte.
    fn remaining_ms(&self) -> Option<i64> {
        let rest = self.total_bytes.saturating_sub(self.copied_bytes);
        let ms = u128::from(self.elapsed_ms.max(0).unsigned_abs()) * u128::from(rest);
        let remaining = ms.checked_div(u128::from(self.copied_bytes))?;
        Some(i64::try_from(remaining).unwrap_or(i64::MAX))
    }
}
