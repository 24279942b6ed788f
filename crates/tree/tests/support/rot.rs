//! Faults that stay: sectors that were changed or cannot be read until they are written again, a part of a file that takes
//! no writes, and a panic in the middle of an operation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use frond_tree::simulate_fail_stops;

use super::{EIO, Kind, SECTOR, SimDisk};

/// The damage of the data file.
#[derive(Clone, Default)]
pub(super) struct Rot {
    /// Sectors that cannot be read.
    unreadable: BTreeSet<u64>,
    /// These, and all sectors that ever were so or had a bit flipped.
    ever: BTreeSet<u64>,
    /// A part that takes no writes.
    unwritable: Option<Range<u64>>,
    /// Panics at the operation after this number of operations.
    panic_after: Option<u64>,
    /// The reads of the data file, while they are recorded.
    reads: Option<Vec<Range<u64>>>,
}

const DATA: &str = "data.frond";

/// The payload of a simulated panic.
struct SimulatedPanic;

/// Panics without a message.
pub fn simulated_panic() -> ! {
    HAPPENED.set(true);
    resume_unwind(Box::new(SimulatedPanic))
}

/// Whether there was a simulated panic on this thread since the last call of [`panics_simulated`] began.
pub fn has_panicked() -> bool {
    HAPPENED.get()
}

fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR as u64..range.end.div_ceil(SECTOR as u64)
}

impl Rot {
    /// Ends what does not stay when the process ends.
    pub(super) fn end(&mut self) {
        (self.unwritable, self.panic_after, self.reads) = (None, None, None);
    }

    /// Decides whether an operation fails.
    pub(super) fn check(&mut self, kind: Kind, name: &str, range: &Range<u64>) -> io::Result<()> {
        if let Some(left) = &mut self.panic_after {
            if *left == 0 {
                self.panic_after = None;
                simulated_panic();
            }
            *left -= 1;
        }
        if name != DATA {
            return Ok(());
        }
        let error = || Err(io::Error::from_raw_os_error(EIO));
        match kind {
            Kind::Read => {
                if let Some(reads) = &mut self.reads {
                    reads.push(range.clone());
                }
                if self.unreadable.range(sectors(range)).next().is_some() {
                    return error();
                }
            }
            Kind::Write => {
                let part = self.unwritable.as_ref();
                if part.is_some_and(|part| part.start < range.end && range.start < part.end) {
                    return error();
                }
                // The drive takes other sectors for them.
                for sector in sectors(range) {
                    self.unreadable.remove(&sector);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl SimDisk {
    /// Length of the data file.
    pub fn data_len(&self) -> u64 {
        let state = self.lock();
        let file = state.names.get(DATA);
        file.map_or(0, |file| state.files[*file].current.len() as u64)
    }

    /// Records the reads of the data file.
    pub fn record_reads(&self) {
        self.lock().rot.reads = Some(Vec::new());
    }

    /// The reads since then.
    pub fn recorded_reads(&self) -> Vec<Range<u64>> {
        self.lock().rot.reads.take().unwrap_or_default()
    }

    /// Makes a sector of the data file unreadable until it is written.
    pub fn make_unreadable(&self, offset: u64) {
        let sector = offset / SECTOR as u64;
        let rot = &mut self.lock().rot;
        rot.unreadable.insert(sector);
        rot.ever.insert(sector);
    }

    /// Flips a bit of the data file, on the medium: a crash does not bring the old one back.
    pub fn rot_bit(&self, offset: u64, bit: u32) {
        let mut state = self.lock();
        let file = state.names[DATA];
        let file = &mut state.files[file];
        for content in [&mut file.current, &mut file.durable] {
            if let Some(byte) = content.get_mut(offset as usize) {
                *byte ^= 1 << bit;
            }
        }
        state.rot.ever.insert(offset / SECTOR as u64);
    }

    /// Whether a part of this range of the data file was ever damaged.
    pub fn is_rotten(&self, range: &Range<u64>) -> bool {
        self.lock().rot.ever.range(sectors(range)).next().is_some()
    }

    /// Fails all writes to this part of the data file, or none.
    pub fn refuse_writes(&self, part: Option<Range<u64>>) {
        self.lock().rot.unwritable = part;
    }

    /// Panics at the operation after this number of operations.
    pub fn panic_after(&self, operations: Option<u64>) {
        self.lock().rot.panic_after = operations;
    }
}

thread_local! {
    static RUNNING: RefCell<Option<SimDisk>> = const { RefCell::new(None) };
    static HAPPENED: Cell<bool> = const { Cell::new(false) };
    static STOPPED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// The process ends: nothing reaches the disk any more.
fn stopped(doing: &'static str) {
    STOPPED.set(Some(doing));
    RUNNING.with_borrow(|disk| {
        if let Some(disk) = disk {
            disk.crash_after(0);
        }
    });
}

/// Runs something in which an engine that ends the process crashes this disk.
pub fn with_simulated_fail_stops<T>(disk: &SimDisk, run: impl FnOnce() -> T) -> T {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            simulate_fail_stops(None);
            RUNNING.set(None);
        }
    }
    RUNNING.set(Some(disk.clone()));
    simulate_fail_stops(Some(stopped));
    let _restore = Restore;
    run()
}

/// The end of something that may panic.
pub enum Panicked {
    /// It was contained, or the caller got it.
    Contained,
    /// It ended the process in the middle of this.
    Ended(&'static str),
}

/// Runs something and catches a simulated panic.
pub fn panics_simulated<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    STOPPED.set(None);
    HAPPENED.set(false);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(_) if STOPPED.get().is_some() => Err(Panicked::Ended(STOPPED.get().unwrap_or_default())),
        Ok(done) => Ok(done),
        Err(panic) if panic.is::<SimulatedPanic>() => Err(match STOPPED.get() {
            Some(doing) => Panicked::Ended(doing),
            None => Panicked::Contained,
        }),
        Err(panic) => resume_unwind(panic),
    }
}
