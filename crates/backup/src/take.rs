//! Makes a backup: pulls the stream of a server into a sink.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use frond_client::Uri;

use crate::description::{Description, StoreId};
use crate::error::{Error, Result};
use crate::extent::{Assembly, Extent, known, unpack};
use crate::mark::Mark;
use crate::parts::{ArchiveSink, FolderSink, Sink};
use crate::progress::Meter;
use crate::record::Kind;
use crate::repository::{Repository, Writer, new_id};
use crate::stream::{BackupStream, Begin, Event, Request};

/// The server, and how to talk to it.
#[derive(Clone)]
pub struct Source {
    pub uri: Uri,
    /// Set when the user asks to stop.
    pub stop: Arc<AtomicBool>,
    /// The most bytes per second of a copy.
    pub rate: Option<u64>,
}

impl Source {
    /// The store that the server has now.
    pub fn store_id(&self) -> Result<StoreId> {
        let request = Request {
            begin_only: true,
            ..Request::default()
        };
        let mut stream = BackupStream::open(&self.uri, &self.stop, &request)?;
        let mut found = None;
        while found.is_none()
            && stream.next_batch(&mut |event| {
                if let Event::Begin(begin) = event {
                    found = Some(begin.store_id);
                }
                Ok(())
            })?
        {}
        stream.close();
        found.ok_or_else(|| "the server did not name its store".to_owned().into())
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}

/// Makes a backup in a repository. An interrupted one is continued.
///
/// # Errors
/// Errors of the server and of the disk. What was copied stays for the next attempt.
pub fn to_repository(
    source: &Source,
    repository: &Repository,
    is_incremental: bool,
    meter: &mut Meter,
) -> Result<Description> {
    let _lock = repository.lock(Writer::Backup)?;
    let store_id = source.store_id()?;
    let parent = if is_incremental {
        newest_whole(repository, store_id)?
    } else {
        None
    };
    let mut have: HashSet<Extent> = HashSet::new();
    if let Some(parent) = &parent {
        have.extend(repository.extents(parent)?);
    }
    let mut partial = None;
    for (id, store) in repository.partials()? {
        if store == store_id && partial.is_none() {
            partial = Some(repository.read_partial(&id, &store)?);
        } else {
            // It can never be completed.
            repository.remove_partial(&id, &store)?;
        }
    }
    let (id, folder, parts) = match partial {
        Some(partial) => {
            meter.note(&format!(
                "continuing the interrupted backup {}, which has {} extents",
                partial.id,
                partial.extents.len()
            ));
            have.extend(partial.extents);
            (partial.id, partial.folder, partial.parts)
        }
        None => {
            let id = new_id(now_ms());
            let folder = repository.begin(&id, &store_id)?;
            (id, folder, Vec::new())
        }
    };
    let have = known(have.into_iter().collect());
    let complete = repository.folder(&id);
    let sink = Box::new(FolderSink::new(&folder, &complete, parts));
    let taken = Taking {
        id,
        parent: parent.map(|parent| parent.id),
        known: Some((store_id, have)),
    };
    taken.pull(source, sink, meter)
}

/// The newest backup of a store all parents of which are there.
pub fn newest_whole(repository: &Repository, store_id: StoreId) -> Result<Option<Description>> {
    let mut all = repository.list()?;
    all.retain(|one| one.store_id == store_id);
    while let Some(newest) = all.pop() {
        if repository.chain(&newest).is_ok() {
            return Ok(Some(newest));
        }
    }
    Ok(None)
}

/// Makes a full backup in an archive file.
pub fn to_archive_file(source: &Source, path: &Path, meter: &mut Meter) -> Result<Description> {
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(Error::Refused(format!("{} exists already", path.display())));
    }
    let temporary = temporary_of(path);
    let file = frond_files::replace(&temporary).map_err(Error::io("creating", &temporary))?;
    let end = |file: File, path: &Path| {
        let synced = file.sync_all();
        synced.map_err(Error::io("writing", path))?;
        crate::files::rename(&temporary_of(path), path)
    };
    let sink = Box::new(ArchiveSink::new(file, path, end)?);
    let taken = Taking::full().pull(source, sink, meter);
    if taken.is_err() {
        // The interrupted backup cannot be continued.
        let _ = std::fs::remove_file(&temporary);
    }
    taken
}

fn temporary_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Makes a full backup, as an archive file on a stream such as the standard output.
pub fn to_stream(
    source: &Source,
    output: impl Write + 'static,
    meter: &mut Meter,
) -> Result<Description> {
    let path = Path::new("the output");
    let end = |mut output, _: &Path| {
        Write::flush(&mut output).map_err(Error::io("writing", Path::new("the output")))
    };
    let sink = Box::new(ArchiveSink::new(output, path, end)?);
    Taking::full().pull(source, sink, meter)
}

/// A backup that is being made.
struct Taking {
    id: String,
    parent: Option<String>,
    known: Option<(StoreId, Vec<Extent>)>,
}

/// The parts of the stream that have arrived.
#[derive(Default)]
struct Seen {
    begin: Option<Begin>,
    extents: Vec<Extent>,
    assembly: Option<Assembly>,
    has_head: bool,
    log_end: u64,
    mark: Option<Mark>,
    copied_bytes: u64,
    is_complete: bool,
}

impl Taking {
    fn full() -> Taking {
        Taking {
            id: new_id(now_ms()),
            parent: None,
            known: None,
        }
    }

    fn pull(
        self,
        source: &Source,
        mut sink: Box<dyn Sink>,
        meter: &mut Meter,
    ) -> Result<Description> {
        let request = Request {
            known: self.known.clone(),
            rate: source.rate,
            ..Request::default()
        };
        let known: HashSet<Extent> = match &self.known {
            Some((_, list)) => list.iter().copied().collect(),
            None => HashSet::new(),
        };
        let mut stream = BackupStream::open(&source.uri, &source.stop, &request)?;
        let mut seen = Seen::default();
        loop {
            let more = stream
                .next_batch(&mut |event| self.take(event, &known, &mut seen, &mut *sink, meter));
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    if !matches!(error, Error::Server(_)) {
                        stream.close();
                    }
                    return Err(error);
                }
            }
        }
        let whole = seen.is_complete && seen.has_head;
        let whole = whole && seen.assembly.as_ref().is_none_or(Assembly::is_complete);
        let (Some(begin), Some(mark), true) = (seen.begin, seen.mark, whole) else {
            return Err("the server ended the stream before everything was sent"
                .to_owned()
                .into());
        };
        meter.end();
        sink.finish(Description {
            id: self.id,
            parent: self.parent,
            store_id: begin.store_id,
            generation: begin.generation,
            finished: now_ms(),
            mark,
            log_from: begin.log_from,
            log_end: seen.log_end,
            extents: seen.extents.len() as u64,
            extent_bytes: begin.bytes,
            copied_bytes: seen.copied_bytes,
            parts: Vec::new(),
        })
    }

    fn take(
        &self,
        event: Event<'_>,
        known: &HashSet<Extent>,
        seen: &mut Seen,
        sink: &mut dyn Sink,
        meter: &mut Meter,
    ) -> Result<()> {
        match event {
            Event::Begin(begin) => {
                if let Some((store_id, _)) = &self.known
                    && *store_id != begin.store_id
                {
                    return Err("the server changed its store meanwhile; try again"
                        .to_owned()
                        .into());
                }
                meter.begin(begin.copy_bytes);
                seen.log_end = begin.log_from;
                seen.begin = Some(begin);
            }
            Event::Extents(packed) => {
                seen.extents.extend(unpack(packed)?);
                let announced = seen.begin.as_ref().map_or(0, |begin| begin.extents);
                if seen.extents.len() as u64 > announced {
                    return Err("the server lists more extents than it announced"
                        .to_owned()
                        .into());
                }
                sink.put(Kind::Extents, [0; 3], packed)?;
            }
            Event::Head(bytes) => {
                seen.has_head = true;
                sink.put(Kind::Head, [0; 3], bytes)?;
            }
            Event::Log { from, to, bytes } => {
                seen.log_end = to;
                sink.put(Kind::Log, [from, to, 0], bytes)?;
            }
            Event::Mark(mark) => {
                let (header, body) = mark.record();
                sink.put(Kind::Mark, header.numbers, &body)?;
                seen.mark = Some(mark);
            }
            Event::Data { offset, bytes } => {
                let extents = &seen.extents;
                let assembly = &mut seen.assembly;
                let assembly = assembly.get_or_insert_with(|| Assembly::new(extents, known));
                let copied = &mut seen.copied_bytes;
                assembly.add::<Error>(offset, bytes, |extent, bytes| {
                    *copied += extent.len;
                    sink.put(Kind::Extent, [extent.offset, extent.birth, 0], bytes)
                })?;
                meter.advance(bytes.len() as u64);
            }
            Event::End => {
                let expected = seen.begin.as_ref().map(|begin| begin.extents);
                seen.is_complete = expected == Some(seen.extents.len() as u64);
                if seen.assembly.is_none() {
                    // Nothing had to be sent.
                    seen.assembly = Some(Assembly::new(&seen.extents, known));
                }
            }
        }
        Ok(())
    }
}
