//! The room of the file system, and a reserve of it.
//!
//! Writes need room twice: in the log at once, and in the data file when their memtable is flushed. So they are refused
//! before the file system is full, while there is still room to flush what is in memory and to log deletes. Deletes and
//! drops go on: they may use the reserve.
//!
//! A part of the reserve is held by a file, which other programs cannot use up. It shrinks when the file system is
//! full all the same, and is made again when there is room. What is left of it is for a checkpoint alone: what was
//! superseded can be freed only after a checkpoint, so a disk without room for one would stay full for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::Error;
use crate::disk::{Disk, DiskFile, DiskSpace};

/// The file that holds a part of the reserve.
const RESERVE_FILE: &str = "reserve.frond";
/// The most bytes of that file. They suffice to log drops and deletes and to write checkpoints, which free more.
const RESERVE_FILE_BYTES_MAX: u64 = 16 << 20;

/// This share of that file is for a checkpoint.
const CHECKPOINT_SHARE: u64 = 4;

const MIB: u64 = 1 << 20;
/// The default reserve: this share of the file system, within these bounds, but not more than an eighth of it.
const RESERVE_SHARE: u64 = 20;
const RESERVE_BYTES: (u64, u64) = (16 * MIB, 512 * MIB);
const RESERVE_SHARE_MAX: u64 = 8;

/// The most bytes of a leaf: this share of the default reserve, within these bounds. Compaction must have room to rewrite
/// a leaf when half of the reserve is used up.
const LEAF_SHARE: u64 = 6;
const LEAF_BYTES_MIN: u64 = 128 << 10;

/// A memtable is sealed when it has this share of the room above the reserve: up to three memtables must be flushed, and
/// their log is kept until then.
const MEMTABLE_SHARE: u64 = 16;
/// The work of one flush on nodes below the root may take this share of the room above the reserve. It rewrites more than
/// what it counts, and the old leaves are free only after the checkpoint.
const SPARE_SHARE: u64 = 8;
/// Bounds of the size at which memtables are sealed when there is little room.
const SEAL_BYTES: (u64, u64) = (256 << 10, MIB);
/// While the room is low, memtables have this share of the reserve.
const MEMTABLE_SHARE_LOW: u64 = 64;
/// Bounds of the bytes that compaction writes between two checkpoints.
const STEP_BYTES: (u64, u64) = (256 << 10, 64 * MIB);
/// An attempt to make room was of use if there is so much more room.
const USEFUL_BYTES: u64 = 64 << 10;
/// A file of the log has at most this share of the file system, but may have so many bytes: only whole segments are
/// deleted, and each new one takes its room at once. That must be less than what a step of compaction leaves.
const LOG_FILE_SHARE: u64 = 256;
const LOG_FILE_BYTES_MIN: u64 = 256 << 10;

/// Intervals at which the room is measured: while there are commits and little room, while there are commits, otherwise.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_millis(100),
    Duration::from_secs(1),
];
/// The interval while it is low.
const PAUSE_LOW: Duration = Duration::from_millis(200);

/// The longest time that a commit waits for the first attempt to make room.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// The room of the file system that holds a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSpaceStats {
    /// Size of the file system in bytes; 0 if the disk does not report it.
    pub total_bytes: u64,
    /// Bytes that the store may still use. The file that holds a part of the reserve is counted.
    pub available_bytes: u64,
    /// Bytes that are reserved for deletes, drops and flushes.
    pub reserve_bytes: u64,
    /// Bytes of the reserve that a file holds.
    pub held_bytes: u64,
    /// Since when writes are refused, unless they free space.
    pub low_since: Option<SystemTime>,
    /// The number of times that writes began to be refused since the store was opened.
    pub times_low: u64,
    /// Commits refused since the store was opened.
    pub refused: u64,
}

/// Watches the room of the file system.
pub(crate) struct SpaceWatch {
    disk: Arc<dyn Disk>,
    /// The reserve in bytes; `None` takes a share of the file system.
    wanted: Option<u64>,
    memtable_bytes: u64,
    is_low: AtomicBool,
    /// An active memtable with more bytes than this is sealed.
    seal_bytes: AtomicUsize,
    /// Bytes that the work of one flush on nodes below the root may take.
    spare_bytes: AtomicU64,
    /// The most bytes that one step of compaction may take.
    step_max: AtomicU64,
    leaf_bytes_max: AtomicU64,
    refused: AtomicU64,
    state: Mutex<State>,
    /// Wakes commits that wait until the state is settled.
    settled: Condvar,
    /// Whether the thread that measures is to end.
    stop: Mutex<bool>,
    wake: Condvar,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// The last measurement; `None` if the disk does not report it.
    measured: Option<DiskSpace>,
    /// Free bytes inside the data file that cannot be returned to the file system.
    inside: u64,
    reserve: u64,
    /// The size of the file that holds a part of the reserve; 0 if there is none.
    held: u64,
    /// A write has failed for lack of space since the reserve was made.
    was_full: bool,
    low_since: Option<SystemTime>,
    /// Whether it stayed low after what is in memory was flushed.
    is_settled: bool,
    times_low: u64,
    /// Attempts to make room that have begun, and that have ended; the last one that was of use.
    ///
    /// X1: an attempt ends after it has begun, and is of use when it ends.
    begun: u64,
    ended: u64,
    useful: u64,
}

/// An attempt to make room.
pub(crate) struct Attempt {
    number: u64,
    /// The room before.
    room: u64,
}

impl State {
    fn room(&self) -> u64 {
        let available = self.measured.map_or(0, |space| space.available);
        available + self.held + self.inside
    }

    /// The size of the file that holds a part of the reserve.
    fn file_bytes(&self) -> u64 {
        (self.reserve / 4).min(RESERVE_FILE_BYTES_MAX)
    }

    fn set_low(&mut self) {
        if self.low_since.is_none() {
            self.low_since = Some(SystemTime::now());
            self.is_settled = false;
            self.times_low += 1;
        }
    }
}

impl SpaceWatch {
    /// A watch over `disk`, before the first measurement. `memtable_bytes` is the size of a memtable.
    pub(crate) fn new(
        disk: &Arc<dyn Disk>,
        wanted: Option<u64>,
        memtable_bytes: usize,
    ) -> SpaceWatch {
        SpaceWatch {
            disk: disk.clone(),
            wanted,
            memtable_bytes: memtable_bytes as u64,
            is_low: AtomicBool::new(false),
            seal_bytes: AtomicUsize::new(usize::MAX),
            spare_bytes: AtomicU64::new(u64::MAX),
            step_max: AtomicU64::new(u64::MAX),
            leaf_bytes_max: AtomicU64::new(u64::MAX),
            refused: AtomicU64::new(0),
            state: Mutex::default(),
            settled: Condvar::new(),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            thread: Mutex::default(),
        }
    }

    /// Whether the disk reports its free space.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().measured.is_some()
    }

    /// Whether there is so little room that memtables are sealed early.
    pub(crate) fn is_tight(&self) -> bool {
        self.seal_bytes() != usize::MAX
    }

    /// Makes the thread measure now: a memtable was filled.
    pub(crate) fn measure_soon(&self) {
        self.wake.notify_one();
    }

    /// Waits, at most for `pause`; true if the thread that measures is to end.
    pub(crate) fn wait(&self, pause: Duration) -> bool {
        let mut stop = self.stop.lock();
        if !*stop {
            self.wake.wait_for(&mut stop, pause);
        }
        *stop
    }

    /// Ends the thread that measures.
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Whether writes are refused, unless they free space.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Whether writes are still refused when the log of what is in memory was released: that alone may give enough
    /// room. Waits for it, but not for long.
    pub(crate) fn stays_low(&self) -> bool {
        let until = Instant::now() + SETTLE_MAX;
        let mut state = self.state.lock();
        while state.low_since.is_some() && !state.is_settled {
            if self.settled.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.low_since.is_some()
    }

    /// Begins an attempt to make room.
    pub(crate) fn begin_attempt(&self) -> Attempt {
        let mut state = self.state.lock();
        state.begun += 1;
        Attempt {
            number: state.begun,
            room: state.room(),
        }
    }

    /// Ends it: all was done to make room. It was of use if memtables were `flushed`, or if there is more room now.
    pub(crate) fn end_attempt(&self, attempt: &Attempt, flushed: bool) {
        let mut state = self.state.lock();
        assert!(
            attempt.number <= state.begun,
            "X1: an attempt ends that has not begun"
        );
        state.ended = attempt.number;
        if flushed || state.low_since.is_none() || state.room() >= attempt.room + USEFUL_BYTES {
            state.useful = attempt.number;
        }
        assert!(
            state.useful <= state.begun,
            "X1: an attempt was of use that has not begun"
        );
        state.is_settled = true;
        self.settled.notify_all();
    }

    /// The number of the next attempt.
    pub(crate) fn next_attempt(&self) -> u64 {
        self.state.lock().begun + 1
    }

    /// Waits until the attempt with this number has ended, at most for `pause`. Returns whether it, or one that ended
    /// with or after the one before it, was of use.
    pub(crate) fn outcome(&self, number: u64, pause: Duration) -> Option<bool> {
        let mut state = self.state.lock();
        if state.ended < number {
            self.settled.wait_for(&mut state, pause);
        }
        (state.ended >= number).then(|| state.useful + 1 >= number)
    }

    /// Whether there is room for more deletes. Otherwise those that are pending must free space first, and the rest of
    /// the reserve is for the work that this needs.
    pub(crate) fn has_room_for_deletes(&self) -> bool {
        let state = self.state.lock();
        state.room() > state.reserve / 4 * 3
    }

    /// Whether there is room to flush one memtable after the other. Otherwise compaction is due after each.
    pub(crate) fn has_room_for_flushes(&self) -> bool {
        let state = self.state.lock();
        state.room() > state.reserve / 2
    }

    /// Shrinks the file of the reserve, because compaction needs its room. It is made again before writes are accepted.
    pub(crate) fn use_reserve(&self) {
        let mut state = self.state.lock();
        if state.low_since.is_some() {
            state.was_full = true;
            self.give_up(&mut state);
            self.set_limits(&state);
        }
    }

    /// Gives up what is left of the file of the reserve, for a checkpoint that has no room. False if nothing is left.
    pub(crate) fn use_checkpoint_reserve(&self) -> bool {
        let mut state = self.state.lock();
        state.was_full = true;
        state.set_low();
        let is_held = state.held > 0;
        self.shrink(&mut state, 0);
        self.set_limits(&state);
        is_held
    }

    /// Takes room for the next checkpoint again, after one has freed some.
    pub(crate) fn keep_checkpoint_reserve(&self) {
        let mut state = self.state.lock();
        let part = state.file_bytes() / CHECKPOINT_SHARE;
        if state.measured.is_some() && state.held < part {
            self.hold(&mut state, part);
            self.set_limits(&state);
        }
    }

    /// The room as it was measured last.
    pub(crate) fn room(&self) -> u64 {
        self.state.lock().room()
    }

    /// An active memtable with more bytes than this is sealed.
    pub(crate) fn seal_bytes(&self) -> usize {
        self.seal_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the work of one flush on nodes below the root may take.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spare_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that one step of compaction may take: the room but for a part of the reserve while it is low,
    /// because the log and the checkpoint need that.
    pub(crate) fn step_max(&self) -> u64 {
        self.step_max.load(Ordering::Relaxed)
    }

    /// Bytes that compaction may write between two checkpoints: until the checkpoint they are taken in addition.
    pub(crate) fn step_bytes(&self) -> u64 {
        let state = self.state.lock();
        let room = match (state.measured, state.low_since) {
            (None, _) => return STEP_BYTES.1,
            (_, Some(_)) => state.room(),
            (_, None) => state.room().saturating_sub(state.reserve),
        };
        (room / 4).clamp(STEP_BYTES.0, STEP_BYTES.1)
    }

    /// The most bytes that a leaf should have.
    pub(crate) fn leaf_bytes_max(&self) -> u64 {
        self.leaf_bytes_max.load(Ordering::Relaxed)
    }

    /// The error of a write that is refused.
    pub(crate) fn refuse(&self) -> Error {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.full()
    }

    /// The error of what would need room while there is little.
    pub(crate) fn full(&self) -> Error {
        let state = self.state.lock();
        let reason = format!(
            "{} KiB are left, and {} KiB are reserved for deletes and drops",
            state.room() >> 10,
            state.reserve >> 10
        );
        Error::Stalled {
            disk_full: true,
            reason,
        }
    }

    /// The size of a file of the log that would have `bytes` bytes on a large disk.
    pub(crate) fn log_file_bytes(&self, bytes: usize) -> usize {
        match self.state.lock().measured {
            Some(space) => {
                bytes.min((space.total / LOG_FILE_SHARE).max(LOG_FILE_BYTES_MIN) as usize)
            }
            None => bytes,
        }
    }

    /// Looks for the file of the reserve of an earlier life, and measures the room for the first time.
    pub(crate) fn begin(&self) {
        if !matches!(self.disk.space(), Ok(Some(_))) {
            return;
        }
        let names = self.disk.list().unwrap_or_default();
        if names.iter().any(|name| name == RESERVE_FILE) {
            let file = self.disk.open(RESERVE_FILE, false);
            let held = file.and_then(|file| file.len()).unwrap_or(0);
            self.state.lock().held = held;
        }
        self.measure(0, 0);
    }

    /// A write failed for lack of space: gives up the file of the reserve, and refuses writes until there is room
    /// again. True if they were not refused before. Nothing changes on a disk that does not report its free space.
    pub(crate) fn note_full(&self) -> bool {
        let mut state = self.state.lock();
        if state.measured.is_none() {
            return false;
        }
        let is_new = state.low_since.is_none();
        state.was_full = true;
        state.set_low();
        self.give_up(&mut state);
        self.set_limits(&state);
        is_new
    }

    /// Measures the room. `in_memory` bytes of memtables must still be flushed, and `inside` bytes of the data file are
    /// free and stay with it.
    pub(crate) fn measure(&self, in_memory: u64, inside: u64) {
        let Ok(measured) = self.disk.space() else {
            return;
        };
        let mut state = self.state.lock();
        state.measured = measured;
        state.inside = inside;
        let Some(space) = measured else {
            return;
        };
        state.reserve = self.wanted.unwrap_or_else(|| default_reserve(space.total));
        let leaf = default_reserve(space.total) / LEAF_SHARE;
        self.leaf_bytes_max
            .store(leaf.max(LEAF_BYTES_MIN), Ordering::Relaxed);
        let needed = state.reserve + in_memory;
        // The margin keeps the state from alternating.
        let enough = needed + (state.reserve / 4).max(MIB);
        // The log cannot use what is free inside the data file.
        let for_log = state.room() - state.inside;
        if state.room() < needed || for_log < state.reserve / 4 {
            state.set_low();
        } else if state.room() >= enough && (self.hold_all(&mut state) || !state.was_full) {
            state.was_full = false;
            state.low_since = None;
            self.settled.notify_all();
        }
        self.set_limits(&state);
    }

    /// The pause before the next measurement. `is_busy` indicates whether there are commits.
    pub(crate) fn pause(&self, is_busy: bool) -> Duration {
        let state = self.state.lock();
        if state.low_since.is_some() {
            return PAUSE_LOW;
        }
        let above = state.room().saturating_sub(state.reserve);
        if !is_busy {
            PAUSES[2]
        } else if above < state.reserve.max(self.memtable_bytes) {
            PAUSES[0]
        } else {
            PAUSES[1]
        }
    }

    pub(crate) fn stats(&self) -> DiskSpaceStats {
        let state = self.state.lock();
        DiskSpaceStats {
            total_bytes: state.measured.map_or(0, |space| space.total),
            available_bytes: state.room(),
            reserve_bytes: state.reserve,
            held_bytes: state.held,
            low_since: state.low_since,
            times_low: state.times_low,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Makes the file of the reserve, if it is missing or was shrunk. False if there is no room for it.
    fn hold_all(&self, state: &mut State) -> bool {
        self.hold(state, state.file_bytes())
    }

    /// Makes the file of the reserve as large as `wanted`. False if there is no room for it.
    fn hold(&self, state: &mut State, wanted: u64) -> bool {
        if state.held >= wanted {
            return true;
        }
        let made = || -> io::Result<()> {
            let file = self.disk.open(RESERVE_FILE, false)?;
            match file.allocate(wanted) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    write_zeros(&*file, wanted)
                }
                allocated => allocated.and_then(|()| file.set_len(wanted)),
            }
        };
        if made().is_err() {
            // Without what was allocated beyond.
            let undone = match state.held {
                0 => self.disk.remove(RESERVE_FILE),
                held => (self.disk.open(RESERVE_FILE, false)).and_then(|file| file.set_len(held)),
            };
            // The next measurement finds the rest, which could not be undone.
            let _ = undone;
            return false;
        }
        // The measurement was taken before.
        if let Some(space) = &mut state.measured {
            space.available = space.available.saturating_sub(wanted - state.held);
        }
        state.held = wanted;
        true
    }

    /// Shrinks the file of the reserve to the part that is for a checkpoint.
    fn give_up(&self, state: &mut State) {
        self.shrink(state, state.file_bytes() / CHECKPOINT_SHARE);
    }

    /// Shrinks the file of the reserve.
    fn shrink(&self, state: &mut State, to: u64) {
        let shrunk = || match to {
            0 => self.disk.remove(RESERVE_FILE),
            _ => self.disk.open(RESERVE_FILE, false)?.set_len(to),
        };
        if state.held > to && shrunk().is_ok() {
            if let Some(space) = &mut state.measured {
                space.available += state.held - to;
            }
            state.held = to;
        }
    }

    fn set_limits(&self, state: &State) {
        let is_low = state.low_since.is_some();
        let above = state.room().saturating_sub(state.reserve);
        let (least, low_most) = SEAL_BYTES;
        let seal = if is_low {
            (state.reserve / MEMTABLE_SHARE_LOW).clamp(least, low_most)
        } else {
            (above / MEMTABLE_SHARE).max(low_most)
        };
        let seal = if seal < self.memtable_bytes {
            seal as usize
        } else {
            usize::MAX
        };
        let spare = if is_low { 0 } else { above / SPARE_SHARE };
        self.seal_bytes.store(seal, Ordering::Relaxed);
        self.spare_bytes.store(spare, Ordering::Relaxed);
        let step_max = if is_low {
            (state.room() - state.held).saturating_sub(state.reserve / 8)
        } else {
            u64::MAX
        };
        self.step_max.store(step_max, Ordering::Relaxed);
        self.is_low.store(is_low, Ordering::Relaxed);
    }
}

/// Takes room by writing.
fn write_zeros(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 64 << 10];
    let mut offset = 0;
    while offset < bytes {
        let part = (bytes - offset).min(zeros.len() as u64);
        file.write_at(&zeros[..part as usize], offset)?;
        offset += part;
    }
    Ok(())
}

/// The reserve for a file system of `total` bytes, unless another one is set.
pub fn default_reserve(total: u64) -> u64 {
    let (least, most) = RESERVE_BYTES;
    let share = (total / RESERVE_SHARE).clamp(least, most);
    share.min(total / RESERVE_SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_follows_the_size_of_the_disk() {
        for (total, reserve) in [
            (0, 0),
            (8, 1),
            (160, 16),
            (64, 8),
            (1 << 10, 51),
            (1 << 20, 512),
        ] {
            assert_eq!(default_reserve(total * MIB) / MIB, reserve, "{total}");
        }
    }
}
