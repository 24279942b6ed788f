//! A simulated disk in memory with faults. Its behaviour depends only on its calls and its seed.

pub mod copies;
pub mod rot;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frond_tree::disk::{Disk, DiskFile, DiskSpace, SharedMap};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Unsynced writes are torn at multiples of this.
const SECTOR: usize = 512;
/// The system writes back this much of a mapping at once.
const PAGE: usize = 4096;

/// A change of a file that may be lost until it is synced.
#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(offset, data) => {
                let end = *offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset as usize..end].copy_from_slice(data);
            }
            Change::SetLen(len) => bytes.resize(*len as usize, 0),
        }
    }
}

#[derive(Clone, Default)]
struct File {
    /// Punched holes, by their numbers.
    holes: std::collections::BTreeSet<u64>,
    /// Its last name.
    name: String,
    /// The content that reads see.
    current: Vec<u8>,
    /// The durable content, and the changes since the last sync.
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// The change during which the crash happened: a crash of the machine may apply it in part.
    last: Option<Change>,
    /// Bytes that were stored through mappings since the last sync, and where, in their order.
    stored: Vec<(usize, Vec<u8>)>,
    /// Bytes that have room, whether or not they are written.
    allocated: usize,
}

impl File {
    /// Stores bytes through a mapping.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        self.current[at..at + bytes.len()].copy_from_slice(bytes);
        self.stored.push((at, bytes.to_vec()));
    }

    /// The system has written each page of the mappings back at some time, or never; it may have been interrupted in the
    /// middle of a page.
    fn write_back(&mut self, random: &mut SmallRng) {
        let stored = std::mem::take(&mut self.stored);
        let mut times = BTreeMap::new();
        let is_whole = random.random_bool(0.1);
        for (index, (at, bytes)) in stored.iter().enumerate() {
            let (mut at, mut bytes) = (*at, &bytes[..]);
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(bytes.len().min(PAGE - at % PAGE));
                let time = times.entry(at / PAGE).or_insert_with(|| {
                    let any = random.random_range(0..=stored.len());
                    if is_whole || random.random_bool(0.3) {
                        stored.len()
                    } else {
                        any
                    }
                });
                let kept = match index.cmp(time) {
                    Ordering::Less => piece.len(),
                    Ordering::Equal => random.random_range(0..=piece.len()),
                    Ordering::Greater => 0,
                };
                if self.durable.len() >= at + kept {
                    self.durable[at..at + kept].copy_from_slice(&piece[..kept]);
                }
                (at, bytes) = (at + piece.len(), rest);
            }
        }
    }
}

/// The kind of an operation; also the first part of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Open,
    List,
    Remove,
    SyncDirectory,
    Read,
    Write,
    Sync,
    Len,
    SetLen,
    Rename,
    Allocate,
    Map,
    /// A write to a mapping. No fault makes it fail, but a crash may come in its middle.
    Store,
}

pub const EIO: i32 = 5;
pub const EMFILE: i32 = 24;
pub const ENOSPC: i32 = 28;

/// Fails operations.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: Kind,
    /// The start of the names of the files that it hits.
    pub file: &'static str,
    /// The number of operations that succeed first, and of those that fail then.
    pub after: u64,
    pub times: u64,
    /// Only reads and writes that touch this part of the file.
    pub place: Option<std::ops::Range<u64>>,
    /// The error: `EIO`, `ENOSPC` or `EMFILE`.
    pub code: i32,
}

/// The unit of holes in files.
const HOLE_BYTES: u64 = 4096;

#[derive(Clone, Default)]
struct State {
    files: Vec<File>,
    /// The current directory, and the durable one.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    operations: u64,
    trace: u64,
    /// From this operation on everything fails.
    crash_at: Option<u64>,
    faults: Vec<Fault>,
    /// Room for the files whose names start so, in bytes.
    room: Option<(&'static str, u64)>,
    /// The size of the disk in bytes, if it is known.
    capacity: Option<u64>,
    /// Whether holes can be punched.
    can_punch: bool,
    random: Option<SmallRng>,
    rot: rot::Rot,
    /// Whether the crash came in the middle of a write to a mapping.
    in_a_store: bool,
}

/// The simulated disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

fn crashed() -> io::Error {
    io::Error::other("the machine crashed")
}

impl File {
    fn hole_bytes(&self) -> u64 {
        self.holes.len() as u64 * HOLE_BYTES
    }

    fn holes_in(&self, offset: u64, end: u64) -> impl Iterator<Item = u64> {
        let touched = offset / HOLE_BYTES..end.div_ceil(HOLE_BYTES);
        self.holes.range(touched).copied()
    }
}

impl State {
    /// Counts an operation and decides whether it fails.
    fn tick(&mut self, kind: Kind, name: &str, range: std::ops::Range<u64>) -> io::Result<()> {
        self.operations += 1;
        let mut words = Vec::with_capacity(64);
        for word in [kind as u64, range.start, range.end] {
            words.extend_from_slice(&word.to_le_bytes());
        }
        words.extend_from_slice(name.as_bytes());
        self.trace = xxh3_64_with_seed(&words, self.trace);
        if self.crash_at.is_some_and(|at| self.operations >= at) {
            return Err(crashed());
        }
        self.rot.check(kind, name, &range)?;
        for fault in &mut self.faults {
            let touches =
                |place: &std::ops::Range<u64>| place.start < range.end && range.start < place.end;
            if fault.kind == kind
                && name.starts_with(fault.file)
                && fault.place.as_ref().is_none_or(touches)
                && fault.times > 0
            {
                if fault.after > 0 {
                    fault.after -= 1;
                    continue;
                }
                fault.times -= 1;
                return Err(io::Error::from_raw_os_error(fault.code));
            }
        }
        Ok(())
    }

    fn random(&mut self) -> &mut SmallRng {
        self.random
            .get_or_insert_with(|| SmallRng::seed_from_u64(0))
    }

    /// The number of bytes by which a file may grow.
    fn room_for(&self, name: &str) -> u64 {
        let filled = match self.room {
            Some((prefix, room)) if name.starts_with(prefix) => {
                room.saturating_sub(self.used(prefix))
            }
            _ => u64::MAX,
        };
        let capacity = self.capacity.unwrap_or(u64::MAX);
        filled.min(capacity.saturating_sub(self.used("")))
    }

    /// Bytes in the files whose names start so.
    fn used(&self, prefix: &str) -> u64 {
        let files = self
            .names
            .iter()
            .filter(|(name, _)| name.starts_with(prefix));
        files
            .map(|(_, file)| &self.files[*file])
            .map(|file| file.current.len().max(file.allocated) as u64 - file.hole_bytes())
            .sum()
    }
}

impl SimDisk {
    /// An empty disk whose faults follow a seed.
    pub fn new(seed: u64) -> SimDisk {
        let disk = SimDisk::default();
        disk.lock().random = Some(SmallRng::seed_from_u64(seed));
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic that a test asked for does not leave the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Crashes after this many more operations.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.lock();
        state.crash_at = Some(state.operations + operations);
    }

    pub fn has_crashed(&self) -> bool {
        let state = self.lock();
        state.crash_at.is_some_and(|at| state.operations >= at)
    }

    /// Whether the crash came in the middle of a write to a mapping.
    pub fn is_in_a_store(&self) -> bool {
        self.lock().in_a_store
    }

    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// A hash of all operations so far.
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    pub fn add_fault(&self, fault: Fault) {
        self.lock().faults.push(fault);
    }

    pub fn clear_faults(&self) {
        let mut state = self.lock();
        state.faults.clear();
        state.room = None;
    }

    /// Leaves room for this many more bytes in the files whose names start with `prefix`.
    pub fn fill(&self, prefix: &'static str, left: u64) {
        let mut state = self.lock();
        let used = state.used(prefix);
        state.room = Some((prefix, used + left));
    }

    /// Lets holes be punched into files. Only their room changes: what was there can be read still.
    pub fn allow_holes(&self) {
        self.lock().can_punch = true;
    }

    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = Some(bytes);
    }

    /// Names and lengths of the files.
    pub fn files(&self) -> Vec<(String, usize)> {
        let state = self.lock();
        let len = |file: &usize| state.files[*file].current.len();
        state
            .names
            .iter()
            .map(|(name, file)| (name.clone(), len(file)))
            .collect()
    }

    pub fn flip_bit(&self, name: &str, bit: usize) {
        let mut state = self.lock();
        let file = state.names[name];
        state.files[file].current[bit / 8] ^= 1 << (bit % 8);
    }

    /// The disk as it is now, without faults: another one that can be changed by itself.
    pub fn copy(&self) -> SimDisk {
        let mut state = self.lock().clone();
        state.crash_at = None;
        state.faults.clear();
        state.room = None;
        state.rot.end();
        state.in_a_store = false;
        state.files.iter_mut().for_each(|file| file.last = None);
        SimDisk(Arc::new(Mutex::new(state)))
    }

    /// The disk after a crash of the process: all that was written or stored can be read, and is as durable as before.
    pub fn after_kill(&self) -> SimDisk {
        self.copy()
    }

    /// The disk after a crash of the machine: of what was not synced any part may be there.
    pub fn after_crash(&self, random: &mut SmallRng) -> SimDisk {
        let mut state = self.lock().clone();
        let mut names = BTreeMap::new();
        let all = state.names.iter().chain(&state.durable_names);
        let all: Vec<String> = all.map(|(name, _)| name.clone()).collect();
        for name in all {
            let (now, then) = (state.names.get(&name), state.durable_names.get(&name));
            let found = if random.random_bool(0.5) { now } else { then };
            if let Some(file) = found {
                names.insert(name, *file);
            }
        }
        // A file that was renamed has one of its names.
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|_, file| seen.insert(*file));
        for file in &mut state.files {
            file.write_back(random);
            let mut changes = std::mem::take(&mut file.unsynced);
            changes.extend(file.last.take());
            if random.random_bool(0.5) {
                for index in (1..changes.len()).rev() {
                    changes.swap(index, random.random_range(0..=index));
                }
            }
            let keep = random.random_range(0.0..=1.0);
            for change in changes {
                if !random.random_bool(keep) {
                    continue;
                }
                match change {
                    Change::Write(offset, data) if random.random_bool(0.25) => {
                        tear(random, offset, &data, &mut file.durable);
                    }
                    change => change.apply(&mut file.durable),
                }
            }
            file.current = file.durable.clone();
        }
        state.durable_names = names.clone();
        state.names = names;
        (state.crash_at, state.room) = (None, None);
        state.faults.clear();
        state.rot.end();
        state.in_a_store = false;
        SimDisk(Arc::new(Mutex::new(state)))
    }
}

/// Writes a prefix of the sectors, or any of them.
fn tear(random: &mut SmallRng, offset: u64, data: &[u8], bytes: &mut Vec<u8>) {
    let any = random.random_bool(0.5);
    let upto = random.random_range(0..=data.len().div_ceil(SECTOR));
    for (index, sector) in data.chunks(SECTOR).enumerate() {
        if index < upto || (any && random.random_bool(0.5)) {
            let at = offset + (index * SECTOR) as u64;
            Change::Write(at, sector.to_vec()).apply(bytes);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    index: usize,
}

impl Disk for SimDisk {
    fn open(&self, name: &str, _direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        let ticked = state.tick(Kind::Open, name, 0..0);
        if !state.names.contains_key(name) {
            let index = state.files.len();
            state.files.push(File {
                name: name.to_owned(),
                ..File::default()
            });
            state.names.insert(name.to_owned(), index);
        }
        ticked?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            index: state.names[name],
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.tick(Kind::List, "", 0..0)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let ticked = state.tick(Kind::Remove, name, 0..0);
        if ticked.is_err() && state.crash_at != Some(state.operations) {
            return ticked;
        }
        state.names.remove(name).ok_or(io::ErrorKind::NotFound)?;
        ticked
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.tick(Kind::SyncDirectory, "", 0..0)?;
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn space(&self) -> io::Result<Option<DiskSpace>> {
        let state = self.lock();
        Ok(state.capacity.map(|total| DiskSpace {
            total,
            available: state.room_for(""),
        }))
    }

    fn unique_name(&self) -> [u8; 16] {
        let state = self.lock();
        let half = |seed| xxh3_64_with_seed(&state.operations.to_le_bytes(), state.trace ^ seed);
        let mut name = [0; 16];
        name[..8].copy_from_slice(&half(1).to_le_bytes());
        name[8..].copy_from_slice(&half(2).to_le_bytes());
        name
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let ticked = state.tick(Kind::Rename, from, 0..0);
        if ticked.is_err() && state.crash_at != Some(state.operations) {
            return ticked;
        }
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        state.files[file].name = to.to_owned();
        ticked
    }

    fn map(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        let mut state = self.lock();
        state.tick(Kind::Map, name, offset..offset + bytes as u64)?;
        let index = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let offset = offset as usize;
        let content = state.files[index].current.get(offset..offset + bytes);
        Ok(Box::new(SimMap {
            bytes: content.ok_or(io::ErrorKind::InvalidInput)?.to_vec(),
            disk: self.clone(),
            name: name.to_owned(),
            index,
            offset,
        }))
    }
}

/// A mapping of a simulated file. Writes after the crash are not stored.
struct SimMap {
    disk: SimDisk,
    name: String,
    index: usize,
    offset: usize,
    bytes: Vec<u8>,
}

impl SharedMap for SimMap {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut state = self.disk.lock();
        let at = self.offset + offset;
        let range = at as u64..(at + bytes.len()) as u64;
        let ticked = state.tick(Kind::Store, &self.name, range);
        state.trace = xxh3_64_with_seed(bytes, state.trace);
        let mut stored = bytes;
        if ticked.is_err() {
            if state.crash_at != Some(state.operations) {
                return;
            }
            // The process is killed in the middle of the copy.
            state.in_a_store = true;
            let part = state.random().random_range(0..=bytes.len());
            stored = &bytes[..part];
        }
        state.files[self.index].store(at, stored);
    }
}

impl SimFile {
    fn name(&self, state: &State) -> String {
        state.files[self.index].name.clone()
    }

    fn tick(&self, state: &mut State, kind: Kind, range: std::ops::Range<u64>) -> io::Result<()> {
        state.tick(kind, &self.name(state), range)
    }

    /// Makes a change, of which the operation that a crash or a fault hits may leave a part.
    fn change(&self, state: &mut State, change: Change, ticked: io::Result<()>) -> io::Result<()> {
        let is_last = state.crash_at == Some(state.operations);
        let file = &mut state.files[self.index];
        if ticked.is_ok() {
            change.apply(&mut file.current);
            file.unsynced.push(change);
        } else if is_last {
            file.last = Some(change);
        }
        ticked
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let end = offset + buffer.len() as u64;
        self.tick(&mut state, Kind::Read, offset..end)?;
        let bytes = state.files[self.index]
            .current
            .get(offset as usize..end as usize);
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let end = offset + bytes.len() as u64;
        let mut ticked = self.tick(&mut state, Kind::Write, offset..end);
        state.trace = xxh3_64_with_seed(bytes, state.trace);
        let mut bytes = bytes.to_vec();
        let file = &state.files[self.index];
        let len = file.current.len().max(file.allocated) as u64;
        let room = state.room_for(&self.name(&state)).min(1 << 40);
        let filled = file.holes_in(offset, end).count() as u64 * HOLE_BYTES;
        let fits = match room.checked_sub(filled) {
            Some(room) => (len + room).max(offset) - offset,
            None => 0,
        };
        if ticked.is_ok() && (bytes.len() as u64) > fits {
            // A full disk may have taken a part.
            let part = state.random().random_range(0..=fits as usize);
            bytes.truncate(part);
            self.change(&mut state, Change::Write(offset, bytes), Ok(()))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = &mut state.files[self.index];
        let filled: Vec<u64> = file.holes_in(offset, end).collect();
        for hole in filled {
            file.holes.remove(&hole);
        }
        if ticked.is_err() && !self.disk_crashed(&state) {
            // A failed write may have reached the disk in part, and reads see that part.
            let part = state.random().random_range(0..=bytes.len());
            bytes.truncate(part);
            self.change(&mut state, Change::Write(offset, bytes), Ok(()))?;
            return std::mem::replace(&mut ticked, Ok(()));
        }
        self.change(&mut state, Change::Write(offset, bytes), ticked)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let ticked = self.tick(&mut state, Kind::Sync, 0..0);
        if ticked.is_err() && self.disk_crashed(&state) {
            return ticked;
        }
        let file = &mut state.files[self.index];
        let changes = std::mem::take(&mut file.unsynced);
        let stored = std::mem::take(&mut file.stored).into_iter();
        let stored = stored.map(|(at, bytes)| Change::Write(at as u64, bytes));
        for change in changes.into_iter().chain(stored) {
            // After a failed sync the system believes that all is written, but any of it may be lost.
            if ticked.is_ok() || state.random().random_bool(0.5) {
                change.apply(&mut state.files[self.index].durable);
            }
        }
        ticked
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        self.tick(&mut state, Kind::Len, 0..0)?;
        Ok(state.files[self.index].current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let ticked = self.tick(&mut state, Kind::SetLen, len..len);
        if ticked.is_ok() {
            let file = &mut state.files[self.index];
            file.allocated = 0;
            file.holes.retain(|hole| (hole + 1) * HOLE_BYTES <= len);
        }
        self.change(&mut state, Change::SetLen(len), ticked)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        self.tick(&mut state, Kind::Allocate, 0..len)?;
        let room = state.room_for(&self.name(&state));
        let file = &mut state.files[self.index];
        let held = file.current.len().max(file.allocated) as u64;
        if len.saturating_sub(held) > room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.allocated = file.allocated.max(len as usize);
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        if !state.can_punch {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = &mut state.files[self.index];
        let end = (offset + len).min(file.current.len() as u64);
        let whole = offset.div_ceil(HOLE_BYTES)..end / HOLE_BYTES;
        file.holes.extend(whole);
        Ok(())
    }
}

impl SimFile {
    fn disk_crashed(&self, state: &State) -> bool {
        state.crash_at.is_some_and(|at| state.operations >= at)
    }
}
