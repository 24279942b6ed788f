//! Faults of the network, of machines, of disks and of administrators.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use frond_kv_testing::Loss;
use frond_replica::{AsyncRuntime, Seat};
use openraft_rt_sim::SimRuntime;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::network::Quality;
use super::nodes::{ELECTION, Nodes, Running};
use super::runtime::{right_now, spawn_on};

pub fn seat(id: u64, votes: bool) -> Seat {
    Seat {
        peer: Nodes::peer(id),
        votes,
    }
}

/// Does one thing after another, for a time. Only cuts the network if `is_gentle`.
pub async fn run(nodes: Arc<Nodes>, random: &mut SmallRng, time: Duration, is_gentle: bool) {
    let end = right_now() + time.as_nanos() as u64;
    while right_now() < end {
        let pause = random.random_range(20..700);
        SimRuntime::sleep(Duration::from_millis(pause)).await;
        if nodes.history.violations.first().is_some() {
            return;
        }
        let ids = nodes.ids();
        let leader = ids.iter().copied().find(|id| leads(&nodes, *id));
        // Most happens to the leader, because that is what matters.
        let id = leader
            .filter(|_| random.random_bool(0.5))
            .unwrap_or_else(|| ids[random.random_range(0..ids.len())]);
        let other = ids[random.random_range(0..ids.len())];
        let what = if is_gentle {
            random.random_range(0..5)
        } else {
            random.random_range(0..24)
        };
        match what {
            0 => nodes.network.heal(),
            1 => {
                nodes.history.count("isolated");
                for other in ids {
                    nodes.network.cut(id, other);
                    nodes.network.cut(other, id);
                }
            }
            2 => nodes.network.cut(id, other),
            3 => {
                // Two halves.
                let middle = random.random_range(0..ids.len());
                for a in &ids[..middle] {
                    for b in &ids[middle..] {
                        nodes.network.cut(*a, *b);
                        nodes.network.cut(*b, *a);
                    }
                }
            }
            4 => {
                // Messages pass in one direction only.
                let deaf = random.random_bool(0.5);
                for other in ids {
                    if deaf {
                        nodes.network.cut(other, id);
                    } else {
                        nodes.network.cut(id, other);
                    }
                }
            }
            5 | 6 => nodes.network.set_quality(Quality {
                lost: random.random_range(0..200),
                doubled: random.random_range(0..300),
                late: random.random_range(0..400),
                late_by: Duration::from_millis(random.random_range(1..400)),
            }),
            7 => nodes.network.set_quality(Quality::GOOD),
            8 | 9 => {
                nodes.history.count("killed");
                down(&nodes, id, Loss::Kill, random.random_range(0..1500));
            }
            10 | 11 => {
                nodes.history.count("crashed");
                let loss = Loss::Crash(random.random());
                down(&nodes, id, loss, random.random_range(0..1500));
            }
            12 => {
                nodes.history.count("crashed");
                // All at once.
                for id in ids {
                    let loss = Loss::Crash(random.random());
                    down(&nodes, id, loss, random.random_range(0..300));
                }
            }
            13 | 14 => pause_machine(&nodes, id, random.random_range(10..1500)),
            15 => {
                if let Some(running) = nodes.running(id) {
                    running
                        .machine
                        .jump(Duration::from_millis(random.random_range(1..3000)));
                }
            }
            16 => {
                let to = random.random_bool(0.5).then_some(other);
                let force = random.random_bool(0.2);
                on_member(
                    &nodes,
                    leader.unwrap_or(id),
                    "transferred",
                    move |running| async move {
                        let limit = ELECTION * 3;
                        running.member.transfer(to, limit, force).await.is_ok()
                    },
                );
            }
            17 => on_member(&nodes, other, "stepped up", |running| async move {
                running.member.step_up().await.is_ok()
            }),
            18 => {
                if let Some(running) = nodes.running(id) {
                    let time = Duration::from_millis(random.random_range(0..800));
                    on_member(&nodes, id, "frozen", move |_| async move {
                        running.member.freeze(time);
                        true
                    });
                }
            }
            19 | 20 => on_member(&nodes, id, "purged", |running| async move {
                match running.log_state().applied {
                    Some(through) => running.member.purge(through).await.is_ok(),
                    None => false,
                }
            }),
            21 | 22 => reconfigure(&nodes, random),
            _ => {
                if random.random_bool(0.3) {
                    if let Some(log) = nodes.log(id) {
                        log.break_disk();
                    }
                } else {
                    let time = Duration::from_millis(random.random_range(0..120));
                    nodes.set_slow_disk(id, time);
                }
            }
        }
    }
}

fn leads(nodes: &Nodes, id: u64) -> bool {
    let running = nodes.running(id);
    running.is_some_and(|running| running.member.role().is_leading)
}

fn down(nodes: &Arc<Nodes>, id: u64, loss: Loss, millis: u64) {
    nodes.hold_down(id);
    nodes.end(id, loss);
    let nodes = nodes.clone();
    spawn_on(None, async move {
        SimRuntime::sleep(Duration::from_millis(millis)).await;
        nodes.release(id);
    });
}

fn pause_machine(nodes: &Nodes, id: u64, millis: u64) {
    if let Some(running) = nodes.running(id) {
        nodes.history.count("paused");
        running.machine.pause();
        spawn_on(None, async move {
            SimRuntime::sleep(Duration::from_millis(millis)).await;
            running.machine.resume();
        });
    }
}

/// Runs a call of a member on its machine, and counts it if it succeeds.
fn on_member<F>(nodes: &Arc<Nodes>, id: u64, what: &'static str, call: impl FnOnce(Running) -> F)
where
    F: Future<Output = bool> + Send + 'static,
{
    if let Some(running) = nodes.running(id) {
        let machine = running.machine.clone();
        let call = call(running);
        let nodes = nodes.clone();
        spawn_on(Some(machine), async move {
            if call.await {
                nodes.history.count(what);
            }
        });
    }
}

/// Adds, removes, promotes or demotes a member.
fn reconfigure(nodes: &Arc<Nodes>, random: &mut SmallRng) {
    let ids = nodes.ids();
    let id = ids[random.random_range(0..ids.len())];
    let votes = random.random_bool(0.7);
    let stays = random.random_bool(0.7);
    for leader in ids {
        on_member(nodes, leader, "reconfigured", move |running| async move {
            let role = running.member.role();
            if !role.is_leading {
                return false;
            }
            let mut seats: BTreeMap<u64, Seat> = role
                .members
                .peers
                .keys()
                .map(|id| (*id, seat(*id, role.members.is_voter(*id))))
                .collect();
            if stays {
                seats.insert(id, seat(id, votes));
            } else {
                seats.remove(&id);
            }
            let voters = seats.values().filter(|seat| seat.votes).count();
            let limit = Duration::from_secs(3);
            voters >= 2 && running.member.reconfigure(seats, limit).await.is_ok()
        });
    }
}
