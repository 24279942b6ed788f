//! Copies of a running store, and restores from them.

#![allow(clippy::unwrap_used, missing_docs)]

use crate::support;

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frond_tree::disk::FsDisk;
use frond_tree::{
    Direction, Duplicates, Durability, Error, ExtentId, Options, RestorePoint, Snapshot, Store,
    TreeId, TreeOptions, WriteSet,
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

/// The content after any commit.
struct Model {
    directory: tempfile::TempDir,
    store: Store,
    last: u64,
}

impl Model {
    fn new() -> Model {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(options(directory.path())).unwrap();
        store.commit(small_trees(), Durability::Logged).unwrap();
        let last = 0;
        Model {
            directory,
            store,
            last,
        }
    }

    /// After commit `last`, which is not before the one of the last call.
    fn at(&mut self, last: u64) -> Content {
        assert!(self.last <= last && self.directory.path().exists());
        for number in self.last + 1..=last {
            self.store
                .commit(commit(number), Durability::Logged)
                .unwrap();
        }
        self.last = last;
        content(&self.store.snapshot())
    }
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
    let mut cold = WriteSet::new();
    cold.create_tree(TreeId(8), &TreeOptions::default());
    for number in 0..500u32 {
        cold.put(TreeId(8), &number.to_be_bytes(), &[number as u8; 90]);
    }
    store.commit(cold, Durability::Logged).unwrap();
    store.compact().unwrap();
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
                if number.is_multiple_of(20) {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        let mut parent: Option<Copied> = None;
        let mut model = Model::new();
        for round in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let copied = Copied::take(&store, parent.as_ref()).unwrap();
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
            assert!(found == model.at(last), "round {round}, commit {last}");
            if round > 0 {
                let all: u64 = copied.extents.keys().map(|extent| extent.len).sum();
                assert!(copied.read_bytes < all, "round {round}");
            }
            parent = Some(copied);
        }
    });
}

/// A store without threads, whose log is read as it is written.
struct Archived {
    directory: tempfile::TempDir,
    store: Store,
    copied: Copied,
    /// The log's end after each commit from the copy on, by the number of the commit.
    ends: BTreeMap<u64, u64>,
}

fn inline(path: &Path) -> Options {
    let mut options = options(path);
    options.inline = true;
    options
}

/// A copy after commit 1500, and the log of 1500 more.
fn archived() -> Archived {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(inline(&directory.path().join("store"))).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    for number in 1..=1500 {
        store.commit(commit(number), Durability::Logged).unwrap();
    }
    let mut ends = BTreeMap::from([(1500, store.log_end())]);
    let copy = store.begin_copy().unwrap();
    let mut log = copy.log().unwrap();
    let mut copied = Copied::of(&store, &copy, None).unwrap();
    drop(copy);
    for number in 1501..=3000 {
        store.commit(commit(number), Durability::Logged).unwrap();
        ends.insert(number, store.log_end());
        if number % 100 == 0 {
            let flush = number % 300 == 0;
            copied.append(&mut log, 4000, flush).unwrap();
        }
    }
    assert_eq!(copied.log_end(), store.log_end());
    drop(log);
    Archived {
        directory,
        store,
        copied,
        ends,
    }
}

impl Archived {
    fn restore(&self, point: RestorePoint) -> frond_tree::Result<(tempfile::TempDir, u64)> {
        let target = tempfile::tempdir().unwrap();
        let restored = self.copied.restore(inline(target.path()), point)?;
        assert_is_sound(target.path());
        assert!(restored.end >= self.copied.complete_at);
        Ok((target, restored.end))
    }
}

#[test]
fn a_restore_ends_at_any_position() {
    let archived = archived();
    let mut model = Model::new();
    let last = archived.store.log_end();
    for number in (1500..=3000).step_by(71).chain([3000]) {
        let end = archived.ends[&number];
        let next = archived.ends.get(&(number + 1)).copied().unwrap_or(end + 1);
        let expected = model.at(number);
        for position in [end, next - 1] {
            let point = RestorePoint::Position(position);
            let (target, found) = archived.restore(point).unwrap();
            assert_eq!(found, end);
            let there = Store::open(inline(target.path())).unwrap();
            assert!(content(&there.snapshot()) == expected, "commit {number}");
            // It is a store like any other.
            there.commit(commit(1), Durability::Synced).unwrap();
        }
    }
    for position in [0, archived.copied.complete_at - 1, last + 1] {
        let error = archived.restore(RestorePoint::Position(position));
        assert!(
            matches!(error, Err(Error::InvalidOption(_))),
            "{position}: {error:?}"
        );
    }
    let (_, end) = archived.restore(RestorePoint::End).unwrap();
    assert_eq!(end, last);
    assert!(archived.directory.path().exists());
}

#[test]
fn a_damaged_or_incomplete_log_is_not_restored() {
    let mut archived = archived();
    let whole = archived.copied.log.clone();
    assert!(whole.len() > 10);
    let last = whole.len() - 1;
    for at in [0, last / 2, last] {
        let mut damaged = whole.clone();
        let middle = damaged[at].groups.len() / 2;
        damaged[at].groups[middle] ^= 1;
        let mut shorter = whole.clone();
        shorter[at].groups.pop();
        for log in [damaged, shorter] {
            archived.copied.log = log;
            let error = archived.restore(RestorePoint::End);
            assert!(
                matches!(error, Err(Error::Corrupt { .. })),
                "{at}: {error:?}"
            );
        }
    }
    let mut gap = whole.clone();
    gap.remove(last / 2);
    archived.copied.log = gap;
    let error = archived.restore(RestorePoint::End);
    assert!(matches!(error, Err(Error::Corrupt { .. })), "{error:?}");
    // Without its end it is an earlier moment, which must not be taken for a later one.
    archived.copied.log = whole[..last].to_vec();
    archived.restore(RestorePoint::End).unwrap();
    let end = RestorePoint::Position(whole[last].to);
    let error = archived.restore(end);
    assert!(matches!(error, Err(Error::InvalidOption(_))), "{error:?}");
}

#[test]
fn a_log_that_a_reader_keeps_has_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = inline(directory.path());
    options.log_hold_bytes = 1_000_000;
    let store = Store::open(options).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    let mut log = store.log_tail(Some(0)).unwrap();
    let mut slow = store.log_tail(None).unwrap();
    let segments = || {
        let names = std::fs::read_dir(directory.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.len() == 26).count()
    };
    let (mut position, mut most, mut number) = (0, 0, 0);
    let mut write = |commits: u64| {
        for _ in 0..commits {
            number += 1;
            store.commit(commit(number), Durability::Logged).unwrap();
        }
        store.checkpoint().unwrap();
    };
    for round in 1..=20 {
        write(500);
        while let Some(piece) = log.read(1000, true).unwrap() {
            assert_eq!(piece.from, position);
            position = piece.to;
        }
        most = most.max(segments());
        if round % 5 == 0 {
            log.release_before(position);
        }
    }
    assert_eq!(position, store.log_end());
    assert!(most >= 3, "{most} segments");
    // The other one has kept nothing for long.
    assert!(position > 1_200_000, "{position}");
    let error = slow.read(1000, true);
    assert!(matches!(error, Err(Error::LogGone { .. })), "{error:?}");
    write(1);
    write(1);
    assert!(segments() <= 2, "{} segments", segments());
    let error = store.log_tail(Some(0)).err();
    assert!(matches!(error, Some(Error::LogGone { .. })), "{error:?}");
    let error = store.log_tail(Some(store.log_end() + 1)).err();
    assert!(matches!(error, Some(Error::InvalidOption(_))), "{error:?}");
}

/// The damage of a block is noticed, and that of one of two copies is made good.
#[test]
fn damage_fails_a_copy_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(inline(directory.path())).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    for number in 1..=1500 {
        store.commit(commit(number), Durability::Logged).unwrap();
    }
    store.checkpoint().unwrap();
    let copy = store.begin_copy().unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(directory.path().join("data.frond"))
        .unwrap();
    let (mut failed, mut repaired) = (0, 0);
    for extent in copy.extents() {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        copy.read(extent, &mut before).unwrap();
        assert_eq!(before.len() as u64, extent.len);
        let mut byte = [0];
        file.read_exact_at(&mut byte, extent.offset + 20).unwrap();
        file.write_all_at(&[byte[0] ^ 4], extent.offset + 20)
            .unwrap();
        match copy.read(extent, &mut after) {
            Ok(()) => {
                assert!(before == after);
                repaired += 1;
            }
            Err(Error::Corrupt { file, offset, .. }) => {
                assert_eq!((&*file, offset), ("data.frond", extent.offset));
                failed += 1;
            }
            Err(error) => panic!("{error}"),
        }
        file.write_all_at(&byte, extent.offset + 20).unwrap();
    }
    // Each copy of the manifest, the map, and two pages of trees.
    assert_eq!(repaired, 8);
    assert!(failed > 20, "{failed}");
    let other = ExtentId {
        birth: 999,
        ..copy.extents()[0]
    };
    let error = copy.read(&other, &mut Vec::new());
    assert!(matches!(error, Err(Error::InvalidOption(_))), "{error:?}");
}

/// A store that goes back to the checkpoint before uses its space again, and its numbers: extents of the lost one must not
/// be taken for those.
#[test]
fn a_chain_goes_on_after_the_loss_of_a_superblock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut model = Model::new();
    let mut parent: Option<Copied> = None;
    let mut number = 0;
    for round in 0..6 {
        let store = Store::open(inline(&path)).unwrap();
        if round == 0 {
            store.commit(small_trees(), Durability::Logged).unwrap();
        }
        for part in 0..2 {
            for _ in 0..300 {
                number += 1;
                store.commit(commit(number), Durability::Logged).unwrap();
            }
            let copied = Copied::take(&store, parent.as_ref()).unwrap();
            let target = directory.path().join(format!("restored {round}.{part}"));
            copied.restore(inline(&target), RestorePoint::End).unwrap();
            assert_is_sound(&target);
            let there = Store::open(inline(&target)).unwrap();
            assert!(
                content(&there.snapshot()) == model.at(number),
                "round {round}"
            );
            parent = Some(copied);
        }
        // As a crash leaves it: without the checkpoint of the close.
        let crashed = directory.path().join(format!("crashed {round}"));
        std::fs::create_dir(&crashed).unwrap();
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), crashed.join(entry.file_name())).unwrap();
        }
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::rename(&crashed, &path).unwrap();
        if round % 2 == 1 {
            lose_newest_superblock(&path.join("data.frond"));
        }
    }
}

fn lose_newest_superblock(data: &Path) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(data)
        .unwrap();
    let generation = |slot: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, slot * 4096 + 16).unwrap();
        u64::from_le_bytes(bytes)
    };
    let newest = u64::from(generation(1) > generation(0));
    for copy in 0..2 {
        file.write_all_at(b"lost", newest * 4096 + copy * 2048 + 16)
            .unwrap();
    }
}

/// The entries of a bulk load are not in the log.
#[test]
fn trees_that_wait_for_their_load_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(inline(&directory.path().join("store"))).unwrap();
    let tree = TreeId(12);
    let mut set = small_trees();
    set.create_tree_to_load(tree, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    store.checkpoint().unwrap();
    let copy = store.begin_copy().unwrap();
    let mut log = copy.log().unwrap();
    let mut before = Copied::of(&store, &copy, None).unwrap();
    let mut loader = store
        .bulk_loader(&[(tree, Duplicates::Fail)], None)
        .unwrap();
    loader.add(0, b"key", b"value").unwrap();
    let loading_since = store.log_end();
    store.commit(commit(1), Durability::Logged).unwrap();
    loader.finish().unwrap();
    before.append(&mut log, 1 << 20, true).unwrap();
    let after = Copied::take(&store, None).unwrap();
    for (copied, loading) in [(&before, vec![tree]), (&after, vec![])] {
        let target = tempfile::tempdir().unwrap();
        let restored = copied
            .restore(inline(target.path()), RestorePoint::End)
            .unwrap();
        assert_eq!(restored.loading, loading);
        let there = Store::open(inline(target.path())).unwrap();
        assert_eq!(there.is_loading(tree), !loading.is_empty());
    }
    // The load may have what was committed before it was finished.
    let target = tempfile::tempdir().unwrap();
    let point = RestorePoint::Position(loading_since);
    let error = after.restore(inline(target.path()), point);
    assert!(matches!(error, Err(Error::InvalidOption(_))), "{error:?}");
}

#[test]
fn a_store_without_a_journal_is_copied_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = inline(&directory.path().join("store"));
    options.journal = false;
    let store = Store::open(options).unwrap();
    store.commit(small_trees(), Durability::Logged).unwrap();
    let mut model = Model::new();
    let mut parent = None;
    for number in 1..=900 {
        store.commit(commit(number), Durability::Logged).unwrap();
        if number % 300 == 0 {
            let copied = Copied::take(&store, parent.as_ref()).unwrap();
            let target = tempfile::tempdir().unwrap();
            copied
                .restore(inline(target.path()), RestorePoint::End)
                .unwrap();
            assert_is_sound(target.path());
            let there = Store::open(inline(target.path())).unwrap();
            assert!(content(&there.snapshot()) == model.at(number));
            parent = Some(copied);
        }
    }
    assert!(store.log_tail(None).is_err());
}

/// Every number, ten apart.
struct Stamps(AtomicU64);

impl frond_tree::Stamps for Stamps {
    fn take(&self, _: u32) -> Option<u64> {
        Some(self.0.fetch_add(10, Ordering::Relaxed))
    }
}

#[test]
fn a_restore_ends_at_any_stamp() {
    const STAMPED: TreeId = TreeId(50);
    let directory = tempfile::tempdir().unwrap();
    let with_stamps = |from: u64| {
        let mut options = inline(&directory.path().join("store"));
        options.stamps = Some(Arc::new(Stamps(AtomicU64::new(from))));
        options
    };
    let store = Store::open(with_stamps(1000)).unwrap();
    let mut set = small_trees();
    set.create_tree(STAMPED, &TreeOptions::default());
    store.commit(set, Durability::Logged).unwrap();
    // By the number of the commit.
    let mut stamps = BTreeMap::new();
    let mut write = |number: u64| {
        let mut set = commit(number);
        if number.is_multiple_of(3) {
            set.put_stamped(STAMPED, 0, b"", b"");
        }
        let committed = store.commit(set, Durability::Logged).unwrap();
        stamps.extend(committed.first_stamp.map(|stamp| (number, stamp)));
    };
    (1..=900).for_each(&mut write);
    let copy = store.begin_copy().unwrap();
    let mut log = copy.log().unwrap();
    let mut copied = Copied::of(&store, &copy, None).unwrap();
    drop(copy);
    (901..=1500).for_each(&mut write);
    copied.append(&mut log, 1 << 20, true).unwrap();
    let restore = |copied: &Copied, stamp: u64| {
        let target = tempfile::tempdir().unwrap();
        let restored = copied.restore(inline(target.path()), RestorePoint::Stamp(stamp))?;
        assert_is_sound(target.path());
        let there = Store::open(inline(target.path()))?;
        frond_tree::Result::Ok((restored.last_stamp, content(&there.snapshot())))
    };
    let mut model = Model::new();
    for number in (900..=1497).step_by(99) {
        // The commits without stamps that follow it are there too.
        let expected = model.at(number + 2);
        let stamp = stamps[&number];
        for stamp in [stamp, stamp + 9] {
            let (last_stamp, found) = restore(&copied, stamp).unwrap();
            let is_in_log = number > 900 || last_stamp.is_some();
            assert_eq!(last_stamp, is_in_log.then_some(stamps[&number]));
            assert!(found == expected, "commit {number}");
        }
    }
    assert!(restore(&copied, u64::MAX).unwrap().1 == model.at(1500));
    for number in [3, 150, 300] {
        let error = restore(&copied, stamps[&number]);
        assert!(matches!(error, Err(Error::InvalidOption(_))), "{number}");
    }
    // A store whose log has no stamps knows the last one all the same.
    drop(log);
    store.close().unwrap();
    let last = stamps[&1500];
    for _ in 0..2 {
        let store = Store::open(with_stamps(1 << 40)).unwrap();
        let copied = Copied::take(&store, None).unwrap();
        store.close().unwrap();
        assert!(restore(&copied, last - 1).is_err());
        restore(&copied, last).unwrap();
    }
}
