//! The files of the history: append-only segments, of which the oldest are removed.
//!
//! ```text
//! segment   magic "FRNDHST1", header block, then one block for each sample
//! block     length u32, CRC-32C of the payload u32, payload
//! header    for each figure: "c " or "g ", its name, a line feed
//! sample    time and values as LEB128 numbers
//! ```
//!
//! A reader takes the blocks up to the first one that is torn or damaged. A writer begins a new segment in each run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{Kind, Metric, Sample};

const MAGIC: &[u8; 8] = b"FRNDHST1";

/// A segment with more bytes is followed by a new one.
const SEGMENT_BYTES_MAX: u64 = 512 << 10;

/// Bytes of all segments. The oldest are removed before a new one begins.
const ALL_BYTES_MAX: u64 = 6 << 20;

/// No block is longer.
const BLOCK_BYTES_MAX: usize = 64 << 10;

const PREFIX: &str = "history.";

/// The segments of a directory, and the one that is written to.
pub struct Files {
    directory: PathBuf,
    header: Vec<u8>,
    open: Option<(File, u64)>,
    last_ms: i64,
}

impl Files {
    pub fn new(directory: PathBuf, metrics: &[Metric]) -> Files {
        let mut header = Vec::new();
        for figure in metrics {
            header.extend_from_slice(match figure.kind {
                Kind::Counter => b"c ",
                Kind::Gauge => b"g ",
            });
            header.extend_from_slice(figure.name.as_bytes());
            header.push(b'\n');
        }
        Files {
            directory,
            header,
            open: None,
            last_ms: i64::MIN,
        }
    }

    /// The time of the last sample that was written.
    pub fn last_ms(&self) -> i64 {
        self.last_ms
    }

    pub fn write(&mut self, sample: &Sample) -> io::Result<()> {
        // A write that fails is not tried again at once, and leaves a torn segment behind.
        self.last_ms = sample.time_ms;
        let (mut file, bytes) = match self.open.take() {
            Some((file, bytes)) if bytes < SEGMENT_BYTES_MAX => (file, bytes),
            _ => self.begin(sample.time_ms)?,
        };
        let mut payload = Vec::with_capacity(8 * sample.values.len());
        push_number(&mut payload, sample.time_ms as u64);
        for value in &sample.values {
            push_number(&mut payload, *value);
        }
        let block = block(&payload);
        file.write_all(&block)?;
        self.open = Some((file, bytes + block.len() as u64));
        Ok(())
    }

    /// Begins a segment, after the oldest ones are removed.
    fn begin(&self, time_ms: i64) -> io::Result<(File, u64)> {
        fs::create_dir_all(&self.directory)?;
        let segments = list(&self.directory);
        let bytes_of = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
        let mut all: u64 = segments.iter().map(bytes_of).sum();
        for path in &segments {
            if all + SEGMENT_BYTES_MAX <= ALL_BYTES_MAX {
                break;
            }
            all -= bytes_of(path);
            fs::remove_file(path)?;
        }
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&block(&self.header));
        let mut time_ms = time_ms;
        loop {
            // So that the order of the names is that of time.
            let path = self.directory.join(format!("{PREFIX}{time_ms:016}"));
            let file = OpenOptions::new().append(true).create_new(true).open(path);
            match file {
                Ok(mut file) => {
                    file.write_all(&start)?;
                    return Ok((file, start.len() as u64));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => time_ms += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The segments of a directory, the oldest first. None if they cannot be listed.
pub fn list(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let is_segment = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let mut segments: Vec<PathBuf> = paths.filter(is_segment).collect();
    segments.sort();
    segments
}

/// The samples of a segment after a time, up to what is torn or damaged. Figures that it does not have are 0.
pub fn read(path: &Path, metrics: &[Metric], after_ms: i64, found: &mut dyn FnMut(Sample)) {
    let mut bytes = Vec::new();
    // Larger than a segment can be: it is none of ours.
    let limit = SEGMENT_BYTES_MAX + 2 * BLOCK_BYTES_MAX as u64;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    if read.is_err() {
        return;
    }
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return;
    };
    let Some(header) = take_block(&mut rest) else {
        return;
    };
    let names: Vec<&str> = (std::str::from_utf8(header).unwrap_or_default().lines())
        .map(|line| line.get(2..).unwrap_or_default())
        .collect();
    let places: Vec<Option<usize>> = (metrics.iter())
        .map(|figure| names.iter().position(|name| *name == figure.name))
        .collect();
    while let Some(mut payload) = take_block(&mut rest) {
        let Some(time) = take_number(&mut payload) else {
            return;
        };
        let time_ms = time as i64;
        if time_ms <= after_ms {
            continue;
        }
        let mut values = Vec::with_capacity(names.len());
        while let Some(value) = take_number(&mut payload) {
            values.push(value);
        }
        let value = |place: &Option<usize>| place.and_then(|at| values.get(at)).copied();
        found(Sample {
            time_ms,
            values: places
                .iter()
                .map(|place| value(place).unwrap_or(0))
                .collect(),
        });
    }
}

fn block(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 8);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(payload);
    out
}

/// The payload of the next block; none at the end, or if it is torn or damaged.
fn take_block<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (sum, after) = after.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let payload = after.get(..length).filter(|_| length <= BLOCK_BYTES_MAX)?;
    if crc32c::crc32c(payload) != u32::from_le_bytes(*sum) {
        return None;
    }
    *rest = after.get(length..)?;
    Some(payload)
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
