//! Copies of the store in the middle of everything, chains of them over crashes, and an archive of the log.

use std::sync::Arc;

use frond_tree::{Durability, Error, Options, RestorePoint, Store};
use rand::RngExt;

use crate::model::{Op, check_store, write_set};
use crate::support::SimDisk;
use crate::support::copies::Copied;
use crate::transactions::Held;
use crate::trouble::is_rot;
use crate::world::World;

impl World {
    /// Copies the store, or goes on with the archive of its log, and restores what it has by then.
    pub fn copy(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        // A restore must not meet the panics of this store.
        if self.doubt || self.may_panic {
            return Ok(());
        }
        let outcome = match self.chance(0.5) && self.archive.is_some() {
            true => self.continue_archive(store, held),
            false => self.copy_again(store),
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

    /// What is restored has all commits, but not all bulk loads.
    fn restore(&mut self, copied: &Copied) {
        let disk = SimDisk::new(self.random.random());
        let options = Options {
            disk: Arc::new(disk.clone()),
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
