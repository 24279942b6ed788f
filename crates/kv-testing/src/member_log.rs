//! The log of a member in memory, with the rules of the contract as assertions, and crashes.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use frond_kv::{Done, EntryId, Error, LogEntry, LogState, MemberLog, Result};
use parking_lot::Mutex;

/// Bytes before the payload of a frame: its length.
const HEADER: usize = 4;

/// The place of an entry without frames.
const EMPTY: usize = 8;

/// Frames of an entry that this log makes, at most.
const FRAMES_MAX: usize = 3;

/// Broken rules of the contract, of all logs that share this.
#[derive(Debug, Clone, Default)]
pub struct Violations(Arc<Mutex<Vec<String>>>);

impl Violations {
    /// Notes a broken rule.
    pub fn add(&self, what: String) {
        self.0.lock().push(what);
    }

    /// The first broken rule.
    #[must_use]
    pub fn first(&self) -> Option<String> {
        self.0.lock().first().cloned()
    }
}

/// The end of a process or of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The process ends. What was written stays, synced or not.
    Kill,
    /// The machine ends. Some of what was not synced is lost: the number says how much, in 256ths.
    Crash(u8),
}

/// A log in memory. Its trees are a list of the payloads of its frames.
pub struct MemoryLog {
    state: Mutex<State>,
    violations: Violations,
    /// Whether each entry is durable at once, without [`MemoryLog::sync`].
    is_synced: bool,
}

#[derive(Clone, Default)]
struct Disk {
    /// The last entry that is not here any more, and its end.
    purged: Option<EntryId>,
    purged_to: u64,
    purged_note: Option<(EntryId, Arc<[u8]>)>,
    entries: VecDeque<LogEntry>,
    /// Frames that are in no entry.
    tail: Vec<u8>,
    vote: Option<Vec<u8>>,
    /// The payloads in the trees, by the ends of their frames.
    trees: BTreeMap<u64, Vec<u8>>,
    committed: Option<EntryId>,
}

#[derive(Default)]
struct State {
    disk: Disk,
    /// The end of the frames that are in the trees.
    in_trees: u64,
    durable: Option<EntryId>,
    /// The last entry that the disk knows to be committed.
    saved_committed: Option<EntryId>,
    is_leading: bool,
    /// The last entry that [`MemberLog::apply_own`] has recorded as committed. The state machine may apply those before it later.
    committed_own: Option<EntryId>,
    /// Whether a group was reported that is in no entry yet.
    is_reported: bool,
    waker: Option<Waker>,
    disk_waker: Option<Waker>,
    pending: Vec<(EntryId, Done)>,
    is_closed: bool,
    is_broken: bool,
}

impl Disk {
    fn last(&self) -> Option<EntryId> {
        self.entries.back().map(|entry| entry.id).or(self.purged)
    }

    /// The end of the last entry.
    fn sealed(&self) -> u64 {
        self.entries.back().map_or(self.purged_to, |entry| entry.to)
    }

    fn end(&self) -> u64 {
        self.sealed() + self.tail.len() as u64
    }

    fn entry(&self, id: EntryId) -> Option<&LogEntry> {
        let at = self.entries.partition_point(|entry| entry.id < id);
        self.entries.get(at).filter(|entry| entry.id == id)
    }

    /// The end of an entry, which may be purged.
    fn end_of(&self, id: Option<EntryId>) -> Option<u64> {
        if id == self.purged {
            return Some(self.purged_to);
        }
        self.entry(id?).map(|entry| entry.to)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    fn follows(&self, id: EntryId) -> bool {
        id.index == self.next() && self.last().is_none_or(|last| last.term <= id.term)
    }

    fn insert(&mut self, from: u64, frames: &[u8]) {
        let mut at = from;
        for payload in payloads(frames).into_iter().flatten() {
            at += (HEADER + payload.len()) as u64;
            self.trees.insert(at, payload.to_vec());
        }
    }
}

/// The payloads of frames, or nothing if they are damaged.
fn payloads(mut frames: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !frames.is_empty() {
        let (length, rest) = frames.split_first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        found.push(payload);
        frames = rest;
    }
    Some(found)
}

/// The bytes of the first frames, which become an entry.
fn first_frames(tail: &[u8]) -> usize {
    let frames = payloads(tail).into_iter().flatten().take(FRAMES_MAX);
    frames.map(|payload| HEADER + payload.len()).sum()
}

impl MemoryLog {
    /// A log without entries, of a store without commits.
    #[must_use]
    pub fn new(is_synced: bool, violations: Violations) -> MemoryLog {
        MemoryLog::open(Disk::default(), is_synced, violations)
    }

    /// The log of a store that has commits, which are in no entry, and whose earlier ones are not in the log any more.
    #[must_use]
    pub fn of_store(payloads: &[Vec<u8>], is_synced: bool, violations: Violations) -> MemoryLog {
        let log = MemoryLog::new(is_synced, violations);
        let mut state = log.state.lock();
        state.disk.purged_to = 1000;
        for payload in payloads {
            add_frame(&mut state.disk, payload);
        }
        state.in_trees = state.disk.end();
        drop(state);
        log
    }

    fn open(disk: Disk, is_synced: bool, violations: Violations) -> MemoryLog {
        let committed = disk.committed;
        let in_trees = disk.end_of(committed).unwrap_or(disk.purged_to);
        let durable = disk.last();
        MemoryLog {
            state: Mutex::new(State {
                in_trees,
                durable,
                saved_committed: committed,
                disk,
                ..State::default()
            }),
            violations,
            is_synced,
        }
    }

    /// Ends this log and opens what is left of it. Only what is known to be committed is in the trees.
    #[must_use]
    pub fn reopen(&self, loss: Loss) -> MemoryLog {
        let mut state = self.state.lock();
        state.is_closed = true;
        let mut disk = state.disk.clone();
        disk.committed = state.saved_committed;
        // A process that ends has written more than it has synced.
        if loss == Loss::Kill && disk.committed.is_none() {
            disk.committed = state.disk.committed;
        }
        if let Loss::Crash(share) = loss {
            let durable = disk
                .entries
                .partition_point(|entry| Some(entry.id) <= state.durable);
            let unsynced = disk.entries.len() - durable;
            let lost = (unsynced * usize::from(share)).div_ceil(256);
            if lost > 0 || share > 0 {
                disk.tail.clear();
            }
            let kept = disk.entries.len() - lost;
            disk.entries.truncate(kept);
        }
        // The frames of a store that was in no set are not replayed from entries.
        let has_entries = disk.last().is_some();
        if has_entries {
            let replayed = disk.end_of(disk.committed).unwrap_or(disk.purged_to);
            let first = disk
                .entries
                .front()
                .map_or(disk.purged_to, |entry| entry.from);
            disk.trees.retain(|end, _| *end <= replayed.max(first));
        }
        let pending = mem::take(&mut state.pending);
        drop(state);
        drop(pending);
        MemoryLog::open(disk, self.is_synced, self.violations.clone())
    }

    /// A copy of the running store for a member that had `old`, whose vote it keeps.
    #[must_use]
    pub fn copy_for(&self, old: &MemoryLog) -> MemoryLog {
        let state = self.state.lock();
        let mut disk = state.disk.clone();
        disk.tail.clear();
        disk.committed = state.saved_committed;
        let replayed = disk.end_of(disk.committed).unwrap_or(disk.purged_to);
        disk.trees.retain(|end, _| *end <= replayed);
        drop(state);
        let mut old = old.state.lock();
        old.is_closed = true;
        disk.vote = old.disk.vote.clone();
        let pending = mem::take(&mut old.pending);
        drop(old);
        drop(pending);
        MemoryLog::open(disk, self.is_synced, self.violations.clone())
    }

    /// Commits a payload, as a write of the leader. Returns the end of its frame.
    ///
    /// # Errors
    /// [`Error::NotLeading`]; [`Error::Closed`].
    pub fn commit(&self, payload: &[u8]) -> Result<u64> {
        let mut state = self.open_state()?;
        if !state.is_leading {
            return Err(Error::NotLeading);
        }
        add_frame(&mut state.disk, payload);
        let end = state.disk.end();
        state.in_trees = end;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(end)
    }

    /// Makes all entries durable.
    pub fn sync(&self) {
        let mut state = self.state.lock();
        if state.is_closed || state.is_broken {
            return;
        }
        state.durable = state.disk.last();
        state.saved_committed = state.disk.committed;
        let pending = mem::take(&mut state.pending);
        drop(state);
        for (_, done) in pending {
            done(Ok(()));
        }
    }

    /// Ready once there is something to sync.
    pub fn poll_unsynced(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.pending.is_empty() {
            state.disk_waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Fails the next sync, and all that is done after it.
    pub fn break_disk(&self) {
        let mut state = self.state.lock();
        state.is_broken = true;
        let pending = mem::take(&mut state.pending);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        for (_, done) in pending {
            done(Err(Error::failed("the disk is broken")));
        }
    }

    /// The payloads in the trees whose frames end after `from` and not after `to`, with these ends.
    #[must_use]
    pub fn in_trees(&self, from: u64, to: u64) -> Vec<(u64, Vec<u8>)> {
        if to <= from {
            return Vec::new();
        }
        let state = self.state.lock();
        let found = state.disk.trees.range(from + 1..=to);
        found
            .map(|(end, payload)| (*end, payload.clone()))
            .collect()
    }

    /// Whether an entry that is durable ends at `position` or later, and is not from a later term than `term`.
    #[must_use]
    pub fn has_durably(&self, position: u64, payload: &[u8]) -> bool {
        let state = self.state.lock();
        if position <= state.disk.purged_to {
            return state
                .disk
                .trees
                .get(&position)
                .is_some_and(|at| at == payload);
        }
        let entry = state
            .disk
            .entries
            .iter()
            .find(|entry| entry.from < position && position <= entry.to);
        entry.is_some_and(|entry| {
            let mut at = entry.from;
            let found = payloads(&entry.frames).into_iter().flatten().any(|found| {
                at += (HEADER + found.len()) as u64;
                at == position && found == payload
            });
            found && Some(entry.id) <= state.durable
        })
    }

    fn open_state(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_closed || state.is_broken {
            return Err(Error::Closed("the log is closed".into()));
        }
        Ok(state)
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let what = what();
            self.violations.add(what.clone());
            panic!("{what}");
        }
    }

    fn apply_in(&self, state: &mut State, through: EntryId) {
        self.check(state.disk.entry(through).is_some(), || {
            format!("{through:?} is applied and not in the log")
        });
        self.check(Some(through) >= state.disk.committed, || {
            format!("{through:?} is applied after {:?}", state.disk.committed)
        });
        let in_trees = state.in_trees;
        let missing: Vec<LogEntry> = state
            .disk
            .entries
            .iter()
            .filter(|entry| entry.id <= through && entry.to > in_trees)
            .cloned()
            .collect();
        for entry in missing {
            state.disk.insert(entry.from, &entry.frames);
            state.in_trees = entry.to;
        }
        state.disk.committed = Some(through);
    }

    fn push(&self, mut state: parking_lot::MutexGuard<'_, State>, entry: LogEntry, done: Done) {
        let id = entry.id;
        state.disk.entries.push_back(entry);
        state.pending.push((id, done));
        let waker = state.disk_waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if self.is_synced {
            self.sync();
        }
    }
}

fn add_frame(disk: &mut Disk, payload: &[u8]) {
    disk.tail
        .extend_from_slice(&(payload.len() as u32).to_le_bytes());
    disk.tail.extend_from_slice(payload);
    let end = disk.end();
    disk.trees.insert(end, payload.to_vec());
}

impl MemberLog for MemoryLog {
    fn state(&self) -> LogState {
        let state = self.state.lock();
        let disk = &state.disk;
        let in_trees = |entry: &&LogEntry| entry.to <= state.in_trees;
        // An entry without frames is in the trees once it is committed, or sealed by the leader.
        let applied = disk
            .entries
            .iter()
            .take_while(in_trees)
            .map(|entry| entry.id)
            .take_while(|id| Some(*id) <= disk.committed)
            .last();
        let applied = applied.or(disk.purged);
        let noted = disk.entries.iter().rev();
        let noted = noted
            .filter(|entry| Some(entry.id) <= applied && !entry.note.is_empty())
            .map(|entry| (entry.id, entry.note.clone()))
            .next();
        LogState {
            purged: disk.purged,
            last: disk.last(),
            committed: disk.committed,
            applied,
            applied_note: noted.or_else(|| disk.purged_note.clone()),
            last_note: (disk.entries.iter().rev())
                .find(|entry| !entry.note.is_empty())
                .map(|entry| (entry.id, entry.note.clone()))
                .or_else(|| disk.purged_note.clone()),
        }
    }

    fn vote(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.state.lock().disk.vote.clone())
    }

    fn save_vote(&self, vote: &[u8]) -> Result<()> {
        self.open_state()?.disk.vote = Some(vote.to_vec());
        Ok(())
    }

    fn set_leading(&self, is_leading: bool) -> Result<()> {
        let mut state = self.open_state()?;
        if is_leading && state.in_trees < state.disk.end() {
            return Err(Error::failed("entries are not applied yet"));
        }
        if is_leading {
            let is_applied =
                state.disk.committed == state.disk.last() || state.in_trees >= state.disk.sealed();
            self.check(is_applied, || {
                "leads with entries that are not applied".to_owned()
            });
        }
        state.is_leading = is_leading;
        state.is_reported = false;
        Ok(())
    }

    fn poll_group(&self, context: &mut Context<'_>) -> Poll<u64> {
        let mut state = self.state.lock();
        let end = state.disk.end();
        if state.is_leading && state.is_broken {
            // The next entry fails.
            state.is_leading = false;
            return Poll::Ready(end);
        }
        let has_frames = !state.disk.tail.is_empty();
        if state.is_leading && !state.is_closed && has_frames && !state.is_reported {
            state.is_reported = true;
            return Poll::Ready(end);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn request(&self, _position: u64) {}

    fn seal(&self, id: EntryId, note: &[u8], done: Done) -> Result<()> {
        let mut state = self.open_state()?;
        if !state.disk.follows(id) {
            return Err(Error::InvalidOption(format!("{id:?} does not follow")));
        }
        let from = state.disk.sealed();
        let length = first_frames(&state.disk.tail);
        let rest = state.disk.tail.split_off(length);
        let frames = mem::replace(&mut state.disk.tail, rest);
        let place = if frames.is_empty() { EMPTY } else { length };
        let entry = LogEntry {
            id,
            from,
            to: from + place as u64,
            note: note.into(),
            frames: frames.into(),
        };
        state.is_reported = false;
        self.push(state, entry, done);
        let mut state = self.state.lock();
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    fn append(&self, entry: LogEntry, done: Done) -> Result<()> {
        let mut state = self.open_state()?;
        self.check(!state.is_leading, || {
            format!("{:?} is appended while commits are accepted", entry.id)
        });
        if !state.disk.follows(entry.id) || entry.from != state.disk.sealed() {
            let last = state.disk.last();
            return Err(Error::InvalidOption(format!(
                "{:?} at {} does not follow {last:?}",
                entry.id, entry.from
            )));
        }
        let place = match entry.frames.len() {
            0 => EMPTY,
            length => length,
        };
        if payloads(&entry.frames).is_none() || place as u64 != entry.to - entry.from {
            return Err(Error::failed("damaged frames"));
        }
        if state.in_trees > state.disk.sealed() {
            return Err(Error::MustReopen);
        }
        let sealed = state.disk.sealed();
        state.disk.trees.split_off(&(sealed + 1));
        state.disk.tail.clear();
        self.push(state, entry, done);
        Ok(())
    }

    fn read(&self, first: u64, end: u64, bytes_max: usize) -> Result<Vec<LogEntry>> {
        let state = self.open_state()?;
        if state
            .disk
            .purged
            .is_some_and(|purged| first <= purged.index)
        {
            return Err(Error::LogGone {
                position: state.disk.purged_to,
            });
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in &state.disk.entries {
            if entry.id.index < first {
                continue;
            }
            if entry.id.index >= end
                || (!found.is_empty() && bytes + entry.frames.len() > bytes_max)
            {
                break;
            }
            bytes += entry.frames.len();
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn truncate_after(&self, last: Option<EntryId>) -> Result<()> {
        let mut state = self.open_state()?;
        self.check(!state.is_leading, || {
            format!("the log after {last:?} is removed while commits are accepted")
        });
        self.check(last >= state.disk.committed, || {
            format!(
                "removes entries after {last:?}, of which {:?} is committed",
                state.disk.committed
            )
        });
        let Some(end) = state.disk.end_of(last) else {
            return Err(Error::InvalidOption(format!("there is no {last:?}")));
        };
        if state.in_trees > end {
            return Err(Error::MustReopen);
        }
        state.disk.entries.retain(|entry| Some(entry.id) <= last);
        state.disk.tail.clear();
        state.disk.trees.split_off(&(end + 1));
        state.durable = state.durable.min(last);
        let (kept, gone): (Vec<_>, Vec<_>) = mem::take(&mut state.pending)
            .into_iter()
            .partition(|(id, _)| Some(*id) <= last);
        state.pending = kept;
        drop(state);
        for (_, done) in gone {
            done(Err(Error::failed("the entry was removed")));
        }
        Ok(())
    }

    fn purge(&self, through: EntryId) {
        let mut state = self.state.lock();
        let through = Some(through).min(state.saved_committed);
        let disk = &mut state.disk;
        while let Some(entry) = disk.entries.front() {
            if Some(entry.id) > through {
                break;
            }
            disk.purged = Some(entry.id);
            disk.purged_to = entry.to;
            if !entry.note.is_empty() {
                disk.purged_note = Some((entry.id, entry.note.clone()));
            }
            disk.entries.pop_front();
        }
    }

    fn apply(&self, through: EntryId) -> Result<()> {
        let mut state = self.open_state()?;
        if Some(through) <= state.disk.purged {
            return Ok(());
        }
        if Some(through) <= state.committed_own {
            return Ok(());
        }
        self.apply_in(&mut state, through);
        Ok(())
    }

    fn apply_own(&self, through: EntryId) -> Option<Result<()>> {
        let mut state = self.open_state().ok()?;
        if !state.is_leading {
            return None;
        }
        if Some(through) <= state.disk.purged {
            return Some(Ok(()));
        }
        if Some(through) > state.disk.committed {
            self.apply_in(&mut state, through);
            state.committed_own = Some(through);
        }
        Some(Ok(()))
    }

    fn set_late(&self, _is_late: bool) {}

    /// The stamp of an entry is the position of its end.
    fn aged(&self, through: EntryId, stamp: u64) -> Result<Option<EntryId>> {
        let state = self.open_state()?;
        let entries = state.disk.entries.iter();
        let aged = entries
            .skip_while(|entry| entry.to <= state.in_trees)
            .take_while(|entry| entry.id <= through && entry.to <= stamp);
        Ok(aged.map(|entry| entry.id).last())
    }

    fn committed_position(&self) -> u64 {
        let state = self.state.lock();
        state
            .disk
            .end_of(state.disk.committed)
            .unwrap_or(state.disk.purged_to)
    }

    fn end_position(&self) -> u64 {
        self.state.lock().disk.end()
    }
}
