//! Inserting on one connection: the next batch is prepared while the system works on the last one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::documents::Source;
use crate::meter::Meter;
use crate::system::{Batch, Session, WriteConcern};
use frond_client::{Collection, Result};

/// Documents of one insert by [`fill`].
pub const BATCH: u64 = 1000;

/// Fills a collection, acknowledged.
pub fn fill(
    session: &mut dyn Session,
    collection: &Collection,
    source: &dyn Source,
    documents: u64,
) -> Result<()> {
    session.insert_into(collection, WriteConcern::ACKNOWLEDGED)?;
    let mut bytes = Vec::new();
    for first in (0..documents).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(documents);
        insert(session, source, numbers, &mut bytes)?;
    }
    Ok(())
}

/// Inserts documents by one request. `insert_into` was called.
pub fn insert(
    session: &mut dyn Session,
    source: &dyn Source,
    numbers: std::ops::Range<u64>,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    prepare(session, source, numbers, bytes)?;
    session.send()?;
    session.finish()
}

fn prepare(
    session: &mut dyn Session,
    source: &dyn Source,
    numbers: std::ops::Range<u64>,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    bytes.clear();
    numbers.for_each(|number| source.append(number, bytes));
    session.prepare(Batch {
        bytes,
        each: source.document_bytes(),
    })
}

/// Documents to insert, shared by the connections that do it.
pub struct Load<'a> {
    source: &'a dyn Source,
    end: u64,
    batch: u64,
    claimed: AtomicU64,
}

impl<'a> Load<'a> {
    /// The documents of a source whose numbers are in the range, in batches.
    pub fn new(source: &'a dyn Source, numbers: std::ops::Range<u64>, batch: u32) -> Self {
        Load {
            source,
            end: numbers.end,
            batch: u64::from(batch),
            claimed: AtomicU64::new(numbers.start),
        }
    }

    /// Claims numbers and makes the insert of their documents ready. Returns how many they are;
    /// 0 when all are claimed.
    fn next(&self, session: &mut dyn Session, documents: &mut Vec<u8>) -> Result<u64> {
        let first = self.claimed.fetch_add(self.batch, Ordering::Relaxed);
        let end = (first + self.batch).min(self.end);
        if first >= end {
            return Ok(0);
        }
        prepare(session, self.source, first..end, documents)?;
        Ok(end - first)
    }

    /// Inserts batches until all documents are claimed or the run stops. `insert_into` was called.
    pub fn insert(&self, session: &mut dyn Session, meter: &Meter) -> Result<()> {
        self.insert_when(session, meter, || true)
    }

    /// As [`Load::insert`]; before each batch `due` waits, and returns false to end.
    pub fn insert_when(
        &self,
        session: &mut dyn Session,
        meter: &Meter,
        mut due: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut documents = Vec::new();
        let mut ready = self.next(session, &mut documents)?;
        while ready > 0 && due() {
            let sent = ready;
            let start = Instant::now();
            session.send()?;
            ready = if meter.stopping() {
                0
            } else {
                self.next(session, &mut documents)?
            };
            session.finish()?;
            meter.batch(sent, start.elapsed());
        }
        // A run without acknowledgement does not end before the last document is in.
        session.drain()
    }
}
