//! A network that loses, delays, doubles, reorders and cuts.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use frond_replica::{Lane, Member, Peer, Reply, Transport};
use openraft::AsyncRuntime;
use openraft_rt_sim::SimRuntime;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;

use super::runtime::{Machine, spawn_on};

pub struct Network {
    state: Mutex<State>,
}

struct State {
    random: SmallRng,
    members: BTreeMap<u64, (Arc<Machine>, Arc<Member>)>,
    /// Pairs of members of which the first cannot reach the second.
    cut: BTreeSet<(u64, u64)>,
    quality: Quality,
}

/// The faults of a network. Shares are in parts per thousand.
#[derive(Debug, Clone, Copy)]
pub struct Quality {
    pub lost: u32,
    pub doubled: u32,
    /// The share of messages that are late.
    pub late: u32,
    pub late_by: Duration,
}

impl Quality {
    pub const GOOD: Quality = Quality {
        lost: 0,
        doubled: 0,
        late: 0,
        late_by: Duration::ZERO,
    };
}

/// The time that most messages take.
const USUAL: Duration = Duration::from_micros(500);

impl Network {
    pub fn new(seed: u64) -> Arc<Network> {
        Arc::new(Network {
            state: Mutex::new(State {
                random: SmallRng::seed_from_u64(seed ^ 0x6e65_7477_6f72_6b21),
                members: BTreeMap::new(),
                cut: BTreeSet::new(),
                quality: Quality::GOOD,
            }),
        })
    }

    pub fn connect(&self, id: u64, machine: Arc<Machine>, member: Arc<Member>) {
        self.state.lock().members.insert(id, (machine, member));
    }

    pub fn disconnect(&self, id: u64) {
        self.state.lock().members.remove(&id);
    }

    pub fn cut(&self, from: u64, to: u64) {
        self.state.lock().cut.insert((from, to));
    }

    pub fn heal(&self) {
        self.state.lock().cut.clear();
    }

    pub fn set_quality(&self, quality: Quality) {
        self.state.lock().quality = quality;
    }

    pub fn clear(&self) {
        self.state.lock().members.clear();
    }

    /// The time that a message takes, if it arrives.
    fn journey(&self, from: u64, to: u64) -> Option<Duration> {
        let mut state = self.state.lock();
        let quality = state.quality;
        let is_cut = state.cut.contains(&(from, to));
        let is_lost = state.random.random_range(0..1000) < quality.lost;
        let is_late = state.random.random_range(0..1000) < quality.late;
        let usual = state.random.random_range(USUAL / 4..USUAL * 2);
        let late = quality.late_by.mul_f64(state.random.random_range(0.0..1.0));
        (!is_cut && !is_lost).then(|| usual + if is_late { late } else { Duration::ZERO })
    }

    fn is_doubled(&self) -> bool {
        let mut state = self.state.lock();
        let doubled = state.quality.doubled;
        state.random.random_range(0..1000) < doubled
    }

    /// Brings a message to a member, which answers it on its machine, and brings the answer back.
    async fn deliver(
        self: Arc<Self>,
        from: u64,
        to: u64,
        request: Arc<Vec<u8>>,
        answer: Option<oneshot::Sender<Vec<u8>>>,
    ) {
        let Some(journey) = self.journey(from, to) else {
            return;
        };
        SimRuntime::sleep(journey).await;
        let member = self.state.lock().members.get(&to).cloned();
        let Some((machine, member)) = member else {
            return;
        };
        let network = self.clone();
        spawn_on(Some(machine), async move {
            let bytes = member.handle(from, &request).await;
            spawn_on(None, async move {
                if let Some(journey) = network.journey(to, from) {
                    SimRuntime::sleep(journey).await;
                    if let Some(answer) = answer {
                        let _ = answer.send(bytes);
                    }
                }
            });
        });
    }
}

/// The way of one member into the network.
pub struct Port {
    pub network: Arc<Network>,
    pub id: u64,
}

impl Transport for Port {
    fn send(&self, to: u64, _peer: &Peer, _lane: Lane, request: Vec<u8>) -> Reply {
        let (network, from) = (self.network.clone(), self.id);
        let request = Arc::new(request);
        let (sender, receiver) = oneshot::channel();
        if network.is_doubled() {
            let again = network.clone().deliver(from, to, request.clone(), None);
            spawn_on(None, again);
        }
        spawn_on(None, network.deliver(from, to, request, Some(sender)));
        Box::pin(async move {
            match receiver.await {
                Ok(answer) => Ok(answer),
                // Nothing says that a message is lost.
                Err(_) => {
                    SimRuntime::sleep(Duration::from_secs(3600)).await;
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
        })
    }
}
