//! Heartbeats: each member requests the state of the others at intervals. Consensus has messages of its own; these are for the status of
//! the set, for the choice of a successor, and to find the stores of new members.

use std::future::Future;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use frond_bson::{Doc, doc};
use frond_replset::{Member as Configured, State};

use super::CONTEXT;
use crate::host::clock::now_ms;
use crate::observability::log::{Component, Severity};
use crate::peers::{Kind, Peers};
use crate::replication::{Replication, Report};
use crate::state::Server;

/// The limit of a heartbeat. MongoDB's is 10 seconds; an answer that comes so late is of no use.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The interval while this server has no configuration.
const IDLE: Duration = Duration::from_secs(1);

/// The report of this server.
pub fn own_report(server: &Server) -> Report {
    let Some((set, consensus)) =
        (server.set.replication.as_ref()).and_then(|set| Some((set, set.consensus()?)))
    else {
        return Report::default();
    };
    let mut report = Report {
        store: consensus.id(),
        set: set.name.clone(),
        state: State::Startup.number(),
        applied: set.last_write(),
        durable: set.durable(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_ms: now_ms(),
        is_delayed: consensus.delay_secs().is_some(),
        ..Report::default()
    };
    if server.set.is_copying() {
        report.state = State::Startup2.number();
    }
    if let Some(member) = set.member() {
        report.id = member.own;
        report.host = member.configured().map(|own| own.host.clone());
        report.state = member.state.number();
        report.term = member.term;
        report.config = Some((member.config.version, member.config.term.unwrap_or(-1)));
        report.source = member.primary.filter(|_| !member.is_primary());
        report.election = member
            .election
            .map(|election| (election.time, election.date_ms));
    }
    report
}

/// Asks a host how it is. Returns its report, and how long the answer took.
pub fn heartbeat(
    network: &Peers,
    host: &str,
    report: Report,
) -> impl Future<Output = io::Result<(Report, Duration)>> + Send + 'static {
    let began = Instant::now();
    let body = report.to_doc().as_bytes().to_vec();
    let answer = network.request(host, Kind::Heartbeat, body, ANSWER_WAIT);
    async move {
        let answer = answer.await?;
        let report = Doc::validate(&answer).ok().and_then(Report::parse);
        let report = report.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer to a heartbeat is no report",
            )
        })?;
        Ok((report, began.elapsed()))
    }
}

/// Asks the other members at intervals until the server is dropped.
pub async fn send_heartbeats(server: Weak<Server>) {
    loop {
        let Some(owned) = server.upgrade() else {
            return;
        };
        let interval = send_round(&owned);
        let mut topology = (owned.set.replication.as_ref()).map(|set| set.topology());
        drop(owned);
        let changed = async {
            match &mut topology {
                Some(topology) => drop(topology.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            // New members get a heartbeat at once.
            () = changed => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Asks each member once. Returns the time until the next round.
fn send_round(server: &Arc<Server>) -> Duration {
    let Some((set, network)) = (server.set.replication.as_ref()).zip(server.set.network.as_ref())
    else {
        return IDLE;
    };
    let Some(member) = set.member() else {
        return IDLE;
    };
    let others = member
        .config
        .members
        .iter()
        .filter(|other| Some(other.id) != member.own);
    for other in others {
        let answer = heartbeat(network, &other.host, own_report(server));
        tokio::spawn(note_answer(Arc::downgrade(server), other.clone(), answer));
    }
    set.heartbeats.keep(|id| member.config.member(id).is_some());
    let millis = u64::try_from(member.config.settings.heartbeat_interval_ms).unwrap_or(0);
    Duration::from_millis(millis.max(10))
}

/// Logs that a member is reachable again, or not any more, or has another state.
fn log_state(server: &Server, set: &Replication, of: &Configured) {
    let Some(member) = set.member() else {
        return;
    };
    let seconds = member.config.settings.heartbeat_timeout_secs;
    let timeout = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let Some((state, error)) = set.heartbeats.changed(of.id, timeout) else {
        return;
    };
    let mut attributes = doc! {"hostAndPort": &*of.host, "newState": state.name()};
    if !error.is_empty() {
        attributes.push("error", &*error);
    }
    let is_lost = matches!(state, State::Down | State::Unknown);
    server.log.line(
        if is_lost {
            Severity::Warning
        } else {
            Severity::Info
        },
        Component::Replication,
        21_215,
        CONTEXT,
        "Member is in new state",
        &attributes,
    );
}

async fn note_answer(
    server: Weak<Server>,
    of: Configured,
    answer: impl Future<Output = io::Result<(Report, Duration)>>,
) {
    let answer = answer.await;
    let Some(server) = server.upgrade() else {
        return;
    };
    let Some(set) = &server.set.replication else {
        return;
    };
    match answer {
        Ok((mut report, took)) => {
            let (removes, config) = (report.removes, report.config);
            if let Some(newer) = report.newer.take() {
                set.hear_config(&newer);
            }
            set.heartbeats.answered(of.id, report, took);
            if removes {
                set.note_removal(config);
            }
        }
        Err(error) => set.heartbeats.failed(of.id, error.to_string()),
    }
    log_state(&server, set, &of);
    server.set.stirred.notify_waiters();
}
