//! Salvage of damaged stores: everything is there that the report does not list as lost.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frond_tree::disk::FsDisk;
use frond_tree::{
    Direction, Durability, Error, Options, SalvageReport, Store, TreeId, TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const TREES: [u32; 4] = [0, 1, 2, 700];

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

fn fill(store: &Store, random: &mut SmallRng, commits: u64) {
    let mut set = WriteSet::new();
    for tree in TREES.map(TreeId) {
        let tree_options = TreeOptions {
            node_bytes: 64 << 10,
            page_bytes: 1 << 10,
            ..TreeOptions::default()
        };
        set.create_tree(tree, &tree_options);
    }
    store.commit(set, Durability::Logged).unwrap();
    for number in 0..commits {
        let mut set = WriteSet::new();
        let key = format!("{:05}", random.random_range(0..30_000));
        set.put(TreeId(0), key.as_bytes(), &[number as u8; 60]);
        set.put(TreeId(1), &number.to_be_bytes(), b"ascending");
        set.merge(TreeId(2), &key.as_bytes()[..3], &number.to_be_bytes());
        if number % 3 == 0 {
            let key = format!("{:05}", random.random_range(0..30_000));
            set.delete(TreeId(0), key.as_bytes());
        }
        if number % 20 == 0 {
            let from = random.random_range(0..29_900u32);
            let [lower, upper] = [from, from + 50].map(|key| format!("{key:05}"));
            set.delete_range(TreeId(0), lower.as_bytes(), Some(upper.as_bytes()));
        }
        // So that the log has many groups.
        let how = match number % 50 {
            0 => Durability::Synced,
            _ => Durability::Logged,
        };
        store.commit(set, how).unwrap();
    }
}

fn content(store: &Store) -> Content {
    let snapshot = store.snapshot();
    let mut content = Content::new();
    for tree in TREES
        .map(TreeId)
        .into_iter()
        .filter(|tree| store.has_tree(*tree))
    {
        let mut cursor = snapshot
            .cursor(tree, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        while let Some((key, value)) = cursor.next().unwrap() {
            content.insert((tree.0, key.to_vec()), value.to_vec());
        }
    }
    content
}

/// A closed store, what is in it, and room for copies.
struct Case {
    directory: tempfile::TempDir,
    content: Content,
    random: SmallRng,
    copies: u32,
}

impl Case {
    fn new(commits: u64) -> Case {
        let directory = tempfile::tempdir().unwrap();
        let mut random = SmallRng::seed_from_u64(commits);
        let store = Store::open(options(&directory.path().join("good"))).unwrap();
        fill(&store, &mut random, commits);
        let content = content(&store);
        store.close().unwrap();
        Case {
            directory,
            content,
            random,
            copies: 0,
        }
    }

    /// A copy of the store for damage.
    fn copy(&mut self) -> PathBuf {
        self.copies += 1;
        let copy = self.directory.path().join(format!("copy {}", self.copies));
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(self.directory.path().join("good")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        copy
    }

    /// Salvages a copy, and removes it.
    fn salvage(&self, copy: &Path) -> (SalvageReport, Content) {
        let target = self.directory.path().join("new");
        let source = Options::with_disk(Arc::new(FsDisk::read_only(copy.to_owned())));
        let report = Store::salvage(&source, options(&target), &mut |_| {}).unwrap();
        let disk = Arc::new(FsDisk::read_only(target.clone()));
        let verified = Store::verify(&Options::with_disk(disk), &mut |_| {}).unwrap();
        assert_eq!(verified.problems, []);
        let found = content(&Store::open(options(&target)).unwrap());
        std::fs::remove_dir_all(&target).unwrap();
        std::fs::remove_dir_all(copy).unwrap();
        (report, found)
    }
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// The log's only segment.
fn segment(path: &Path) -> PathBuf {
    let files = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .into_iter()
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("log-0")
        })
        .max_by_key(|path| std::fs::metadata(path).unwrap().len())
        .unwrap()
}

fn without_log(path: &Path) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("log-")
        {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn all_of_a_sound_store_is_salvaged() {
    let mut case = Case::new(8000);
    let copy = case.copy();
    let (report, found) = case.salvage(&copy);
    assert_eq!((&report.problems[..], &report.lost[..]), (&[][..], &[][..]));
    assert!(!report.is_older_checkpoint && report.trees == 4 && report.log_frames == 0);
    assert!(found == case.content);
}

#[test]
fn what_is_not_salvaged_is_called_lost() {
    let mut case = Case::new(8000);
    let (mut with_loss, mut gone, mut reborn) = (0, 0, 0);
    // The size of what is pending in buffers, where older values lie below, differs from run to run.
    for round in 0..300 {
        if round >= 60 && with_loss > 20 && gone > 0 && reborn > 0 {
            break;
        }
        let copy = case.copy();
        let mut places = Vec::new();
        change(&copy.join("data.frond"), |bytes| {
            for _ in 0..case.random.random_range(1..4) {
                let at = case.random.random_range(8192..bytes.len());
                bytes[at] ^= 1 << case.random.random_range(0..8);
                places.push(at);
            }
        });
        let (report, found) = case.salvage(&copy);
        if report.is_older_checkpoint {
            // The manifest itself. The extents of the older checkpoint may have been used again.
            continue;
        }
        with_loss += u32::from(!report.lost.is_empty());
        for key in case.content.keys().chain(found.keys()) {
            let (before, after) = (case.content.get(key), found.get(key));
            if before == after {
                continue;
            }
            let lost = report.lost.iter().find(|lost| {
                lost.tree.0 == key.0
                    && *lost.lower <= *key.1
                    && lost.upper.as_ref().is_none_or(|upper| key.1 < *upper)
            });
            let is_named = lost.is_some() || report.lost_tree_pages > 0;
            assert!(is_named, "{key:?} at {places:?}: {report:?}");
            match (before, after) {
                (Some(_), None) => gone += 1,
                _ => reborn += 1,
            }
        }
        let is_whole = report.lost.is_empty() && report.lost_tree_pages == 0;
        assert!(!is_whole || found == case.content, "{places:?}");
    }
    assert!(
        with_loss > 20 && gone > 0 && reborn > 0,
        "{with_loss} {gone} {reborn}"
    );
}

#[test]
fn the_older_checkpoint_is_taken_when_the_newer_is_damaged() {
    let mut case = Case::new(5000);
    for slot in 0..2 {
        let copy = case.copy();
        change(&copy.join("data.frond"), |bytes| {
            for copy in 0..2 {
                bytes[slot * 4096 + copy * 2048 + 9] ^= 1;
            }
        });
        let (report, found) = case.salvage(&copy);
        assert!(report.checkpoint > 0 && report.is_older_checkpoint);
        assert_eq!(report.problems[0].offset, slot as u64 * 4096);
        assert!(found == case.content, "the log has the rest");
    }
}

#[test]
fn the_log_alone_is_salvaged_when_no_checkpoint_is_left() {
    let mut case = Case::new(3000);
    let copy = case.copy();
    change(&copy.join("data.frond"), |bytes| bytes[..8192].fill(0xff));
    let (report, found) = case.salvage(&copy);
    assert_eq!((report.checkpoint, report.problems.len()), (0, 2));
    assert!(found == case.content);
    assert!(report.log_frames > 3000);

    let copy = case.copy();
    change(&copy.join("data.frond"), |bytes| bytes[..8192].fill(0xff));
    without_log(&copy);
    let (report, found) = case.salvage(&copy);
    assert_eq!((report.trees, found.len()), (0, 0));
}

#[test]
fn the_log_is_salvaged_up_to_the_damage() {
    let mut case = Case::new(3000);
    let copy = case.copy();
    change(&copy.join("data.frond"), |bytes| bytes[..8192].fill(0xff));
    change(&segment(&copy), |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    let (report, found) = case.salvage(&copy);
    assert!(
        report.log_frames > 0 && report.log_frames < 3000,
        "{report:?}"
    );
    let ascending = |content: &Content| content.keys().filter(|key| key.0 == 1).count() as u64;
    // The first frame creates the trees.
    assert_eq!(ascending(&found), report.log_frames - 1);
}

#[test]
fn nothing_is_salvaged_over_a_store() {
    let mut case = Case::new(10);
    let copy = case.copy();
    let source = Options::with_disk(Arc::new(FsDisk::read_only(copy.clone())));
    let error = Store::salvage(&source, options(&copy), &mut |_| {});
    assert!(matches!(error, Err(Error::InvalidOption(_))), "{error:?}");
    let nothing = Options::with_disk(Arc::new(FsDisk::read_only(case.directory.path().into())));
    let target = options(&case.directory.path().join("new"));
    assert!(Store::salvage(&nothing, target, &mut |_| {}).is_err());
}
