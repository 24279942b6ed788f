//! The log when its process is killed, and when its files cannot be written for a while.

use std::sync::Arc;

use frond_tree::disk::Disk;
use frond_tree::{Durability, Error, Options, Result, Store, TreeId, TreeOptions, WriteSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::{EIO, EMFILE, ENOSPC, Fault, Kind, SimDisk};
use crate::waiting::wait_until;

const TREE: TreeId = TreeId(1);
const BUFFER: &str = "log-buffer.frond";
/// The buffer's file: a header, and two halves of this size with the smallest memtables.
const HEADER: usize = 4096;
const HALF: usize = 64 << 10;
/// Size of a frame's entry, at the end of a half.
const ENTRY: usize = 48;

fn open(disk: &SimDisk, inline: bool) -> Store {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 8 << 20;
    options.memtable_bytes = Some(16 << 10);
    options.inline = inline;
    Store::open(options).unwrap()
}

/// Commits a number with a value that does not shrink.
fn put(store: &Store, number: u64, len: usize, how: Durability) -> Result<()> {
    let mut set = WriteSet::new();
    if !store.has_tree(TREE) {
        set.create_tree(TREE, &TreeOptions::default());
    }
    let mut random = SmallRng::seed_from_u64(number);
    let value: Vec<u8> = (0..len).map(|_| random.random()).collect();
    set.put(TREE, &number.to_be_bytes(), &value);
    store.commit(set, how).map(drop)
}

fn has(store: &Store, number: u64) -> bool {
    store.has_tree(TREE)
        && store
            .snapshot()
            .contains(TREE, &number.to_be_bytes())
            .unwrap()
}

/// The disk after the process of this store was killed.
fn kill(disk: &SimDisk, store: Store) -> SimDisk {
    let killed = disk.after_kill();
    disk.crash_after(0);
    drop(store);
    killed
}

/// Commits that were in the memory of the process only were lost.
#[test]
fn a_kill_at_any_operation_loses_nothing_that_was_acknowledged() {
    for seed in 0..400 {
        let inline = seed % 4 > 0;
        let disk = SimDisk::new(seed);
        let store = open(&disk, inline);
        disk.crash_after(1 + seed * 3 % 500);
        let mut acknowledged = Vec::new();
        for number in 0..200 {
            let how = match number % 40 {
                39 => Durability::Synced,
                _ => Durability::Logged,
            };
            let done = put(&store, number, 300 + number as usize * 3, how).is_ok();
            if disk.has_crashed() {
                break;
            }
            assert!(done);
            acknowledged.push(number);
        }
        let disk = kill(&disk, store);
        // Killed again while it is opened.
        let again = disk.copy();
        again.crash_after(seed % 60);
        let mut options = Options::with_disk(Arc::new(again.clone()));
        options.memtable_bytes = Some(16 << 10);
        options.inline = true;
        drop(Store::open(options));
        for disk in [disk, again.after_kill()] {
            let store = open(&disk, true);
            for number in &acknowledged {
                assert!(has(&store, *number), "seed {seed}: {number} is lost");
            }
        }
    }
}

/// A store that was killed with this many commits in the buffer, and none in a segment.
fn buffered(frames: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let store = open(&disk, true);
    for number in 0..frames {
        put(&store, number, 100 + number as usize, Durability::Logged).unwrap();
    }
    kill(&disk, store)
}

/// The number of commits of a store, which must be the first ones.
fn first_commits(disk: &SimDisk, of: u64) -> u64 {
    let store = open(disk, true);
    let found = (0..of).filter(|number| has(&store, *number)).count() as u64;
    assert!((0..found).all(|number| has(&store, number)), "a gap");
    found
}

#[test]
fn a_buffer_torn_at_any_byte_is_replayed_up_to_there() {
    const FRAMES: u64 = 8;
    let disk = buffered(FRAMES);
    assert_eq!(first_commits(&disk.copy(), FRAMES), FRAMES);
    let file = disk.open(BUFFER, false).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let mut used = bytes[HEADER..].iter().take(HALF - ENTRY * FRAMES as usize);
    let used = used.rposition(|byte| *byte != 0).unwrap() + 1;
    let entries = HEADER + HALF - ENTRY * FRAMES as usize;
    let mut counts = [0; FRAMES as usize + 1];
    for at in (HEADER..HEADER + used).chain(entries..HEADER + HALF) {
        // Either this byte is another one, or all of its area from there on are as they were before.
        let (zeroed, flipped) = (disk.copy(), disk.copy());
        flipped.flip_bit(BUFFER, at * 8 + at % 8);
        let survived = first_commits(&flipped, FRAMES);
        assert!(survived < FRAMES, "byte {at} is not watched");
        counts[survived as usize] += 1;
        if at % 5 == 0 {
            let end = if at < entries {
                HEADER + used
            } else {
                HEADER + HALF
            };
            let file = zeroed.open(BUFFER, false).unwrap();
            file.write_at(&vec![0; end - at], at as u64).unwrap();
            first_commits(&zeroed, FRAMES);
        }
    }
    // Each frame counts, and the longer the more.
    assert!(
        counts[..FRAMES as usize].iter().all(|count| *count > 100),
        "{counts:?}"
    );
}

/// Frames of an earlier life are in the buffer still, and fit the end of the log: the first frame of that life was lost
/// with the machine, and the next life began with the same one.
#[test]
fn stale_frames_of_an_earlier_epoch_are_not_replayed() {
    const FRAMES: u64 = 8;
    let disk = buffered(FRAMES);
    disk.flip_bit(BUFFER, (HEADER + HALF - 1) * 8);
    let store = open(&disk, true);
    assert!((0..FRAMES).all(|number| !has(&store, number)));
    put(&store, 0, 100, Durability::Logged).unwrap();
    let disk = kill(&disk, store);
    assert_eq!(first_commits(&disk, FRAMES), 1);
    assert_eq!(first_commits(&disk, FRAMES), 1, "once more");
}

/// Another program may have written the log after the kill: a version that knows nothing of the buffer.
#[test]
fn frames_that_do_not_continue_the_log_are_not_replayed() {
    let disk = buffered(3);
    // The segment of the same place in another store, whose first commit has the same length.
    let other = SimDisk::new(2);
    let store = open(&other, true);
    put(&store, 99, 100, Durability::Synced).unwrap();
    let other = kill(&other, store);
    let (name, _) = (other.files().into_iter())
        .find(|(name, len)| name.starts_with("log-0") && *len > 0)
        .unwrap();
    let source = other.open(&name, false).unwrap();
    let mut bytes = vec![0; source.len().unwrap() as usize];
    source.read_at(&mut bytes, 0).unwrap();
    let target = disk.open(&name, false).unwrap();
    target.write_at(&bytes, 0).unwrap();
    let store = open(&disk, true);
    assert!(has(&store, 99));
    assert!((0..3).all(|number| !has(&store, number)));
}

#[test]
fn frames_larger_than_the_buffer_are_not_lost_either() {
    for inline in [true, false] {
        let disk = SimDisk::new(3);
        let mut store = open(&disk, inline);
        let mut disk = disk;
        for (number, len) in [10, HALF, 10, 300_000, 17 << 20, 10, 1 << 20]
            .into_iter()
            .enumerate()
        {
            put(&store, number as u64, len, Durability::Logged).unwrap();
            disk = kill(&disk, store);
            store = open(&disk, inline);
            assert!((0..=number as u64).all(|number| has(&store, number)));
        }
        disk.crash_after(0);
    }
}

/// A large frame is refused without a trace when it cannot be written, so that what follows takes its place.
#[test]
fn a_large_frame_that_was_refused_is_not_replayed() {
    for seed in 0..40 {
        let inline = seed % 2 == 0;
        let disk = SimDisk::new(seed);
        let store = open(&disk, inline);
        put(&store, 0, 100, Durability::Synced).unwrap();
        disk.add_fault(fault(Kind::Write, "log-0", EIO, 1));
        let refused = put(&store, 1, 100_000, Durability::Logged);
        assert!(matches!(refused, Err(Error::Stalled { .. })), "{refused:?}");
        eventually(|| put(&store, 2, 100, Durability::Logged));
        assert!(!has(&store, 1));
        let disk = kill(&disk, store);
        let store = open(&disk, inline);
        assert!(has(&store, 0) && !has(&store, 1) && has(&store, 2));
        disk.crash_after(0);
    }
}

fn fault(kind: Kind, file: &'static str, code: i32, times: u64) -> Fault {
    Fault {
        kind,
        file,
        after: 0,
        times,
        place: None,
        code,
    }
}

/// Tries until the store takes the commit.
pub(crate) fn eventually(mut commit: impl FnMut() -> Result<()>) {
    wait_until("a commit that succeeds", || {
        let assert_stalled =
            |error: &Error| assert!(matches!(error, Error::Stalled { .. }), "{error}");
        commit().inspect_err(assert_stalled).is_ok()
    });
}

/// A failed write or open of the log ended all commits until a restart.
#[test]
fn a_log_that_cannot_be_written_refuses_commits_at_once_and_goes_on_by_itself() {
    let troubles = [
        (vec![(Kind::Write, "log-0", EIO)], false),
        (
            vec![
                (Kind::Write, "log-", ENOSPC),
                (Kind::Allocate, "log-", ENOSPC),
            ],
            true,
        ),
        (vec![(Kind::Open, "", EMFILE)], false),
        (
            vec![(Kind::Open, "log-0", EIO), (Kind::Rename, "log-", EIO)],
            false,
        ),
    ];
    for (faults, full) in troubles {
        for inline in [true, false] {
            let disk = SimDisk::new(4);
            let store = open(&disk, inline);
            put(&store, 0, 100, Durability::Synced).unwrap();
            for (kind, file, code) in &faults {
                disk.add_fault(fault(*kind, file, *code, u64::MAX));
            }
            let mut number = 1;
            let error = loop {
                let how = match number % 10 {
                    0 => Durability::Synced,
                    _ => Durability::Logged,
                };
                match put(&store, number, 900, how) {
                    Ok(()) => number += 1,
                    Err(error) => break error,
                }
                assert!(number < 100_000, "{faults:?}: the fault hits nothing");
            };
            let is_right = matches!(error, Error::Stalled { disk_full, .. } if disk_full == full);
            assert!(is_right, "{faults:?}: {error:?}");
            let refused = put(&store, 1 << 40, 900, Durability::Logged);
            assert!(matches!(refused, Err(Error::Stalled { .. })), "{refused:?}");
            assert!((0..number).all(|number| has(&store, number)), "reads go on");
            let killed = disk.after_kill();
            let reopened = open(&killed, inline);
            assert!(
                (0..number).all(|number| has(&reopened, number)),
                "killed meanwhile"
            );
            assert!(!has(&reopened, 1 << 40));
            killed.crash_after(0);
            drop(reopened);

            disk.clear_faults();
            eventually(|| put(&store, number + 1, 900, Durability::Logged));
            eventually(|| put(&store, number + 2, 900, Durability::Synced));
            let disk = kill(&disk, store);
            let store = open(&disk, inline);
            assert!((0..number).all(|number| has(&store, number)), "{faults:?}");
            assert!((1..3).all(|more| has(&store, number + more)));
            disk.crash_after(0);
        }
    }
}

/// With the next segment open in advance, a log without file handles goes on in it.
#[test]
fn a_log_without_file_handles_begins_one_more_segment() {
    let disk = SimDisk::new(5);
    let store = open(&disk, true);
    put(&store, 0, 100, Durability::Synced).unwrap();
    let segments = |disk: &SimDisk| {
        let files = disk.files().into_iter();
        files
            .filter(|(name, len)| name.starts_with("log-0") && *len > 0)
            .count()
    };
    let before = segments(&disk);
    disk.add_fault(fault(Kind::Open, "", EMFILE, u64::MAX));
    disk.add_fault(fault(Kind::Remove, "", EMFILE, u64::MAX));
    let mut number = 1;
    while put(&store, number, 900, Durability::Synced).is_ok() {
        number += 1;
    }
    assert_eq!(segments(&disk), before + 1);
    assert!(number > 15, "only {number} commits");
    let store = open(&kill(&disk, store), true);
    assert!((0..number).all(|number| has(&store, number)));
}

/// With a memtable that holds all that the log has room for.
fn with_memtable(disk: &SimDisk, inline: bool) -> Options {
    let mut options = Options::with_disk(Arc::new(disk.clone()));
    options.cache_bytes = 160 << 20;
    options.memtable_bytes = Some(40 << 20);
    options.inline = inline;
    options
}

/// A store that was killed on a full disk opens there, with all that was acknowledged, and goes on when there is room.
#[test]
fn a_store_killed_on_a_full_disk_opens_on_it() {
    for (left, inline) in [(0, true), (0, false), (100_000, true), (100_000, false)] {
        let mut disk = SimDisk::new(6);
        let mut store = Store::open(with_memtable(&disk, inline)).unwrap();
        disk.fill("", left);
        let mut number = 0;
        while put(&store, number, 50_000, Durability::Logged).is_ok() {
            number += 1;
        }
        assert!(number > 0);
        for _ in 0..5 {
            disk = kill(&disk, store);
            disk.fill("", 0);
            store = Store::open(with_memtable(&disk, inline)).unwrap();
            assert!((0..number).all(|number| has(&store, number)), "reads work");
            let refused = put(&store, number, 50_000, Durability::Logged);
            let is_full = matches!(
                refused,
                Err(Error::Stalled {
                    disk_full: true,
                    ..
                })
            );
            assert!(is_full || refused.is_ok(), "{refused:?}");
            number += u64::from(refused.is_ok());
        }
        disk.clear_faults();
        eventually(|| put(&store, number, 50_000, Durability::Synced));
        let disk = kill(&disk, store);
        let store = Store::open(with_memtable(&disk, inline)).unwrap();
        assert!((0..=number).all(|number| has(&store, number)));
        disk.crash_after(0);
    }
}

/// A store did not open where its buffers held more than the reserve of the log has room for.
#[test]
fn a_store_whose_log_has_no_room_at_all_opens() {
    for inline in [true, false] {
        let mut disk = SimDisk::new(8);
        let mut store = open(&disk, inline);
        put(&store, 0, 700, Durability::Synced).unwrap();
        let is_full = |disk: &SimDisk| {
            for kind in [Kind::Write, Kind::Allocate] {
                disk.add_fault(fault(kind, "log-", ENOSPC, u64::MAX));
            }
        };
        is_full(&disk);
        let mut number = 1;
        while put(&store, number, 700, Durability::Logged).is_ok() {
            number += 1;
        }
        assert!(number > 1);
        for _ in 0..3 {
            disk = kill(&disk, store);
            is_full(&disk);
            store = open(&disk, inline);
            assert!((0..number).all(|number| has(&store, number)), "reads work");
            let refused = put(&store, number, 700, Durability::Logged);
            assert!(
                matches!(refused, Err(Error::Stalled { disk_full, .. }) if disk_full),
                "{refused:?}"
            );
        }
        disk.clear_faults();
        eventually(|| put(&store, number, 700, Durability::Synced));
        disk = kill(&disk, store);
        let store = open(&disk, inline);
        assert!((0..=number).all(|number| has(&store, number)));
        disk.crash_after(0);
    }
}

/// Where files cannot be mapped, each commit is in the segment before it returns.
#[test]
fn a_log_that_cannot_be_mapped_loses_nothing_either() {
    for (kind, code) in [(Kind::Map, EIO), (Kind::Write, ENOSPC)] {
        for inline in [true, false] {
            let disk = SimDisk::new(7);
            disk.add_fault(fault(kind, "log-buffer", code, u64::MAX));
            let store = open(&disk, inline);
            assert!(!store.stats().log_is_mapped);
            assert!(disk.files().iter().all(|(name, _)| name != BUFFER));
            for number in 0..50 {
                put(&store, number, 700, Durability::Logged).unwrap();
                if number % 7 == 0 {
                    let killed = disk.after_kill();
                    let reopened = open(&killed, inline);
                    assert!(reopened.stats().log_is_mapped);
                    assert!((0..=number).all(|number| has(&reopened, number)));
                    killed.crash_after(0);
                }
            }
            disk.add_fault(fault(Kind::Write, "log-0", EIO, 1));
            let refused = put(&store, 50, 700, Durability::Logged);
            assert!(matches!(refused, Err(Error::Stalled { .. })), "{refused:?}");
            eventually(|| put(&store, 51, 700, Durability::Logged));
            let disk = kill(&disk, store);
            let store = open(&disk, inline);
            assert!((0..52).all(|number| has(&store, number) == (number != 50)));
            disk.crash_after(0);
        }
    }
}
