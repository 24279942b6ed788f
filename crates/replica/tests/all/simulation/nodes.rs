//! Members on their machines: started, ended, opened again, copied.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use frond_kv::{LogState, MemberLog};
use frond_kv_testing::{Loss, MemoryLog};
use frond_replica::{Event, Host, Member, Peer, Settings};
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::history::History;
use super::network::{Network, Port};
use super::runtime::{Machine, Sim, spawn_on};

pub const ELECTION: Duration = Duration::from_millis(300);
const HEARTBEAT: Duration = Duration::from_millis(90);

/// The members of a simulated set, running or not.
pub struct Nodes {
    pub network: Arc<Network>,
    pub history: Arc<History>,
    nodes: Mutex<BTreeMap<u64, Node>>,
    random: Mutex<SmallRng>,
}

struct Node {
    log: Arc<MemoryLog>,
    running: Option<Running>,
    /// Whether it must not be started yet.
    is_held_down: bool,
    slow_disk: Duration,
}

#[derive(Clone)]
pub struct Running {
    pub machine: Arc<Machine>,
    pub member: Arc<Member>,
    pub log: Arc<MemoryLog>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn is_broken_disk(why: &str) -> bool {
    why.contains("disk is broken") || why.contains("log is closed")
}

impl Running {
    pub fn log_state(&self) -> LogState {
        self.log.state()
    }

    fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }
}

/// Gets the events of a member.
struct Ear {
    id: u64,
    log: Arc<MemoryLog>,
    history: Arc<History>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Host for Ear {
    fn event(&self, event: Event) {
        match event {
            Event::Committed { position } => self.history.committed(self.id, &self.log, position),
            Event::LeadershipGained { term } => self.history.leads(self.id, term),
            Event::LeadershipLost { .. } | Event::HandsOver { .. } | Event::TakesOver { .. } => {}
            event => self.events.lock().push(event),
        }
    }
}

impl Nodes {
    pub fn new(seed: u64, network: Arc<Network>, history: Arc<History>) -> Arc<Nodes> {
        Arc::new(Nodes {
            network,
            history,
            nodes: Mutex::default(),
            random: Mutex::new(SmallRng::seed_from_u64(seed ^ 0x6e6f_6465_7321)),
        })
    }

    /// Adds a machine with a log, which does not run yet.
    pub fn add(&self, id: u64, log: MemoryLog) {
        let node = Node {
            log: Arc::new(log),
            running: None,
            is_held_down: false,
            slow_disk: Duration::ZERO,
        };
        self.nodes.lock().insert(id, node);
    }

    pub fn ids(&self) -> Vec<u64> {
        self.nodes.lock().keys().copied().collect()
    }

    pub fn running(&self, id: u64) -> Option<Running> {
        self.nodes.lock().get(&id)?.running.clone()
    }

    pub fn log(&self, id: u64) -> Option<Arc<MemoryLog>> {
        Some(self.nodes.lock().get(&id)?.log.clone())
    }

    pub fn set_slow_disk(&self, id: u64, time: Duration) {
        if let Some(node) = self.nodes.lock().get_mut(&id) {
            node.slow_disk = time;
        }
    }

    pub async fn start(self: &Arc<Self>, id: u64) {
        let Some(log) = self.log(id) else {
            return;
        };
        if self.running(id).is_some() {
            return;
        }
        let pace = self.random.lock().random_range(900..1100);
        let machine = Machine::new(pace);
        let mut settings = Settings::new(id);
        settings.election_timeout = ELECTION;
        settings.heartbeat_interval = HEARTBEAT;
        settings.batch_bytes = 256;
        let events = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::new(Ear {
            id,
            log: log.clone(),
            history: self.history.clone(),
            events: events.clone(),
        });
        let port = Arc::new(Port {
            network: self.network.clone(),
            id,
        });
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let opened = log.clone();
        self.history.opened(id);
        spawn_on(Some(machine.clone()), async move {
            let _ = sender.send(Member::start_on::<Sim>(settings, opened, port, ear).await);
        });
        let member = match receiver.await {
            Ok(Ok(member)) => Arc::new(member),
            Ok(Err(error)) => {
                machine.end();
                let why = error.to_string();
                if is_broken_disk(&why) {
                    self.end(id, Loss::Crash(200));
                } else {
                    self.history
                        .violation(format!("member {id} cannot start: {why}"));
                }
                return;
            }
            Err(_) => {
                self.history
                    .violation(format!("the start of member {id} panicked"));
                return;
            }
        };
        if self.log(id).is_none_or(|now| !Arc::ptr_eq(&now, &log)) {
            // It has ended meanwhile.
            machine.end();
            return;
        }
        self.network.connect(id, machine.clone(), member.clone());
        self.run_disk(id, machine.clone(), log.clone());
        let running = Running {
            machine,
            member,
            log,
            events,
        };
        if let Some(node) = self.nodes.lock().get_mut(&id) {
            node.running = Some(running);
        }
    }

    /// Syncs the log of a member a while after each append.
    fn run_disk(self: &Arc<Self>, id: u64, machine: Arc<Machine>, log: Arc<MemoryLog>) {
        let nodes = self.clone();
        spawn_on(Some(machine), async move {
            loop {
                poll_fn(|context| log.poll_unsynced(context)).await;
                let slow = nodes.nodes.lock().get(&id).map(|node| node.slow_disk);
                let pause = nodes.random.lock().random_range(200..3000);
                let pause = Duration::from_micros(pause) + slow.unwrap_or_default();
                SimRuntime::sleep(pause).await;
                log.sync();
            }
        });
    }

    /// Ends a process or a machine, and opens what is left of its log.
    pub fn end(&self, id: u64, loss: Loss) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&id) else {
            return;
        };
        self.network.disconnect(id);
        if let Some(running) = node.running.take() {
            running.machine.end();
        }
        node.log = Arc::new(node.log.reopen(loss));
    }

    /// Keeps a member down until [`Self::release`].
    pub fn hold_down(&self, id: u64) {
        if let Some(node) = self.nodes.lock().get_mut(&id) {
            node.is_held_down = true;
        }
    }

    fn is_held_down(&self, id: u64) -> bool {
        self.nodes
            .lock()
            .get(&id)
            .is_some_and(|node| node.is_held_down)
    }

    pub fn release(&self, id: u64) {
        if let Some(node) = self.nodes.lock().get_mut(&id) {
            node.is_held_down = false;
        }
    }

    /// Does for each member what a server does: follows its events, and starts it if it is down.
    pub async fn tend(self: &Arc<Self>) {
        for id in self.ids() {
            let Some(running) = self.running(id) else {
                if !self.is_held_down(id) {
                    self.start(id).await;
                }
                continue;
            };
            self.history.saw(running.member.role().members.voters);
            for event in running.take_events() {
                match event {
                    Event::MustReopen => {
                        self.history.count("reopened");
                        self.shut_down(id, &running).await;
                        self.end(id, Loss::Kill);
                        break;
                    }
                    Event::MustResync { from, .. } => {
                        let Some(source) = self.running(from) else {
                            continue;
                        };
                        self.history.count("copied");
                        self.shut_down(id, &running).await;
                        self.copy(id, &source.log);
                        break;
                    }
                    Event::Failed { why } => {
                        if !is_broken_disk(&why) {
                            self.history
                                .violation(format!("member {id} has failed: {why}"));
                        }
                        self.history.count("failed");
                        self.end(id, Loss::Crash(200));
                        break;
                    }
                    _ => {}
                }
            }
        }
    }

    async fn shut_down(&self, id: u64, running: &Running) {
        self.network.disconnect(id);
        let member = running.member.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        spawn_on(Some(running.machine.clone()), async move {
            let _ = member.shut_down().await;
            let _ = sender.send(());
        });
        // A machine that is paused does not answer.
        let _ = SimRuntime::timeout(Duration::from_millis(500), receiver).await;
    }

    fn copy(&self, id: u64, source: &MemoryLog) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&id) else {
            return;
        };
        if let Some(running) = node.running.take() {
            running.machine.end();
        }
        node.log = Arc::new(source.copy_for(&node.log));
    }

    pub fn peer(id: u64) -> Peer {
        Peer {
            host: format!("member{id}:27017"),
            data: Vec::new(),
        }
    }

    pub fn clear(&self) {
        self.network.clear();
        for node in self.nodes.lock().values_mut() {
            if let Some(running) = node.running.take() {
                running.machine.end();
            }
        }
    }
}
