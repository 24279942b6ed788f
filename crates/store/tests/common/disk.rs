//! A disk in memory that can be copied as a power failure would leave it: all synced writes, and any part of
//! the others.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use frond_store::keyspace::disk::{Disk, DiskFile};
use rand::RngExt;
use rand::rngs::StdRng;

enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(offset, data) => {
                let end = offset + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(data);
            }
            Change::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

#[derive(Default)]
struct File {
    current: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

type Files = BTreeMap<String, File>;

/// The disk; clones share it. Names are durable at once, contents when they are synced.
#[derive(Clone, Default)]
pub struct MemDisk(Arc<Mutex<Files>>);

struct Handle {
    files: Arc<Mutex<Files>>,
    name: String,
}

impl MemDisk {
    /// The disk after a power failure. Every unsynced write is kept or lost at random.
    pub fn image(&self, random: &mut StdRng) -> MemDisk {
        let files = self.0.lock().unwrap();
        let survive = |(name, file): (&String, &File)| {
            let mut bytes = file.synced.clone();
            for change in &file.unsynced {
                if random.random_bool(0.5) {
                    change.apply(&mut bytes);
                }
            }
            let file = File {
                current: bytes.clone(),
                synced: bytes,
                unsynced: Vec::new(),
            };
            (name.clone(), file)
        };
        MemDisk(Arc::new(Mutex::new(files.iter().map(survive).collect())))
    }
}

impl Disk for MemDisk {
    fn open(&self, name: &str, _: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.0.lock().unwrap().entry(name.to_owned()).or_default();
        Ok(Arc::new(Handle {
            files: self.0.clone(),
            name: name.to_owned(),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Handle {
    fn with<R>(&self, act: impl FnOnce(&mut File) -> io::Result<R>) -> io::Result<R> {
        act(self
            .files
            .lock()
            .unwrap()
            .entry(self.name.clone())
            .or_default())
    }
}

impl DiskFile for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|file| {
            let start = offset as usize;
            let bytes = file.current.get(start..start + buffer.len());
            buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|file| {
            let change = Change::Write(offset as usize, bytes.to_vec());
            change.apply(&mut file.current);
            file.unsynced.push(change);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|file| {
            for change in std::mem::take(&mut file.unsynced) {
                change.apply(&mut file.synced);
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|file| Ok(file.current.len() as u64))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|file| {
            let change = Change::SetLen(len as usize);
            change.apply(&mut file.current);
            file.unsynced.push(change);
            Ok(())
        })
    }
}
