//! Clients that write numbered values and read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::MemberLog;
use frond_replica::{AsyncRuntime, Part};
use openraft_rt_sim::SimRuntime;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::Sabotage;
use super::history::encode;
use super::nodes::{Nodes, Running};
use super::runtime::{right_now, spawn_on};

/// The time that a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub async fn run(nodes: Arc<Nodes>, seed: u64, is_over: Arc<Mutex<bool>>, sabotage: Sabotage) {
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0063_6c69_656e_7473);
    while !*is_over.lock() {
        let pause = random.random_range(1..60);
        SimRuntime::sleep(Duration::from_millis(pause)).await;
        let ids = nodes.ids();
        let mut id = ids[random.random_range(0..ids.len())];
        if random.random_bool(0.8) {
            // As a driver does. There may be two of them.
            let is_leader = |id: &&u64| {
                let running = nodes.running(**id);
                running.is_some_and(|running| running.member.role().is_leading)
            };
            let leaders: Vec<&u64> = ids.iter().filter(is_leader).collect();
            if !leaders.is_empty() {
                id = *leaders[random.random_range(0..leaders.len())];
            }
        }
        let Some(running) = nodes.running(id) else {
            continue;
        };
        if random.random_bool(0.7) {
            write(&nodes, id, running, &mut random, sabotage).await;
        } else {
            read(&nodes, id, running, sabotage).await;
        }
    }
}

async fn write(
    nodes: &Arc<Nodes>,
    id: u64,
    running: Running,
    random: &mut SmallRng,
    sabotage: Sabotage,
) {
    let value = nodes.history.fresh();
    let Ok(position) = running.log.commit(&encode(value)) else {
        return;
    };
    nodes.history.count("written");
    if sabotage == Sabotage::AcknowledgeEarly {
        nodes.history.acknowledge_unchecked(value, position);
        return;
    }
    let begin = right_now();
    nodes.history.saw(running.member.role().members.voters);
    let by_spread = random.random_bool(0.2);
    let member = running.member.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let history = nodes.history.clone();
    let held = nodes.clone();
    let log = running.log.clone();
    spawn_on(Some(running.machine.clone()), async move {
        let answer = if by_spread {
            let members = member.role().members;
            let enough = move |holders: &BTreeSet<u64>| members.is_majority(holders);
            member.acknowledged(position, enough).await
        } else {
            member.wait_committed(position).await
        };
        if answer.is_ok() {
            // The disks count as they are at the moment of the answer.
            history.saw(member.role().members.voters);
            let holders: BTreeSet<u64> = held
                .ids()
                .into_iter()
                .filter(|id| {
                    let log = held.log(*id);
                    log.is_some_and(|log| log.has_durably(position, &encode(value)))
                })
                .collect();
            if !history.is_majority(begin, &holders) {
                history.violation(format!(
                    "member {id} acknowledges {value}, which only {holders:?} of {:?} have",
                    member.role().members.voters
                ));
            }
        }
        drop(log);
        let _ = sender.send(answer);
    });
    let answer = SimRuntime::timeout(PATIENCE, receiver).await;
    match answer {
        Ok(Ok(Ok(()))) if by_spread => nodes.history.count("spread"),
        Ok(Ok(Ok(()))) => nodes.history.acknowledge(value, position),
        Ok(Ok(Err(_))) => nodes.history.count("refused"),
        _ => nodes.history.count("unanswered"),
    }
}

async fn read(nodes: &Arc<Nodes>, id: u64, running: Running, sabotage: Sabotage) {
    let count = nodes.history.acknowledged();
    if running.member.role().part != Part::Leader {
        return;
    }
    if sabotage == Sabotage::ReadAnywhere {
        let position = running.log.committed_position();
        nodes.history.check_read(id, &running.log, position, count);
        return;
    }
    let member = running.member.clone();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let (history, log) = (nodes.history.clone(), running.log.clone());
    spawn_on(Some(running.machine.clone()), async move {
        let answer = member.ensure_linearizable().await;
        if let Ok(position) = answer {
            history.check_read(id, &log, position, count);
        }
        let _ = sender.send(());
    });
    let _ = SimRuntime::timeout(PATIENCE, receiver).await;
}
