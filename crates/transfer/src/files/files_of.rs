//! Opening files, compressed or not, and the standard streams.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use frond_bson::Doc;

use crate::error::{Error, Result};

const BUFFER: usize = 1 << 20;

/// A file that is written. [`Output::finish`] must be called, so that errors at the end are seen.
pub enum Output {
    /// As it is.
    Plain(BufWriter<Box<dyn Write>>),
    /// Compressed.
    Gzip(GzEncoder<BufWriter<Box<dyn Write>>>),
}

impl Output {
    /// Creates a file; `-` is the standard output.
    pub fn create(path: &Path, gzip: bool) -> Result<Output> {
        let is_stdout = path.as_os_str() == "-";
        let file: Box<dyn Write> = if is_stdout {
            Box::new(io::stdout().lock())
        } else {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)
                    .map_err(|error| Error::Io(format!("making {}", folder.display()), error))?;
            }
            let file = File::create(path)
                .map_err(|error| Error::Io(format!("creating {}", path.display()), error))?;
            Box::new(file)
        };
        let file = BufWriter::with_capacity(BUFFER, file);
        Ok(if gzip || (!is_stdout && ends_with_gz(path)) {
            Output::Gzip(GzEncoder::new(file, Compression::fast()))
        } else {
            Output::Plain(file)
        })
    }

    /// Writes all that is buffered.
    pub fn finish(self) -> Result<()> {
        let done = match self {
            Output::Plain(mut file) => file.flush(),
            Output::Gzip(file) => file.finish().and_then(|mut file| file.flush()),
        };
        done.map_err(writing)
    }

    /// Writes bytes.
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

fn writing(error: io::Error) -> Error {
    Error::Io("writing the file".to_owned(), error)
}

/// Whether a name says that the file is compressed.
pub fn ends_with_gz(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz")
}

/// Opens a file; `-` is the standard input. A compressed one is seen by its first bytes.
pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let reading = |error| Error::Io(format!("reading {}", path.display()), error);
    let file: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(reading)?)
    };
    let mut file = BufReader::with_capacity(BUFFER, file);
    let is_gzip = file.fill_buf().map_err(reading)?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
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

/// Shows all documents of a file of BSON to `each`.
pub fn each_document(path: &Path, each: &mut dyn FnMut(&Doc) -> Result<()>) -> Result<()> {
    let mut file = open(path)?;
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
