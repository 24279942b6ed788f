//! A short test of the speed of a disk: writes, syncs and reads of a file without a name, which the system removes with the
//! process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The size of the file.
pub const FILE_BYTES: u64 = 64 << 20;
/// Bytes of one write or read of the file as a whole.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a small write or read, and where they begin: a multiple of it.
const BLOCK_BYTES: usize = 4096;
/// Small writes, or small reads, and the time after which there are no more of them.
const SAMPLES: usize = 200;
const SAMPLES_TIME: Duration = Duration::from_secs(1);
/// The time after which no further pieces are written or read.
const PIECES_TIME: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Speed {
    /// Whether the system's page cache was left out.
    pub is_direct: bool,
    /// Bytes a second of long writes, with the sync at their end.
    pub write_bytes_per_second: f64,
    /// Bytes a second of long reads.
    pub read_bytes_per_second: f64,
    /// Milliseconds of a write of 4 KiB with a sync: the median and the 99th percentile.
    pub sync_ms: (f64, f64),
    /// Milliseconds of a read of 4 KiB at a random place.
    pub read_ms: (f64, f64),
}

/// Measures the disk of a directory, in at most some six seconds unless one request takes longer.
///
/// # Errors
/// If the file cannot be made, written or read.
pub fn measure(directory: &Path) -> io::Result<Speed> {
    let file = tempfile::tempfile_in(directory)?;
    // Pages that do not compress, on disks that would.
    let mut memory = vec![0_u8; PIECE_BYTES + BLOCK_BYTES];
    let mut random = SmallRng::seed_from_u64(1);
    random.fill(&mut memory[..]);
    let begin = memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
    let piece = memory
        .get_mut(begin..begin + PIECE_BYTES)
        .unwrap_or_default();

    let is_direct = set_direct(&file, piece)?;
    let (written, write_bytes_per_second) =
        pieces(|at| file.write_all_at(piece, at), || file.sync_data())?;
    let block = piece.get_mut(..BLOCK_BYTES).unwrap_or_default();
    let blocks = (written / BLOCK_BYTES as u64).max(1);
    let mut place = || random.random_range(0..blocks) * BLOCK_BYTES as u64;
    let sync_ms = samples(|| {
        file.write_all_at(block, place())?;
        file.sync_data()
    })?;
    let read_ms = samples(|| file.read_exact_at(block, place()))?;
    let (_, read_bytes_per_second) = pieces(
        |at| {
            if at < written {
                file.read_exact_at(piece, at)
            } else {
                Ok(())
            }
        },
        || Ok(()),
    )?;
    Ok(Speed {
        is_direct,
        write_bytes_per_second,
        read_bytes_per_second,
        sync_ms,
        read_ms,
    })
}

/// Turns the page cache off for a file, if the file system can do that.
fn set_direct(file: &File, piece: &[u8]) -> io::Result<bool> {
    let flags = fcntl_getfl(file)?;
    if fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return Ok(false);
    }
    match file.write_all_at(piece, 0) {
        Ok(()) => Ok(true),
        // Some accept the flag and then refuse to write.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            fcntl_setfl(file, flags)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Does all pieces of the file in turn. Returns the bytes and the speed.
fn pieces(
    mut one: impl FnMut(u64) -> io::Result<()>,
    end: impl FnOnce() -> io::Result<()>,
) -> io::Result<(u64, f64)> {
    let began = Instant::now();
    let mut at = 0;
    while at < FILE_BYTES && (at == 0 || began.elapsed() < PIECES_TIME) {
        one(at)?;
        at += PIECE_BYTES as u64;
    }
    end()?;
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    Ok((at, at as f64 / seconds))
}

/// The median and the 99th percentile of the milliseconds that an operation takes.
fn samples(mut one: impl FnMut() -> io::Result<()>) -> io::Result<(f64, f64)> {
    let began = Instant::now();
    let mut times = Vec::with_capacity(SAMPLES);
    while times.is_empty() || (times.len() < SAMPLES && began.elapsed() < SAMPLES_TIME) {
        let start = Instant::now();
        one()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| {
        let place = times.len() * share / 100;
        times
            .get(place.min(times.len() - 1))
            .copied()
            .unwrap_or(0.0)
    };
    Ok((at(50), at(99)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_stays() {
        let directory = tempfile::tempdir().unwrap();
        let speed = measure(directory.path()).unwrap();
        assert!(speed.write_bytes_per_second > 0.0 && speed.read_bytes_per_second > 0.0);
        assert!(speed.sync_ms.0 > 0.0 && speed.sync_ms.1 >= speed.sync_ms.0);
        assert!(speed.read_ms.0 > 0.0 && speed.read_ms.1 >= speed.read_ms.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(measure(Path::new("/nonexistent/x")).is_err());
    }

    #[test]
    fn percentiles() {
        let mut count = 0;
        let (median, high) = samples(|| {
            count += 1;
            Ok(())
        })
        .unwrap();
        assert!(count <= SAMPLES && median <= high);
        assert!(samples(|| Err(io::Error::other("no"))).is_err());
    }
}
