//! The files of one backup, while they are written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::description::{Description, Part};
use crate::error::{Error, Result};
use crate::files;
use crate::record::{Header, Kind};

/// The description of a backup, in its folder or archive file.
pub const DESCRIPTION: &str = "backup.json";
/// A longer description is damage: that of a million parts is shorter.
pub const DESCRIPTION_BYTES_MAX: u64 = 64 << 20;
/// The folder inside of an archive file.
pub const ARCHIVE_FOLDER: &str = "frond-backup";

/// The name of a part.
pub fn part_name(number: usize) -> String {
    format!("part-{number:06}.frbk")
}

/// The destination of a backup.
pub trait Sink {
    fn put(&mut self, kind: Kind, numbers: [u64; 3], body: &[u8]) -> Result<()>;

    /// Makes it durable and complete. The description has all but the parts.
    fn finish(self: Box<Self>, description: Description) -> Result<Description>;
}

/// A part in a folder is closed when it is this long.
const PART_BYTES: u64 = 1 << 30;
/// Bytes written between two syncs: few enough that a sync is short, and that an interrupted backup loses little.
const SYNC_BYTES: u64 = 64 << 20;

/// A folder, which is renamed at the end.
pub struct FolderSink {
    folder: PathBuf,
    complete: PathBuf,
    parts: Vec<Part>,
    open: Option<BufWriter<File>>,
    unsynced: u64,
}

impl FolderSink {
    /// Appends to a folder that has these parts already, which are whole.
    pub fn new(folder: &Path, complete: &Path, parts: Vec<Part>) -> FolderSink {
        FolderSink {
            folder: folder.to_owned(),
            complete: complete.to_owned(),
            parts,
            open: None,
            unsynced: 0,
        }
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(open) = &mut self.open {
            let synced = open.flush().and_then(|()| open.get_ref().sync_data());
            synced.map_err(Error::io("writing to", &self.folder))?;
        }
        self.unsynced = 0;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self
            .parts
            .last()
            .is_none_or(|part| part.bytes >= PART_BYTES)
            || self.open.is_none()
        {
            self.sync()?;
            // A part of an earlier attempt is not appended to.
            let name = part_name(self.parts.len() + 1);
            let path = self.folder.join(&name);
            let file = frond_files::create_new(&path);
            let file = file.map_err(Error::io("creating", &path))?;
            self.open = Some(BufWriter::with_capacity(1 << 20, file));
            self.parts.push(Part { name, bytes: 0 });
        }
        if let (Some(open), Some(part)) = (&mut self.open, self.parts.last_mut()) {
            let written = open.write_all(bytes);
            written.map_err(Error::io("writing to", &self.folder.join(&part.name)))?;
            part.bytes += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Sink for FolderSink {
    fn put(&mut self, kind: Kind, numbers: [u64; 3], body: &[u8]) -> Result<()> {
        let mut start = Header::new(kind, numbers, body).encode().to_vec();
        if body.len() < 4096 {
            start.extend_from_slice(body);
            self.append(&start)?;
        } else {
            // A record lies in one part.
            self.append(&start)?;
            if let (Some(open), Some(part)) = (&mut self.open, self.parts.last_mut()) {
                let written = open.write_all(body);
                written.map_err(Error::io("writing to", &self.folder.join(&part.name)))?;
                part.bytes += body.len() as u64;
            }
        }
        self.unsynced += body.len() as u64;
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, mut description: Description) -> Result<Description> {
        self.sync()?;
        description.parts = std::mem::take(&mut self.parts);
        let text = description.to_json();
        files::write_whole(&self.folder.join(DESCRIPTION), text.as_bytes())?;
        files::rename(&self.folder, &self.complete)?;
        Ok(description)
    }
}

/// A part in an archive file is this long at least. It is in memory until it is written, because its length stands before it.
const ARCHIVE_PART_BYTES: usize = 16 << 20;
/// A low level: most of the data is compressed already.
const LEVEL: i32 = 1;

/// A compressed archive file: tar in zstd.
pub struct ArchiveSink<W: Write> {
    tar: tar::Builder<zstd::stream::write::Encoder<'static, W>>,
    part: Vec<u8>,
    parts: Vec<Part>,
    path: PathBuf,
    /// Makes the inner writer durable at the end.
    end: fn(W, &Path) -> Result<()>,
}

impl<W: Write> ArchiveSink<W> {
    /// Writes to `output`; the path is for messages, and for `end`.
    pub fn new(output: W, path: &Path, end: fn(W, &Path) -> Result<()>) -> Result<ArchiveSink<W>> {
        let encoder = zstd::stream::write::Encoder::new(output, LEVEL).and_then(|mut encoder| {
            encoder.include_checksum(true)?;
            Ok(encoder)
        });
        let encoder = encoder.map_err(Error::io("writing", path))?;
        Ok(ArchiveSink {
            tar: tar::Builder::new(encoder),
            part: Vec::new(),
            parts: Vec::new(),
            path: path.to_owned(),
            end,
        })
    }

    fn member(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        let name = format!("{ARCHIVE_FOLDER}/{name}");
        let added = self.tar.append_data(&mut header, name, bytes);
        added.map_err(Error::io("writing", &self.path))
    }

    fn end_part(&mut self) -> Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.part);
        let name = part_name(self.parts.len() + 1);
        self.member(&name, &bytes)?;
        self.parts.push(Part {
            name,
            bytes: bytes.len() as u64,
        });
        self.part = bytes;
        self.part.clear();
        Ok(())
    }
}

impl<W: Write> Sink for ArchiveSink<W> {
    fn put(&mut self, kind: Kind, numbers: [u64; 3], body: &[u8]) -> Result<()> {
        let header = Header::new(kind, numbers, body).encode();
        self.part.extend_from_slice(&header);
        self.part.extend_from_slice(body);
        if self.part.len() >= ARCHIVE_PART_BYTES {
            self.end_part()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, mut description: Description) -> Result<Description> {
        self.end_part()?;
        description.parts = std::mem::take(&mut self.parts);
        let text = description.to_json();
        self.member(DESCRIPTION, text.as_bytes())?;
        let failed = Error::io("writing", &self.path);
        let output = self.tar.into_inner().and_then(|encoder| encoder.finish());
        (self.end)(output.map_err(failed)?, &self.path)?;
        Ok(description)
    }
}
