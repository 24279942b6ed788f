//! Writing documents of a file into collections, by several connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use frond_bson::{Doc, DocBuf};
use frond_client::{BulkOptions, Client, Collection};

use super::options::Mode;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::progress::Progress;
use crate::write::{self, Run};

/// Documents of a batch at most.
const BATCH_DOCUMENTS: usize = 2_000;

/// Bytes of a batch about.
const BATCH_BYTES: usize = 2 << 20;

/// Refused documents, or rows that are left out, that are named.
pub const NAMED: u64 = 20;

#[derive(Clone, Debug)]
pub struct How {
    /// The way in which documents are written.
    pub mode: Mode,
    /// Which fields say what document is meant.
    pub key: Vec<String>,
    /// End at the first refusal.
    pub stop_on_error: bool,
    pub bypass_validation: bool,
}

/// Documents of one collection with their places in the file.
struct Batch {
    collection: Collection,
    run: Run,
    places: Vec<u64>,
}

/// The counts of written documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub documents: u64,
    /// Documents that the server refused.
    pub refused: u64,
}

/// The destination of documents.
pub struct Sink<'a> {
    sender: SyncSender<Batch>,
    batch: Batch,
    place_name: &'a str,
    /// A writer has failed.
    failed: &'a AtomicBool,
    how: &'a How,
}

impl Sink<'_> {
    /// Takes a document, which lies at a place of the file.
    pub fn put(&mut self, collection: &Collection, document: &Doc, place: u64) -> Result<()> {
        if self.batch.collection != *collection {
            self.send()?;
            self.batch.collection = collection.clone();
        }
        if self.how.mode == Mode::Insert {
            self.batch.run.push(document);
        } else {
            let statement = statement(document, self.how)
                .map_err(|text| Error::Data(format!("{} {place}: {text}", self.place_name)))?;
            self.batch.run.push(&statement);
        }
        self.batch.places.push(place);
        if self.batch.run.len() >= BATCH_DOCUMENTS || self.batch.run.bytes.len() >= BATCH_BYTES {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.batch.run.is_empty() {
            return Ok(());
        }
        let next = Batch {
            collection: self.batch.collection.clone(),
            run: Run::default(),
            places: Vec::new(),
        };
        let full = std::mem::replace(&mut self.batch, next);
        // The error of the writer that failed is the one that is reported.
        if self.failed.load(Ordering::Relaxed) {
            return Err(Error::Client(frond_client::Error::Stopped));
        }
        self.sender
            .send(full)
            .map_err(|_| Error::Client(frond_client::Error::Stopped))
    }
}

/// The statement of a document that is not just inserted.
fn statement(document: &Doc, how: &How) -> std::result::Result<DocBuf, String> {
    let mut filter = DocBuf::new();
    for field in &how.key {
        match document.path(field) {
            Some(value) => filter.push_value(field, &value),
            None => {
                return Err(format!(
                    "the document has no field {field}, which says what document is meant"
                ));
            }
        }
    }
    let mut out = DocBuf::new();
    out.push("q", &filter);
    match how.mode {
        Mode::Delete => out.push("limit", 1),
        Mode::Merge => {
            out.push_doc("u", |update| {
                update.push_doc("$set", |fields| {
                    for element in document
                        .iter_raw()
                        .filter(|element| element.name() != "_id")
                    {
                        fields.push_raw(&element);
                    }
                });
            });
            out.push("upsert", true);
        }
        _ => {
            out.push("u", document);
            out.push("upsert", true);
        }
    }
    Ok(out)
}

/// Runs a reader, which puts documents into a sink, while threads write them. `place` names what its numbers count.
pub fn run(
    target: &Node,
    jobs: usize,
    how: &How,
    place: &str,
    progress: &Progress,
    reader: impl FnOnce(&mut Sink<'_>) -> Result<()>,
) -> Result<Written> {
    let (sender, receiver) = sync_channel(jobs.max(1) * 2);
    let receiver = Mutex::new(receiver);
    let (documents, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    // With an order a second writer could not keep it.
    let jobs = if how.stop_on_error { 1 } else { jobs.max(1) };
    let mut connections = Vec::new();
    for _ in 0..jobs {
        connections.push(target.connect()?);
    }
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|client| {
                let (receiver, documents, refused) = (&receiver, &documents, &refused);
                let failed = &failed;
                scope.spawn(move || {
                    let done =
                        write_batches(client, receiver, how, place, progress, documents, refused);
                    if done.is_err() {
                        failed.store(true, Ordering::Relaxed);
                        // The reader's next batch finds no receiver, and the other writers have nothing to do.
                        let receiver = receiver.lock().unwrap_or_else(|e| e.into_inner());
                        while receiver.recv().is_ok() {}
                    }
                    done
                })
            })
            .collect();
        let batch = Batch {
            collection: Collection {
                database: String::new(),
                name: String::new(),
            },
            run: Run::default(),
            places: Vec::new(),
        };
        let mut sink = Sink {
            sender,
            batch,
            place_name: place,
            failed: &failed,
            how,
        };
        let read = reader(&mut sink).and_then(|()| sink.send());
        drop(sink);
        let mut result = Ok(());
        for thread in threads {
            let done = thread
                .join()
                .unwrap_or_else(|_| Err(Error::Data("a thread that writes has died".to_owned())));
            result = result.and(done);
        }
        result.and(read)
    })?;
    Ok(Written {
        documents: documents.into_inner(),
        refused: refused.into_inner(),
    })
}

fn write_batches(
    mut client: Client,
    receiver: &Mutex<Receiver<Batch>>,
    how: &How,
    place: &str,
    progress: &Progress,
    documents: &AtomicU64,
    refused: &AtomicU64,
) -> Result<()> {
    let command = match how.mode {
        Mode::Insert => "insert",
        Mode::Upsert | Mode::Merge => "update",
        Mode::Delete => "delete",
    };
    let options = BulkOptions {
        ordered: how.stop_on_error,
        bypass_validation: how.bypass_validation && command != "delete",
        journal: false,
    };
    loop {
        let next = receiver.lock().unwrap_or_else(|e| e.into_inner()).recv();
        let Ok(batch) = next else {
            return Ok(());
        };
        let failed =
            write::write_all(&mut client, &batch.collection, command, &batch.run, options)?;
        let count = batch.run.len() as u64;
        for failure in &failed {
            let at = batch.places.get(failure.index).copied().unwrap_or(0);
            let text = format!("{place} {at}: {} (code {})", failure.message, failure.code);
            if how.stop_on_error {
                return Err(Error::Refused(text));
            }
            if refused.fetch_add(1, Ordering::Relaxed) < NAMED {
                eprintln!("{text}");
            }
        }
        documents.fetch_add(count - failed.len() as u64, Ordering::Relaxed);
        progress.add(count);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    #[test]
    fn statements_of_every_mode() {
        let document = doc! { "_id": 1, "a": { "b": 2 }, "c": 3 };
        let of = |mode: Mode, key: &str| {
            let how = How {
                mode,
                key: vec![key.to_owned()],
                stop_on_error: false,
                bypass_validation: false,
            };
            statement(&document, &how)
        };
        assert_eq!(
            of(Mode::Merge, "a.b").unwrap(),
            doc! { "q": { "a.b": 2 }, "u": { "$set": { "a": { "b": 2 }, "c": 3 } }, "upsert": true }
        );
        assert_eq!(
            of(Mode::Delete, "_id").unwrap(),
            doc! { "q": { "_id": 1 }, "limit": 1 }
        );
        assert!(of(Mode::Upsert, "x").unwrap_err().contains("field x"));
    }
}
