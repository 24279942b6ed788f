//! A store that is opened many times: each life works on it, and mostly ends in a crash.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use frond_encryption::{Ciphers, Key, StoreKeys};
use frond_tree::disk::{Disk, EncryptedDisk};
use frond_tree::{
    Committed, Duplicates, Durability, Error, Options, Problem, ProblemKind, Snapshot, Store,
    TreeId,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::simulation::model::{
    Adder, Commit, Model, Op, Tree, check_damaged_store, check_tree, commits_in,
    panic_in_merge_after, random_value, write_set,
};
use crate::simulation::stamps::Source;
use crate::simulation::transactions::Held;
use crate::simulation::trouble::{Outcome, Trouble, is_rot, is_rotten};
use crate::support::SimDisk;
use crate::support::copies::Copied;
use crate::waiting::wait_for;

/// A store and what is known about it.
pub struct World {
    pub random: SmallRng,
    pub disk: SimDisk,
    pub inline: bool,
    flush_threads: usize,
    pub journal: bool,
    /// The keys of an encrypted store.
    keys: Option<Arc<StoreKeys>>,
    /// Whether it is encrypted after a while.
    is_to_be_encrypted: bool,
    pub fanout: usize,
    pub memtable_bytes: usize,
    /// Whether the store is verified after a crash.
    pub verifies: bool,
    /// The commits that were found at the last look, and are durable.
    pub base: Model,
    /// Commits after it, and how many of them must survive.
    pub pending: Vec<Commit>,
    pub safe: usize,
    /// The number of them that were acknowledged before the crash: a crash of the process alone loses none of these.
    pub acknowledged: usize,
    /// The number of them that the last crash had to leave.
    pub owed: usize,
    /// The entries that loaders brought since then, and whether it must survive.
    pub loaded: BTreeMap<TreeId, (Tree, bool)>,
    /// The content with all pending commits, but for the last one while it is unknown whether it happened.
    pub now: Model,
    pub doubt: bool,
    /// The number of the last commit that changed an account, in this life.
    pub transfers: BTreeMap<u8, u64>,
    /// Gives out stamps, in all lives.
    pub stamps: Arc<Source>,
    /// The last stamp of `base`, and the durable stamp in this life.
    pub base_stamp: u64,
    pub durable_stamp: u64,
    /// The last copy, and one with the log since then.
    pub copied: Option<Copied>,
    pub archive: Option<Copied>,
    /// Whether the last transaction was aborted for another reason than a conflict.
    pub has_ended: bool,
    /// Whether this life knows what survived the last one.
    pub looked: bool,
    /// Whether syncs fail in this life: the system may have dropped what it says it has.
    pub syncs_fail: bool,
    /// Whether sectors of the data go bad.
    pub rots: bool,
    /// A part of the data file that takes no writes, and the number of lives for which that holds.
    pub unwritable: Option<(Range<u64>, u32)>,
    /// Whether the fault that comes and goes is there.
    pub is_there: bool,
    /// The commit that is being done.
    pub attempt: Option<Commit>,
    /// Whether the last action had a panic in it, and whether it ended the process.
    pub panicked: bool,
    pub ended: bool,
    /// Whether the engine may panic in this action.
    pub may_panic: bool,
    pub outcome: Outcome,
}

/// Why the work ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Enough,
    Crashed,
    Failed,
}

fn first_key() -> Arc<StoreKeys> {
    StoreKeys::single(Key::new([7; 32]))
}

/// Runs one seed. `inline` decides all, and so does the machine's scheduler without it.
pub fn run(seed: u64, inline: bool, encrypted: bool) -> Outcome {
    let mut random = SmallRng::seed_from_u64(seed);
    let begins_plain = (seed / 4).is_multiple_of(3);
    let mut world = World {
        disk: SimDisk::new(random.random()),
        inline,
        flush_threads: 1 + (seed / 2 % 4) as usize,
        journal: random.random_bool(0.9),
        keys: (encrypted && !begins_plain).then(first_key),
        is_to_be_encrypted: encrypted && begins_plain,
        fanout: random.random_range(4..8),
        memtable_bytes: 16 << 10 << random.random_range(0..3),
        verifies: seed.is_multiple_of(3),
        base: Model {
            has_bank: true,
            ..Model::default()
        },
        pending: Vec::new(),
        safe: 0,
        acknowledged: 0,
        owed: 0,
        syncs_fail: false,
        rots: random.random_bool(0.25),
        unwritable: None,
        is_there: false,
        attempt: None,
        panicked: false,
        ended: false,
        may_panic: false,
        loaded: BTreeMap::new(),
        now: Model::default(),
        transfers: BTreeMap::new(),
        stamps: Arc::default(),
        base_stamp: 0,
        durable_stamp: 0,
        copied: None,
        archive: None,
        has_ended: false,
        doubt: false,
        looked: false,
        outcome: Outcome::default(),
        random,
    };
    let lives = world.random.random_range(4..16);
    for _ in 0..lives {
        world.live();
    }
    world.disk.refuse_writes(None);
    let store = world.open().expect("a disk without faults");
    world.look(&store).expect("a disk without faults");
    world.disk.crash_after(0);
    drop(store);
    world.outcome.trace = world.disk.trace();
    world.outcome
}

impl World {
    pub fn options(&self) -> Options {
        let mut options = Options::with_disk(self.with_keys(&self.disk));
        // The pages that a full cache gives up are not the same each time, and reads are a part of the trace.
        options.cache_bytes = if self.inline { 64 << 20 } else { 8 << 20 };
        options.memtable_bytes = Some(self.memtable_bytes);
        options.fanout = self.fanout;
        options.inline = self.inline;
        options.flush_threads = self.flush_threads;
        options.journal = self.journal;
        options.journal_commit_interval = std::time::Duration::from_millis(1);
        options.merge = Arc::new(Adder);
        options.stamps = Some(self.stamps.clone());
        options
    }

    /// A disk as the engine gets it. Each open has ciphers of its own.
    pub fn with_keys(&self, disk: &SimDisk) -> Arc<dyn Disk> {
        World::with(self.keys.as_ref(), disk)
    }

    /// As [`World::with_keys`], for a copy that may be older than the encryption of the store.
    pub fn with_keys_of_copy(&self, disk: &SimDisk) -> Arc<dyn Disk> {
        let keys = self.keys.as_ref().map(|keys| keys.accepting_plain());
        World::with(keys.as_ref(), disk)
    }

    fn with(keys: Option<&Arc<StoreKeys>>, disk: &SimDisk) -> Arc<dyn Disk> {
        let disk = Arc::new(disk.clone());
        match keys {
            None => disk,
            Some(keys) => {
                let ciphers = Ciphers::simulated(keys, disk.unique_name()).unwrap();
                Arc::new(EncryptedDisk::new(disk, Arc::new(ciphers)))
            }
        }
    }

    fn open(&self) -> Result<Store, Error> {
        Store::open(self.options())
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn live(&mut self) {
        (self.looked, self.syncs_fail, self.is_there) = (false, false, false);
        self.durable_stamp = 0;
        self.transfers.clear();
        if self.is_to_be_encrypted && self.random.random_bool(0.3) {
            let keys = first_key();
            keys.accept_plain(true);
            (self.keys, self.is_to_be_encrypted) = (Some(keys), false);
        }
        // Not while the store is open: the ciphers would take a salt that the seed does not determine.
        if let Some(keys) = &self.keys
            && self.random.random_bool(0.2)
        {
            keys.add(Key::new([keys.count() as u8; 32]));
        }
        let trouble = self.next_trouble();
        let reach = match self.random.random_range(0..3) {
            0 => 20,
            1 => 100,
            _ => 400,
        };
        let after = self.random.random_range(1..reach);
        if trouble == Trouble::CrashInOpen {
            self.disk.crash_after(after % 25 + 1);
        }
        let early = self.chance(0.2);
        if early {
            self.arm(trouble, after % 10);
        }
        let opened = self.open();
        let Ok(store) = opened else {
            let error = opened.err();
            let is_allowed = early || trouble == Trouble::CrashInOpen || self.unwritable.is_some();
            assert!(is_allowed, "{trouble:?}: not opened: {error:?}");
            assert!(
                matches!(
                    error,
                    Some(Error::Io { .. } | Error::Unreadable { .. } | Error::Closed(_))
                ),
                "{trouble:?}: {error:?}"
            );
            self.outcome.counts.crashes += 1;
            let is_kill = !self.syncs_fail && self.chance(0.3);
            self.crash(is_kill);
            return;
        };
        if trouble != Trouble::CrashInOpen && !early {
            self.look(&store).expect("all that is needed can be read");
            if trouble == Trouble::Crash {
                self.disk.crash_after(after);
            }
            self.arm(trouble, after % 40);
        }
        let steps = self.random.random_range(1..300);
        let end = self.work(&store, trouble, steps);
        self.end(store, trouble, end);
    }

    /// Compares the store with what must be there, and takes over what survived.
    fn look(&mut self, store: &Store) -> Result<(), Error> {
        let found = commits_in(&store.snapshot())?;
        let survived = found
            .checked_sub(self.base.commits)
            .expect("durable commits are lost") as usize;
        assert!(
            survived >= self.owed,
            "{survived} commits survived of {} that were acknowledged, {} of them as durable",
            self.owed,
            self.safe
        );
        assert!(survived <= self.pending.len(), "commits from nowhere");
        let mut model = self.base.clone();
        for commit in &self.pending[..survived] {
            model.apply(commit);
        }
        for (tree, (content, is_safe)) in &self.loaded {
            if !model.loading.contains_key(tree) {
                continue;
            }
            let waits = store.is_loading(*tree);
            assert!(!waits || !is_safe, "the load of {tree:?} is lost");
            if !waits {
                model.finish_load(*tree, content.clone());
            }
        }
        let disk = self.disk.clone();
        let allowed = |error: &Error| is_rot(&disk, error);
        let unread = check_damaged_store(store, &model, &mut self.random, &allowed)?;
        self.outcome.counts.unreadable_keys += unread;
        self.check_sum(&store.snapshot())?;
        self.look_at_stamps(store, survived);
        self.loaded.clear();
        self.now = model.clone();
        (self.base, self.safe, self.doubt) = (model, 0, false);
        (self.acknowledged, self.owed) = (0, 0);
        self.pending.clear();
        self.looked = true;
        Ok(())
    }

    /// Commits and reads until something ends it.
    fn work(&mut self, store: &Store, trouble: Trouble, steps: usize) -> End {
        // Not every life has looked: what is there now decides what comes after it.
        if !self.looked && self.look(store).is_err() {
            return self.after_failure(trouble);
        }
        let mut held = Held::default();
        let end = self.work_with(store, trouble, steps, &mut held);
        if self.ended {
            // The process is gone: open transactions are not aborted.
            std::mem::forget(held);
        }
        end
    }

    fn work_with(&mut self, store: &Store, trouble: Trouble, steps: usize, held: &mut Held) -> End {
        for _ in 0..steps {
            let outcome = match trouble {
                Trouble::Panics => self.act_with_panics(store, held),
                _ => {
                    self.trouble_at_a_step(store, trouble);
                    self.act(store, held)
                }
            };
            let Err(error) = outcome else { continue };
            if self.disk.has_crashed() {
                return End::Crashed;
            }
            let trouble = match self.unwritable {
                Some(_) => Trouble::BadWrites,
                None => trouble,
            };
            match (trouble, &error) {
                (
                    Trouble::Panics,
                    Error::Internal(_)
                    | Error::Stalled {
                        disk_full: false, ..
                    },
                ) => {
                    assert!(self.panicked, "{error}");
                }
                (Trouble::ComesAndGoes, Error::Stalled { .. } | Error::Io { .. }) => {
                    assert!(self.is_there && !self.doubt, "{error}");
                    self.check_reads(store, trouble);
                }
                (
                    Trouble::FullData | Trouble::Full | Trouble::Changes | Trouble::BadWrites,
                    Error::Stalled { .. },
                ) => {
                    let disk_full = matches!(trouble, Trouble::Full | Trouble::FullData);
                    assert!(
                        matches!(error, Error::Stalled { disk_full: full, .. } if full == disk_full)
                    );
                    self.check_reads(store, trouble);
                    if self.chance(0.5) {
                        self.recover(store);
                    }
                }
                (Trouble::Reads, Error::Unreadable { .. })
                | (Trouble::FullData, Error::Io { .. }) => {}
                (
                    Trouble::Full | Trouble::Changes | Trouble::BadWrites,
                    Error::Io { .. } | Error::Closed(_),
                ) => {
                    // A later success must not hide it.
                    if self.stopped(store) {
                        self.check_reads(store, trouble);
                        return End::Failed;
                    }
                }
                _ => panic!("{trouble:?}: {error}"),
            }
        }
        End::Enough
    }

    /// One thing that a user does.
    pub fn act(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        match self.random.random_range(0..100) {
            0..61 => self.commit(store),
            61 => {
                store.request_sync();
                Ok(())
            }
            62..86 => self.transact(store, held),
            86 => self.load(store),
            // It may be interrupted.
            87 if self.keys.is_some() && self.pending.len().is_multiple_of(3) => {
                self.reencrypt(store)
            }
            // Of all trees, or of those that there are, one by one.
            87 if self.pending.len().is_multiple_of(2) => self.saved(store.compact()),
            87 => {
                let compacted = store.compact_trees(&store.trees(), |_| true);
                self.saved(compacted.map(|_| ()))
            }
            88..90 => self.saved(store.checkpoint()),
            90..92 => store.flush_log().map(|()| self.safe = self.pending.len()),
            92..94 => {
                held.snapshot = Some((store.snapshot(), self.now.clone()));
                self.check_sum(&store.snapshot())
            }
            94..96 => match &held.snapshot {
                Some((snapshot, model)) => self.check_one(snapshot, model),
                None => Ok(()),
            },
            99 if self.chance(0.4) => self.copy(store, held),
            _ => self.check_one(&store.snapshot(), &self.now.clone()),
        }
    }

    fn reencrypt(&mut self, store: &Store) -> Result<(), Error> {
        let mut steps = self.pending.len() * 5;
        let outcome = store.reencrypt(|| {
            steps = steps.saturating_sub(1);
            steps > 0
        });
        let outcome = outcome?;
        self.saved(Ok(()))?;
        let Some(keys) = self
            .keys
            .as_ref()
            .filter(|_| outcome.is_done && outcome.skipped == 0)
        else {
            return Ok(());
        };
        self.outcome.counts.reencrypted += 1;
        if keys.accepts_plain() && store.is_log_encrypted()? {
            keys.accept_plain(false);
            self.outcome.counts.encrypted += 1;
        }
        Ok(())
    }

    /// Compares one tree.
    pub fn check_one(&mut self, snapshot: &Snapshot, model: &Model) -> Result<(), Error> {
        if model.trees.is_empty() {
            return Ok(());
        }
        let which = self.random.random_range(0..model.trees.len());
        let Some((tree, content)) = model.trees.iter().nth(which) else {
            return Ok(());
        };
        let disk = self.disk.clone();
        let allowed = |error: &Error| is_rot(&disk, error);
        let unread = check_tree(snapshot, *tree, content, &mut self.random, &allowed)?;
        self.outcome.counts.unreadable_keys += unread;
        Ok(())
    }

    /// After a checkpoint everything is durable.
    pub fn saved(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome?;
        self.safe = self.pending.len();
        for (_, is_safe) in self.loaded.values_mut() {
            *is_safe = true;
        }
        Ok(())
    }

    /// Fills trees that wait for it, while commits go on.
    fn load(&mut self, store: &Store) -> Result<(), Error> {
        let mut trees: Vec<TreeId> = self.now.loading.keys().copied().collect();
        // A load is not compared with the model until it is finished.
        if self.doubt || trees.is_empty() || self.may_panic {
            return Ok(());
        }
        while trees.len() > 2 || (trees.len() == 2 && self.chance(0.5)) {
            trees.remove(self.random.random_range(0..trees.len()));
        }
        let places: Vec<_> = (trees.iter())
            .map(|tree| (*tree, Duplicates::LastWins))
            .collect();
        let mut loader = store.bulk_loader(&places, Some(1))?;
        let mut contents = vec![Tree::new(); trees.len()];
        let count = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..4000),
            _ => self.random.random_range(0..200),
        };
        for _ in 0..count {
            let place = self.random.random_range(0..trees.len());
            let mut key = self.now.random_key(&mut self.random, trees[place]);
            if count > 500 {
                key.extend(self.random.random_range(0..100u8).to_string().bytes());
            }
            let value = random_value(&mut self.random);
            loader.add(place, &key, &value)?;
            contents[place].insert(key, value);
            if self.chance(0.005) {
                self.commit(store)?;
            }
        }
        if self.chance(0.2) {
            // It is given up, in the middle or before the last step.
            let stop = self.chance(0.5);
            let merged = loader.merge(&|_, _| !stop)?;
            assert!(merged || stop);
            return Ok(());
        }
        let are_there = trees.iter().all(|tree| self.now.trees.contains_key(tree));
        let outcome = loader.finish();
        match &outcome {
            Err(Error::UnknownTree(_)) if !are_there => return Ok(()),
            _ => assert!(are_there || outcome.is_err(), "a tree is gone"),
        }
        for (tree, content) in trees.into_iter().zip(contents) {
            if store.is_loading(tree) || !self.now.loading.contains_key(&tree) {
                assert!(outcome.is_err(), "{tree:?} still waits");
                continue;
            }
            self.now.finish_load(tree, content.clone());
            self.loaded.insert(tree, (content, outcome.is_ok()));
            let creates = |op: &Op| matches!(op, Op::CreateToLoad(created, _) if *created == tree);
            let created = self
                .pending
                .iter()
                .position(|commit| commit.iter().any(creates));
            if let Some(created) = created.filter(|_| outcome.is_ok()) {
                self.safe = self.safe.max(created + 1);
            }
        }
        self.outcome.counts.loads += u64::from(outcome.is_ok());
        match outcome {
            // The commits to the trees meanwhile cannot be read, so they wait on.
            Err(error) if is_rot(&self.disk, &error) => Ok(()),
            outcome => outcome,
        }
    }

    fn after_failure(&self, trouble: Trouble) -> End {
        if self.disk.has_crashed() {
            return End::Crashed;
        }
        assert!(
            matches!(trouble, Trouble::Reads),
            "{trouble:?}: the content cannot be read"
        );
        End::Failed
    }

    /// One random commit.
    fn commit(&mut self, store: &Store) -> Result<(), Error> {
        if self.doubt {
            return Err(Error::Closed("a commit is in doubt".to_owned()));
        }
        let mut commit = self.now.random_commit(&mut self.random, store);
        self.add_stamped(&mut commit);
        let set = write_set(&commit);
        self.commit_as(store, commit, |how| store.commit(set, how))
    }

    /// One commit; notes what it leads to. After a conflict nothing was done, and nothing without stamps.
    pub fn commit_as(
        &mut self,
        store: &Store,
        commit: Commit,
        commits: impl FnOnce(Durability) -> Result<Committed, Error>,
    ) -> Result<(), Error> {
        let ranges = |op: &&Op| matches!(op, Op::DeleteRange(..));
        let ranges = commit.iter().filter(ranges).count() as u64;
        let how = if self.journal && self.random.random_bool(0.15) {
            Durability::Synced
        } else {
            Durability::Logged
        };
        self.stamps.begin(self.random.random_bool(0.02));
        self.attempt = Some(commit.clone());
        let outcome = commits(how);
        self.attempt = None;
        let is_stamped = commit.iter().any(|op| matches!(op, Op::PutStamped(..)));
        let commit = self.stamps.resolved(commit);
        // A fault of the model is not one of the engine.
        panic_in_merge_after(None);
        match &outcome {
            Ok(committed) => {
                assert_eq!(committed.first_stamp.is_some(), is_stamped);
                self.outcome.counts.commits += 1;
                self.outcome.counts.stamped += u64::from(is_stamped);
                self.outcome.counts.range_deletes += ranges;
                self.took_place(commit);
                if self.journal && !self.disk.has_crashed() {
                    self.acknowledged = self.pending.len();
                }
                if how == Durability::Synced {
                    self.safe = self.pending.len();
                }
                self.note_durable_stamp(store, how == Durability::Synced);
            }
            Err(Error::Conflict { .. }) => {}
            Err(Error::NoStamp) => {
                self.outcome.counts.no_stamps += 1;
                return Ok(());
            }
            // Nothing was done, or the commit waits for its sync.
            Err(Error::Stalled { .. }) if !self.disk.has_crashed() => {
                // If this cannot be read, then the trees have the trouble, and not the log.
                let visible = commits_in(&store.snapshot()).unwrap_or(0);
                if visible > self.now.commits {
                    assert!(how == Durability::Synced);
                    self.took_place(commit);
                }
            }
            Err(_) => {
                self.pending.push(commit);
                self.doubt = true;
            }
        }
        outcome.map(drop)
    }

    /// A commit took place.
    pub fn took_place(&mut self, commit: Commit) {
        self.now.apply(&commit);
        self.note_transfers(&commit);
        self.pending.push(commit);
    }

    /// Whether the store takes no commits any more.
    fn stopped(&mut self, store: &Store) -> bool {
        if self.doubt {
            let key = b"k".to_vec();
            for how in [Durability::Logged, Durability::Synced] {
                let commit = vec![crate::simulation::model::Op::Delete(
                    crate::simulation::model::FIRST,
                    key.clone(),
                )];
                let again = store.commit(write_set(&commit), how);
                assert!(again.is_err(), "a store that failed takes a commit");
            }
        }
        self.doubt
    }

    /// Reads continue after failed writes.
    pub fn check_reads(&mut self, store: &Store, trouble: Trouble) {
        let snapshot = store.snapshot();
        let outcome = commits_in(&snapshot).and_then(|commits| {
            let mut model = self.now.clone();
            if commits > model.commits && self.doubt {
                model.apply(self.pending.last().expect("a commit in doubt"));
            }
            assert_eq!(commits, model.commits, "readers see other commits");
            self.check_one(&snapshot, &model)
        });
        match outcome {
            Ok(()) => {}
            Err(_) if self.disk.has_crashed() => {}
            Err(Error::Unreadable { file, .. }) if trouble == Trouble::Reads => {
                assert_eq!(file, "data.frond");
            }
            Err(error) => panic!("{trouble:?}: a reader failed: {error}"),
        }
    }

    /// The fault ends, and the store recovers without a restart.
    pub fn recover(&mut self, store: &Store) {
        self.disk.clear_faults();
        self.disk.refuse_writes(None);
        self.unwritable = None;
        for _ in 0..20 {
            // The flusher retries after a pause of two seconds at most.
            let outcome = wait_for("a recovered store", || {
                let outcome = self.commit(store);
                let is_stalled = matches!(outcome, Err(Error::Stalled { .. }));
                (self.inline || !is_stalled).then_some(outcome)
            });
            if outcome.is_err() && !self.doubt {
                panic!("not recovered: {outcome:?}");
            }
        }
        if !self.inline && !self.doubt {
            // The flusher may have failed before the fault ended and report it after these commits, until it has
            // succeeded once.
            let saved = store.checkpoint();
            let outcome = self.saved(saved);
            assert!(outcome.is_ok() || self.disk.has_crashed(), "{outcome:?}");
        }
    }

    /// Ends a life.
    fn end(&mut self, store: Store, trouble: Trouble, end: End) {
        let closes = end != End::Crashed && (trouble == Trouble::CrashInClose || self.chance(0.4));
        if closes {
            if trouble == Trouble::CrashInClose {
                let after = self.random.random_range(1..25);
                self.disk.crash_after(after);
            }
            if self.chance(0.5) {
                self.disk.clear_faults();
            }
            if store.close().is_ok() && self.looked {
                self.safe = self.pending.len() - usize::from(self.doubt);
            }
        }
        self.note_durable_stamp(&store, false);
        self.outcome.counts.crashes += 1;
        self.outcome.counts.set_apart += u64::from(!store.damage().is_empty());
        let is_kill = !self.syncs_fail && self.chance(0.35);
        self.disk.crash_after(0);
        if std::mem::take(&mut self.ended) {
            // The process is gone: nothing of it runs any more.
            std::mem::forget(store);
        } else {
            drop(store);
        }
        self.crash(is_kill);
    }

    /// The process is killed, or the machine loses what was not synced.
    fn crash(&mut self, is_kill: bool) {
        self.outcome.counts.kills += u64::from(is_kill);
        self.outcome.counts.torn_stores += u64::from(self.disk.is_in_a_store());
        (self.disk, self.owed) = match (is_kill, self.looked) {
            (true, true) => (self.disk.after_kill(), self.acknowledged.max(self.safe)),
            (true, false) => (self.disk.after_kill(), self.owed),
            (false, _) => (self.disk.after_crash(&mut self.random), self.safe),
        };
        self.verify();
        self.rot_between_lives();
    }

    /// A crash damages nothing, but for a superblock that was being written.
    fn verify(&mut self) {
        if !self.verifies {
            return;
        }
        let mut options = self.options();
        options.disk = self.with_keys(&self.disk.copy());
        let report = match Store::verify(&options, &mut |_| {}) {
            Ok(report) => report,
            Err(error) => {
                let was_there = self.base.commits > 0 || self.safe > 0;
                assert!(!was_there, "not verified: {error}");
                return;
            }
        };
        let problems = report.problems.iter();
        let problems = problems.filter(|problem| !is_rotten(&self.disk, problem.offset));
        let is_torn = |problem: &&Problem| {
            problem.kind == ProblemKind::Damaged
                && problem.file == "data.frond"
                && problem.offset < 8192
        };
        let (torn, wrong): (Vec<_>, Vec<_>) = problems.partition(is_torn);
        assert!(wrong.is_empty() && torn.len() < 2, "{report:?}");
        self.outcome.counts.verified += 1;
    }
}
