//! One connection that inserts: make a batch, send it, make the next one while the server works.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frond_bson::doc;

use crate::client::{Client, WriteTarget};
use crate::document::Source;
use crate::error::Result;
use crate::meter::Meter;

/// Documents to insert, shared by the connections that do it.
pub struct Load<'a> {
    target: &'a WriteTarget,
    source: &'a dyn Source,
    documents: u64,
    batch: u64,
    claimed: AtomicU64,
}

/// A batch, built and ready to send.
struct Batch {
    documents: u64,
    request_id: i32,
}

impl<'a> Load<'a> {
    /// The first `documents` documents of a source, in batches.
    #[must_use]
    pub fn new(
        target: &'a WriteTarget,
        source: &'a dyn Source,
        documents: u64,
        batch: u32,
    ) -> Self {
        Load {
            target,
            source,
            documents,
            batch: u64::from(batch),
            claimed: AtomicU64::new(0),
        }
    }

    /// Claims numbers and builds the insert of their documents into `message`; `None` when all
    /// documents are claimed.
    fn next(
        &self,
        client: &mut Client,
        documents: &mut Vec<u8>,
        message: &mut Vec<u8>,
    ) -> Result<Option<Batch>> {
        let first = self.claimed.fetch_add(self.batch, Ordering::Relaxed);
        let end = (first + self.batch).min(self.documents);
        if first >= end {
            return Ok(None);
        }
        documents.clear();
        for number in first..end {
            self.source.append(number, documents);
        }
        let each = self.source.document_bytes();
        let request_id = client.build_insert(self.target, documents, each, message)?;
        Ok(Some(Batch {
            documents: end - first,
            request_id,
        }))
    }

    /// Inserts batches until all documents are claimed or the run stops.
    pub fn insert(&self, client: &mut Client, meter: &Meter) -> Result<()> {
        let (mut documents, mut message) = (Vec::new(), Vec::new());
        let mut ready = self.next(client, &mut documents, &mut message)?;
        while let Some(batch) = ready {
            let start = Instant::now();
            client.send(&message)?;
            ready = if meter.stopping() {
                None
            } else {
                self.next(client, &mut documents, &mut message)?
            };
            client.insert_reply(self.target, batch.request_id, batch.documents as usize)?;
            meter.batch(batch.documents, start.elapsed());
        }
        // The answer to this comes after everything sent before it was worked on, so that a run
        // without acknowledgement does not end early.
        client.command("admin", &doc! { "ping": 1 })?;
        Ok(())
    }
}
