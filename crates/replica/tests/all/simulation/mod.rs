//! Sets of members on simulated machines and a simulated network. A seed decides everything that happens.
//!
//! `FROND_SET_SEEDS=n` runs that many seeds, `FROND_SEED=s` one.

mod clients;
mod faults;
mod history;
mod network;
mod nodes;
mod runtime;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use frond_kv::MemberLog;
use frond_kv_testing::MemoryLog;
use frond_replica::{AsyncRuntime, Seat};
use openraft_rt_sim::SimRuntime;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use history::{History, encode};
use network::{Network, Quality};
use nodes::Nodes;
use runtime::{Sim, right_now, spawn_on};

/// Seeds of a usual run.
const SEEDS: u64 = 30;

/// Simulated time with faults.
const FAULTY: Duration = Duration::from_secs(10);

/// Simulated time after which a set without faults must agree.
const RECOVERY: Duration = Duration::from_secs(60);

/// A rule that is broken to test the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sabotage {
    #[default]
    None,
    /// A write counts as acknowledged before it is committed.
    AcknowledgeEarly,
    /// Clients read without confirming that the member leads.
    ReadAnywhere,
}

#[derive(Debug)]
struct Outcome {
    violation: Option<String>,
    counts: BTreeMap<&'static str, u64>,
    trace: u64,
}

fn run(seed: u64, sabotage: Sabotage) -> Outcome {
    let history = History::new();
    let mut runtime = Sim::with_seed(seed, history.violations.clone());
    let nodes = Nodes::new(seed, Network::new(seed), history.clone());
    runtime.block_on(simulate(seed, nodes.clone(), sabotage));
    nodes.clear();
    drop(runtime);
    Outcome {
        violation: history.violations.first(),
        counts: history.counts(),
        trace: history.trace(),
    }
}

async fn simulate(seed: u64, nodes: Arc<Nodes>, sabotage: Sabotage) {
    let mut random = SmallRng::seed_from_u64(seed ^ 0x0073_6574_7320);
    let voters: u64 = if random.random_bool(0.6) { 3 } else { 5 };
    let spares: u64 = random.random_range(0..=1);
    let violations = &nodes.history.violations;
    for id in 1..=voters + spares {
        nodes.add(id, MemoryLog::new(false, violations.clone()));
    }
    if random.random_bool(0.3) {
        // A store that was used before it became a set.
        let payloads: Vec<Vec<u8>> = (0..5).map(|_| encode(nodes.history.fresh())).collect();
        nodes.add(1, MemoryLog::of_store(&payloads, false, violations.clone()));
    }
    for id in nodes.ids() {
        nodes.start(id).await;
    }
    tend(nodes.clone());
    if !begin(&nodes, voters).await {
        nodes.history.violation("the set was not made".to_owned());
        return;
    }
    let is_over = Arc::new(Mutex::new(false));
    log(|| "the set is made".to_owned());
    for number in 0..3 {
        let client = clients::run(nodes.clone(), seed + number, is_over.clone(), sabotage);
        spawn_on(None, client);
    }
    let faults = faults::run(
        nodes.clone(),
        &mut random,
        FAULTY,
        sabotage != Sabotage::None,
    );
    faults.await;
    *is_over.lock() = true;
    settle(&nodes).await;
}

/// Follows the events of members and starts those that are down.
fn tend(nodes: Arc<Nodes>) {
    spawn_on(None, async move {
        loop {
            SimRuntime::sleep(Duration::from_millis(10)).await;
            nodes.tend().await;
        }
    });
}

/// Makes a set of the first member and adds the other voters.
async fn begin(nodes: &Arc<Nodes>, voters: u64) -> bool {
    let Some(first) = nodes.running(1) else {
        return false;
    };
    let member = first.member.clone();
    if member.initialize(Nodes::peer(1)).await.is_err() {
        return false;
    }
    let seats: BTreeMap<u64, Seat> = (1..=voters)
        .map(|id| (id, faults::seat(id, true)))
        .collect();
    for _ in 0..100 {
        SimRuntime::sleep(Duration::from_millis(200)).await;
        let member = member.clone();
        let seats = seats.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        spawn_on(Some(first.machine.clone()), async move {
            let limit = Duration::from_secs(5);
            let _ = sender.send(member.reconfigure(seats, limit).await);
        });
        if let Ok(Ok(())) = receiver.await {
            return true;
        }
    }
    false
}

/// Ends all faults, and checks that the members agree.
async fn settle(nodes: &Arc<Nodes>) {
    nodes.network.heal();
    nodes.network.set_quality(Quality::GOOD);
    for id in nodes.ids() {
        nodes.release(id);
        nodes.set_slow_disk(id, Duration::ZERO);
        if let Some(running) = nodes.running(id) {
            running.machine.resume();
            running.member.freeze(Duration::ZERO);
        }
    }
    let deadline = right_now() + RECOVERY.as_nanos() as u64;
    loop {
        SimRuntime::sleep(Duration::from_millis(100)).await;
        if nodes.history.violations.first().is_some() {
            return;
        }
        if agree(nodes).await {
            break;
        }
        if right_now() > deadline {
            let states: Vec<String> = nodes
                .ids()
                .into_iter()
                .map(|id| describe(nodes, id))
                .collect();
            nodes
                .history
                .violation(format!("no agreement in time:\n{}", states.join("\n")));
            return;
        }
    }
    nodes.history.count("agreed");
}

fn describe(nodes: &Nodes, id: u64) -> String {
    match nodes.running(id) {
        None => format!("{id} is down"),
        Some(running) => format!("{id} {:?} {:?}", running.member.role(), running.log_state()),
    }
}

/// Whether a leader commits a last write, all members of its set have it, and their trees are equal.
async fn agree(nodes: &Arc<Nodes>) -> bool {
    let Some((leader, running)) = leader(nodes) else {
        return false;
    };
    let value = nodes.history.fresh();
    let Ok(position) = running.log.commit(&encode(value)) else {
        log(|| format!("{leader} refuses a commit"));
        return false;
    };
    let member = running.member.clone();
    let wait = Sim::timeout(Duration::from_secs(2), member.wait_committed(position));
    let answer = wait.await;
    log(|| format!("{leader} answers {answer:?} for {value} at {position}"));
    if !matches!(answer, Ok(Ok(()))) {
        return false;
    }
    nodes.history.acknowledge(value, position);
    let members: BTreeSet<u64> = running.member.role().members.peers.into_keys().collect();
    for _ in 0..20 {
        SimRuntime::sleep(Duration::from_millis(50)).await;
        let have = members.iter().filter(|id| {
            let running = nodes.running(**id);
            running.is_some_and(|running| running.log.committed_position() == position)
        });
        if have.count() == members.len() {
            for id in &members {
                if let Some(running) = nodes.running(*id) {
                    nodes.history.check_end(*id, &running.log, position);
                }
            }
            return true;
        }
    }
    false
}

fn leader(nodes: &Nodes) -> Option<(u64, nodes::Running)> {
    let running = nodes
        .ids()
        .into_iter()
        .filter_map(|id| Some((id, nodes.running(id)?)));
    running.max_by_key(|(_, running)| {
        let role = running.member.role();
        (role.is_leading, role.term)
    })
}

/// Prints what happens, with the simulated time, if `FROND_SET_LOG` is set.
fn log(what: impl FnOnce() -> String) {
    static IS_ON: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FROND_SET_LOG").is_some());
    if *IS_ON {
        println!("{:.6} {}", right_now() as f64 / 1e9, what());
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_acknowledged_write_is_lost() {
    let first = number("FROND_SEED");
    let seeds = number("FROND_SET_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(1);
    let next = AtomicU64::new(first);
    let totals: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    let failed: Mutex<Option<(u64, String)>> = Mutex::default();
    let begin = std::time::Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds || failed.lock().is_some() {
                        break;
                    }
                    let outcome = run(seed, Sabotage::None);
                    let mut totals = totals.lock();
                    for (what, count) in &outcome.counts {
                        *totals.entry(what).or_default() += count;
                    }
                    if seed > first && (seed - first).is_multiple_of(1000) {
                        println!("{} seeds in {:?}", seed - first, begin.elapsed());
                    }
                    if let Some(violation) = outcome.violation {
                        failed.lock().get_or_insert((seed, violation));
                    }
                }
            });
        }
    });
    println!(
        "{seeds} seeds in {:?}: {:?}",
        begin.elapsed(),
        totals.lock()
    );
    if let Some((seed, violation)) = failed.into_inner() {
        panic!("seed {seed}: {violation}\nFROND_SEED={seed} repeats it");
    }
    let totals = totals.into_inner();
    for what in ["acknowledged", "read", "agreed"] {
        assert!(totals.contains_key(what), "nothing was {what}");
    }
}

#[test]
fn a_seed_replays_everything() {
    for seed in [3, 17] {
        let (first, second) = (run(seed, Sabotage::None), run(seed, Sabotage::None));
        assert_eq!(first.counts, second.counts, "seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
    }
}

/// Runs seeds until the checks find what is wrong.
fn is_found(sabotage: Sabotage, words: &str) {
    for seed in 1..100 {
        if let Some(violation) = run(seed, sabotage).violation {
            assert!(violation.contains(words), "seed {seed}: {violation}");
            println!("seed {seed}: {violation}");
            return;
        }
    }
    panic!("{sabotage:?} was not found");
}

#[test]
fn acknowledging_before_the_commit_is_found() {
    is_found(Sabotage::AcknowledgeEarly, "acknowledged");
}

#[test]
fn reading_without_confirmation_is_found() {
    is_found(Sabotage::ReadAnywhere, "linearizable read");
}
