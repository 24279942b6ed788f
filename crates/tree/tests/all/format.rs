//! The format of stores: a store that was written earlier is kept in `tests/fixtures`, and today's code must read it.
//!
//! `FROND_WRITE_FIXTURE=1` writes it again. Once there is a release, that is right only together with a new format version.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use crate::simulation::model;
use crate::support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use frond_tree::disk::{Disk, FsDisk};
use frond_tree::{
    Compression, Duplicates, Durability, Error, Options, RestorePoint, Store, TreeId, TreeOptions,
    WriteSet,
};
use model::{Adder, Model, Op, Tree, check_store, write_set};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use support::SimDisk;
use support::copies::Copied;
use xxhash_rust::xxh3::xxh3_64;

const FORMAT_VERSION: u32 = 1;

const CODECS: [Compression; 5] = [
    Compression::Zstd,
    Compression::Zlib,
    Compression::Lz4,
    Compression::Snappy,
    Compression::None,
];
/// Trees 1 to 5 have a codec each. The others:
const LOADING: TreeId = TreeId(6);
const LOADED: TreeId = TreeId(7);
const DROPPED: TreeId = TreeId(8);
const EMPTY: TreeId = TreeId(9);
/// Those are only in the log.
const LOGGED: TreeId = TreeId(10);
const LOGGED_TO_LOAD: TreeId = TreeId(11);
/// Its keys are stamped; some of them are only in the log.
const STAMPED: TreeId = TreeId(12);
/// In another page of trees.
const FAR: TreeId = TreeId(700);

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1")
}

fn options(disk: Arc<dyn Disk>) -> Options {
    let mut options = Options::with_disk(disk);
    options.cache_bytes = 64 << 20;
    options.memtable_bytes = Some(48 << 10);
    options.fanout = 4;
    options.inline = true;
    options.merge = Arc::new(Adder);
    options.stamps = Some(Arc::new(Stamps(AtomicU64::new(STAMPS_FROM))));
    options
}

/// So large that the offsets carry over into the bytes before.
const STAMPS_FROM: u64 = (7 << 32) - 3;
/// Above those of the fixture.
const LATER_STAMPS: u64 = 1 << 40;

struct Stamps(AtomicU64);

impl frond_tree::Stamps for Stamps {
    fn take(&self, count: u32) -> Option<u64> {
        Some(self.0.fetch_add(count.into(), Ordering::Relaxed))
    }
}

fn tree_options(compression: Compression) -> TreeOptions {
    TreeOptions {
        compression,
        node_bytes: 4 << 10,
        page_bytes: 1 << 10,
    }
}

/// The generator of the fixture: the same numbers on every machine and with every version of every library.
struct Writer {
    store: Store,
    model: Model,
    state: u64,
    /// The next one.
    stamp: u64,
}

impl Writer {
    fn number(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn commit(&mut self, ops: Vec<Op>, how: Durability) {
        self.store.commit(write_set(&ops), how).unwrap();
        self.model.apply(&ops);
    }

    /// Commits with stamped keys and others.
    fn stamped(&mut self, commits: u64) {
        for number in 0..commits {
            let create = [Op::Create(STAMPED, tree_options(Compression::Lz4))];
            let is_there = self.model.trees.contains_key(&STAMPED);
            let mut ops: Vec<Op> = create.into_iter().filter(|_| !is_there).collect();
            ops.push(self.op(TreeId(1)));
            let mut set = write_set(&ops);
            for offset in 0..=number as u32 % 5 {
                let value = format!("{number}.{offset}").into_bytes();
                let suffix = &b"suffix"[..offset as usize];
                set.put_stamped(STAMPED, offset, suffix, &value);
                let key = [&self.stamp.to_be_bytes()[..], suffix].concat();
                ops.push(Op::Put(STAMPED, key, value));
                self.stamp += 1;
            }
            self.store.commit(set, Durability::Logged).unwrap();
            self.model.apply(&ops);
        }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key {:05}", self.number(20_000)).into_bytes()
    }

    fn op(&mut self, tree: TreeId) -> Op {
        let key = self.key();
        match self.number(100) {
            0..70 => {
                let len = self.number(90) as usize;
                Op::Put(tree, key, format!("{len} ").repeat(30)[..len].into())
            }
            70..85 => Op::Delete(tree, key),
            _ => Op::Merge(tree, key, self.number(5) as i64 - 2),
        }
    }

    fn random(&mut self, tree: TreeId, commits: u64) {
        for _ in 0..commits {
            let ops = (0..10).map(|_| self.op(tree)).collect();
            self.commit(ops, Durability::Logged);
        }
    }

    /// Forms that are rare: no key, long keys, values of all lengths.
    fn rare(&mut self, tree: TreeId) {
        let mut ops = vec![
            Op::Put(tree, Vec::new(), b"no key".to_vec()),
            Op::Put(tree, [b"key ", &[b'x'; 400][..]].concat(), Vec::new()),
            Op::Put(tree, b"key y".to_vec(), vec![b'y'; 300]),
            Op::Put(tree, b"key z".to_vec(), vec![b'z'; 66_000]),
        ];
        if tree == TreeId(2) {
            for end in [&b""[..], b"a", b"b"] {
                let key = [b"key ", &[b'l'; 65_600][..], end].concat();
                ops.push(Op::Put(tree, key, b"long".to_vec()));
            }
            let lower = [b"key ", &[b'm'; 65_600][..]].concat();
            let upper = [&lower[..], b"m"].concat();
            ops.push(Op::DeleteRange(tree, lower, Some(upper)));
        }
        self.commit(ops, Durability::Logged);
    }

    /// Keys that end with equal bytes.
    fn identified(&mut self, tree: TreeId) {
        let put = |_| {
            let number = self.number(100_000);
            let key = format!("key {} of {}, the identifier", number, number % 7);
            Op::Put(tree, key.into_bytes(), number.to_string().into_bytes())
        };
        let ops = (0..80).map(put).collect();
        self.commit(ops, Durability::Logged);
    }

    fn delete_range(&mut self, tree: TreeId, lower: &str, upper: Option<&str>) {
        let (lower, upper) = (lower.into(), upper.map(Into::into));
        let op = Op::DeleteRange(tree, lower, upper);
        self.commit(vec![op], Durability::Logged);
    }

    fn load(&mut self, tree: TreeId) {
        let mut loader = self
            .store
            .bulk_loader(&[(tree, Duplicates::LastWins)], Some(1))
            .unwrap();
        let mut content = Tree::new();
        for _ in 0..500 {
            let (key, value) = (self.key(), self.number(1000).to_string().into_bytes());
            loader.add(0, &key, &value).unwrap();
            content.insert(key, value);
        }
        loader.finish().unwrap();
        self.model.finish_load(tree, content);
    }

    /// The content of the checkpoint.
    fn checkpoint(&mut self) {
        let trees = (1..6).map(TreeId).zip(CODECS);
        let mut ops: Vec<Op> = trees
            .map(|(tree, codec)| Op::Create(tree, tree_options(codec)))
            .collect();
        for tree in [LOADING, LOADED] {
            ops.push(Op::CreateToLoad(tree, tree_options(Compression::Zstd)));
        }
        for tree in [DROPPED, EMPTY, FAR] {
            ops.push(Op::Create(tree, TreeOptions::default()));
        }
        self.commit(ops, Durability::Synced);
        for tree in [LOADING, LOADED, FAR] {
            self.random(tree, 15);
            self.delete_range(tree, "key 05", Some("key 06"));
            self.random(tree, 5);
        }
        self.load(LOADED);
        self.random(DROPPED, 2);
        self.commit(vec![Op::Drop(DROPPED)], Durability::Logged);
        for tree in (1..6).map(TreeId) {
            self.random(tree, 30);
            self.rare(tree);
            self.identified(tree);
        }
        self.random(TreeId(1), 150);
        self.stamped(20);
        self.store.checkpoint().unwrap();
        // All of this stays in buffers.
        for tree in [TreeId(1), TreeId(2)] {
            self.delete_range(tree, "key 03", Some("key 04"));
            self.delete_range(tree, "key 19", None);
            self.random(tree, 3);
        }
        self.store.checkpoint().unwrap();
    }

    /// Commits that are only in the log: small groups and a large one that is compressed.
    fn log(&mut self) {
        let create = vec![
            Op::Create(LOGGED, tree_options(Compression::Lz4)),
            Op::CreateToLoad(LOGGED_TO_LOAD, tree_options(Compression::None)),
            Op::Drop(TreeId(5)),
        ];
        self.commit(create, Durability::Synced);
        self.delete_range(LOGGED_TO_LOAD, "a", Some("b"));
        self.store.flush_log().unwrap();
        for tree in [TreeId(3), LOGGED, LOGGED_TO_LOAD] {
            self.random(tree, 5);
            self.delete_range(tree, "key 1", None);
        }
        // No operation takes a number too.
        let mut guard = WriteSet::with_snapshot(&self.store.snapshot());
        guard.guard(TreeId(1), b"key");
        self.store.commit(guard, Durability::Logged).unwrap();
        self.stamped(7);
        self.store.flush_log().unwrap();
        // These are in the buffer only.
        self.stamped(3);
    }
}

/// The content that the fixture must hold, and the files that today's code writes for it.
fn generate() -> (Model, SimDisk) {
    let disk = SimDisk::new(1);
    let mut writer = Writer {
        store: Store::open(options(Arc::new(disk.clone()))).unwrap(),
        model: Model::default(),
        state: 0x9E37_79B9_7F4A_7C15,
        stamp: STAMPS_FROM,
    };
    writer.checkpoint();
    writer.log();
    disk.crash_after(0);
    (writer.model, disk.after_kill())
}

fn write_fixture() {
    let (_, disk) = generate();
    let _ = std::fs::remove_dir_all(fixture());
    std::fs::create_dir_all(fixture()).unwrap();
    for (name, len) in disk.files() {
        let mut bytes = vec![0; len];
        let file = disk.open(&name, false).unwrap();
        file.read_at(&mut bytes, 0).unwrap();
        std::fs::write(fixture().join(name), bytes).unwrap();
    }
}

fn copy_of_fixture() -> tempfile::TempDir {
    static WRITE: Once = Once::new();
    WRITE.call_once(|| {
        if std::env::var_os("FROND_WRITE_FIXTURE").is_some() {
            write_fixture();
        }
    });
    copy(&fixture())
}

fn copy(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).expect("the fixture") {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

fn on_disk(directory: &Path) -> Options {
    options(Arc::new(FsDisk::new(directory.to_owned(), false)))
}

/// The codecs of the groups in the only segment of the log, read as FORMAT.md says.
fn codecs_of_groups(directory: &Path) -> Vec<u8> {
    let mut files = files(directory);
    // The names of the buffer and the reserve are shorter.
    let name_bytes = "log-XXXXXXXXXXXXXXXX.frond".len();
    files.retain(|(path, _)| {
        path.file_name()
            .is_some_and(|name| name.len() == name_bytes)
    });
    let [(_, log)] = files.as_slice() else {
        panic!("{} segments", files.len());
    };
    let (mut at, mut codecs) = (0, Vec::new());
    while at < log.len() {
        codecs.push(log[at + 40]);
        let stored = u32::from_le_bytes(log[at + 36..][..4].try_into().unwrap());
        at += 52 + stored as usize;
    }
    assert_eq!(at, log.len());
    codecs
}

#[test]
fn a_stored_store_is_read_and_written() {
    let directory = copy_of_fixture();
    let (mut model, _) = generate();
    let report = Store::verify(&on_disk(directory.path()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    assert!(report.log_frames > 15, "{report:?}");
    let codecs = codecs_of_groups(directory.path());
    assert!(codecs.contains(&0) && codecs.contains(&2), "{codecs:?}");
    let mut random = SmallRng::seed_from_u64(1);
    let mut later = on_disk(directory.path());
    later.stamps = Some(Arc::new(Stamps(AtomicU64::new(LATER_STAMPS))));
    let store = Store::open(later).unwrap();
    check_store(&store, &model, &mut random).unwrap();
    let stamped = model.trees.get(&STAMPED);
    let last = stamped.and_then(|stamped| stamped.keys().next_back());
    let last = last.map_or(0, |key| u64::from_be_bytes(key[..8].try_into().unwrap()));
    assert_eq!(store.durable_stamp(), last);
    assert!(last > STAMPS_FROM);
    let first = store.tree_stats(TreeId(1));
    assert!(first.height > 2 && first.pending_bytes > 0, "{first:?}");
    assert_eq!(store.tree_stats(EMPTY).height, 0);
    let mut set = WriteSet::new();
    set.put_stamped(EMPTY, 0, b"", b"stamped");
    set.put(EMPTY, b"", b"marker");
    store.commit(set, Durability::Synced).unwrap();
    let key = LATER_STAMPS.to_be_bytes().to_vec();
    model.apply(&vec![
        Op::Put(EMPTY, key, b"stamped".to_vec()),
        Op::Put(EMPTY, Vec::new(), b"marker".to_vec()),
    ]);
    let killed = copy(directory.path());
    let again = Store::open(on_disk(killed.path())).unwrap();
    check_store(&again, &model, &mut random).unwrap();
    drop(again);

    for tree in [TreeId(1), LOADING, LOADED, LOGGED_TO_LOAD] {
        let ops = vec![
            Op::Merge(tree, b"key 00001".to_vec(), 1),
            Op::DeleteRange(tree, b"key 08".to_vec(), Some(b"key 09".to_vec())),
            Op::Put(tree, b"key 08".to_vec(), b"new".to_vec()),
        ];
        store.commit(write_set(&ops), Durability::Logged).unwrap();
        model.apply(&ops);
    }
    let mut loader = store
        .bulk_loader(&[(LOADING, Duplicates::Fail)], None)
        .unwrap();
    let content = Tree::from([(b"key 00001".to_vec(), b"loaded".to_vec())]);
    for (key, value) in &content {
        loader.add(0, key, value).unwrap();
    }
    loader.finish().unwrap();
    model.finish_load(LOADING, content);
    store.compact().unwrap();
    check_store(&store, &model, &mut random).unwrap();
    store.close().unwrap();
    drop(store);
    let report = Store::verify(&on_disk(directory.path()), &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let store = Store::open(on_disk(directory.path())).unwrap();
    check_store(&store, &model, &mut random).unwrap();
}

/// A copy of the store, and one of it after a restart.
#[test]
fn copies_of_a_stored_store_are_restored() {
    let directory = copy_of_fixture();
    let (model, _) = generate();
    let store = Store::open(on_disk(directory.path())).unwrap();
    let copied = Copied::take(&store, None).unwrap();
    let births: BTreeSet<u64> = copied.extents.keys().map(|extent| extent.birth).collect();
    assert!(births.len() > 2, "{births:?}");
    let id = store.store_id();
    assert_eq!(id, copied.store_id);
    store.close().unwrap();
    drop(store);
    let store = Store::open(on_disk(directory.path())).unwrap();
    assert_eq!(store.store_id(), id);
    let next = Copied::take(&store, Some(&copied)).unwrap();
    for copied in [copied, next] {
        let target = tempfile::tempdir().unwrap();
        let options = on_disk(target.path());
        let restored = copied.restore(options.clone(), RestorePoint::End).unwrap();
        assert_ne!(restored.store_id, id);
        assert_eq!(restored.loading, [LOADING, LOGGED_TO_LOAD]);
        let report = Store::verify(&options, &mut |_| {}).unwrap();
        assert_eq!(report.problems, []);
        let there = Store::open(options).unwrap();
        assert_eq!(there.store_id(), restored.store_id);
        let mut random = SmallRng::seed_from_u64(1);
        check_store(&there, &model, &mut random).unwrap();
    }
}

/// Both superblocks, with other bytes in the version of those in `slots` and a checksum that fits.
fn with_version(directory: &Path, version: u32, slots: &[usize]) {
    let path = directory.join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    for slot in slots {
        for copy in bytes[slot * 4096..][..4096].chunks_mut(2048) {
            copy[8..12].copy_from_slice(&version.to_le_bytes());
            let sum = xxh3_64(&copy[..2040]).to_le_bytes();
            copy[2040..].copy_from_slice(&sum);
        }
    }
    std::fs::write(path, bytes).unwrap();
}

fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// It must not be taken for an empty one, whose log would be cut to nothing.
#[test]
fn a_store_of_another_format_version_is_refused_and_not_touched() {
    for version in [0, FORMAT_VERSION + 1, 8, u32::MAX] {
        for slots in [&[0, 1][..], &[0], &[1]] {
            let directory = copy_of_fixture();
            with_version(directory.path(), version, slots);
            let before = files(directory.path());
            let error = Store::open(on_disk(directory.path())).err();
            let Some(Error::Corrupt { what, .. }) = error else {
                panic!("version {version} in {slots:?}: {error:?}");
            };
            assert!(
                what.contains("format that this version does not support"),
                "{what}"
            );
            assert!(files(directory.path()) == before, "version {version}");
            let report = Store::verify(&on_disk(directory.path()), &mut |_| {}).unwrap();
            assert!(!report.is_sound());
        }
    }
}

/// The store was opened as an empty one.
#[test]
fn a_store_with_two_damaged_superblocks_is_not_taken_for_an_empty_one() {
    let directory = copy_of_fixture();
    let path = directory.path().join("data.frond");
    let mut bytes = std::fs::read(&path).unwrap();
    for copy in bytes[..8192].chunks_mut(2048) {
        copy[100] ^= 1;
    }
    std::fs::write(&path, bytes).unwrap();
    for (path, _) in files(directory.path()) {
        if !path.ends_with("data.frond") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let error = Store::open(on_disk(directory.path())).err();
    assert!(
        matches!(
            error,
            Some(Error::Corrupt {
                what: "both superblocks are damaged",
                ..
            })
        ),
        "{error:?}"
    );
}
