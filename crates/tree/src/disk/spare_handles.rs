//! File handles in reserve: when the process has too many open files, the engine can still open its own.

use std::fs::File;
use std::io;

use parking_lot::Mutex;
use rustix::io::Errno;

/// The number of handles that are kept: a segment of the log, the directory, the file of the reserve, and one more.
const HANDLES: usize = 4;

/// Handles that are given up when there are no others.
pub(super) struct SpareHandles(Mutex<Vec<File>>);

impl SpareHandles {
    /// Takes the handles, as far as there are any.
    pub(super) fn new() -> SpareHandles {
        let spare = SpareHandles(Mutex::default());
        spare.fill();
        spare
    }

    /// Calls `open`, and again with one handle less in reserve while the process or the system has too many open files.
    pub(super) fn open<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                Err(error) if is_out_of_handles(&error) => {
                    // Another thread may take the handle that is given up here, so this may happen again.
                    if self.0.lock().pop().is_none() {
                        return Err(error);
                    }
                }
                opened => return opened,
            }
        }
    }

    /// Takes the handles that were given up.
    pub(super) fn fill(&self) {
        let mut spare = self.0.lock();
        while spare.len() < HANDLES
            && let Ok(file) = File::open("/dev/null")
        {
            spare.push(file);
        }
    }
}

fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn handles_are_given_up_one_by_one_and_taken_again() {
        let spare = SpareHandles::new();
        let tries = Cell::new(0);
        let open = |failures: i32, error: Errno| {
            tries.set(0);
            spare.open(|| {
                tries.set(tries.get() + 1);
                if tries.get() > failures {
                    Ok(())
                } else {
                    Err(error.into())
                }
            })
        };
        assert!(open(2, Errno::MFILE).is_ok());
        assert_eq!(spare.0.lock().len(), HANDLES - 2);
        assert!(open(i32::MAX, Errno::NFILE).is_err());
        assert_eq!(tries.get() as usize, HANDLES - 2 + 1);
        spare.fill();
        assert_eq!(spare.0.lock().len(), HANDLES);
        assert!(open(1, Errno::NOENT).is_err());
        assert_eq!((tries.get(), spare.0.lock().len()), (1, HANDLES));
    }
}
