//! The destination of audit events.
//!
//! Events of commands that run at the same time are written together: each command adds its event to the queue, and then takes the
//! destination. The first one to have it writes what all have added, the others find that their event is written. So a write needs no
//! thread of its own, a single command waits for its own write only, and many commands share one.
//!
//! A write that fails leaves nothing of its events in a file. The caller learns of it: an event of an action that is refused then is
//! forgotten, one of an action that has happened is kept in memory, and written before all later ones.
//!
//! Some space behind the end of a file is reserved. So an action is refused before it happens where the disk is full, and its event
//! has room when it has happened.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::observability::system_log::{Level, SystemLog};

/// The facility of events in the system's log, as in MongoDB.
const FACILITY: &str = "user";

/// The space that is reserved behind the end of a file, and the least that an action needs.
const RESERVED_BYTES: u64 = 256 << 10;
const NEEDED_BYTES: u64 = 64 << 10;

/// The most bytes of events that are kept until they can be written.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// When an event is written, seen from its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The action does not happen without the event.
    Before,
    /// The action has happened.
    After,
    /// The action has happened, and it has changed what is stored: the event is on the disk before the reply.
    AfterChange,
}

/// The fate of an event whose write has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub why: Arc<str>,
    /// Whether it is kept, to be written later.
    pub is_kept: bool,
}

/// The destination of audit events.
pub struct Sink {
    queue: Mutex<Batch>,
    output: Mutex<Output>,
    /// Whether the last write has failed, or events are kept.
    is_failing: AtomicBool,
    /// Whether events are in the file that may not be on the disk yet.
    is_dirty: AtomicBool,
}

/// Events that are written together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    is_synced: bool,
    done: Arc<OnceLock<Result<(), Arc<str>>>>,
}

struct Output {
    target: Target,
    /// Events that could not be written when their actions happened.
    kept: Vec<u8>,
}

enum Target {
    File(AuditFile),
    Syslog(Box<SystemLog>),
    Console,
    /// For tests: fails as long as the switch is on.
    #[cfg(test)]
    Memory(Arc<TestTarget>),
}

/// A target in memory.
#[cfg(test)]
#[derive(Default)]
pub struct TestTarget {
    pub fails: AtomicBool,
    pub bytes: Mutex<Vec<u8>>,
    pub writes: std::sync::atomic::AtomicUsize,
}

impl Sink {
    fn new(target: Target) -> Sink {
        Sink {
            queue: Mutex::default(),
            output: Mutex::new(Output {
                target,
                kept: Vec::new(),
            }),
            is_failing: AtomicBool::new(false),
            is_dirty: AtomicBool::new(false),
        }
    }

    /// A file, to which events are appended.
    ///
    /// # Errors
    /// If it cannot be opened, or is no regular file.
    pub fn file(path: &Path) -> io::Result<Sink> {
        let file = AuditFile::open(path, false)?;
        Ok(Sink::new(Target::File(file)))
    }

    /// The log of the system, with the facility `user`.
    ///
    /// # Errors
    /// A message: there is none.
    pub fn syslog() -> Result<Sink, String> {
        Ok(Sink::new(Target::Syslog(Box::new(SystemLog::open(
            FACILITY,
        )?))))
    }

    pub fn console() -> Sink {
        Sink::new(Target::Console)
    }

    #[cfg(test)]
    pub fn memory(target: Arc<TestTarget>) -> Sink {
        Sink::new(Target::Memory(target))
    }

    /// Whether the last write has failed, or events wait to be written.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// Bytes of events that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.output.lock().kept.len()
    }

    /// Writes an event, together with those of others.
    ///
    /// # Errors
    /// The event is not written.
    pub fn write(&self, event: &[u8], when: When) -> Result<(), Failed> {
        let done = {
            let mut queue = self.queue.lock();
            queue.bytes.extend_from_slice(event);
            queue.is_synced |= when == When::AfterChange;
            queue.done.clone()
        };
        let mut output = self.output.lock();
        let written = match done.get() {
            Some(written) => written.clone(),
            None => {
                // The own event is in it: only who holds the destination takes the queue.
                let batch = std::mem::take(&mut *self.queue.lock());
                let written = self.write_batch(&mut output, &batch);
                batch.done.get_or_init(|| written.clone());
                written
            }
        };
        written.map_err(|why| {
            let has_room = output.kept.len() + event.len() <= KEPT_BYTES_MAX;
            let is_kept = when != When::Before && has_room;
            if is_kept {
                output.kept.extend_from_slice(event);
            }
            Failed { why, is_kept }
        })
    }

    fn write_batch(&self, output: &mut Output, batch: &Batch) -> Result<(), Arc<str>> {
        let mut write = || {
            output.write_kept()?;
            output.target.write(&batch.bytes)?;
            if batch.is_synced {
                output.target.sync()?;
            }
            Ok(())
        };
        let written = write();
        self.is_failing.store(written.is_err(), Ordering::Relaxed);
        self.is_dirty.store(true, Ordering::Release);
        written.map_err(|error: io::Error| error.to_string().into())
    }

    /// Checks before an action that its event can be written: writes the events that are kept, and reserves space.
    ///
    /// # Errors
    /// The reason why not.
    pub fn prepare(&self) -> Result<(), Arc<str>> {
        let mut output = self.output.lock();
        let prepared = output.write_kept().and_then(|()| match &mut output.target {
            Target::File(file) => file.reserve(NEEDED_BYTES),
            #[cfg(test)]
            Target::Memory(memory) => memory.check(),
            _ => Ok(()),
        });
        self.is_failing.store(prepared.is_err(), Ordering::Relaxed);
        prepared.map_err(|error| error.to_string().into())
    }

    /// Writes what was written to the disk, if anything was since the last time.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn sync(&self) -> io::Result<()> {
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        // Not with the destination held: commands would wait for the disk.
        let file = match &self.output.lock().target {
            Target::File(file) => file.file.try_clone()?,
            _ => return Ok(()),
        };
        file.sync_data()
    }

    /// Begins another file, or opens the file again, where it is one. Returns the name of the former file, if it has got another one.
    ///
    /// # Errors
    /// If the file cannot be renamed or opened. Then events go to the same file as before.
    pub fn rotate(
        &self,
        renames: bool,
        stamped: impl Fn(&Path) -> PathBuf,
    ) -> io::Result<Option<PathBuf>> {
        let mut output = self.output.lock();
        let Target::File(file) = &mut output.target else {
            return Ok(None);
        };
        file.close()?;
        let old = if renames {
            let old = stamped(&file.path);
            std::fs::rename(&file.path, &old)?;
            Some(old)
        } else {
            None
        };
        let new = AuditFile::open(&file.path, renames);
        if let (Err(_), Some(old)) = (&new, &old) {
            // The trail goes on under the name that the operator knows, if that is possible.
            let _ = std::fs::rename(old, &file.path);
        }
        *file = new?;
        Ok(old)
    }

    /// Writes everything to the disk, at the end of the server.
    ///
    /// # Errors
    /// If events cannot be written.
    pub fn close(&self) -> io::Result<()> {
        let mut output = self.output.lock();
        output.write_kept()?;
        match &mut output.target {
            Target::File(file) => file.close(),
            _ => Ok(()),
        }
    }
}

impl Output {
    fn write_kept(&mut self) -> io::Result<()> {
        if !self.kept.is_empty() {
            self.target.write(&self.kept)?;
            self.kept = Vec::new();
        }
        Ok(())
    }
}

impl Target {
    fn write(&mut self, events: &[u8]) -> io::Result<()> {
        match self {
            Target::File(file) => file.write(events),
            Target::Syslog(log) => {
                let text = String::from_utf8_lossy(events);
                text.lines()
                    .try_for_each(|line| log.try_send(Level::Info, line))
            }
            Target::Console => {
                let mut out = io::stdout().lock();
                out.write_all(events)?;
                out.flush()
            }
            #[cfg(test)]
            Target::Memory(memory) => memory.write(events),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self {
            Target::File(file) => file.file.sync_data(),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl TestTarget {
    fn check(&self) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("no space left"));
        }
        Ok(())
    }

    fn write(&self, events: &[u8]) -> io::Result<()> {
        self.check()?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.lock().extend_from_slice(events);
        Ok(())
    }
}

/// A file of events.
struct AuditFile {
    path: PathBuf,
    file: File,
    /// The end of the space that is reserved.
    reserved: u64,
    /// The file system cannot reserve space.
    is_unreserved: bool,
}

impl AuditFile {
    fn open(path: &Path, is_new: bool) -> io::Result<AuditFile> {
        // It is for its owner only, whatever the umask. A link could lead the trail elsewhere, and a pipe could block it.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .create_new(is_new)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        if !file.metadata()?.is_file() {
            let what = format!("{} is no regular file", path.display());
            return Err(io::Error::other(what));
        }
        let mut opened = AuditFile {
            path: path.to_owned(),
            file,
            reserved: 0,
            is_unreserved: false,
        };
        opened.reserve(NEEDED_BYTES)?;
        sync_directory(path);
        Ok(opened)
    }

    /// Reserves space behind the end, at least `needed` bytes.
    fn reserve(&mut self, needed: u64) -> io::Result<()> {
        let length = self.file.metadata()?.size();
        if self.is_unreserved || self.reserved >= length + needed {
            return Ok(());
        }
        for bytes in [RESERVED_BYTES.max(needed), needed] {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, length, bytes) {
                Ok(()) => {
                    self.reserved = length + bytes;
                    return Ok(());
                }
                Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {}
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    self.is_unreserved = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Appends events: all, or none of them.
    fn write(&mut self, events: &[u8]) -> io::Result<()> {
        let mut rest = events;
        while !rest.is_empty() {
            let written = match self.file.write(rest) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => Ok(written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) => {
                    let part = events.len() - rest.len();
                    let length = self.file.metadata()?.size();
                    self.file.set_len(length.saturating_sub(part as u64))?;
                    // It has freed what was reserved.
                    self.reserved = 0;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Frees the reserved space, and writes the file to the disk.
    fn close(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.size();
        self.file.set_len(length)?;
        self.reserved = 0;
        self.file.sync_all()
    }
}

/// Makes the name of a new file durable. A file system on which that fails has the file all the same.
fn sync_directory(path: &Path) {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
        let _ = directory.sync_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Barrier;

    use super::*;

    fn stamped(path: &Path) -> PathBuf {
        path.with_extension("old")
    }

    #[test]
    fn a_file_is_appended_to_and_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.json");
        std::fs::write(&path, "before\n").unwrap();
        let sink = Sink::file(&path).unwrap();
        sink.write(b"one\n", When::Before).unwrap();
        sink.write(b"two\n", When::AfterChange).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "before\none\ntwo\n"
        );
        let old = sink.rotate(true, stamped).unwrap().unwrap();
        sink.write(b"three\n", When::After).unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "before\none\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        // Another program has moved it.
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        assert_eq!(sink.rotate(false, stamped).unwrap(), None);
        sink.write(b"four\n", When::After).unwrap();
        sink.close().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "four\n");
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("file"), &link).unwrap();
        assert!(Sink::file(&link).is_err());
        assert!(Sink::file(directory.path()).is_err());
        assert!(Sink::file(&directory.path().join("none/file")).is_err());
    }

    #[test]
    fn events_reach_the_log_of_the_system_or_fail() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let other = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::open_at(FACILITY, &path).unwrap();
        let sink = Sink::new(Target::Syslog(Box::new(log)));
        sink.write(b"{ \"atype\" : \"startup\" }\n", When::Before)
            .unwrap();
        let mut buffer = vec![0; 4096];
        let len = other.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..len]);
        // 8 for each facility, of which user is 1, and 6 for an information.
        assert!(
            text.starts_with("<14>") && text.ends_with(": { \"atype\" : \"startup\" }"),
            "{text}"
        );
        assert_eq!(sink.rotate(true, stamped).unwrap(), None);
        sink.sync().unwrap();
    }

    #[test]
    fn a_rotation_that_fails_leaves_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.json");
        let sink = Sink::file(&path).unwrap();
        let nowhere = |_: &Path| PathBuf::from("/nonexistent/x");
        assert!(sink.rotate(true, nowhere).is_err());
        sink.write(b"one\n", When::After).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
    }

    #[test]
    fn a_failed_event_is_kept_if_its_action_has_happened() {
        let target = Arc::new(TestTarget::default());
        let sink = Sink::memory(target.clone());
        target.fails.store(true, Ordering::Relaxed);
        let failed = sink.write(b"refused\n", When::Before).unwrap_err();
        assert_eq!((&*failed.why, failed.is_kept), ("no space left", false));
        assert!(
            sink.write(b"done\n", When::AfterChange)
                .unwrap_err()
                .is_kept
        );
        assert!(sink.is_failing() && sink.prepare().is_err());
        assert_eq!(sink.kept_bytes(), 5);
        target.fails.store(false, Ordering::Relaxed);
        sink.prepare().unwrap();
        assert!(!sink.is_failing());
        sink.write(b"next\n", When::Before).unwrap();
        assert_eq!(&**target.bytes.lock(), b"done\nnext\n");
    }

    #[test]
    fn kept_events_are_bounded() {
        let target = Arc::new(TestTarget::default());
        target.fails.store(true, Ordering::Relaxed);
        let sink = Sink::memory(target);
        let event = vec![b'x'; 1 << 20];
        let kept = (0..8).filter(|_| sink.write(&event, When::After).unwrap_err().is_kept);
        assert_eq!(kept.count(), 4);
    }

    #[test]
    fn events_of_many_threads_are_all_written_and_in_the_order_of_each() {
        const THREADS: usize = 8;
        const EVENTS: usize = 200;
        let target = Arc::new(TestTarget::default());
        let sink = Sink::memory(target.clone());
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sink, barrier) = (&sink, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for event in 0..EVENTS {
                        let line = format!("{thread} {event}\n");
                        sink.write(line.as_bytes(), When::Before).unwrap();
                    }
                });
            }
        });
        let bytes = target.bytes.lock();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let mut next = [0; THREADS];
        for line in text.lines() {
            let (thread, event) = line.split_once(' ').unwrap();
            let next = &mut next[thread.parse::<usize>().unwrap()];
            assert_eq!(event.parse::<usize>(), Ok(*next));
            *next += 1;
        }
        assert_eq!(next, [EVENTS; THREADS]);
        assert!(target.writes.load(Ordering::Relaxed) <= THREADS * EVENTS);
    }
}
