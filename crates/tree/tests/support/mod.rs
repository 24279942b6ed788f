//! A disk in memory that loses, tears and reorders what was not synced when it crashes.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use frond_tree::disk::{Disk, DiskFile};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};

/// Unsynced writes are torn at multiples of this.
const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct File {
    /// What reads see.
    current: Vec<u8>,
    /// What is on the platter, and what was done since the last sync.
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// Whether the file's name is durable.
    named: bool,
    /// Deleted, but the deletion is not durable.
    removed: bool,
}

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

#[derive(Default)]
struct State {
    files: BTreeMap<String, File>,
    operations: u64,
    /// From this operation on everything fails.
    crash_at: Option<u64>,
}

/// The simulated disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

impl State {
    fn tick(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.crash_at {
            Some(at) if self.operations >= at => Err(io::Error::other("the machine crashed")),
            _ => Ok(()),
        }
    }
}

impl SimDisk {
    /// Crashes after this many more operations.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.0.lock().unwrap();
        state.crash_at = Some(state.operations + operations);
    }

    /// The disk as it is found after a crash: of the changes that were not synced any may be there, in part.
    pub fn after_crash(&self, random: &mut SmallRng) -> SimDisk {
        let state = self.0.lock().unwrap();
        let mut files = BTreeMap::new();
        for (name, file) in &state.files {
            if !file.named && random.random_bool(0.5) || file.removed && random.random_bool(0.5) {
                continue;
            }
            let mut bytes = file.durable.clone();
            let mut changes = file.unsynced.clone();
            if random.random_bool(0.5) {
                for index in (1..changes.len()).rev() {
                    changes.swap(index, random.random_range(0..=index));
                }
            }
            let keep = random.random_range(0.0..=1.0);
            for change in changes {
                match (change, random.random_range(0..4)) {
                    (change, _) if !random.random_bool(keep) => drop(change),
                    (Change::Write(offset, mut data), 0) => {
                        let sectors = data.len() / SECTOR;
                        data.truncate(random.random_range(0..=sectors) * SECTOR);
                        Change::Write(offset, data).apply(&mut bytes);
                    }
                    (change, _) => change.apply(&mut bytes),
                }
            }
            let file = File {
                current: bytes.clone(),
                durable: bytes,
                named: true,
                ..File::default()
            };
            files.insert(name.clone(), file);
        }
        SimDisk(Arc::new(Mutex::new(State {
            files,
            ..State::default()
        })))
    }

    /// Flips one bit somewhere in the file `name`; returns where.
    pub fn flip_bit(&self, name: &str, random: &mut SmallRng) -> usize {
        let mut state = self.0.lock().unwrap();
        let file = state.files.get_mut(name).unwrap();
        let at = random.random_range(0..file.current.len());
        file.current[at] ^= 1 << (random.next_u32() % 8);
        at
    }
}

struct SimFile {
    disk: SimDisk,
    name: String,
}

impl Disk for SimDisk {
    fn open(&self, name: &str, _direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock().unwrap();
        state.tick()?;
        let file = state.files.entry(name.to_owned()).or_default();
        if file.removed {
            *file = File::default();
        }
        drop(state);
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            name: name.to_owned(),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.lock().unwrap();
        Ok(state
            .files
            .iter()
            .filter(|(_, f)| !f.removed)
            .map(|(name, _)| name.clone())
            .collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.tick()?;
        match state.files.get_mut(name) {
            Some(file) => file.removed = true,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.tick()?;
        state.files.retain(|_, file| !file.removed);
        state.files.values_mut().for_each(|file| file.named = true);
        Ok(())
    }
}

impl SimFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        let ticked = state.tick();
        let Some(file) = state.files.get_mut(&self.name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        // The operation that the crash hits may have reached the disk.
        file.unsynced.push(change.clone());
        ticked?;
        change.apply(&mut file.current);
        Ok(())
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        state.tick()?;
        let range = offset as usize..offset as usize + buffer.len();
        let bytes = state
            .files
            .get(&self.name)
            .and_then(|file| file.current.get(range));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write(offset, bytes.to_vec()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock().unwrap();
        state.tick()?;
        let file = state
            .files
            .get_mut(&self.name)
            .ok_or(io::ErrorKind::NotFound)?;
        file.unsynced.clear();
        file.durable = file.current.clone();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.0.lock().unwrap();
        state.tick()?;
        Ok(state
            .files
            .get(&self.name)
            .map_or(0, |file| file.current.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(len))
    }
}
