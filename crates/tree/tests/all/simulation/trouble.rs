//! The faults of a world: what can happen in a life, and what an engine may answer.

use std::fmt;
use std::ops::{AddAssign, Range};

use frond_tree::disk::Disk;
use frond_tree::{Direction, Error, Store};
use rand::RngExt;

use crate::simulation::model::{BANK, FIRST, commits_in, panic_in_merge_after};
use crate::simulation::transactions::Held;
use crate::simulation::world::World;
use crate::support::rot::{Panicked, has_panicked, panics_simulated, with_simulated_fail_stops};
use crate::support::{EIO, EMFILE, ENOSPC, Fault, Kind, SimDisk};

/// The result of a seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub counts: Counts,
    /// A hash of all operations of the disk.
    pub trace: u64,
}

macro_rules! counts {
    ($($name:ident: $text:literal,)+) => {
        /// Counters of the faults that happened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $(pub $name: u64,)+
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$name += other.$name;)+
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>12} {}", self.$name, $text)?;)+
                Ok(())
            }
        }

        impl Counts {
            /// The faults that did not happen.
            pub fn missing(&self) -> Vec<&'static str> {
                [$((self.$name, $text),)+]
                    .into_iter()
                    .filter_map(|(count, text)| (count == 0).then_some(text))
                    .collect()
            }
        }
    };
}

counts! {
    crashes: "crashes",
    kills: "of them of the process alone",
    torn_stores: "in the middle of a write to the mapped log",
    commits: "commits",
    stamped: "of them with stamped keys",
    no_stamps: "commits refused for lack of stamps",
    durable_stamps: "times that the durable stamp proved a commit durable",
    range_deletes: "range deletes",
    transactions: "transactions committed",
    aborts: "transactions aborted",
    conflicts: "writes refused because of another transaction",
    loads: "bulk loads finished",
    copies: "copies restored",
    incremental_copies: "of them on top of others, over crashes too",
    archived: "archives of the log restored",
    archive_gaps: "archives that ended because the log was gone",
    reencrypted: "times that all data had a new store key",
    encrypted: "stores that were encrypted while they were used",
    verified: "crashed stores verified",
    crash_lives: "lives that end at an operation of the disk",
    open_crashes: "crashes while a store is opened",
    close_crashes: "crashes while a store is closed",
    failing_reads: "lives in which reads fail",
    failing_changes: "lives in which writes, syncs or other changes fail",
    full_data: "lives in which the data file cannot grow",
    full_disks: "lives in which no file can grow",
    bad_writes: "places that take no writes any more",
    comings: "times that a full disk or a lack of file handles came",
    goings: "times that it went, and commits succeeded again",
    flips: "bits flipped in blocks of the data",
    unreadable_sectors: "sectors of the data that became unreadable",
    unreadable_keys: "reads of keys that damage hides",
    set_apart: "lives in which the store listed damage",
    contained_panics: "panics that were contained",
    fail_stops: "panics that ended the process",
}

/// The fault of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
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
    /// A part of the data file takes no writes, in some lives.
    BadWrites,
    /// The disk is full, or there are no file handles, now and then.
    ComesAndGoes,
    /// An operation of the disk or the merge operator panics now and then.
    Panics,
    None,
}

/// The longest block in a simulated store in bytes: a page with the largest value.
const BLOCK_BYTES: u64 = 64 << 10;

/// Whether a block of the data file may be damaged. Where a part of a page of 4 KiB cannot be read, the blocks beside it
/// cannot either.
pub fn is_rotten(disk: &SimDisk, offset: u64) -> bool {
    disk.is_rotten(&(offset / 4096 * 4096..offset + BLOCK_BYTES))
}

/// Whether an error names a part of the data that went bad.
pub fn is_rot(disk: &SimDisk, error: &Error) -> bool {
    match error {
        Error::Corrupt { file, offset, .. } => file == "data.frond" && is_rotten(disk, *offset),
        Error::Unreadable {
            file,
            offset,
            bytes,
            ..
        } => {
            let end = (offset + *bytes as u64).next_multiple_of(4096);
            file == "data.frond" && disk.is_rotten(&(offset / 4096 * 4096..end))
        }
        _ => false,
    }
}

impl World {
    pub fn next_trouble(&mut self) -> Trouble {
        if let Some((part, lives)) = self.unwritable.take()
            && lives > 0
        {
            self.disk.refuse_writes(Some(part.clone()));
            self.unwritable = Some((part, lives - 1));
        } else {
            self.disk.refuse_writes(None);
        }
        let trouble = match self.random.random_range(0..100) {
            0..36 => Trouble::Crash,
            36..48 => Trouble::CrashInOpen,
            48..56 => Trouble::CrashInClose,
            _ if self.unwritable.is_some() => Trouble::None,
            // A store with threads tries again after pauses.
            56..64 if self.inline => Trouble::Reads,
            64..70 if self.inline => Trouble::FullData,
            70..73 => Trouble::Full,
            73..82 => Trouble::Changes,
            82..85 => Trouble::BadWrites,
            85..90 => Trouble::ComesAndGoes,
            90..97 if self.inline => Trouble::Panics,
            _ => Trouble::None,
        };
        let counts = &mut self.outcome.counts;
        let counter = match trouble {
            Trouble::Crash => &mut counts.crash_lives,
            Trouble::CrashInOpen => &mut counts.open_crashes,
            Trouble::CrashInClose => &mut counts.close_crashes,
            Trouble::Reads => &mut counts.failing_reads,
            Trouble::FullData => &mut counts.full_data,
            Trouble::Full => &mut counts.full_disks,
            Trouble::Changes => &mut counts.failing_changes,
            Trouble::BadWrites => &mut counts.bad_writes,
            Trouble::ComesAndGoes | Trouble::Panics | Trouble::None => return trouble,
        };
        *counter += 1;
        trouble
    }

    /// Activates the fault, if it is one of the disk.
    pub fn arm(&mut self, trouble: Trouble, after: u64) {
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
            Trouble::BadWrites => {
                let pages = self.disk.data_len() / 4096 + 20;
                // Behind the superblocks, which have no other place.
                let start = self.random.random_range(2..pages) * 4096;
                let part = start..start + 4096 * self.random.random_range(1..10);
                self.disk.refuse_writes(Some(part.clone()));
                self.unwritable = Some((part, self.random.random_range(1..4)));
            }
            _ => {}
        }
    }

    /// Faults before an action of a life.
    pub fn trouble_at_a_step(&mut self, store: &Store, trouble: Trouble) {
        if self.rots && self.chance(0.01) {
            self.rot();
        }
        if trouble == Trouble::ComesAndGoes && self.chance(0.06) {
            if std::mem::take(&mut self.is_there) {
                self.recover(store);
                self.outcome.counts.goings += 1;
            } else {
                self.is_there = true;
                self.come();
                self.outcome.counts.comings += 1;
            }
        }
    }

    /// The disk is full, or there are no file handles.
    fn come(&mut self) {
        let left = self.random.random_range(0..30_000);
        let fault = |kind, code| Fault {
            kind,
            file: "log",
            after: 0,
            times: u64::MAX,
            place: None,
            code,
        };
        match self.random.random_range(0..5) {
            0 => self.disk.fill("", left),
            1 => self.disk.fill("data", left),
            2 => self.disk.fill("log", left),
            3 => self.disk.add_fault(fault(Kind::Write, ENOSPC)),
            _ => self.disk.add_fault(fault(Kind::Open, EMFILE)),
        }
    }

    pub fn rot_between_lives(&mut self) {
        if self.rots && self.chance(0.3) {
            self.rot();
        }
    }

    /// A sector with messages of some tree but the first one goes bad.
    fn rot(&mut self) {
        let Some(read) = self.read_of_messages() else {
            return;
        };
        let offset = self.random.random_range(read);
        if self.chance(0.5) {
            let bit = self.random.random_range(0..8);
            self.disk.rot_bit(offset, bit);
            self.outcome.counts.flips += 1;
        } else {
            self.disk.make_unreadable(offset);
            self.outcome.counts.unreadable_sectors += 1;
        }
    }

    /// Where some messages of a tree are in the data file: what a scan of the last checkpoint reads.
    fn read_of_messages(&mut self) -> Option<Range<u64>> {
        let copy = self.disk.copy();
        // With the log, the store would change the file when it is opened.
        for (name, _) in copy.files() {
            if name.starts_with("log") {
                copy.remove(&name).expect("a file that is there");
            }
        }
        let mut options = self.options();
        (options.disk, options.inline) = (self.with_keys(&copy), true);
        let store = Store::open(options).expect("a store with its checkpoint");
        let mut trees = store.trees();
        trees.retain(|tree| *tree != FIRST && !BANK.contains(tree));
        let mut reads = Vec::new();
        if !trees.is_empty() {
            let tree = trees[self.random.random_range(0..trees.len())];
            copy.record_reads();
            let all = std::ops::Bound::Unbounded;
            if let Ok(mut cursor) = store.snapshot().cursor(tree, all, all, Direction::Forward) {
                // Damage ends the scan.
                while let Ok(Some(_)) = cursor.next() {}
            }
            reads = copy.recorded_reads();
        }
        copy.crash_after(0);
        drop(store);
        reads.retain(|read| read.start >= 8192 && !read.is_empty());
        (!reads.is_empty()).then(|| reads.swap_remove(self.random.random_range(0..reads.len())))
    }

    /// One action, in which an operation of the disk or the merge operator may panic.
    pub fn act_with_panics(&mut self, store: &Store, held: &mut Held) -> Result<(), Error> {
        let after = [4, 40, 400][self.random.random_range(0..3)];
        let after = self.random.random_range(0..after);
        let (in_disk, in_merge) = match self.random.random_range(0..10) {
            0..2 => (Some(after), None),
            2 => (None, Some(after)),
            _ => (None, None),
        };
        self.may_panic = true;
        self.disk.panic_after(in_disk);
        panic_in_merge_after(in_merge);
        let disk = self.disk.clone();
        let done = with_simulated_fail_stops(&disk, || panics_simulated(|| self.act(store, held)));
        self.disk.panic_after(None);
        panic_in_merge_after(None);
        self.may_panic = false;
        self.panicked = has_panicked();
        let attempt = self.attempt.take();
        let attempt = attempt.map(|commit| self.stamps.resolved(commit));
        match done {
            Ok(done) => {
                self.outcome.counts.contained_panics += u64::from(self.panicked);
                done
            }
            Err(Panicked::Contained) => {
                self.outcome.counts.contained_panics += 1;
                if let Some(commit) = attempt
                    && commits_in(&store.snapshot())? > self.now.commits
                {
                    self.took_place(commit);
                }
                Ok(())
            }
            Err(Panicked::Ended(doing)) => {
                self.outcome.counts.fail_stops += 1;
                self.ended = true;
                self.pending.extend(attempt);
                Err(Error::Closed(doing.to_owned()))
            }
        }
    }
}
