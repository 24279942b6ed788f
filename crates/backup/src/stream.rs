//! The stage `$backupStream`, as its client sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Uri};

use crate::description::StoreId;
use crate::error::{Error, Result};
use crate::extent::{Extent, pack};
use crate::mark::Mark;

/// The options of a stream.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The extents of this store that need not be sent.
    pub known: Option<(StoreId, Vec<Extent>)>,
    /// The most bytes per second.
    pub rate: Option<u64>,
    /// Only the log from here on, as it grows; `Some(None)` from its end on.
    pub follow_log: Option<Option<u64>>,
    /// Nothing but what the stream begins with.
    pub begin_only: bool,
}

#[derive(Clone, Debug)]
pub struct Begin {
    pub store_id: StoreId,
    /// The number of the checkpoint; 0 without a copy.
    pub generation: u64,
    /// The number of all extents that the checkpoint needs.
    pub extents: u64,
    pub bytes: u64,
    /// Bytes of those that are sent.
    pub copy_bytes: u64,
    /// The position of the first frame of the log.
    pub log_from: u64,
}

/// A document of the stream.
#[derive(Debug)]
pub enum Event<'a> {
    Begin(Begin),
    /// A part of the list of all extents, packed.
    Extents(&'a [u8]),
    Head(&'a [u8]),
    /// The next bytes of the data file.
    Data {
        offset: u64,
        bytes: &'a [u8],
    },
    /// Whole groups of the log.
    Log {
        /// The position of the first frame.
        from: u64,
        /// The position after the last frame.
        to: u64,
        /// The groups as they are stored.
        bytes: &'a [u8],
    },
    Mark(Mark),
    End,
}

/// An open stream. What the server holds for it is released by [`BackupStream::close`], by its end, or when it was idle for too long.
pub struct BackupStream {
    batches: Batches,
    stop: Arc<AtomicBool>,
}

/// The source of batches.
enum Batches {
    /// Each is fetched when the one before is done with: the server keeps the log of an archive until then.
    InTurn(Box<Fetcher>),
    /// A thread fetches those of a copy while earlier ones are written.
    Ahead(Receiver<Result<DocBuf>>, JoinHandle<()>),
}

/// Batches that are fetched and not written yet, at most. The server bounds the size of each.
const AHEAD: usize = 2;

/// The connection and its cursor.
struct Fetcher {
    client: Client,
    cursor: i64,
}

impl Fetcher {
    /// The reply with the next batch; `None` after the last one.
    fn fetch(&mut self) -> Result<Option<DocBuf>> {
        if self.cursor == 0 {
            return Ok(None);
        }
        let id = self.cursor;
        let reply = self.client.ask("admin", |body| {
            body.push("getMore", id);
            body.push("collection", NAMESPACE);
        })?;
        let cursor = reply.get_doc("cursor");
        let next = cursor.and_then(|cursor| cursor.get_i64("id"));
        self.cursor = next.ok_or_else(|| unusable("a batch has no cursor"))?;
        Ok(Some(reply.to_owned()))
    }

    /// Fetches until the last batch, an error, or the end of the one who takes them.
    fn fetch_all(mut self, batches: &SyncSender<Result<DocBuf>>) {
        while let Some(reply) = self.fetch().transpose() {
            let has_failed = reply.is_err();
            if batches.send(reply).is_err() || has_failed {
                break;
            }
        }
        self.close();
    }

    fn close(mut self) {
        if self.cursor != 0 {
            let command = doc! {"killCursors": NAMESPACE, "cursors": [self.cursor]};
            // The end of the connection does the same, later.
            let _ = self.client.command("admin", &command);
        }
    }
}

const NAMESPACE: &str = "$cmd.aggregate";

impl BackupStream {
    /// Connects and opens a stream.
    pub fn open(uri: &Uri, stop: &Arc<AtomicBool>, request: &Request) -> Result<BackupStream> {
        let mut client = Client::connect(uri, stop.clone())?;
        let mut stage = DocBuf::new();
        if let Some((store_id, extents)) = &request.known {
            let packed = pack(extents);
            let bytes = |bytes| Value::Binary { subtype: 0, bytes };
            stage.push_value("storeId", &bytes(&store_id.0));
            stage.push_value("known", &bytes(&packed));
        }
        if let Some(rate) = request.rate {
            stage.push("bytesPerSecond", i64::try_from(rate).unwrap_or(i64::MAX));
        }
        match request.follow_log {
            None => {
                stage.push("log", "once");
                stage.push("logOnly", request.begin_only);
            }
            Some(from) => {
                stage.push("log", "follow");
                stage.push("logOnly", true);
                if let Some(from) = from {
                    stage.push("fromPosition", i64::try_from(from).unwrap_or(i64::MAX));
                }
            }
        }
        // A secondary can be copied, too.
        let command = doc! {
            "aggregate": 1, "pipeline": [{"$backupStream": &stage}], "cursor": {"batchSize": 0},
            "$readPreference": {"mode": "nearest"},
        };
        let reply = client.command("admin", &command)?;
        let cursor = reply.get_doc("cursor").and_then(|one| one.get_i64("id"));
        let cursor = cursor.filter(|id| *id != 0);
        let cursor = cursor.ok_or_else(|| unusable("it opened no cursor"))?;
        let fetcher = Fetcher { client, cursor };
        let batches = if request.follow_log.is_some() || request.begin_only {
            Batches::InTurn(Box::new(fetcher))
        } else {
            let (sender, receiver) = sync_channel(AHEAD);
            let thread = std::thread::Builder::new()
                .name("fetch".to_owned())
                .spawn(move || fetcher.fetch_all(&sender))
                .map_err(|error| Error::Io("starting a thread".to_owned(), error))?;
            Batches::Ahead(receiver, thread)
        };
        Ok(BackupStream {
            batches,
            stop: stop.clone(),
        })
    }

    /// Fetches the next batch, and shows its documents. Returns false after the last one.
    pub fn next_batch(&mut self, each: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<bool> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let reply = match &mut self.batches {
            Batches::InTurn(fetcher) => fetcher.fetch()?,
            // The thread ends after the last one.
            Batches::Ahead(batches, _) => batches.recv().ok().transpose()?,
        };
        let Some(reply) = reply else {
            return Ok(false);
        };
        let cursor = reply.get_doc("cursor");
        let cursor = cursor.ok_or_else(|| unusable("a batch has no cursor"))?;
        let batch = cursor.get_array("nextBatch");
        for document in batch.into_iter().flat_map(Doc::values) {
            let document = document.as_doc();
            let event = document.and_then(read);
            each(event.ok_or_else(|| unusable("a document of an unknown form"))?)?;
        }
        Ok(cursor.get_i64("id") != Some(0))
    }

    /// Cancels the stream on the server.
    pub fn close(self) {
        match self.batches {
            Batches::InTurn(fetcher) => fetcher.close(),
            Batches::Ahead(batches, thread) => {
                drop(batches);
                // A panic of the thread is on stderr already.
                let _ = thread.join();
            }
        }
    }
}

fn unusable(what: &str) -> Error {
    Error::Refused(format!("the server's stream cannot be used: {what}"))
}

fn number(document: &Doc, name: &str) -> Option<u64> {
    u64::try_from(document.get_i64(name)?).ok()
}

fn time(document: &Doc, name: &str) -> Option<i64> {
    match document.get(name)? {
        Value::DateTime(ms) => Some(ms),
        _ => None,
    }
}

/// The bytes of a document, if they are what the server sent.
fn checked(document: &Doc) -> Option<&[u8]> {
    let bytes = document.get_binary("bytes")?;
    let sum = document.get_i64("crc32c")?;
    (i64::from(crc32c::crc32c(bytes)) == sum).then_some(bytes)
}

fn read(document: &Doc) -> Option<Event<'_>> {
    let event = match document.get_str("t")? {
        "begin" => Event::Begin(Begin {
            store_id: StoreId::from_bytes(document.get_binary("storeId")?)?,
            generation: number(document, "generation").unwrap_or(0),
            extents: number(document, "extents").unwrap_or(0),
            bytes: number(document, "bytes").unwrap_or(0),
            copy_bytes: number(document, "copyBytes").unwrap_or(0),
            log_from: number(document, "logFrom")?,
        }),
        "extents" => Event::Extents(document.get_binary("ids")?),
        "head" => Event::Head(checked(document)?),
        "data" => Event::Data {
            offset: number(document, "offset")?,
            bytes: checked(document)?,
        },
        "log" => Event::Log {
            from: number(document, "from")?,
            to: number(document, "to")?,
            bytes: checked(document)?,
        },
        "mark" => Event::Mark(Mark {
            time: time(document, "time")?,
            until: time(document, "until")?,
            position: number(document, "position")?,
            stamp: match document.get("stamp") {
                Some(Value::Timestamp(stamp)) => Some(stamp.to_u64()),
                _ => None,
            },
        }),
        "end" => Event::End,
        _ => return None,
    };
    Some(event)
}
