//! Opening a store whose log is damaged.

#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::ops::Bound::{Included, Unbounded};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frond_tree::disk::FsDisk;
use frond_tree::{
    Direction, Durability, Error, EventListener, LogCut, LogRecovery, Options, Stamps, Store,
    TreeId, TreeOptions, WriteSet,
};
use parking_lot::Mutex;

const TREE: TreeId = TreeId(1);
const COMMITS: u32 = 40;

#[derive(Default)]
struct Cuts(Mutex<Vec<LogCut>>);

impl EventListener for Cuts {
    fn log_cut(&self, cut: &LogCut) {
        self.0.lock().push(cut.clone());
    }
}

fn options(directory: &Path, recovery: LogRecovery) -> Options {
    let mut options = Options::with_disk(Arc::new(FsDisk::new(directory.to_owned(), false)));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(512 << 10);
    options.inline = true;
    options.log_recovery = recovery;
    options.stamps = Some(Arc::new(Source));
    options
}

/// The first stamp: these keys come after those of the numbers.
const FIRST_STAMP: u64 = 1 << 63;
static NEXT_STAMP: AtomicU64 = AtomicU64::new(FIRST_STAMP);

struct Source;

impl Stamps for Source {
    fn take(&self, count: u32) -> Option<u64> {
        Some(NEXT_STAMP.fetch_add(count.into(), Ordering::Relaxed))
    }
}

fn open(directory: &Path, recovery: LogRecovery) -> Result<Store, Error> {
    Store::open(options(directory, recovery))
}

fn commit(store: &Store, number: u32, how: Durability) {
    let mut set = WriteSet::new();
    // Incompressible, so that the log has several segments.
    let mut value: Vec<u8> = Vec::new();
    let mut state = u64::from(number) + 1;
    while value.len() < 4000 {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        value.extend(state.to_be_bytes());
    }
    set.put(TREE, &number.to_be_bytes(), &value);
    set.put_stamped(TREE, number % 3, b"", &number.to_be_bytes());
    store.commit(set, how).unwrap();
}

/// The files that a killed process leaves of `directory`.
fn copy(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// A store whose checkpoint has the tree only, and whose log has a segment for each of four lives. Each commit was synced,
/// and each process was killed.
fn killed() -> tempfile::TempDir {
    let mut directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), LogRecovery::Complete).unwrap();
    let mut set = WriteSet::new();
    set.create_tree(TREE, &TreeOptions::default());
    store.commit(set, Durability::Synced).unwrap();
    store.close().unwrap();
    drop(store);
    for life in 0..4 {
        let store = open(directory.path(), LogRecovery::Complete).unwrap();
        for number in life * COMMITS / 4..(life + 1) * COMMITS / 4 {
            commit(&store, number, Durability::Synced);
        }
        let next = copy(directory.path());
        drop(store);
        directory = next;
    }
    directory
}

fn segments(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("log-0") && name.ends_with(".frond"))
        .collect();
    names.sort();
    // The first one has the commit that creates the tree.
    names.split_off(1)
}

/// The number of commits; they must be the first ones.
fn count(store: &Store) -> u32 {
    let snapshot = store.snapshot();
    let is_there = |number: &u32| snapshot.get(TREE, &number.to_be_bytes()).unwrap().is_some();
    let first = (0..COMMITS).take_while(is_there).count() as u32;
    assert_eq!((first..COMMITS).find(is_there), None, "a gap after {first}");
    // The order of the stamps is that of the commits.
    let from = FIRST_STAMP.to_be_bytes();
    let cursor = snapshot.cursor(TREE, Included(&from), Unbounded, Direction::Forward);
    let (mut cursor, mut stamped) = (cursor.unwrap(), 0);
    while let Some((_, number)) = cursor.next().unwrap() {
        assert_eq!(number, u32::to_be_bytes(stamped));
        stamped += 1;
    }
    assert_eq!(stamped, first);
    first
}

/// Whatever byte of the log is damaged, the store opens with the commits before it, works, and opens again as always.
#[test]
fn a_damaged_log_is_cut_where_that_is_allowed() {
    let whole = killed();
    let names = segments(whole.path());
    assert_eq!(names.len(), 4, "{names:?}");
    let mut refused = 0;
    for (index, name) in names.iter().enumerate() {
        let len = fs::metadata(whole.path().join(name)).unwrap().len() as usize;
        for place in [0, 40, len / 3, len * 9 / 10, len - 1] {
            let directory = copy(whole.path());
            let directory = directory.path();
            let path = directory.join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[place] ^= 4;
            fs::write(&path, &bytes).unwrap();

            let complete = open(copy(directory).path(), LogRecovery::Complete).map(|_| ());
            let cuts = Arc::new(Cuts::default());
            let mut options = options(directory, LogRecovery::PointInTime);
            options.listener = cuts.clone();
            let store = Store::open(options).unwrap();
            let cuts = cuts.0.lock();
            let kept = count(&store);
            match complete {
                // The buffer still has what a damaged end of the log had.
                Ok(()) => assert_eq!((cuts.len(), kept), (0, COMMITS), "{name} {place}"),
                Err(Error::Corrupt { .. }) => {
                    refused += 1;
                    assert_eq!(cuts.len(), 1);
                    assert!(cuts[0].error.contains(name), "{cuts:?}");
                    for aside in &cuts[0].set_aside {
                        assert!(directory.join(aside).exists(), "{aside}");
                    }
                    // The damaged segment is whole in its copy.
                    let aside = directory.join(format!("{name}.damaged-1"));
                    assert_eq!(fs::read(aside).unwrap(), bytes);
                    let life = COMMITS / 4;
                    let (before, after) = (index as u32 * life, (index as u32 + 1) * life);
                    assert!((before..=after).contains(&kept), "{name} {place}: {kept}");
                }
                Err(other) => panic!("{other}"),
            }
            for number in kept..COMMITS {
                commit(&store, number, Durability::Logged);
            }
            let left = copy(directory);
            drop(store);
            let store = open(left.path(), LogRecovery::Complete).unwrap();
            assert_eq!(count(&store), COMMITS);
        }
    }
    assert!(refused > 10, "{refused}");
}

/// A segment is missing: what came before is kept.
#[test]
fn a_log_with_a_missing_segment_is_cut_where_that_is_allowed() {
    let directory = killed();
    let names = segments(directory.path());
    fs::remove_file(directory.path().join(&names[2])).unwrap();
    let refused = open(copy(directory.path()).path(), LogRecovery::Complete).err();
    assert!(
        matches!(refused, Some(Error::Corrupt { .. })),
        "{refused:?}"
    );
    let store = open(directory.path(), LogRecovery::PointInTime).unwrap();
    assert_eq!(count(&store), COMMITS / 2);
    assert!(store.was_log_cut());
    store.close().unwrap();
    drop(store);
    // As long as the rest of the log is there.
    let store = open(directory.path(), LogRecovery::Complete).unwrap();
    assert!(store.was_log_cut());
}

/// A log without damage is left as it is.
#[test]
fn an_undamaged_log_is_not_cut() {
    let directory = killed();
    let names = segments(directory.path());
    let cuts = Arc::new(Cuts::default());
    let mut options = options(directory.path(), LogRecovery::PointInTime);
    options.listener = cuts.clone();
    let store = Store::open(options).unwrap();
    assert_eq!(count(&store), COMMITS);
    assert_eq!(*cuts.0.lock(), []);
    assert!(!store.was_log_cut());
    assert!(
        names
            .iter()
            .all(|name| directory.path().join(name).exists())
    );
}
