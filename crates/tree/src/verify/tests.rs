use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::disk::FsDisk;
use crate::{Durability, TreeOptions, WriteSet};

fn options(path: &Path) -> Options {
    let mut options = Options::new(path);
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(64 << 10);
    options.fanout = 4;
    options
}

fn read_only(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FsDisk::read_only(path.to_owned()))
}

/// A store of four trees with deep and shallow ones, buffers, and one that is empty.
fn fill(store: &Store) {
    let tree_options = TreeOptions {
        node_bytes: 64 << 10,
        page_bytes: 1 << 10,
        ..TreeOptions::default()
    };
    let mut set = WriteSet::new();
    for number in 0..4 {
        set.create_tree(TreeId(number), &tree_options);
    }
    store.commit(set, Durability::Logged).unwrap();
    let mut random = SmallRng::seed_from_u64(3);
    for number in 0..12_000u64 {
        let mut set = WriteSet::new();
        let key = random.random_range(0..40_000_u64);
        set.put(
            TreeId(0),
            format!("{key:05}").as_bytes(),
            &[number as u8; 60],
        );
        set.put(TreeId(1), &number.to_be_bytes(), b"ascending");
        if number % 3 == 0 {
            set.delete(TreeId(0), format!("{:05}", key / 2).as_bytes());
            set.merge(TreeId(2), format!("{}", key % 50).as_bytes(), b"delta");
        }
        store.commit(set, Durability::Logged).unwrap();
    }
}

fn closed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    fill(&store);
    store.close().unwrap();
    directory
}

fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

fn verify(path: &Path) -> VerifyReport {
    Store::verify(&Options::with_disk(read_only(path)), &mut |_| {}).unwrap()
}

#[test]
fn a_sound_store_is_found_sound_and_not_touched() {
    let directory = closed();
    let before = files(directory.path());
    let mut last = 0;
    let disk = read_only(directory.path());
    let report = Store::verify(&Options::with_disk(disk), &mut |progress| {
        assert!(progress.done_bytes > last && progress.done_bytes <= progress.total_bytes);
        last = progress.done_bytes;
    })
    .unwrap();
    assert_eq!(report.problems, []);
    assert!(
        report.nodes > 2 && report.runs > 20 && report.pages > report.runs,
        "{report:?}"
    );
    assert_eq!(report.trees, 4);
    assert_eq!(report.log_frames, 0);
    assert_eq!(files(directory.path()), before);

    // A start takes all ranges to be free that nothing reaches.
    let store = Store::open(options(directory.path())).unwrap();
    let space = store.stats().space;
    assert_eq!(space.file_bytes - space.free_bytes, report.reachable_bytes);
    assert_eq!(
        report.reachable_bytes + report.free_bytes,
        report.file_bytes
    );
}

#[test]
fn a_store_that_was_not_closed_is_sound_too() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(options(directory.path())).unwrap();
    fill(&store);
    store.flush_log().unwrap();
    let copy = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        // The log first: it may be longer than needed, but must not have a gap.
        for (name, bytes) in files(directory.path()).into_iter().rev() {
            std::fs::write(copy.path().join(name), bytes).unwrap();
        }
        if verify(copy.path()).is_sound() {
            break;
        }
        // A checkpoint came between the copies.
        std::fs::remove_dir_all(copy.path()).unwrap();
        std::fs::create_dir(copy.path()).unwrap();
    }
    let before = files(copy.path());
    let report = verify(copy.path());
    assert_eq!(report.problems, []);
    assert!(report.log_frames > 0, "{report:?}");
    assert_eq!(files(copy.path()), before);
}

#[test]
fn every_flipped_bit_of_what_is_reachable_is_named() {
    let directory = closed();
    let path = directory.path().join("data.frond");
    let good = std::fs::read(&path).unwrap();
    let disk = read_only(directory.path());
    let progress = &mut |_| {};
    let mut walk = Walk::new(&disk, progress).unwrap();
    walk.all(&disk);
    let (extents, clean) = (walk.extents, walk.report);
    let mut random = SmallRng::seed_from_u64(11);
    let mut kinds = std::collections::HashSet::new();
    for step in 0..260u64 {
        let at = match step {
            // The superblocks are small beside the rest.
            0..40 => random.random_range(0..DATA_START),
            _ => random.random_range(0..good.len() as u64),
        };
        let mut bad = good.clone();
        bad[at as usize] ^= 1 << (step % 8);
        std::fs::write(&path, &bad).unwrap();
        let report = verify(directory.path());
        let extent = extents
            .iter()
            .find(|(offset, len)| (*offset..offset + len).contains(&at));
        let place = match extent {
            _ if at < DATA_START => at / 4096 * 4096..at / 4096 * 4096 + 4096,
            Some((offset, len)) => *offset..offset + len,
            None => {
                assert_eq!(report, clean, "a bit flipped at {at} in free space");
                continue;
            }
        };
        let named =
            |problem: &&Problem| problem.file == "data.frond" && place.contains(&problem.offset);
        let problem = report.problems.iter().find(named);
        let problem = problem.unwrap_or_else(|| panic!("a bit flipped at {at}: {report:?}"));
        assert!(
            problem.offset <= at || problem.kind == ProblemKind::Bounds,
            "{problem}, not at {at}"
        );
        kinds.insert(problem.kind);
    }
    assert!(kinds.contains(&ProblemKind::Damaged) && kinds.contains(&ProblemKind::Padding));
    std::fs::write(&path, &good).unwrap();
    assert_eq!(verify(directory.path()), clean);
}

#[test]
fn a_store_is_not_made_up() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::with_disk(read_only(directory.path()));
    assert!(Store::verify(&options, &mut |_| {}).is_err());
    assert!(files(directory.path()).is_empty());
    // A crash of the very first start may leave this.
    std::fs::write(directory.path().join("data.frond"), b"").unwrap();
    assert_eq!(verify(directory.path()).problems, []);
    drop(Store::open(self::options(directory.path())).unwrap());
    assert_eq!(verify(directory.path()).problems, []);
}
