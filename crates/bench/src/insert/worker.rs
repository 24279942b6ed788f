//! One connection of a run: make a batch, send it, make the next one while the server works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::doc;

use super::Options;
use crate::client::{Client, InsertTarget};
use crate::document::Generator;
use crate::error::Result;
use crate::meter::Meter;

/// Inserts batches until all documents are claimed or the run stops. Errors go to the meter.
pub fn insert(
    mut client: Client,
    target: &InsertTarget,
    options: &Options,
    claimed: &AtomicU64,
    meter: &Meter,
) {
    if let Err(error) = insert_all(&mut client, target, options, claimed, meter) {
        meter.fail(error);
    }
}

/// A batch, built and ready to send.
struct Batch {
    documents: u64,
    request_id: i32,
}

/// Claims numbers and builds the insert of their documents.
struct Builder<'a> {
    generator: Generator,
    claimed: &'a AtomicU64,
    total: u64,
    batch: u64,
    documents: Vec<u8>,
}

impl Builder<'_> {
    /// The next batch, its message in `message`; `None` when all documents are claimed.
    fn next(
        &mut self,
        client: &mut Client,
        target: &InsertTarget,
        message: &mut Vec<u8>,
    ) -> Result<Option<Batch>> {
        let first = self.claimed.fetch_add(self.batch, Ordering::Relaxed);
        let end = (first + self.batch).min(self.total);
        if first >= end {
            return Ok(None);
        }
        self.documents.clear();
        for number in first..end {
            self.generator.append(number, &mut self.documents);
        }
        let each = self.generator.document_bytes();
        let request_id = client.build_insert(target, &self.documents, each, message)?;
        Ok(Some(Batch {
            documents: end - first,
            request_id,
        }))
    }
}

fn insert_all(
    client: &mut Client,
    target: &InsertTarget,
    options: &Options,
    claimed: &AtomicU64,
    meter: &Meter,
) -> Result<()> {
    let mut builder = Builder {
        generator: Generator::new(options.seed, options.elements as usize),
        claimed,
        total: options.documents,
        batch: u64::from(options.batch),
        documents: Vec::new(),
    };
    let mut message = Vec::new();
    let mut ready = builder.next(client, target, &mut message)?;
    while let Some(batch) = ready {
        let start = Instant::now();
        client.send(&message)?;
        ready = if meter.stopping() {
            None
        } else {
            builder.next(client, target, &mut message)?
        };
        client.insert_reply(target, batch.request_id, batch.documents as usize)?;
        meter.batch(batch.documents, start.elapsed());
    }
    // The answer to this comes after everything sent before it was worked on, so that a run
    // without acknowledgement does not end early.
    client.command("admin", &doc! { "ping": 1 })?;
    Ok(())
}

/// Waits for a moment of the run, or until all threads are done: then true.
pub fn wait_until(meter: &Meter, at: Duration, all_done: impl Fn() -> bool) -> bool {
    const NAP: Duration = Duration::from_millis(20);
    loop {
        if all_done() {
            return true;
        }
        let left = at.saturating_sub(meter.elapsed());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(NAP));
    }
}

/// Counts a thread as done however it ends.
pub struct CountOnDrop<'a>(pub &'a AtomicU64);

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}
