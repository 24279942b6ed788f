//! The calls of a member, on Tokio: three members in one process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frond_kv::MemberLog;
use frond_kv_testing::{MemoryLog, Violations};
use frond_replica::{
    Error, Event, Host, Lane, Member, Part, Peer, Reply, Seat, Settings, Transport,
};
use parking_lot::Mutex;

/// Longer than anything takes on a slow machine.
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Hub {
    members: Mutex<BTreeMap<u64, Arc<Member>>>,
}

struct Port {
    hub: Arc<Hub>,
    id: u64,
}

impl Transport for Port {
    fn send(&self, to: u64, _peer: &Peer, _lane: Lane, request: Vec<u8>) -> Reply {
        let member = self.hub.members.lock().get(&to).cloned();
        let from = self.id;
        Box::pin(async move {
            let member = member.ok_or(io::ErrorKind::ConnectionRefused)?;
            Ok(member.handle(from, &request).await)
        })
    }
}

/// The last position that members apply whose peer has the byte `LATE`; members without it apply all.
#[derive(Default)]
struct Events(Mutex<Vec<Event>>, AtomicU64);

const LATE: u8 = 99;

impl Host for Events {
    fn event(&self, event: Event) {
        if !matches!(event, Event::Committed { .. }) {
            self.0.lock().push(event);
        }
    }

    fn apply_limit(&self, peer: &Peer) -> Option<u64> {
        let is_late = peer.data.last() == Some(&LATE);
        is_late.then(|| self.1.load(Ordering::SeqCst))
    }
}

struct Set {
    hub: Arc<Hub>,
    logs: BTreeMap<u64, Arc<MemoryLog>>,
    events: BTreeMap<u64, Arc<Events>>,
}

impl Set {
    async fn new(ids: std::ops::RangeInclusive<u64>) -> Set {
        let mut set = Set {
            hub: Arc::default(),
            logs: BTreeMap::new(),
            events: BTreeMap::new(),
        };
        for id in ids {
            let log = Arc::new(MemoryLog::new(true, Violations::default()));
            set.logs.insert(id, log);
            set.events.insert(id, Arc::new(Events::default()));
            set.start(id).await;
        }
        set
    }

    /// Starts a member over its log.
    async fn start(&self, id: u64) -> Arc<Member> {
        let port = Arc::new(Port {
            hub: self.hub.clone(),
            id,
        });
        let mut settings = Settings::new(id);
        // Missed only by a machine that stands still.
        settings.election_timeout = Duration::from_secs(2);
        let (log, events) = (self.logs[&id].clone(), self.events[&id].clone());
        let member = Member::start(settings, log, port, events).await;
        let member = Arc::new(member.unwrap());
        self.hub.members.lock().insert(id, member.clone());
        member
    }

    fn member(&self, id: u64) -> Arc<Member> {
        self.hub.members.lock()[&id].clone()
    }

    /// Waits until something is true.
    async fn until(&self, is_true: impl Fn() -> bool) {
        let wait = async {
            while !is_true() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap();
    }
}

fn peer(id: u64) -> Peer {
    Peer {
        host: format!("member{id}:27017"),
        data: vec![id as u8],
    }
}

fn seats(ids: impl IntoIterator<Item = (u64, bool)>) -> BTreeMap<u64, Seat> {
    let seat = |(id, votes)| {
        (
            id,
            Seat {
                peer: peer(id),
                votes,
            },
        )
    };
    ids.into_iter().map(seat).collect()
}

fn on_tokio(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build();
    runtime.unwrap().block_on(test);
}

#[test]
fn a_set_is_made_written_to_and_handed_over() {
    on_tokio(async {
        let set = Set::new(1..=3).await;
        let first = set.member(1);
        assert_eq!(first.wait_committed(100).await, Err(Error::LeadershipLost));
        assert_eq!(
            set.logs[&1].commit(b"early").unwrap_err().to_string(),
            frond_kv::Error::NotLeading.to_string()
        );
        first.initialize(peer(1)).await.unwrap();
        assert!(matches!(
            first.initialize(peer(1)).await,
            Err(Error::Invalid(_))
        ));
        set.until(|| first.role().is_leading).await;

        first
            .reconfigure(seats([(1, true), (2, true), (3, false)]), LONG)
            .await
            .unwrap();
        let members = first.role().members;
        assert!(members.is_voter(2) && !members.is_voter(3));
        assert_eq!(members.peers[&3], peer(3));

        let position = set.logs[&1].commit(b"value").unwrap();
        first.wait_committed(position).await.unwrap();
        let all = |members: &BTreeSet<u64>| members.len() == 3;
        first.acknowledged(position, all).await.unwrap();
        assert!(first.ensure_linearizable().await.unwrap() >= position);
        assert_eq!(first.followers().len(), 2);
        assert!(first.followers().iter().all(|it| it.last_contact.is_some()));
        set.until(|| set.logs[&3].committed_position() == position)
            .await;
        assert_eq!(
            set.logs[&3].in_trees(0, position),
            [(position, b"value".to_vec())]
        );

        let second = set.member(2);
        assert!(matches!(
            second.ensure_linearizable().await,
            Err(Error::NotLeading { leader: Some(1) })
        ));
        assert!(matches!(
            first.transfer(Some(3), LONG, false).await,
            Err(Error::Invalid(_))
        ));
        assert!(matches!(
            second.transfer(None, LONG, false).await,
            Err(Error::NotLeading { .. })
        ));
        first.transfer(None, LONG, false).await.unwrap();
        set.until(|| second.role().is_leading).await;
        set.until(|| first.role().part == Part::Follower).await;
        let term = |event: &Event| matches!(event, Event::LeadershipGained { .. });
        assert!(set.events[&2].0.lock().iter().any(term));
        let lost = |event: &Event| matches!(event, Event::LeadershipLost { .. });
        assert!(set.events[&1].0.lock().iter().any(lost));
        let position = set.logs[&2].commit(b"second").unwrap();
        second.wait_committed(position).await.unwrap();

        first.step_up().await.unwrap();
        set.until(|| first.role().is_leading).await;
    });
}

#[test]
fn a_member_that_lacks_purged_entries_has_to_copy_a_store() {
    on_tokio(async {
        let set = Set::new(1..=2).await;
        let first = set.member(1);
        first.initialize(peer(1)).await.unwrap();
        set.until(|| first.role().is_leading).await;
        let position = set.logs[&1].commit(b"value").unwrap();
        first.wait_committed(position).await.unwrap();
        let own = |members: &BTreeSet<u64>| members.contains(&1);
        first.acknowledged(position, own).await.unwrap();
        set.logs[&1].sync();
        let through = set.logs[&1].state().applied.unwrap();
        assert!(
            first
                .purge(frond_kv::EntryId {
                    index: 99,
                    ..through
                })
                .await
                .is_err()
        );
        first.purge(through).await.unwrap();
        set.until(|| set.logs[&1].state().purged.is_some()).await;
        let late = first.reconfigure(seats([(1, true), (2, true)]), Duration::from_millis(300));
        assert!(matches!(late.await, Err(Error::TimedOut)));
        let must_copy = |event: &Event| matches!(event, Event::MustResync { from: 1, .. });
        set.until(|| set.events[&2].0.lock().iter().any(must_copy))
            .await;
    });
}

#[test]
fn a_cut_off_leader_and_an_ended_member_refuse() {
    on_tokio(async {
        let set = Set::new(1..=2).await;
        let first = set.member(1);
        first.initialize(peer(1)).await.unwrap();
        set.until(|| first.role().is_leading).await;
        first
            .reconfigure(seats([(1, true), (2, true)]), LONG)
            .await
            .unwrap();
        let second = set.hub.members.lock().remove(&2).unwrap();
        second.shut_down().await.unwrap();
        assert!(matches!(
            second.step_up().await,
            Err(Error::Ended(_) | Error::Invalid(_))
        ));
        assert!(!second.handle(1, b"no message").await.is_empty());
        set.until(|| !first.role().is_leading).await;
        assert!(set.logs[&1].commit(b"alone").is_err());
        assert_eq!(
            first.wait_committed(u64::MAX).await,
            Err(Error::LeadershipLost)
        );
        first.shut_down().await.unwrap();
        set.until(|| first.role().part == Part::Ended).await;
    });
}

/// A member that applies late counts as one that has what it received, never leads, and gives what only it has to another one.
#[test]
fn a_late_member_acknowledges_and_does_not_lead() {
    on_tokio(async {
        let set = Set::new(1..=3).await;
        let (first, third) = (set.member(1), set.member(3));
        first.initialize(peer(1)).await.unwrap();
        set.until(|| first.role().is_leading).await;
        let mut all = seats([(1, true), (2, true), (3, true)]);
        all.get_mut(&3).unwrap().peer.data.push(LATE);
        first.reconfigure(all, LONG).await.unwrap();
        let refused = first.transfer(Some(3), LONG, false).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");

        let second = set.hub.members.lock().remove(&2).unwrap();
        let position = set.logs[&1].commit(b"value").unwrap();
        first.wait_committed(position).await.unwrap();
        let by_third = |members: &BTreeSet<u64>| members.contains(&3);
        first.acknowledged(position, by_third).await.unwrap();
        set.until(|| third.role().committed >= set.logs[&1].state().committed)
            .await;
        let lacks_it = || set.logs[&3].in_trees(0, position).is_empty();
        assert!(lacks_it());
        assert!(set.logs[&3].committed_position() < position);
        // Neither does a start apply it.
        set.hub.members.lock().remove(&3).unwrap();
        third.shut_down().await.unwrap();
        let third = set.start(3).await;
        set.until(|| third.role().leader == Some(1)).await;
        set.until(|| third.role().committed >= set.logs[&1].state().committed)
            .await;
        assert!(lacks_it());

        // Now only the late member has the value.
        set.hub.members.lock().remove(&1).unwrap();
        first.shut_down().await.unwrap();
        set.hub.members.lock().insert(2, second.clone());
        set.until(|| third.role().leader != Some(1)).await;
        while third.role().part != Part::Leader {
            let _ = third.step_up().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(set.logs[&3].commit(b"refused").is_err());
        third.transfer(None, LONG, false).await.unwrap();
        set.until(|| second.role().is_leading).await;
        let in_second = set.logs[&2].in_trees(0, position);
        assert_eq!(in_second, [(position, b"value".to_vec())]);
        assert!(lacks_it() && !third.role().is_leading);
        let led = |event: &Event| matches!(event, Event::LeadershipGained { .. });
        assert!(!set.events[&3].0.lock().iter().any(led));

        set.events[&3].1.store(position, Ordering::SeqCst);
        set.until(|| !lacks_it()).await;
        let more = set.logs[&2].commit(b"more").unwrap();
        second.wait_committed(more).await.unwrap();
        assert_eq!(set.logs[&3].in_trees(position, more), []);
        // Without the delay it applies what has waited, and then as others do.
        let same = seats([(2, true), (3, true)]);
        second.reconfigure(same, LONG).await.unwrap();
        set.until(|| set.logs[&3].committed_position() >= more)
            .await;
        assert_eq!(set.logs[&3].in_trees(position, more).len(), 1);
        third.shut_down().await.unwrap();
    });
}

#[test]
fn a_member_that_starts_knows_its_set_and_forgets_a_leader_that_is_silent() {
    on_tokio(async {
        let set = Set::new(1..=2).await;
        let first = set.member(1);
        first.initialize(peer(1)).await.unwrap();
        set.until(|| first.role().is_leading).await;
        first
            .reconfigure(seats([(1, true), (2, true)]), LONG)
            .await
            .unwrap();
        let second = set.hub.members.lock().remove(&2).unwrap();
        set.until(|| second.role().leader == Some(1)).await;
        // No message comes any more, and no other member can be elected.
        set.until(|| second.role().leader.is_none()).await;
        second.shut_down().await.unwrap();

        let again = set.start(2).await;
        assert_eq!(again.role().members.peers.len(), 2, "at once");
        set.until(|| again.role().leader == Some(1)).await;
        again.shut_down().await.unwrap();
    });
}
