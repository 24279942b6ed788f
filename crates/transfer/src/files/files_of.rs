//! Opening files, compressed or not, and the standard streams.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use frond_bson::Doc;

use crate::error::{Error, Result};

const BUFFER: usize = 1 << 20;

/// A file that is written. [`Output::finish`] must be called, so that errors at the end are seen.
pub enum Output {
    Plain(BufWriter<Box<dyn Write>>),
    Gzip(GzEncoder<BufWriter<Box<dyn Write>>>),
}

impl Output {
    /// Creates the file that the user has named; `-` is the standard output. It may be a link or a device, and one that is there
    /// keeps its permissions.
    pub fn create(path: &Path, gzip: bool) -> Result<Output> {
        if path.as_os_str() == "-" {
            return Ok(Output::over(Box::new(io::stdout().lock()), gzip));
        }
        if let Some(folder) = path.parent().filter(|path| !path.as_os_str().is_empty()) {
            create_root(folder)?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .map_err(creating(path))?;
        Ok(Output::over(Box::new(file), gzip || ends_with_gz(path)))
    }

    /// Creates a file of a dump.
    pub fn create_inside(path: &Path, gzip: bool) -> Result<Output> {
        let file = frond_files::replace(path).map_err(creating(path))?;
        Ok(Output::over(Box::new(file), gzip))
    }

    fn over(file: Box<dyn Write>, gzip: bool) -> Output {
        let file = BufWriter::with_capacity(BUFFER, file);
        if gzip {
            Output::Gzip(GzEncoder::new(file, Compression::fast()))
        } else {
            Output::Plain(file)
        }
    }

    /// Writes all that is buffered.
    pub fn finish(self) -> Result<()> {
        let done = match self {
            Output::Plain(mut file) => file.flush(),
            Output::Gzip(file) => file.finish().and_then(|mut file| file.flush()),
        };
        done.map_err(writing)
    }

    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(writing)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(file) => file.write(bytes),
            Output::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(file) => file.flush(),
            Output::Gzip(file) => file.flush(),
        }
    }
}

/// Creates the folder that the user has named, with its parents.
pub fn create_root(path: &Path) -> Result<()> {
    frond_files::folder_with_parents(path).map_err(creating(path))
}

/// Creates a folder of a dump, unless it is there.
pub fn create_folder_inside(path: &Path) -> Result<()> {
    frond_files::create_folder(path)
        .map_err(creating(path))
        .map(|_| ())
}

fn creating(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let what = format!("creating {}", path.display());
    move |error| Error::Io(what, error)
}

fn writing(error: io::Error) -> Error {
    Error::Io("writing the file".to_owned(), error)
}

/// Whether a name says that the file is compressed.
pub fn ends_with_gz(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz")
}

/// Opens the file that the user has named; `-` is the standard input. A compressed one is seen by its first bytes.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    if path.as_os_str() == "-" {
        return unpacked(io::stdin(), path);
    }
    unpacked(File::open(path).map_err(reading(path))?, path)
}

/// Opens a file of a dump, which may come from someone else.
pub fn open_inside(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    unpacked(frond_files::open(path).map_err(reading(path))?, path)
}

fn reading(path: &Path) -> impl Fn(io::Error) -> Error {
    let what = format!("reading {}", path.display());
    move |error| Error::Io(what.clone(), error)
}

fn unpacked(file: impl Read + Send + 'static, path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let reading = reading(path);
    let mut file = BufReader::with_capacity(BUFFER, file);
    let is_gzip = file.fill_buf().map_err(reading)?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// The text of a file of a dump, which may be compressed, of at most `limit` bytes.
pub fn text(path: &Path, limit: u64) -> Result<String> {
    let mut text = String::new();
    let mut source = open_inside(path)?.take(limit + 1);
    source.read_to_string(&mut text).map_err(reading(path))?;
    if text.len() as u64 > limit {
        return Err(Error::Data(format!(
            "{} has more than {limit} bytes: the file is damaged or is no metadata",
            path.display()
        )));
    }
    Ok(text)
}

/// Reads the next BSON document of a file; false at its end.
pub fn next_document(file: &mut dyn BufRead, out: &mut Vec<u8>) -> Result<bool> {
    let mut len = [0; 4];
    if !read_or_end(file, &mut len)? {
        return Ok(false);
    }
    document_of(file, len, out)?;
    Ok(true)
}

/// Shows all documents of a file of a dump to `each`.
pub fn each_document(path: &Path, each: &mut dyn FnMut(&Doc) -> Result<()>) -> Result<()> {
    let mut file = open_inside(path)?;
    let mut buffer = Vec::new();
    let named = |error: Error| Error::Data(format!("{}: {error}", path.display()));
    while next_document(&mut *file, &mut buffer).map_err(named)? {
        each(Doc::from_trusted(&buffer))?;
    }
    Ok(())
}

/// The document whose length was read already.
pub fn document_of(file: &mut dyn BufRead, len: [u8; 4], out: &mut Vec<u8>) -> Result<()> {
    /// 16 MiB, and what a server adds inside.
    const LARGEST: usize = (16 << 20) + (16 << 10);
    let size = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
    if !(5..=LARGEST).contains(&size) {
        return Err(Error::Data(format!(
            "a document of {size} bytes: the file is damaged or is no BSON"
        )));
    }
    out.clear();
    out.extend_from_slice(&len);
    out.resize(size, 0);
    let rest = out.get_mut(4..).unwrap_or_default();
    file.read_exact(rest)
        .map_err(|error| Error::Io("reading a document".to_owned(), error))?;
    Doc::validate(out).map_err(|error| Error::Data(format!("not a BSON document: {error}")))?;
    Ok(())
}

/// Fills the buffer, or returns false if the file ends before its first byte.
pub fn read_or_end(file: &mut dyn BufRead, out: &mut [u8]) -> Result<bool> {
    let reading = |error| Error::Io("reading the file".to_owned(), error);
    if file.fill_buf().map_err(reading)?.is_empty() {
        return Ok(false);
    }
    file.read_exact(out).map_err(reading)?;
    Ok(true)
}
