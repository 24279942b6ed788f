//! A store that is opened many times: each life works on it, and mostly ends in a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use frond_tree::{
    Duplicates, Durability, Error, Options, Problem, ProblemKind, Snapshot, Store, TreeId,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::model::{
    Adder, Commit, Model, Op, Tree, check_store, check_tree, commits_in, random_value, write_set,
};
use crate::support::{EIO, Fault, Kind, SimDisk};

/// The result of a seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub crashes: u64,
    pub faults: u64,
    pub commits: u64,
    /// Bulk loads that were finished, and crashed stores that were verified.
    pub loads: u64,
    pub verified: u64,
    /// A hash of all operations of the disk.
    pub trace: u64,
}

/// A store and what is known about it.
struct World {
    random: SmallRng,
    disk: SimDisk,
    inline: bool,
    journal: bool,
    fanout: usize,
    memtable_bytes: usize,
    /// Whether the store is verified after a crash.
    verifies: bool,
    /// What was found at the last look, and is durable.
    base: Model,
    /// Commits after it, and how many of them must survive.
    pending: Vec<Commit>,
    safe: usize,
    /// How many of them were acknowledged before the crash: a crash of the process alone loses none of these.
    acknowledged: usize,
    /// How many of them the last crash had to leave.
    owed: usize,
    /// What loaders brought since then, and whether it must survive.
    loaded: BTreeMap<TreeId, (Tree, bool)>,
    /// The content with all pending commits, but for the last one while it is unknown whether it happened.
    now: Model,
    doubt: bool,
    /// Whether this life knows what survived the last one.
    looked: bool,
    /// Whether syncs fail in this life: the system may have dropped what it says it has.
    syncs_fail: bool,
    outcome: Outcome,
}

/// The fault of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// A crash at an operation of the work.
    Crash,
    /// A crash while the store is opened.
    CrashInOpen,
    /// A crash while it is closed.
    CrashInClose,
    /// Reads of the data file fail, once or for a while.
    Reads,
    /// The data file cannot grow for a while.
    FullData,
    /// No file can grow.
    Full,
    /// An operation that changes something fails.
    Changes,
    None,
}

/// Why the work ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Enough,
    Crashed,
    Failed,
}

/// Runs one seed. `inline` decides all, and so does the machine's scheduler without it.
pub fn run(seed: u64, inline: bool) -> Outcome {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut world = World {
        disk: SimDisk::new(random.random()),
        inline,
        journal: random.random_bool(0.9),
        fanout: random.random_range(4..8),
        memtable_bytes: 16 << 10 << random.random_range(0..3),
        verifies: seed.is_multiple_of(3),
        base: Model::default(),
        pending: Vec::new(),
        safe: 0,
        acknowledged: 0,
        owed: 0,
        syncs_fail: false,
        loaded: BTreeMap::new(),
        now: Model::default(),
        doubt: false,
        looked: false,
        outcome: Outcome::default(),
        random,
    };
    let lives = world.random.random_range(4..16);
    for _ in 0..lives {
        world.live();
    }
    let store = world.open().expect("a disk without faults");
    world.look(&store).expect("a disk without faults");
    world.disk.crash_after(0);
    drop(store);
    world.outcome.trace = world.disk.trace();
    world.outcome
}

impl World {
    fn options(&self) -> Options {
        let mut options = Options::with_disk(Arc::new(self.disk.clone()));
        // What a full cache gives up is not the same each time, and reads are a part of the trace.
        options.cache_bytes = if self.inline { 64 << 20 } else { 8 << 20 };
        options.memtable_bytes = Some(self.memtable_bytes);
        options.fanout = self.fanout;
        options.inline = self.inline;
        options.flush_threads = 2;
        options.journal = self.journal;
        options.journal_commit_interval = std::time::Duration::from_millis(1);
        options.merge = Arc::new(Adder);
        options
    }

    fn open(&self) -> Result<Store, Error> {
        Store::open(self.options())
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn live(&mut self) {
        (self.looked, self.syncs_fail) = (false, false);
        let trouble = match self.random.random_range(0..100) {
            0..45 => Trouble::Crash,
            45..60 => Trouble::CrashInOpen,
            60..70 => Trouble::CrashInClose,
            // A store with threads tries again after pauses.
            70..78 if self.inline => Trouble::Reads,
            78..84 if self.inline => Trouble::FullData,
            84..87 => Trouble::Full,
            87..97 => Trouble::Changes,
            _ => Trouble::None,
        };
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
            let is_allowed = early || trouble == Trouble::CrashInOpen;
            assert!(is_allowed, "{trouble:?}: not opened: {error:?}");
            assert!(
                matches!(
                    error,
                    Some(Error::Io { .. } | Error::Unreadable { .. } | Error::Closed(_))
                ),
                "{trouble:?}: {error:?}"
            );
            self.outcome.crashes += 1;
            let is_kill = !self.syncs_fail && self.chance(0.3);
            self.crash(is_kill);
            return;
        };
        if trouble != Trouble::CrashInOpen && !early {
            self.look(&store).expect("a disk without faults");
            if trouble == Trouble::Crash {
                self.disk.crash_after(after);
            }
            self.arm(trouble, after % 40);
        }
        let steps = self.random.random_range(1..300);
        let end = self.work(&store, trouble, steps);
        self.end(store, trouble, end);
    }

    /// Activates the fault, if it is one of the disk.
    fn arm(&mut self, trouble: Trouble, after: u64) {
        let fault = |kind, file, after, times, place| Fault {
            kind,
            file,
            after,
            times,
            place,
            code: EIO,
        };
        match trouble {
            Trouble::Reads => {
                let times = if self.chance(0.5) { 1 } else { u64::MAX };
                let place = self.chance(0.5).then(|| {
                    let start = self.random.random_range(0..60) * 4096;
                    start..start + 4096 * self.random.random_range(1..10)
                });
                self.disk
                    .add_fault(fault(Kind::Read, "data", after, times, place));
            }
            Trouble::FullData => {
                let left = self.random.random_range(0..40_000);
                self.disk.fill("data", left);
            }
            Trouble::Full => {
                let left = self.random.random_range(0..40_000);
                self.disk.fill("", left);
            }
            Trouble::Changes => {
                let kinds = [
                    (Kind::Write, "data"),
                    (Kind::Write, "log"),
                    (Kind::Sync, "data"),
                    (Kind::Sync, "log"),
                    (Kind::SetLen, ""),
                    (Kind::Open, "log"),
                    (Kind::Remove, "log"),
                    (Kind::SyncDirectory, ""),
                ];
                let (kind, file) = kinds[self.random.random_range(0..kinds.len())];
                self.syncs_fail = kind == Kind::Sync;
                let times = if self.chance(0.7) { 1 } else { u64::MAX };
                let after = match kind {
                    Kind::Write | Kind::Sync => after,
                    _ => after % 3,
                };
                self.disk.add_fault(fault(kind, file, after, times, None));
            }
            _ => return,
        }
        self.outcome.faults += 1;
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
        check_store(store, &model, &mut self.random)?;
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
        let mut held: Option<(Snapshot, Model)> = None;
        for _ in 0..steps {
            let outcome = match self.random.random_range(0..100) {
                0..86 => self.commit(store),
                86 => self.load(store),
                87 => self.saved(store.compact()),
                88..90 => self.saved(store.checkpoint()),
                90..92 => store.flush_log().map(|()| self.safe = self.pending.len()),
                92..94 => {
                    held = Some((store.snapshot(), self.now.clone()));
                    Ok(())
                }
                94..96 => match &held {
                    Some((snapshot, model)) => check_one(snapshot, model, &mut self.random),
                    None => Ok(()),
                },
                _ => check_one(&store.snapshot(), &self.now, &mut self.random),
            };
            let Err(error) = outcome else { continue };
            if self.disk.has_crashed() {
                return End::Crashed;
            }
            match (trouble, &error) {
                (
                    Trouble::Reads | Trouble::FullData | Trouble::Full | Trouble::Changes,
                    Error::Stalled { .. },
                ) => {
                    let disk_full = !matches!(trouble, Trouble::Reads | Trouble::Changes);
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
                (Trouble::Full | Trouble::Changes, Error::Io { .. } | Error::Closed(_)) => {
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

    /// After a checkpoint everything is durable.
    fn saved(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
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
        if self.doubt || trees.is_empty() {
            return Ok(());
        }
        while trees.len() > 2 || trees.len() == 2 && self.chance(0.5) {
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
        self.outcome.loads += u64::from(outcome.is_ok());
        outcome
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

    /// One random commit; notes what it leads to.
    fn commit(&mut self, store: &Store) -> Result<(), Error> {
        if self.doubt {
            return Err(Error::Closed("a commit is in doubt".to_owned()));
        }
        let commit = self.now.random_commit(&mut self.random, store);
        let how = match self.journal && self.random.random_bool(0.15) {
            true => Durability::Synced,
            false => Durability::Logged,
        };
        let outcome = store.commit(write_set(&commit), how);
        match &outcome {
            Ok(()) => {
                self.outcome.commits += 1;
                self.now.apply(&commit);
                self.pending.push(commit);
                if self.journal && !self.disk.has_crashed() {
                    self.acknowledged = self.pending.len();
                }
                if how == Durability::Synced {
                    self.safe = self.pending.len();
                }
            }
            // Nothing was done, or the commit waits for its sync.
            Err(Error::Stalled { .. }) if !self.disk.has_crashed() => {
                // If this cannot be read, then the trees have the trouble, and not the log.
                let visible = commits_in(&store.snapshot()).unwrap_or(0);
                if visible > self.now.commits {
                    assert!(how == Durability::Synced);
                    self.now.apply(&commit);
                    self.pending.push(commit);
                }
            }
            Err(_) => {
                self.pending.push(commit);
                self.doubt = true;
            }
        }
        outcome
    }

    /// Whether the store takes no commits any more.
    fn stopped(&mut self, store: &Store) -> bool {
        if self.doubt {
            let key = b"k".to_vec();
            for how in [Durability::Logged, Durability::Synced] {
                let commit = vec![crate::model::Op::Delete(crate::model::FIRST, key.clone())];
                let again = store.commit(write_set(&commit), how);
                assert!(again.is_err(), "a store that failed takes a commit");
            }
        }
        self.doubt
    }

    /// Reads continue after failed writes.
    fn check_reads(&mut self, store: &Store, trouble: Trouble) {
        let snapshot = store.snapshot();
        let outcome = commits_in(&snapshot).and_then(|commits| {
            let mut model = self.now.clone();
            if commits > model.commits && self.doubt {
                model.apply(self.pending.last().expect("a commit in doubt"));
            }
            assert_eq!(commits, model.commits, "readers see other commits");
            check_one(&snapshot, &model, &mut self.random)
        });
        match outcome {
            Ok(()) => {}
            Err(Error::Unreadable { file, .. }) if trouble == Trouble::Reads => {
                assert_eq!(file, "data.frond");
            }
            Err(error) => panic!("{trouble:?}: a reader failed: {error}"),
        }
    }

    /// The fault ends, and the store recovers without a restart.
    fn recover(&mut self, store: &Store) {
        self.disk.clear_faults();
        for _ in 0..20 {
            let mut outcome = self.commit(store);
            // The flusher retries after a pause of two seconds at most.
            let start = std::time::Instant::now();
            while !self.inline && matches!(outcome, Err(Error::Stalled { .. })) {
                assert!(start.elapsed().as_secs() < 60, "not recovered");
                std::thread::sleep(std::time::Duration::from_millis(20));
                outcome = self.commit(store);
            }
            if outcome.is_err() && !self.doubt {
                panic!("not recovered: {outcome:?}");
            }
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
        self.outcome.crashes += 1;
        let is_kill = !self.syncs_fail && self.chance(0.35);
        self.disk.crash_after(0);
        drop(store);
        self.crash(is_kill);
    }

    /// The process is killed, or the machine loses what was not synced.
    fn crash(&mut self, is_kill: bool) {
        (self.disk, self.owed) = match (is_kill, self.looked) {
            (true, true) => (self.disk.after_kill(), self.acknowledged.max(self.safe)),
            (true, false) => (self.disk.after_kill(), self.owed),
            (false, _) => (self.disk.after_crash(&mut self.random), self.safe),
        };
        self.verify();
    }

    /// A crash damages nothing, but for a superblock that was being written.
    fn verify(&mut self) {
        if !self.verifies {
            return;
        }
        let mut options = self.options();
        options.disk = Arc::new(self.disk.copy());
        let report = match Store::verify(&options, &mut |_| {}) {
            Ok(report) => report,
            Err(error) => {
                let was_there = self.base.commits > 0 || self.safe > 0;
                assert!(!was_there, "not verified: {error}");
                return;
            }
        };
        let is_torn = |problem: &&Problem| {
            problem.kind == ProblemKind::Damaged
                && problem.file == "data.frond"
                && problem.offset < 8192
        };
        let (torn, wrong): (Vec<_>, Vec<_>) = report.problems.iter().partition(is_torn);
        assert!(wrong.is_empty() && torn.len() < 2, "{report:?}");
        self.outcome.verified += 1;
    }
}

/// Compares one tree.
fn check_one(snapshot: &Snapshot, model: &Model, random: &mut SmallRng) -> Result<(), Error> {
    if model.trees.is_empty() {
        return Ok(());
    }
    let which = random.random_range(0..model.trees.len());
    let Some((tree, content)) = model.trees.iter().nth(which) else {
        return Ok(());
    };
    check_tree(snapshot, *tree, content, random)
}
