//! Records: what the files of a repository consist of.
//!
//! A record is a header of 48 bytes and a body. The checksum covers both. All numbers are little-endian.
//!
//! | bytes | field |
//! | --- | --- |
//! | 4 | `FRBK` |
//! | 4 | the kind |
//! | 24 | three numbers, see [`Kind`] |
//! | 8 | bytes of the body |
//! | 4 | CRC-32C of the fields above and the body |
//! | 4 | zero |

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::extent::EXTENT_BYTES_MAX;

const MAGIC: [u8; 4] = *b"FRBK";
/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first 8192 bytes of the data file.
    Head,
    /// A part of the list of all extents that the data file needs, see [`crate::extent::pack`].
    Extents,
    /// An extent: its offset and its birth.
    Extent,
    /// Groups of the log: the first position, and the position after the last frame.
    Log,
    /// A mark: a time, a position, and the end of the moment at which the position was read, all times in milliseconds since
    /// 1970. What was committed before the time lies before the position, and what was committed after the moment behind it.
    /// The body is the newest timestamp of the oplog (8 bytes), if there is an oplog.
    Mark,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Kind::Head => 1,
            Kind::Extents => 2,
            Kind::Extent => 3,
            Kind::Log => 4,
            Kind::Mark => 5,
        }
    }

    fn from_code(code: u32) -> Option<Kind> {
        let all = [
            Kind::Head,
            Kind::Extents,
            Kind::Extent,
            Kind::Log,
            Kind::Mark,
        ];
        all.into_iter().find(|kind| kind.code() == code)
    }

    /// A longer body is damage.
    fn body_bytes_max(self) -> u64 {
        match self {
            // The key store of an encrypted store follows the head.
            Kind::Head => 1 << 20,
            // A list, like every document of a server, has less than 16 MiB.
            Kind::Extents => 16 << 20,
            Kind::Extent => EXTENT_BYTES_MAX,
            Kind::Log => 1 << 30,
            Kind::Mark => 8,
        }
    }

    /// The name for messages to people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Head => "the head of the data file",
            Kind::Extents => "the list of extents",
            Kind::Extent => "an extent of the data file",
            Kind::Log => "a piece of the log",
            Kind::Mark => "a time mark",
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// The numbers of its kind.
    pub numbers: [u64; 3],
    /// Bytes of the body.
    pub len: u64,
    checksum: u32,
}

impl Header {
    /// The header of a record with this body.
    pub fn new(kind: Kind, numbers: [u64; 3], body: &[u8]) -> Header {
        let mut header = Header {
            kind,
            numbers,
            len: body.len() as u64,
            checksum: 0,
        };
        header.checksum = header.checksum_with(body);
        header
    }

    fn fields(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.kind.code().to_le_bytes());
        for (number, place) in self.numbers.iter().zip(out[8..32].chunks_exact_mut(8)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        out[32..40].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    fn checksum_with(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.fields()[..40]), body)
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = self.fields();
        out[40..44].copy_from_slice(&self.checksum.to_le_bytes());
        out
    }

    /// The header in these bytes. The body is not checked.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let low = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|next| bytes[at + next]));
        if bytes[..4] != MAGIC || bytes[44..] != [0; 4] {
            return None;
        }
        let header = Header {
            kind: Kind::from_code(low(4))?,
            numbers: [word(8), word(16), word(24)],
            len: word(32),
            checksum: low(40),
        };
        (header.len <= header.kind.body_bytes_max()).then_some(header)
    }

    /// Whether this is the body.
    pub fn fits(&self, body: &[u8]) -> bool {
        body.len() as u64 == self.len && self.checksum_with(body) == self.checksum
    }
}

/// The next thing in a file of records.
#[derive(Debug)]
pub enum Next {
    /// A record, at an offset.
    Record(u64, Header),
    /// The end of the file behind a whole record.
    End,
    /// Bytes that are no whole record, from this offset on.
    Torn(u64),
}

/// Reads the records of a file in order.
pub struct Records<R> {
    input: R,
    path: PathBuf,
    /// The offset behind what was read.
    offset: u64,
    /// Bytes of the body that were not read yet.
    unread: u64,
    /// The length of the file, if it is known.
    len: Option<u64>,
}

impl Records<BufReader<File>> {
    pub fn open(path: &Path) -> Result<Records<BufReader<File>>> {
        let file = frond_files::open(path).map_err(Error::io("opening", path))?;
        let len = file.metadata().map_err(Error::io("reading", path))?.len();
        Ok(Records {
            input: BufReader::with_capacity(1 << 16, file),
            path: path.to_owned(),
            offset: 0,
            unread: 0,
            len: Some(len),
        })
    }

    /// Goes to a record that was met before.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        let sought = self.input.seek(SeekFrom::Start(offset));
        sought.map_err(Error::io("reading", &self.path))?;
        (self.offset, self.unread) = (offset, 0);
        Ok(())
    }

    /// The next record, over the body of the last one, which is not checked.
    pub fn skip_to_next(&mut self) -> Result<Next> {
        if self.unread > 0 {
            let by = i64::try_from(self.unread).unwrap_or(i64::MAX);
            let sought = self.input.seek_relative(by);
            sought.map_err(Error::io("reading", &self.path))?;
            self.offset += self.unread;
            self.unread = 0;
        }
        self.next()
    }
}

impl<R: Read> Records<R> {
    /// Reads from a stream; the path is for messages.
    pub fn of_stream(input: R, path: &Path) -> Records<R> {
        Records {
            input,
            path: path.to_owned(),
            offset: 0,
            unread: 0,
            len: None,
        }
    }

    /// The next record. The body of the last one must have been read.
    pub fn next(&mut self) -> Result<Next> {
        let mut bytes = [0; HEADER_BYTES];
        let read = read_full(&mut self.input, &mut bytes);
        let read = read.map_err(Error::io("reading", &self.path))?;
        let at = self.offset;
        if read == 0 {
            return Ok(Next::End);
        }
        let header = (read == HEADER_BYTES).then(|| Header::decode(&bytes));
        let Some(header) = header.flatten() else {
            return Ok(Next::Torn(at));
        };
        let end = at + HEADER_BYTES as u64 + header.len;
        if self.len.is_some_and(|len| end > len) {
            return Ok(Next::Torn(at));
        }
        self.offset += HEADER_BYTES as u64;
        self.unread = header.len;
        Ok(Next::Record(at, header))
    }

    /// The body of the record that was met last.
    ///
    /// # Errors
    /// [`Error::Damaged`] with its offset if it does not fit its checksum.
    pub fn body(&mut self, header: &Header, out: &mut Vec<u8>) -> Result<()> {
        let at = self.offset - HEADER_BYTES as u64;
        out.clear();
        let read = (&mut self.input).take(self.unread).read_to_end(out);
        let read = read.map_err(Error::io("reading", &self.path))?;
        self.offset += read as u64;
        self.unread = 0;
        if header.fits(out) {
            return Ok(());
        }
        let what = match header.kind {
            Kind::Extent => format!(
                "the extent of {} bytes at {} of the data file does not match its checksum",
                header.len, header.numbers[0]
            ),
            Kind::Log => format!(
                "the piece of the log from {} to {} does not match its checksum",
                header.numbers[0], header.numbers[1]
            ),
            other => format!("{} does not match its checksum", other.name()),
        };
        Err(Error::Damaged(self.path.clone(), at, what))
    }

    /// The error of bytes that are no record.
    pub fn torn(&self, offset: u64) -> Error {
        let what = "there is no whole record".to_owned();
        Error::Damaged(self.path.clone(), offset, what)
    }
}

/// Reads until the buffer is full or the input ends.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(records: &[(Kind, [u64; 3], &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, numbers, body) in records {
            out.extend(Header::new(*kind, *numbers, body).encode());
            out.extend(*body);
        }
        out
    }

    #[test]
    fn records_are_read_and_damage_is_named() {
        let whole = file(&[
            (Kind::Head, [0; 3], b"head"),
            (Kind::Extent, [4096, 9, 0], b"abc"),
            (Kind::Mark, [1, 2, 3], b""),
        ]);
        let path = Path::new("part");
        let mut records = Records::of_stream(&whole[..], path);
        let mut body = Vec::new();
        let mut seen = Vec::new();
        while let Next::Record(at, header) = records.next().unwrap() {
            records.body(&header, &mut body).unwrap();
            seen.push((at, header.kind, body.clone()));
        }
        let expected = [
            (0, Kind::Head, b"head".to_vec()),
            (52, Kind::Extent, b"abc".to_vec()),
            (103, Kind::Mark, vec![]),
        ];
        assert_eq!(seen, expected);
        let mut damaged = whole.clone();
        damaged[101] ^= 1;
        let mut records = Records::of_stream(&damaged[..], path);
        for _ in 0..2 {
            let Next::Record(at, header) = records.next().unwrap() else {
                panic!("a record");
            };
            match records.body(&header, &mut body) {
                Ok(()) => assert_eq!(at, 0),
                Err(Error::Damaged(_, offset, text)) => {
                    assert_eq!((offset, at), (52, 52));
                    assert!(text.contains("4096"), "{text}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        // Every other change of a byte is noticed, too.
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            let mut records = Records::of_stream(&damaged[..], path);
            let noticed = loop {
                match records.next().unwrap() {
                    Next::Record(_, header) => {
                        if records.body(&header, &mut body).is_err() {
                            break true;
                        }
                    }
                    Next::Torn(_) => break true,
                    Next::End => break false,
                }
            };
            assert!(noticed, "byte {at}");
        }
    }

    #[test]
    fn a_torn_end_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let whole = file(&[(Kind::Log, [0, 5, 0], b"12345"), (Kind::Head, [0; 3], b"x")]);
        for cut in 54..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let mut records = Records::open(&path).unwrap();
            assert!(matches!(
                records.skip_to_next().unwrap(),
                Next::Record(0, _)
            ));
            assert!(
                matches!(records.skip_to_next().unwrap(), Next::Torn(53)),
                "{cut}"
            );
        }
    }
}
