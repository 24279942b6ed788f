//! Members of a replica set with their threads: many writers at once, large commits, and the end of a leadership among them.

use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use frond_kv::{EntryId, MemberLog};
use frond_tree::{Direction, Durability, Error, Options, Store, TreeId, TreeOptions, WriteSet};

use crate::waiting::{PATIENCE, wait_until};

const TERM: u64 = 1;

struct Signal(Sender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// A leader and a follower, and the thread in the place of consensus.
struct Pair {
    leader: Store,
    follower: Store,
    tree: TreeId,
    stop: Arc<AtomicBool>,
    driver: Option<thread::JoinHandle<u64>>,
    wake: Sender<()>,
    _directories: [tempfile::TempDir; 2],
}

fn options(directory: &tempfile::TempDir) -> Options {
    let mut options = Options::new(directory.path());
    options.cache_bytes = 16 << 20;
    options.memtable_bytes = Some(512 << 10);
    options.member = true;
    options
}

/// Calls something that reports when it is durable, and waits for that.
fn durably(call: impl FnOnce(frond_kv::Done) -> Result<(), Error>) {
    let (done, wait) = channel();
    call(Box::new(move |result| {
        let _ = done.send(result);
    }))
    .unwrap();
    wait.recv_timeout(PATIENCE).unwrap().unwrap();
}

impl Pair {
    fn new() -> Pair {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [leader, follower] = [&directories[0], &directories[1]]
            .map(|directory| Store::open(options(directory)).unwrap());
        durably(|done| {
            leader.seal(
                EntryId {
                    term: TERM,
                    index: 0,
                },
                b"members",
                done,
            )
        });
        let first = leader.read(0, 1, 0).unwrap().remove(0);
        durably(|done| follower.append(first, done));
        for store in [&leader, &follower] {
            store
                .apply(EntryId {
                    term: TERM,
                    index: 0,
                })
                .unwrap();
        }
        let before = leader.commit(WriteSet::new(), Durability::Logged);
        assert!(before.is_ok(), "an empty write set is no commit");
        leader.set_leading(true).unwrap();
        let tree = leader.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        leader.commit(set, Durability::Logged).unwrap();

        let (wake, woken) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let driver = {
            let (leader, follower, stop) = (leader.clone(), follower.clone(), stop.clone());
            let waker = Waker::from(Arc::new(Signal(wake.clone())));
            thread::spawn(move || {
                let mut index = 0;
                let mut context = Context::from_waker(&waker);
                while !stop.load(Ordering::Acquire) {
                    if leader.poll_group(&mut context) == Poll::Pending {
                        let _ = woken.recv_timeout(PATIENCE);
                        continue;
                    }
                    index += 1;
                    let id = EntryId { term: TERM, index };
                    // Both write at the same time.
                    let (done, wait) = channel();
                    let also = done.clone();
                    leader
                        .seal(id, b"", Box::new(move |result| done.send(result).unwrap()))
                        .unwrap();
                    let entry = leader.read(index, index + 1, 0).unwrap().remove(0);
                    follower
                        .append(entry, Box::new(move |result| also.send(result).unwrap()))
                        .unwrap();
                    for _ in 0..2 {
                        wait.recv_timeout(PATIENCE).unwrap().unwrap();
                    }
                    leader.apply(id).unwrap();
                    follower.apply(id).unwrap();
                }
                index
            })
        };
        Pair {
            leader,
            follower,
            tree,
            stop,
            driver: Some(driver),
            wake,
            _directories: directories,
        }
    }

    /// Waits until the follower has everything that was committed before.
    fn settle(&self) {
        let end = self.leader.end_position();
        self.leader.request(end);
        wait_until("the commit of everything", || {
            self.follower.committed_position() >= end
        });
        let last = self.leader.state().committed;
        wait_until("the follower", || self.follower.state().applied >= last);
    }

    fn end(&mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        let _ = self.wake.send(());
        self.driver.take().unwrap().join().unwrap()
    }

    fn content(&self, store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = store.snapshot();
        let mut cursor = snapshot
            .cursor(self.tree, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        let mut content = Vec::new();
        while let Some((key, value)) = cursor.next().unwrap() {
            content.push((key.to_vec(), value.to_vec()));
        }
        content
    }
}

#[test]
fn a_follower_has_what_many_writers_commit() {
    let mut pair = Pair::new();
    let acknowledged = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..8u64 {
            let (pair, acknowledged) = (&pair, &acknowledged);
            scope.spawn(move || {
                for number in 0..300u64 {
                    let mut set = WriteSet::new();
                    let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                    // Some are larger than a buffer of the log, and some than a memtable.
                    let bytes = match number {
                        100 => 200 << 10,
                        200 => 2 << 20,
                        _ => 100,
                    };
                    set.put(pair.tree, &key, &vec![number as u8; bytes]);
                    let how = if number % 10 == 0 {
                        Durability::Synced
                    } else {
                        Durability::Logged
                    };
                    pair.leader.commit(set, how).unwrap();
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    pair.settle();
    let entries = pair.end();
    let content = pair.content(&pair.leader);
    assert_eq!(content.len() as u64, acknowledged.into_inner());
    assert!(content == pair.content(&pair.follower));
    assert!(entries < 2400, "{entries} entries: commits are not grouped");
    assert!(pair.follower.stats().memtables_flushed > 0);
    let refused = pair.follower.commit(
        {
            let mut set = WriteSet::new();
            set.put(pair.tree, b"key", b"value");
            set
        },
        Durability::Logged,
    );
    assert!(matches!(refused, Err(Error::NotLeading)));
    for store in [&pair.leader, &pair.follower] {
        store.close().unwrap();
    }
}

/// Commits that a deposed leader has made alone are gone when it is opened again, and no others.
#[test]
fn a_leadership_ends_among_writers() {
    let mut pair = Pair::new();
    let deposed = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..4u64 {
            let (pair, refused, deposed) = (&pair, &refused, &deposed);
            scope.spawn(move || {
                for number in 0..u64::MAX {
                    let mut set = WriteSet::new();
                    let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                    let bytes = if number % 50 == 49 { 300 << 10 } else { 200 };
                    set.put(pair.tree, &key, &vec![1; bytes]);
                    match pair.leader.commit(set, Durability::Logged) {
                        Ok(_) => {}
                        Err(Error::NotLeading) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            assert!(deposed.load(Ordering::Acquire));
                            return;
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
        wait_until("some commits", || {
            pair.follower
                .state()
                .applied
                .is_some_and(|id| id.index > 20)
        });
        deposed.store(true, Ordering::Release);
        pair.leader.set_leading(false).unwrap();
    });
    assert_eq!(refused.into_inner(), 4);
    pair.end();
    let (last, end) = (
        pair.follower.state().last.unwrap(),
        pair.follower.end_position(),
    );
    let next = EntryId {
        term: TERM + 1,
        index: last.index + 1,
    };
    durably(|done| pair.follower.seal(next, b"", done));
    let entry = pair.follower.read(next.index, next.index + 1, 0).unwrap();
    assert_eq!(entry[0].from, end);
    // Also if it has nothing more than the follower.
    let has_more = pair.leader.end_position() > end;
    let truncated = pair.leader.truncate_after(Some(last));
    if has_more {
        assert!(matches!(truncated, Err(Error::MustReopen)));
        pair.leader.close().unwrap();
        pair.leader = Store::open(options(&pair._directories[0])).unwrap();
        pair.leader.truncate_after(Some(last)).unwrap();
    } else {
        truncated.unwrap();
    }
    durably(|done| pair.leader.append(entry[0].clone(), done));
    for store in [&pair.leader, &pair.follower] {
        store.apply(next).unwrap();
    }
    assert!(pair.content(&pair.leader) == pair.content(&pair.follower));
    pair.follower.set_leading(true).unwrap();
    let mut set = WriteSet::new();
    set.put(pair.tree, b"of the new leader", b"");
    pair.follower.commit(set, Durability::Logged).unwrap();
}

/// The end of a store with a dropped tree wrote a second checkpoint, which failed: a primary that lost its office while it ended had an
/// exit code as for damaged files.
#[test]
fn a_leader_ends_with_a_dropped_tree_and_commits_that_the_set_does_not_have() {
    let mut pair = Pair::new();
    let dropped = pair.leader.allocate_tree();
    let mut set = WriteSet::new();
    set.create_tree(dropped, &TreeOptions::default());
    set.put(dropped, b"key", b"value");
    pair.leader.commit(set, Durability::Logged).unwrap();
    pair.settle();
    pair.leader.checkpoint().unwrap();
    // While it is there, the tree is not released.
    let snapshot = pair.leader.snapshot();
    let mut set = WriteSet::new();
    set.drop_tree(dropped);
    pair.leader.commit(set, Durability::Logged).unwrap();
    pair.settle();
    pair.leader.checkpoint().unwrap();
    pair.end();
    let mut set = WriteSet::new();
    set.put(pair.tree, b"not committed by the set", b"");
    pair.leader.commit(set, Durability::Logged).unwrap();
    pair.leader.close().unwrap();
    drop(snapshot);
}
