//! Copies of a running store, and restores from them.

#![allow(clippy::unwrap_used, missing_docs)]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frond_tree::disk::FsDisk;
use frond_tree::{
    Direction, Durability, Options, RestorePoint, Snapshot, Store, TreeId, TreeOptions, WriteSet,
};
use support::copies::Copied;

const TREES: [TreeId; 3] = [TreeId(0), TreeId(7), TreeId(300)];
/// The tree whose only key has the number of the commit.
const COUNTER: TreeId = TreeId(7);

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

fn small_trees() -> WriteSet {
    let mut set = WriteSet::new();
    for tree in TREES {
        set.create_tree(
            tree,
            &TreeOptions {
                node_bytes: 16 << 10,
                page_bytes: 1 << 10,
                ..TreeOptions::default()
            },
        );
    }
    set
}

/// Commit `number`: each is a function of its number, so a model of any moment can be made.
fn commit(number: u64) -> WriteSet {
    let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let key = |salt: u64| format!("{:05}", (random ^ salt) % 5000).into_bytes();
    let mut set = WriteSet::new();
    set.put(COUNTER, b"last", &number.to_be_bytes());
    set.put(TREES[0], &key(0), &number.to_be_bytes());
    set.put(TREES[2], &key(77), &[number as u8; 60]);
    set.delete(TREES[0], &key(999));
    if number.is_multiple_of(50) {
        let (lower, upper) = (key(5), key(5));
        set.delete_range(TREES[2], &lower[..3], Some(&upper[..4]));
    }
    set
}

fn content(snapshot: &Snapshot) -> Content {
    let mut content = Content::new();
    for tree in TREES {
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            content.insert((tree.0, key.to_vec()), value.to_vec());
        }
    }
    content
}

/// The content after commit `last`.
fn model(last: u64) -> Content {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    for number in 1..=last {
        store.commit(commit(number), Durability::Logged).unwrap();
    }
    content(&store.snapshot())
}

fn last_commit(content: &Content) -> u64 {
    let value = &content[&(COUNTER.0, b"last".to_vec())];
    u64::from_be_bytes(value[..].try_into().unwrap())
}

/// Ends the writer, also when a check fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn assert_is_sound(path: &Path) {
    let disk = Arc::new(FsDisk::read_only(path.to_owned()));
    let report = Store::verify(&Options::with_disk(disk), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn a_copy_is_a_moment_of_the_store_whatever_is_written_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(&directory.path().join("store"))).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    let stop = AtomicBool::new(false);
    let stop = &stop;
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(stop);
        scope.spawn(|| {
            for number in 1.. {
                store.commit(commit(number), Durability::Logged).unwrap();
                if number > 3000 && stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let mut parent: Option<Copied> = None;
        for round in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let copied = Copied::take(&store, parent.as_ref().filter(|_| false)).unwrap();
            let path = directory.path().join(format!("restored {round}"));
            let restored = copied.restore(options(&path), RestorePoint::End).unwrap();
            assert_eq!(
                (restored.end, restored.loading.len()),
                (copied.log_end(), 0)
            );
            assert_ne!(restored.store_id, store.store_id());
            assert_is_sound(&path);
            let there = Store::open(options(&path)).unwrap();
            let found = content(&there.snapshot());
            let last = last_commit(&found);
            assert!(found == model(last), "round {round}, commit {last}");
            parent = Some(copied);
        }
    });
}
