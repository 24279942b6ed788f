//! The archived log of one store: files of pieces and marks.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::files;
use crate::mark::Mark;
use crate::record::{HEADER_BYTES, Header, Kind, Next, Records};

/// A file is closed when it is this long.
const FILE_BYTES: u64 = 64 << 20;
/// The archive is synced at this interval.
const SYNC: Duration = Duration::from_secs(1);
const ENDING: &str = ".frbk";

/// The files of an archived log with the positions that they start at, in order.
pub fn files_of(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for name in files::names(folder)? {
        let digits = name.strip_suffix(ENDING);
        if let Some(from) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            found.push((from, folder.join(name)));
        }
    }
    Ok(found)
}

/// Appends to an archived log.
pub struct LogWriter {
    folder: PathBuf,
    open: Option<(BufWriter<File>, PathBuf, u64)>,
    end: Option<u64>,
    synced: Instant,
    is_dirty: bool,
}

impl LogWriter {
    /// Opens the log in a folder, which is created if need be. A torn end is cut off.
    pub fn open(folder: &Path) -> Result<LogWriter> {
        if let Some(all) = folder.parent() {
            files::create_folder(all)?;
        }
        files::create_folder(folder)?;
        let mut writer = LogWriter {
            folder: folder.to_owned(),
            open: None,
            end: None,
            synced: Instant::now(),
            is_dirty: false,
        };
        let mut all = files_of(folder)?;
        while let Some((_, path)) = all.pop() {
            let (end, len) = cut_torn_end(&path)?;
            if len == 0 {
                fs::remove_file(&path).map_err(Error::io("removing", &path))?;
                continue;
            }
            if let Some(end) = end {
                writer.end = Some(end);
                break;
            }
        }
        Ok(writer)
    }

    /// The position that comes next, if there is any log.
    pub fn end(&self) -> Option<u64> {
        self.end
    }

    /// Appends a piece. One that does not continue the log begins a file of its own.
    pub fn piece(&mut self, from: u64, to: u64, bytes: &[u8]) -> Result<()> {
        let is_next = self.end == Some(from);
        let is_full = self
            .open
            .as_ref()
            .is_none_or(|(_, _, len)| *len >= FILE_BYTES);
        if !is_next || is_full {
            self.sync()?;
            let path = self.folder.join(format!("{from:016x}{ENDING}"));
            let file = frond_files::append(&path);
            let file = file.map_err(Error::io("creating", &path))?;
            let len = file.metadata().map_err(Error::io("reading", &path))?.len();
            files::sync_folder(&self.folder)?;
            self.open = Some((BufWriter::with_capacity(1 << 18, file), path, len));
        }
        self.put(&Header::new(Kind::Log, [from, to, 0], bytes), bytes)?;
        self.end = Some(to);
        Ok(())
    }

    /// Appends a mark. Before the first piece there is nothing that it could be a mark of.
    pub fn mark(&mut self, mark: &Mark) -> Result<()> {
        if self.open.is_none() {
            // A file that begins with a mark starts at its position.
            let path = self.folder.join(format!("{:016x}{ENDING}", mark.position));
            let file = frond_files::append(&path);
            let file = file.map_err(Error::io("creating", &path))?;
            let len = file.metadata().map_err(Error::io("reading", &path))?.len();
            self.open = Some((BufWriter::with_capacity(1 << 18, file), path, len));
        }
        let (header, body) = mark.record();
        self.put(&header, &body)
    }

    fn put(&mut self, header: &Header, body: &[u8]) -> Result<()> {
        if let Some((open, path, len)) = &mut self.open {
            let written = open.write_all(&header.encode());
            let written = written.and_then(|()| open.write_all(body));
            written.map_err(Error::io("writing", path))?;
            *len += (HEADER_BYTES + body.len()) as u64;
            self.is_dirty = true;
        }
        Ok(())
    }

    /// Makes it durable if that was long ago.
    pub fn tick(&mut self) -> Result<()> {
        if self.is_dirty && self.synced.elapsed() >= SYNC {
            self.sync()
        } else {
            Ok(())
        }
    }

    pub fn sync(&mut self) -> Result<()> {
        if let Some((open, path, _)) = &mut self.open
            && self.is_dirty
        {
            let synced = open.flush().and_then(|()| open.get_ref().sync_data());
            synced.map_err(Error::io("writing", path))?;
        }
        (self.is_dirty, self.synced) = (false, Instant::now());
        Ok(())
    }
}

/// Cuts off an incomplete record. Returns the position behind the last piece, and the length.
fn cut_torn_end(path: &Path) -> Result<(Option<u64>, u64)> {
    let mut records = Records::open(path)?;
    let (mut end, mut body) = (None, Vec::new());
    let len = loop {
        match records.next()? {
            Next::Record(at, header) => match records.body(&header, &mut body) {
                Ok(()) if header.kind == Kind::Log => end = Some(header.numbers[1]),
                Ok(()) => {}
                Err(Error::Damaged(..)) => break Some(at),
                Err(other) => return Err(other),
            },
            Next::End => break None,
            Next::Torn(at) => break Some(at),
        }
    };
    let Some(len) = len else {
        let metadata = path.metadata().map_err(Error::io("reading", path))?;
        return Ok((end, metadata.len()));
    };
    let cut = frond_files::open_to_write(path).and_then(|file| {
        file.set_len(len)?;
        file.sync_all()
    });
    cut.map_err(Error::io("cutting", path))?;
    Ok((end, len))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_goes_on_behind_its_last_whole_piece() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut writer = LogWriter::open(&path).unwrap();
        assert_eq!(writer.end(), None);
        writer.piece(100, 150, &[1; 40]).unwrap();
        let mark = Mark {
            time: 1,
            until: 2,
            position: 150,
            stamp: None,
        };
        writer.mark(&mark).unwrap();
        writer.piece(150, 180, &[2; 30]).unwrap();
        writer.sync().unwrap();
        drop(writer);
        let (_, file) = files_of(&path).unwrap().remove(0);
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 3]).unwrap();
        let mut writer = LogWriter::open(&path).unwrap();
        assert_eq!(writer.end(), Some(150));
        writer.piece(150, 190, &[3; 40]).unwrap();
        // A gap begins a new file.
        writer.piece(500, 510, &[4; 10]).unwrap();
        writer.sync().unwrap();
        assert_eq!(LogWriter::open(&path).unwrap().end(), Some(510));
        let names: Vec<u64> = files_of(&path).unwrap().iter().map(|one| one.0).collect();
        assert_eq!(names, [100, 150, 500]);
    }
}
