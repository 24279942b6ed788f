//! The log on a disk that is full for a while.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use frond_kv::operation;

use super::buffer::BUFFER_FILE;
use super::recovered::Recovered;
use super::{Checksum, Frame, Log, replay, replay_giving_room};
use crate::disk::{Disk, DiskFile, FsDisk, SharedMap};
use crate::durable_stamp::DurableStamp;
use crate::publisher::Publisher;
use crate::waiting::{PATIENCE, wait_until};
use crate::{Error, Result, TreeId, WriteSet};

/// A disk that has no room for anything new while it is full.
struct FillingDisk {
    below: FsDisk,
    is_full: Arc<AtomicBool>,
    /// A byte of the log's buffer that cannot be read while the file exists.
    bad: Arc<AtomicU64>,
}

const NOT_BAD: u64 = u64::MAX;

fn stamps() -> Arc<DurableStamp> {
    Arc::new(DurableStamp::new(Arc::new(Publisher::new(0))))
}

impl FillingDisk {
    fn new(directory: &tempfile::TempDir, is_full: &Arc<AtomicBool>) -> FillingDisk {
        FillingDisk {
            below: FsDisk::new(directory.path().to_owned(), false),
            is_full: Arc::clone(is_full),
            bad: Arc::new(AtomicU64::new(NOT_BAD)),
        }
    }
}

struct FillingFile {
    below: Arc<dyn DiskFile>,
    bad: Option<Arc<AtomicU64>>,
    is_full: Arc<AtomicBool>,
    allocated: AtomicU64,
}

impl Disk for FillingDisk {
    fn open(&self, name: &str, direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FillingFile {
            below: self.below.open(name, direct)?,
            bad: (name == BUFFER_FILE).then(|| Arc::clone(&self.bad)),
            is_full: Arc::clone(&self.is_full),
            allocated: AtomicU64::new(0),
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.below.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if name == BUFFER_FILE {
            self.bad.store(NOT_BAD, Ordering::Relaxed);
        }
        self.below.remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.below.sync_directory()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn map(&self, name: &str, offset: u64, bytes: usize) -> io::Result<Box<dyn SharedMap>> {
        self.below.map(name, offset, bytes)
    }
}

impl FillingFile {
    fn check_room(&self, end: u64) -> io::Result<()> {
        let held = self
            .below
            .len()?
            .max(self.allocated.load(Ordering::Relaxed));
        if end > held && self.is_full.load(Ordering::Relaxed) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl DiskFile for FillingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bad = self.bad.as_ref().map(|bad| bad.load(Ordering::Relaxed));
        if bad.is_some_and(|bad| (offset..offset + buffer.len() as u64).contains(&bad)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.below.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_room(offset + bytes.len() as u64)?;
        self.below.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.allocated.store(0, Ordering::Relaxed);
        self.below.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.check_room(len)?;
        self.below.allocate(len)?;
        self.allocated.fetch_max(len, Ordering::Relaxed);
        Ok(())
    }
}

/// A payload that does not shrink.
fn payload(number: u64) -> Vec<u8> {
    let noise = (0..2000u64).flat_map(|word| {
        let word = xxhash_rust::xxh3::xxh3_64_with_seed(&word.to_le_bytes(), number);
        word.to_le_bytes()
    });
    let mut set = WriteSet::new();
    set.put(TreeId(1), b"key", &noise.collect::<Vec<u8>>());
    set.payload().to_vec()
}

fn append_to(log: &Log, payload: &[u8], number: u64, may_use_reserve: bool) -> Result<u64> {
    let checksum = Checksum::of(payload, false);
    log.append(
        &Frame::new(payload, checksum, number, None),
        may_use_reserve,
    )
}

fn assert_full(error: &Error) {
    assert!(is_full(error), "{error}");
}

fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::Stalled {
            disk_full: true,
            ..
        }
    )
}

/// The numbers of the frames that a replay finds.
fn replayed(disk: &Arc<dyn Disk>) -> Vec<u64> {
    let mut found = Vec::new();
    let end = replay(disk, 0, |_, sequence, bytes| {
        assert_eq!(bytes, payload(sequence));
        found.push(sequence);
        Ok(sequence + operation::numbers_of(bytes))
    });
    end.unwrap();
    found
}

#[test]
fn the_reserve_takes_what_frees_space_on_a_full_disk() {
    for interval in [None, Some(Duration::from_millis(20))] {
        let directory = tempfile::tempdir().unwrap();
        let full = Arc::new(AtomicBool::new(false));
        let disk: Arc<dyn Disk> = Arc::new(FillingDisk::new(&directory, &full));
        let log = Log::open(
            Arc::clone(&disk),
            Recovered::at(0),
            interval,
            1 << 20,
            64 << 10,
            stamps(),
        )
        .unwrap();
        let next = Cell::new(1);
        let append = |may_use_reserve| -> Result<u64> {
            let number = next.get();
            let end = append_to(&log, &payload(number), number, may_use_reserve)?;
            next.set(number + 1);
            Ok(end)
        };
        append(false).unwrap();
        full.store(true, Ordering::Relaxed);
        let error = loop {
            // The room that was allocated for the current segment is used first.
            if let Err(error) = append(false) {
                break error;
            }
        };
        assert!(is_full(&error), "{error}");
        let mut reserved = 0;
        let error = loop {
            let durable = append(true).and_then(|end| log.wait_durable(end));
            match durable {
                Ok(()) => reserved += 1,
                Err(error) => break error,
            }
            assert!(
                is_full(&append(false).unwrap_err()),
                "nothing else is taken"
            );
        };
        // A mebibyte, of which what waited in the buffers has taken a part.
        assert!(
            is_full(&error) && (40..64).contains(&reserved),
            "{reserved}: {error}"
        );
        let acknowledged = next.get();
        assert!(is_full(&append(false).unwrap_err()));

        full.store(false, Ordering::Relaxed);
        log.retry_now();
        wait_until("a log that goes on", || {
            append(false).inspect_err(assert_full).is_ok()
        });
        log.close().unwrap();
        assert_eq!(acknowledged + 1, next.get());
        assert_eq!(replayed(&disk), (1..next.get()).collect::<Vec<u64>>());
    }
}

/// A frame for which the log's own reserve has no room needs that of the store.
#[test]
fn a_replay_on_a_full_disk_is_given_room() {
    let directory = tempfile::tempdir().unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let disk: Arc<dyn Disk> = Arc::new(FillingDisk::new(&directory, &full));
    let log = Log::open(
        Arc::clone(&disk),
        Recovered::at(0),
        None,
        64 << 10,
        64 << 10,
        stamps(),
    )
    .unwrap();
    full.store(true, Ordering::Relaxed);
    let mut next = 1;
    while append_to(&log, &payload(next), next, true).is_ok() {
        next += 1;
    }
    drop(log);
    assert!(replay(&disk, 0, |_, sequence, _| Ok(sequence + 1)).is_err());
    let mut found = 0;
    let give_room = || full.store(false, Ordering::Relaxed);
    let end = replay_giving_room(&disk, 0, give_room, |_, sequence, bytes| {
        found += 1;
        Ok(sequence + operation::numbers_of(bytes))
    });
    assert!(end.unwrap().unwritten.is_none());
    assert_eq!(found, next - 1);
}

/// The store did not open: what the buffers hold can be more than the reserve has room for.
#[test]
fn frames_without_room_stay_in_the_buffer() {
    for interval in [None, Some(Duration::from_millis(20))] {
        let directory = tempfile::tempdir().unwrap();
        let full = Arc::new(AtomicBool::new(false));
        let disk: Arc<dyn Disk> = Arc::new(FillingDisk::new(&directory, &full));
        let open = |recovered| {
            let disk = Arc::clone(&disk);
            Log::open(disk, recovered, interval, 64 << 10, 64 << 10, stamps()).unwrap()
        };
        let log = open(Recovered::at(0));
        full.store(true, Ordering::Relaxed);
        let mut next = 1;
        while append_to(&log, &payload(next), next, true).is_ok() {
            next += 1;
        }
        drop(log);
        let expected: Vec<u64> = (1..next).collect();
        let reopen = || {
            let mut found = Vec::new();
            let recovered = replay_giving_room(
                &disk,
                0,
                || {},
                |_, sequence, bytes| {
                    found.push(sequence);
                    Ok(sequence + operation::numbers_of(bytes))
                },
            );
            assert_eq!(found, expected);
            let recovered = recovered.unwrap();
            assert!(recovered.unwritten.is_some());
            open(recovered)
        };
        for may_use_reserve in [false, true, false] {
            let log = reopen();
            assert!(!log.is_mapped());
            let refused = append_to(&log, &payload(next), next, may_use_reserve);
            assert!(is_full(&refused.unwrap_err()));
        }
        let log = reopen();
        full.store(false, Ordering::Relaxed);
        log.retry_now();
        wait_until("a log that goes on", || {
            let appended = append_to(&log, &payload(next), next, false);
            appended.inspect_err(assert_full).is_ok()
        });
        assert!(log.is_mapped());
        append_to(&log, &payload(next + 1), next + 1, false).unwrap();
        log.close().unwrap();
        assert_eq!(replayed(&disk), (1..next + 2).collect::<Vec<u64>>());
    }
}

/// A close is the last try. What it cannot write is in the buffer, and the next open takes it from there.
#[test]
fn a_log_that_is_closed_on_a_full_disk_loses_nothing() {
    for interval in [None, Some(Duration::from_millis(20))] {
        let directory = tempfile::tempdir().unwrap();
        let full = Arc::new(AtomicBool::new(false));
        let disk: Arc<dyn Disk> = Arc::new(FillingDisk::new(&directory, &full));
        let log = Log::open(
            Arc::clone(&disk),
            Recovered::at(0),
            interval,
            64 << 10,
            64 << 10,
            stamps(),
        )
        .unwrap();
        full.store(true, Ordering::Relaxed);
        let mut next = 1;
        while append_to(&log, &payload(next), next, true).is_ok() {
            next += 1;
        }
        assert!(is_full(&log.close().unwrap_err()));
        drop(log);
        full.store(false, Ordering::Relaxed);
        assert_eq!(replayed(&disk), (1..next).collect::<Vec<u64>>());
        assert_eq!(
            replayed(&disk),
            (1..next).collect::<Vec<u64>>(),
            "from the segments"
        );
    }
}

/// The caller holds the commit lock meanwhile.
#[test]
fn a_frame_that_does_not_fit_does_not_wait_for_the_interval() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::new(directory.path().to_owned(), false));
    let interval = Duration::from_secs(3600);
    let log = Log::open(
        disk,
        Recovered::at(0),
        Some(interval),
        1 << 20,
        64 << 10,
        stamps(),
    )
    .unwrap();
    let (done, appended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Too little to be written at once, and then too much for the rest of the buffer.
        append_to(&log, &[1; 10_000], 1, false).unwrap();
        append_to(&log, &[2; 60_000], 2, false).unwrap();
        done.send(()).unwrap();
    });
    let appended = appended.recv_timeout(PATIENCE);
    appended.expect("both are in long before the interval ends");
}

/// A bad sector of the buffer may be readable later, and what it holds was acknowledged: nothing is dropped for it.
#[test]
fn an_unreadable_sector_of_the_buffer_loses_nothing() {
    const HALF: u64 = 64 << 10;
    for bad in [0, 4096 + 100, 4096 + HALF + 100] {
        let directory = tempfile::tempdir().unwrap();
        let full = Arc::new(AtomicBool::new(false));
        let filling = FillingDisk::new(&directory, &full);
        let bad_byte = Arc::clone(&filling.bad);
        let disk: Arc<dyn Disk> = Arc::new(filling);
        let log = Log::open(
            Arc::clone(&disk),
            Recovered::at(0),
            None,
            HALF as usize,
            HALF as usize,
            stamps(),
        )
        .unwrap();
        full.store(true, Ordering::Relaxed);
        let mut next = 1;
        while append_to(&log, &payload(next), next, true).is_ok() {
            next += 1;
        }
        drop(log);
        full.store(false, Ordering::Relaxed);
        bad_byte.store(bad, Ordering::Relaxed);
        let failed = replay(&disk, 0, |_, sequence, bytes| {
            Ok(sequence + operation::numbers_of(bytes))
        });
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("without the file the store opens"), "{text}");
        bad_byte.store(NOT_BAD, Ordering::Relaxed);
        assert_eq!(replayed(&disk).len() as u64, next - 1, "{bad}");
    }
}

/// A copy of a store may have holes where the buffer has zeros. A mapped hole needs a block when it is written.
#[test]
fn a_buffer_with_holes_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(FsDisk::new(directory.path().to_owned(), false));
    let open = || {
        Log::open(
            Arc::clone(&disk),
            Recovered::at(0),
            None,
            1 << 20,
            64 << 10,
            stamps(),
        )
        .unwrap()
    };
    open().close().unwrap();
    let file = disk.open(BUFFER_FILE, false).unwrap();
    let size = file.len().unwrap();
    let full = file.allocated().unwrap().unwrap();
    let punched = file.punch_hole(4096, size - 4096);
    file.sync().unwrap();
    if punched.is_err() || full < size || file.allocated().unwrap().unwrap() >= size {
        eprintln!("this file system has no holes");
        return;
    }
    open().close().unwrap();
    let file = disk.open(BUFFER_FILE, false).unwrap();
    assert!(file.allocated().unwrap().unwrap() >= size);
}
