//! Three members over stores of files, whose leaders are cut off while clients write.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frond_kv::MemberLog;
use frond_replica::{Event, Host, Lane, Member, Peer, Reply, Seat, Settings, Transport};
use frond_tree::{Direction, Durability, Options, Store, TreeId, TreeOptions, WriteSet};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Longer than anything takes on a slow machine.
const LONG: Duration = Duration::from_secs(90);
const MEMBERS: std::ops::RangeInclusive<u64> = 1..=3;
const ROUNDS: u64 = 4;
/// The tree in which clients write.
const TREE: TreeId = TreeId(1);

#[derive(Default)]
struct Hub {
    members: Mutex<BTreeMap<u64, Arc<Member>>>,
    /// Members that no other one reaches.
    cut_off: Mutex<BTreeSet<u64>>,
}

struct Port {
    hub: Arc<Hub>,
    id: u64,
}

impl Transport for Port {
    fn send(&self, to: u64, _peer: &Peer, _lane: Lane, request: Vec<u8>) -> Reply {
        let (hub, from) = (self.hub.clone(), self.id);
        Box::pin(async move {
            let is_cut = || {
                let cut_off = hub.cut_off.lock();
                cut_off.contains(&to) || cut_off.contains(&from)
            };
            let member = hub.members.lock().get(&to).cloned();
            let member = member.filter(|_| !is_cut());
            let member = member.ok_or(io::ErrorKind::ConnectionRefused)?;
            let reply = member.handle(from, &request).await;
            if is_cut() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Ok(reply)
        })
    }
}

struct Events(u64, UnboundedSender<(u64, Event)>);

impl Host for Events {
    fn event(&self, event: Event) {
        let _ = self.1.send((self.0, event));
    }
}

struct Set {
    hub: Arc<Hub>,
    folders: BTreeMap<u64, tempfile::TempDir>,
    stores: Mutex<BTreeMap<u64, Store>>,
    events: UnboundedSender<(u64, Event)>,
    reopened: AtomicBool,
}

fn open(folder: &tempfile::TempDir) -> Store {
    let mut options = Options::new(folder.path());
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(256 << 10);
    options.member = true;
    Store::open(options).unwrap()
}

impl Set {
    async fn start(&self, id: u64) {
        let store = open(&self.folders[&id]);
        self.stores.lock().insert(id, store.clone());
        let port = Port {
            hub: self.hub.clone(),
            id,
        };
        let events = Events(id, self.events.clone());
        let log = Arc::new(store);
        let member = Member::start(Settings::new(id), log, Arc::new(port), Arc::new(events));
        let member = Arc::new(member.await.unwrap());
        self.hub.members.lock().insert(id, member);
    }

    fn member(&self, id: u64) -> Arc<Member> {
        self.hub.members.lock()[&id].clone()
    }

    fn store(&self, id: u64) -> Store {
        self.stores.lock()[&id].clone()
    }

    /// The member that leads in the highest term, and its term.
    fn leader(&self) -> Option<(u64, u64)> {
        let members = self.hub.members.lock();
        let leading = members.iter().filter_map(|(id, member)| {
            let role = member.role();
            role.is_leading.then_some((role.term, *id))
        });
        leading.max().map(|(term, id)| (id, term))
    }

    async fn until(&self, what: &str, is_true: impl Fn() -> bool) {
        let wait = async {
            while !is_true() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "{what}");
    }

    /// Opens stores again that have commits which the set has replaced.
    async fn serve(self: Arc<Set>, mut events: UnboundedReceiver<(u64, Event)>) {
        while let Some((id, event)) = events.recv().await {
            match event {
                Event::MustReopen => {
                    let member = self.hub.members.lock().remove(&id).unwrap();
                    member.shut_down().await.unwrap();
                    drop(member);
                    let store = self.stores.lock().remove(&id).unwrap();
                    tokio::task::spawn_blocking(move || store.close().unwrap())
                        .await
                        .unwrap();
                    self.reopened.store(true, Ordering::Release);
                    self.start(id).await;
                }
                Event::MustResync { .. } | Event::Failed { .. } => panic!("{id}: {event:?}"),
                _ => {}
            }
        }
    }

    /// Writes numbers until `stop`, and returns those that a majority has acknowledged.
    async fn write(self: Arc<Set>, client: u64, stop: Arc<AtomicBool>) -> Vec<u64> {
        let mut acknowledged = Vec::new();
        let mut number = client << 32;
        while !stop.load(Ordering::Acquire) {
            let Some((leader, _)) = self.leader() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let Some(store) = self.stores.lock().get(&leader).cloned() else {
                continue;
            };
            number += 1;
            let committed = tokio::task::spawn_blocking(move || {
                let mut set = WriteSet::new();
                set.put(TREE, &number.to_be_bytes(), &[7; 200]);
                let committed = store.commit(set, Durability::Logged);
                committed.map(|_| store.end_position())
            });
            let Ok(position) = committed.await.unwrap() else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let member = self.hub.members.lock().get(&leader).cloned();
            if let Some(member) = member
                && member.wait_committed(position).await.is_ok()
            {
                acknowledged.push(number);
            }
        }
        acknowledged
    }
}

fn numbers(store: &Store) -> BTreeSet<u64> {
    let snapshot = store.snapshot();
    let mut cursor = snapshot
        .cursor(TREE, Unbounded, Unbounded, Direction::Forward)
        .unwrap();
    let mut numbers = BTreeSet::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        numbers.insert(u64::from_be_bytes(key.try_into().unwrap()));
    }
    numbers
}

fn seat(id: u64) -> (u64, Seat) {
    let host = format!("member{id}:27017");
    let peer = Peer {
        host,
        data: Vec::new(),
    };
    (id, Seat { peer, votes: true })
}

async fn run() {
    let (events, received) = unbounded_channel();
    let set = Arc::new(Set {
        hub: Arc::default(),
        folders: MEMBERS
            .map(|id| (id, tempfile::tempdir().unwrap()))
            .collect(),
        stores: Mutex::default(),
        events,
        reopened: AtomicBool::new(false),
    });
    for id in MEMBERS {
        set.start(id).await;
    }
    let serving = tokio::spawn(set.clone().serve(received));
    set.member(1).initialize(seat(1).1.peer).await.unwrap();
    set.until("the first leader", || set.leader().is_some())
        .await;
    set.member(1)
        .reconfigure(MEMBERS.map(seat).collect(), LONG)
        .await
        .unwrap();
    let mut create = WriteSet::new();
    assert_eq!(set.store(1).allocate_tree(), TREE);
    create.create_tree(TREE, &TreeOptions::default());
    set.store(1).commit(create, Durability::Logged).unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (1..=4)
        .map(|client| tokio::spawn(set.clone().write(client, stop.clone())))
        .collect();
    let mut is_stranded = false;
    for _ in 0..ROUNDS {
        let (leader, term) = set.leader().unwrap();
        let before = set.member(leader).role().committed;
        set.until("some writes", || {
            let role = set.member(leader).role();
            role.committed.map(|id| id.index) > before.map(|id| id.index + 20)
        })
        .await;
        set.hub.cut_off.lock().insert(leader);
        let mut alone = WriteSet::new();
        alone.put(TREE, &term.to_be_bytes(), b"of this member alone");
        is_stranded |= set.store(leader).commit(alone, Durability::Logged).is_ok();
        set.until("another leader", || {
            set.leader()
                .is_some_and(|(id, now)| id != leader && now > term)
        })
        .await;
        set.hub.cut_off.lock().clear();
        set.until("the end of the old leadership", || {
            let member = set.hub.members.lock().get(&leader).cloned();
            member.is_some_and(|member| !member.role().is_leading)
        })
        .await;
    }
    stop.store(true, Ordering::Release);
    let mut acknowledged = BTreeSet::new();
    for client in clients {
        acknowledged.extend(client.await.unwrap());
    }
    let agree = || {
        let stores = set.stores.lock();
        let states: Vec<_> = stores.values().map(MemberLog::state).collect();
        let is_same = |state: &frond_kv::LogState| {
            state.applied == states[0].applied && state.applied == state.last
        };
        states.len() == 3 && states.iter().all(is_same)
    };
    set.until("all have the same", agree).await;
    assert!(!is_stranded || set.reopened.load(Ordering::Acquire));
    let first = numbers(&set.store(1));
    assert!(first.iter().all(|number| *number > u64::from(u32::MAX)));
    assert!(acknowledged.len() > 20, "{} writes", acknowledged.len());
    let lost: Vec<_> = acknowledged.difference(&first).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    for id in MEMBERS {
        assert!(
            numbers(&set.store(id)) == first,
            "member {id} has something else"
        );
    }
    serving.abort();
    for id in MEMBERS {
        let member = set.hub.members.lock().remove(&id).unwrap();
        member.shut_down().await.unwrap();
        set.store(id).close().unwrap();
    }
}

#[test]
fn leaders_that_are_cut_off_lose_no_acknowledged_write() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_time()
        .build();
    runtime.unwrap().block_on(run());
}
