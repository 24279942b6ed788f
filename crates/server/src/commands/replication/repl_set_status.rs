//! `replSetGetStatus`, and the commands that would make another member the primary: `replSetStepDown`, `replSetFreeze` and
//! `replSetMaintenance`.

use std::time::Duration;

use frond_bson::{DocBuf, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::{
    CandidateMetrics, InitialSync, MemberStatus, OpTimes, SelfStatus, SetConfig, State, Status,
    no_successor,
};

use super::repl_set_config::replica_set;
use crate::arguments::whole;
use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::background;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use crate::replication::{Cause, Heard, Member, Replication, member_id, refusal};
use crate::state::Server;
use frond_runtime::{AdmissionClass, Work};

pub struct ReplSetGetStatus;

const REPL_SET_GET_STATUS: Spec = Spec {
    names: &["replSetGetStatus"],
    doc: "Shows the state of the replica set.",
    fields: &["initialSync"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetGetStatus {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_GET_STATUS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetGetStatus))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        let member = set.initiated()?;
        // As in MongoDB, unless the request declines.
        let shows_copy = cx.args().i64("initialSync")?.is_none_or(|asked| asked != 0);
        Ok(status(cx.server, set, &member, shows_copy))
    }
}

/// The status of the set, as this member knows it.
fn status(server: &Server, set: &Replication, member: &Member, shows_copy: bool) -> DocBuf {
    let (last, durable) = (set.last_write(), set.durable());
    let applied = member.position(last);
    let config = &member.config;
    let timeout =
        Duration::from_secs(u64::try_from(config.settings.heartbeat_timeout_secs).unwrap_or(0));
    let election = member
        .election
        .map(|election| (election.time, election.date_ms));
    let config_id = |config: &SetConfig| (config.version, config.term.unwrap_or(-1));
    let source = member.primary.filter(|_| !member.is_primary());
    let heard: Vec<(i32, Heard)> = (config.members.iter())
        .filter(|other| Some(other.id) != member.own)
        .map(|other| (other.id, set.heartbeats.heard(other.id)))
        .collect();
    let others = heard.iter().map(|(id, heard)| {
        let report = heard.report.as_ref();
        let position = |time: Option<Timestamp>| member.position(time.unwrap_or_default());
        let durable = position(report.map(|report| report.durable));
        let applied = position(report.map(|report| report.applied));
        MemberStatus {
            id: *id,
            state: heard.state(timeout),
            applied,
            sync_source: report.and_then(|report| report.source),
            elected: report.and_then(|report| report.election),
            config: report.and_then(|report| report.config),
            heard: Some(frond_replset::Heard {
                uptime_secs: heard.up_since.map_or(0, |since| since.elapsed().as_secs()),
                last_heartbeat_ms: heard.answered_ms,
                last_received_ms: heard.asked_ms,
                ping_ms: heard
                    .ping
                    .and_then(|ping| i64::try_from(ping.as_millis()).ok()),
                message: &heard.error,
                durable,
                written: applied,
            }),
        }
    });
    let own = member.own.map(|id| MemberStatus {
        id,
        state: member.state,
        applied,
        sync_source: source,
        elected: election,
        config: Some(config_id(config)),
        heard: None,
    });
    let members: Vec<MemberStatus<'_>> = own.into_iter().chain(others).collect();
    let committed = member.position(durable);
    let copy = server.set.resync.lock().clone();
    let initial_sync = copy.filter(|_| shows_copy).map(|copy| {
        let progress = copy.progress();
        InitialSync {
            failed_attempts: i32::try_from(progress.failed_attempts).unwrap_or(i32::MAX),
            start_ms: progress.attempt_began_ms,
            elapsed_ms: now_ms().saturating_sub(progress.began_ms),
            total_bytes: progress.copied.total.unwrap_or(0),
            copied_bytes: progress.copied.bytes,
        }
    });
    Status {
        config,
        own: member.own,
        state: member.state,
        now_ms: now_ms(),
        term: member.term,
        sync_source: source,
        optimes: OpTimes {
            committed,
            read_majority: committed.op,
            applied,
            durable: committed,
            written: applied,
        },
        stable_recovery: durable,
        candidate: member.election.map(|election| CandidateMetrics {
            reason: (set.consensus())
                .and_then(|consensus| consensus.elections().last_cause())
                .map_or("electionTimeout", Cause::name),
            date_ms: election.date_ms,
            term: member.term,
            committed: committed.op,
            last_seen: applied.op,
            votes_needed: config.majority(),
            priority: member.configured().map_or(1.0, |own| own.priority),
            timeout_ms: i64::from(config.settings.election_timeout_ms),
            prior_primary: None,
            term_start_ms: Some(election.date_ms),
            majority_write_ms: Some(election.date_ms),
        }),
        participant: None,
        initial_sync,
        about_self: SelfStatus {
            uptime_secs: server.instance.started.elapsed().as_secs(),
            info: "",
        },
        members: &members,
    }
    .to_doc()
}

pub struct ReplSetStepDown;

const REPL_SET_STEP_DOWN: Spec = Spec {
    names: &["replSetStepDown"],
    audits: Audited::Itself,
    doc: "Makes another member the primary.",
    fields: &["secondaryCatchUpPeriodSecs", "force"],
    // It waits for another member.
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetStepDown {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_STEP_DOWN
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetStateChange))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        replica_set(cx.server)?.initiated()?;
        let seconds = cx.body.first().map_or(Value::Null, |(_, value)| value);
        let seconds = if seconds.is_number() {
            whole(&seconds)
        } else {
            60
        };
        let catch_up = cx.args().i64("secondaryCatchUpPeriodSecs")?.unwrap_or(0);
        if seconds < 0 {
            return Err(Error::bad_value(
                "stepdown period must be a positive integer",
            ));
        }
        if catch_up < 0 {
            return Err(Error::bad_value(
                "secondaryCatchUpPeriodSecs period must be a positive or absent",
            ));
        }
        if catch_up > seconds {
            return Err(Error::bad_value(
                "stepdown period must be longer than secondaryCatchUpPeriodSecs",
            ));
        }
        let force = cx.args().flag("force")?.unwrap_or(false);
        let catch_up = match catch_up {
            0 if !force && !cx.body.contains_key("secondaryCatchUpPeriodSecs") => {
                CATCH_UP_SECS.min(seconds)
            }
            given => given,
        };
        step_down(
            cx.server,
            seconds.unsigned_abs(),
            catch_up.unsigned_abs(),
            force,
        )?;
        Ok(DocBuf::new())
    }
}

/// The wait for a secondary to catch up, if the request names none.
const CATCH_UP_SECS: i64 = 10;

/// The wait for a secondary to catch up when the primary is shut down.
const SHUTDOWN_CATCH_UP_SECS: u64 = 2;

/// Gives the leadership away before the server ends, so that the others need not miss it first. It ends also if there is no successor.
pub fn hand_over(server: &Server) {
    let leads = server
        .set
        .consensus()
        .is_some_and(|consensus| consensus.is_leading());
    if leads {
        let _ = step_down(server, 1, SHUTDOWN_CATCH_UP_SECS, false);
    }
}

/// Gives the leadership to the best secondary, and does not stand for election for a time.
fn step_down(server: &Server, seconds: u64, catch_up: u64, force: bool) -> Result<()> {
    let set = replica_set(server)?;
    let member = set.initiated()?;
    let Some(consensus) = set.consensus().filter(|_| member.is_primary()) else {
        return Err(Error::new(
            ErrorCode::NotWritablePrimary,
            "not primary so can't step down",
        ));
    };
    let stores = consensus.role().members.peers;
    let followers = consensus.followers();
    let others = background::standings(server, &member);
    let candidates = member.config.members.iter().filter_map(|other| {
        let is_up = others
            .iter()
            .any(|standing| standing.id == other.id && standing.state == State::Secondary);
        let store = (stores.iter()).find(|(_, peer)| member_id(peer) == Some(other.id));
        let store = store.map(|(store, _)| *store)?;
        let matched = followers.iter().find(|follower| follower.id == store);
        let is_fit = is_up && Some(other.id) != member.own && other.is_electable();
        is_fit.then(|| (other.priority, matched.and_then(|one| one.matched), store))
    });
    // The one of the highest priority, and of equal ones the one that has most.
    let best = candidates.max_by(|a, b| (a.0.total_cmp(&b.0)).then(a.1.cmp(&b.1)));
    let refused = || no_successor(&crate::observability::log::iso_ms(now_ms()));
    let Some((_, _, store)) = best else {
        return Err(if member.config.members.len() == 1 {
            Error::new(
                ErrorCode::ExceededTimeLimit,
                "No electable secondaries caught up: this server is the only member of the replica set and \
                 stays its primary, also with force: true",
            )
        } else {
            refused()
        });
    };
    let to = consensus.member().clone();
    let wait = Duration::from_secs(catch_up);
    let transferred =
        consensus.wait_for(async move { to.transfer(Some(store), wait, force).await })?;
    match transferred {
        Ok(()) => {
            set.freeze(Duration::from_secs(seconds));
            Ok(())
        }
        Err(frond_replica::Error::TimedOut) => Err(refused()),
        Err(error) => Err(refusal(&error)),
    }
}

pub struct ReplSetFreeze;

const REPL_SET_FREEZE: Spec = Spec {
    names: &["replSetFreeze"],
    audits: Audited::Itself,
    doc: "Keeps a secondary from standing for election for a time.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetFreeze {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_FREEZE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetStateChange))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        let member = set.initiated()?;
        let seconds = match cx.body.first() {
            Some((_, value)) if value.is_number() => whole(&value),
            _ => {
                return Err(Error::new(
                    ErrorCode::TypeMismatch,
                    "replSetFreeze needs a number of seconds",
                ));
            }
        };
        if seconds == 0 {
            set.freeze(Duration::ZERO);
            return Ok(doc! {"info": "unfreezing"});
        }
        if member.is_primary() {
            return Err(Error::new(
                ErrorCode::NotSecondary,
                "cannot freeze node when primary or running for election. state: Primary",
            ));
        }
        let seconds = u64::try_from(seconds).map_err(|_| {
            Error::bad_value("replSetFreeze needs a number of seconds that is not negative")
        })?;
        set.freeze(Duration::from_secs(seconds));
        Ok(DocBuf::new())
    }
}

pub struct ReplSetMaintenance;

const REPL_SET_MAINTENANCE: Spec = Spec {
    names: &["replSetMaintenance"],
    audits: Audited::Itself,
    doc: "Keeps reads away from a secondary, or serves them again.",
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetMaintenance {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_MAINTENANCE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetStateChange))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        set.initiated()?;
        let on = cx.body.first().is_some_and(|(_, value)| value.truthy());
        set.set_maintenance(on)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_only_member_is_the_primary() {
        let mut server = TestServer::member("rs0");
        for name in [
            "replSetGetStatus",
            "replSetStepDown",
            "replSetFreeze",
            "replSetMaintenance",
        ] {
            assert_eq!(server.code("admin", doc! {name: 1}), 94, "{name}");
        }
        server.run("admin", doc! {"replSetInitiate": {}});
        let status = server.run("admin", doc! {"replSetGetStatus": 1});
        assert_eq!(
            (status.get_str("set"), status.get_i32("myState")),
            (Some("rs0"), Some(1))
        );
        let member = status.get_array("members").unwrap().get_doc("0").unwrap();
        assert_eq!(member.get_str("stateStr"), Some("PRIMARY"));
        assert_eq!(member.get_str("name"), Some("127.0.0.1:27017"));
        for (command, code) in [
            (doc! {"replSetStepDown": 10}, 262),
            (doc! {"replSetStepDown": 10, "force": true}, 262),
            (doc! {"replSetStepDown": -1}, 2),
            (
                doc! {"replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 2},
                2,
            ),
            (doc! {"replSetFreeze": 5}, 95),
            (doc! {"replSetFreeze": "x"}, 14),
            (doc! {"replSetMaintenance": true}, 95),
        ] {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
        server.run("admin", doc! {"replSetFreeze": 0});
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_standalone_server_has_no_status() {
        let mut server = TestServer::new();
        for name in [
            "replSetGetStatus",
            "replSetStepDown",
            "replSetFreeze",
            "replSetMaintenance",
        ] {
            assert_eq!(server.code("admin", doc! {name: 1}), 76, "{name}");
        }
    }
}
