//! The answers of this server to other members.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frond_bson::Doc;
use frond_error::{Error, ErrorCode, Result};
use frond_replset::SetConfig;

use super::heartbeats::{heartbeat, own_report};
use crate::fail_points::SwitchName;
use crate::peers::{Kind, PeerService, Peers};
use crate::replication::{Consensus, Report};
use crate::state::Server;

/// Answers for a server as long as it lives.
pub struct Service(pub Weak<Server>);

impl PeerService for Service {
    fn handle<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        body: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>> {
        Box::pin(async move {
            let Some(server) = self.0.upgrade() else {
                return Vec::new();
            };
            match kind {
                Kind::Entries if refuses_entries(&server, &body) => Vec::new(),
                Kind::Consensus | Kind::Entries => match server.set.consensus() {
                    Some(consensus) => consensus.member().handle(from, &body).await,
                    None => Vec::new(),
                },
                Kind::Heartbeat => answer_heartbeat(&server, &body),
                Kind::Ask => Vec::new(),
            }
        })
    }
}

/// Whether a fail point keeps this member from receiving the entries of a message. It follows its primary all the same: messages
/// without entries are answered.
fn refuses_entries(server: &Server, message: &[u8]) -> bool {
    let points = &server.execution.fail_points;
    points.is_on()
        && frond_replica::brings_entries(message)
        && points.acts(SwitchName::StopReplProducer, "").is_some()
}

/// Notes the report of another member, and answers with the own one.
fn answer_heartbeat(server: &Arc<Server>, body: &[u8]) -> Vec<u8> {
    let asker = Doc::validate(body).ok().and_then(Report::parse);
    let mut own = own_report(server);
    if let (Some(set), Some(asker)) = (&server.set.replication, asker)
        && let Some(id) = asker.id
    {
        let config = set.member().map(|member| member.config.clone());
        own.removes = config.is_some_and(|config| {
            let is_newer = own.config > asker.config;
            is_newer && config.member(id).is_none()
        });
        let member = set.member().filter(|member| member.is_primary());
        own.newer = member
            .filter(|_| asker.config != own.config && !own.removes)
            .map(|member| member.config.to_doc());
        if !own.removes {
            set.heartbeats.was_asked_by(id, asker);
        }
    }
    own.to_doc().as_bytes().to_vec()
}

/// Finds the member of a new set that this server is, and checks that all others answer and are in no set yet.
///
/// # Errors
/// `NodeNotFound` (74) if one does not answer, `NewReplicaSetConfigurationIncompatible` (103) if one has a configuration.
pub fn find_own(server: &Server, config: &SetConfig) -> Result<Option<i32>> {
    if let [only] = &*config.members {
        // Only clients use the host, and it may be one that this server cannot reach.
        return Ok(Some(only.id));
    }
    let Some(consensus) = server.set.consensus() else {
        return Ok(None);
    };
    let Some(network) = &server.set.network else {
        return Ok(None);
    };
    let hosts = config.members.iter().map(|member| &*member.host);
    let answers = ask_all(server, consensus, network, hosts)?;
    let (mut own, mut failures) = (None, Vec::new());
    for (member, answer) in config.members.iter().zip(answers) {
        match answer {
            Ok((report, _)) if report.store == consensus.id() => own = Some(member.id),
            Ok((report, _)) if report.config.is_some() => {
                return Err(Error::new(
                    ErrorCode::NewReplicaSetConfigurationIncompatible,
                    format!(
                        "the member {} belongs to a replica set already",
                        member.host
                    ),
                ));
            }
            Ok(_) => {}
            Err(error) => failures.push(format!("{} failed with {error}", member.host)),
        }
    }
    if failures.is_empty() {
        return Ok(own);
    }
    Err(Error::new(
        ErrorCode::NodeNotFound,
        format!(
            "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: {}",
            failures.join("; ")
        ),
    ))
}

/// Asks hosts at the same time how they are.
fn ask_all<'a>(
    server: &Server,
    consensus: &Consensus,
    network: &Peers,
    hosts: impl Iterator<Item = &'a str>,
) -> Result<Vec<io::Result<(Report, Duration)>>> {
    let asked: Vec<_> = hosts
        .map(|host| heartbeat(network, host, own_report(server)))
        .collect();
    consensus.wait_for(async move {
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(answer.await);
        }
        answers
    })
}

/// Checks that a majority of the voters of a configuration answers: otherwise the set could not go on with it.
///
/// # Errors
/// `NodeNotFound` (74).
pub fn check_quorum(server: &Server, config: &SetConfig) -> Result<()> {
    let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
        return Ok(());
    };
    let Some(network) = &server.set.network else {
        return Ok(());
    };
    let own = set.member().and_then(|member| member.own);
    let others: Vec<_> = config
        .members
        .iter()
        .filter(|other| Some(other.id) != own)
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let hosts = others.iter().map(|other| &*other.host);
    let answers = ask_all(server, consensus, network, hosts)?;
    let (mut answering, mut failures) = (Vec::new(), Vec::new());
    answering.extend(own.and_then(|own| config.member(own)).map(|own| &*own.host));
    for (other, answer) in others.into_iter().zip(answers) {
        match answer {
            Ok(_) if other.is_voter => answering.push(&*other.host),
            Ok(_) => {}
            Err(error) => failures.push(format!("{} failed with {error}", other.host)),
        }
    }
    if answering.len() >= config.majority() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::NodeNotFound,
        format!(
            "Quorum check failed because not enough voting nodes responded; required {} but only the following {} voting \
             nodes responded: {}; the following nodes did not respond affirmatively: {}",
            config.majority(),
            answering.len(),
            answering.join(", "),
            failures.join("; ")
        ),
    ))
}
