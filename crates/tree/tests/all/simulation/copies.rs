//! Copies of the store in the middle of everything, chains of them over crashes, and an archive of the log.

use std::ops::Bound::Unbounded;
use std::sync::Arc;

use frond_tree::{
    Direction, Durability, Error, Options, RestorePoint, Store, TreeId, TreeOptions, WriteSet,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::simulation::model::{Op, check_store, write_set};
use crate::simulation::transactions::Held;
use crate::simulation::trouble::is_rot;
use crate::simulation::world::World;
use crate::support::SimDisk;
use crate::support::copies::Copied;

const NUMBERS: TreeId = TreeId(1);

impl World {
    /// Copies the store, or goes on with the archive of its log, and restores what it has by then.
    pub fn copy(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        // A restore must not meet the panics of this store.
        if self.doubt || self.may_panic {
            return Ok(());
        }
        let outcome = if self.chance(0.5) && self.archive.is_some() {
            self.continue_archive(store, held)
        } else {
            self.copy_again(store)
        };
        match outcome {
            Err(error) if is_rot(&self.disk, &error) => Ok(()),
            outcome => outcome,
        }
    }

    fn copy_again(&mut self, store: &Store) -> Result<(), Error> {
        let copied = Copied::take(store, self.copied.as_ref())?;
        // It has made all of it durable.
        self.safe = self.pending.len();
        if !self.journal {
            self.saved(Ok(()))?;
        }
        let continues = self.copied.as_ref().map(|copied| copied.store_id) == Some(copied.store_id);
        self.outcome.counts.incremental_copies += u64::from(continues);
        self.outcome.counts.copies += 1;
        self.restore(&copied);
        if self.archive.is_none() || self.chance(0.3) {
            self.archive = Some(copied.clone()).filter(|_| self.journal);
        }
        self.copied = Some(copied);
        Ok(())
    }

    fn continue_archive(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        let Some(mut archive) = self.archive.take() else {
            return Ok(());
        };
        if archive.store_id != store.store_id() {
            return Ok(());
        }
        // Not always the one of the last time: then the log may be gone.
        let kept = held
            .log
            .take()
            .filter(|log| log.position() == archive.log_end());
        let log = match kept {
            Some(log) => Ok(log),
            None => store.log_tail(Some(archive.log_end())),
        };
        let mut log = match log {
            Ok(log) => log,
            Err(Error::LogGone { .. }) => {
                self.outcome.counts.archive_gaps += 1;
                return Ok(());
            }
            Err(error) => {
                self.archive = Some(archive);
                return Err(error);
            }
        };
        let bytes_max = self.random.random_range(1..10_000);
        let appended = archive.append(&mut log, bytes_max, true);
        held.log = Some(log);
        if let Err(Error::LogGone { .. }) = appended {
            return Ok(());
        }
        self.archive = Some(archive.clone());
        appended?;
        self.safe = self.pending.len();
        self.outcome.counts.archived += 1;
        self.restore(&archive);
        Ok(())
    }

    /// The restored store has all commits, but not all bulk loads.
    fn restore(&mut self, copied: &Copied) {
        let disk = SimDisk::new(self.random.random());
        let options = Options {
            disk: self.with_keys_of_copy(&disk),
            journal: true,
            ..self.options()
        };
        let restored = copied.restore(options.clone(), RestorePoint::End).unwrap();
        let report = Store::verify(&options, &mut |_| {}).unwrap();
        assert_eq!(report.problems, []);
        let there = Store::open(options).unwrap();
        let mut model = self.now.clone();
        let is_missing = |tree| !self.now.loading.contains_key(tree);
        for tree in restored.loading.iter().filter(|tree| is_missing(tree)) {
            assert!(there.is_loading(*tree));
            model.trees.remove(tree);
            there
                .commit(write_set(&vec![Op::Drop(*tree)]), Durability::Logged)
                .unwrap();
        }
        check_store(&there, &model, &mut self.random).unwrap();
    }
}

/// Commits a number with a value that does not shrink, not durably.
fn put(store: &Store, number: u32) -> Result<(), Error> {
    let mut set = WriteSet::new();
    if !store.has_tree(NUMBERS) {
        set.create_tree(NUMBERS, &TreeOptions::default());
    }
    let mut random = SmallRng::seed_from_u64(number.into());
    let value: Vec<u8> = (0..300).map(|_| random.random()).collect();
    set.put(NUMBERS, &number.to_be_bytes(), &value);
    store.commit(set, Durability::Logged).map(drop)
}

fn numbers(store: &Store) -> Vec<u32> {
    let snapshot = store.snapshot();
    let mut found = Vec::new();
    if store.has_tree(NUMBERS) {
        let mut cursor = snapshot
            .cursor(NUMBERS, Unbounded, Unbounded, Direction::Forward)
            .unwrap();
        while let Some((key, _)) = cursor.next().unwrap() {
            found.push(u32::from_be_bytes(key.try_into().unwrap()));
        }
    }
    found
}

/// A checkpoint beside commits that a crash loses: the log went on with later sequence numbers than it ended with, so the
/// archive could not be restored. Where the crash lost a part of the log before the checkpoint, the archive was called damaged.
#[test]
fn an_archive_goes_on_over_a_crash_or_learns_that_the_log_is_gone() {
    let (mut continued, mut gone) = (0, 0);
    for seed in 0..1000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let options = |disk: &SimDisk| {
            let mut options = Options::with_disk(Arc::new(disk.clone()));
            options.cache_bytes = 8 << 20;
            options.memtable_bytes = Some(16 << 10);
            options.inline = true;
            options
        };
        let disk = SimDisk::new(seed);
        let store = Store::open(options(&disk)).unwrap();
        let mut number = 0;
        for _ in 0..random.random_range(0..100) {
            put(&store, number).unwrap();
            number += 1;
        }
        let mut archive = Copied::take(&store, None).unwrap();
        if seed % 2 == 0 {
            // It is crashed while it is closed: a checkpoint has the first memtable, but not the second one, whose commits are lost.
            let durable = number + random.random_range(30..60);
            while number < durable {
                put(&store, number).unwrap();
                store.flush_log().unwrap();
                number += 1;
            }
            for _ in 0..5 {
                put(&store, number).unwrap();
                number += 1;
            }
            disk.crash_after(random.random_range(0..20));
            let _ = store.close();
        } else {
            disk.crash_after(random.random_range(1..200));
            while !disk.has_crashed() {
                // The one that meets the crash may fail.
                let _ = put(&store, number);
                number += 1;
            }
        }
        let disk = disk.after_crash(&mut random);
        drop(store);

        let store = Store::open(options(&disk)).unwrap();
        for later in 1_000_000..1_000_000 + random.random_range(1..100) {
            put(&store, later).unwrap();
        }
        let appended = match store.log_tail(Some(archive.log_end())) {
            Ok(mut log) => archive.append(&mut log, 1 << 20, true),
            Err(error) => Err(error),
        };
        match appended {
            Ok(()) => continued += 1,
            Err(Error::LogGone { .. }) => {
                gone += 1;
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        let restored = SimDisk::new(seed);
        archive
            .restore(options(&restored), RestorePoint::End)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let restored = Store::open(options(&restored)).unwrap();
        assert_eq!(numbers(&restored), numbers(&store), "seed {seed}");
    }
    assert!(
        continued >= 20 && gone >= 20,
        "{continued} continued, {gone} gone"
    );
}
