//! The connection of a standby to its primary.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_client::{Client, Error, Result, Uri};

/// The wait for entries at the end of the oplog, in milliseconds.
const AWAIT_MS: i64 = 1000;

/// Entries in a reply at most. So reading and applying go on at the same time, and neither is long behind the other.
const BATCH_MAX: i32 = 10_000;

/// The time limit of an answer, unless the connection string has one.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// The connection string of a primary.
///
/// # Errors
/// Errors of the connection string.
pub(super) fn uri(text: &str) -> Result<Uri> {
    let mut uri: Uri = text.parse()?;
    uri.socket_timeout.get_or_insert(ANSWER_WAIT);
    uri.app_name
        .get_or_insert_with(|| "frond standby".to_owned());
    Ok(uri)
}

/// Why a primary cannot be followed.
#[derive(Debug)]
pub enum FollowError {
    /// Nothing was heard, or it is not the right server now: it is tried again.
    Passing(Error),
    /// The oplog begins behind the position.
    Stale(String),
    /// The oplog has something else at the position.
    Diverged(String),
}

impl From<Error> for FollowError {
    fn from(error: Error) -> FollowError {
        FollowError::Passing(error)
    }
}

/// A server's reply to `hello`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hello {
    /// The name of its set.
    pub set: String,
    /// Whether it is a primary.
    pub is_primary: bool,
    /// The last entry of its oplog.
    pub last: Timestamp,
    /// The version and the election of its configuration: when they change, it is another one.
    pub version: (i64, Option<frond_bson::ObjectId>),
}

/// A connection to the primary.
pub struct Source {
    client: Client,
    cursor: i64,
}

impl Source {
    /// Connects.
    ///
    /// # Errors
    /// Errors of the connection and of the login.
    pub fn connect(uri: &Uri, stop: Arc<AtomicBool>) -> Result<Source> {
        Ok(Source {
            client: Client::connect(uri, stop)?,
            cursor: 0,
        })
    }

    /// Asks the server by `hello`.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn hello(&mut self) -> Result<Hello> {
        let reply = self.client.command("admin", &doc! {"hello": 1})?;
        let last = reply
            .get_doc("lastWrite")
            .and_then(|last| last.get_doc("opTime"))
            .and_then(|time| time.get("ts"));
        Ok(Hello {
            set: reply.get_str("setName").unwrap_or_default().to_owned(),
            is_primary: reply.get("isWritablePrimary").is_some_and(|is| is.truthy()),
            last: match last {
                Some(Value::Timestamp(last)) => last,
                _ => Timestamp::default(),
            },
            version: (
                reply.get_i64("setVersion").unwrap_or(0),
                reply.get_object_id("electionId"),
            ),
        })
    }

    /// The configuration of its set.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn config(&mut self) -> Result<DocBuf> {
        let reply = self
            .client
            .command("admin", &doc! {"replSetGetConfig": 1})?;
        let config = reply.get_doc("config").map(Doc::to_owned);
        config.ok_or_else(|| Error::Protocol("replSetGetConfig without a config".to_owned()))
    }

    fn first(&mut self, filter: &Doc) -> Result<Option<DocBuf>> {
        let find = doc! {"find": "oplog.rs", "filter": filter, "limit": 1, "singleBatch": true};
        let reply = self.client.command("local", &find)?;
        Ok(frond_client::first_of_batch(&reply).map(Doc::to_owned))
    }

    /// Checks that the primary has the entry that was applied last.
    ///
    /// # Errors
    /// See [`FollowError`].
    pub fn check(&mut self, own: &Doc) -> std::result::Result<(), FollowError> {
        let Some(Value::Timestamp(at)) = own.get("ts") else {
            return Err(FollowError::Diverged(
                "this standby's oplog has no entries".to_owned(),
            ));
        };
        let first = self.first(&doc! {})?;
        let first = match first.as_ref().and_then(|first| first.get("ts")) {
            Some(Value::Timestamp(first)) => first,
            _ => {
                return Err(FollowError::Passing(Error::Settings(
                    "the primary has no oplog: start it with --replSet".to_owned(),
                )));
            }
        };
        if at < first {
            return Err(FollowError::Stale(format!(
                "the primary's oplog begins at {}, and this standby has applied up to {}: start it anew from a copy",
                shown(first),
                shown(at)
            )));
        }
        let there = self.first(&doc! {"ts": at})?;
        match there {
            Some(there) if is_same(&there, own) => Ok(()),
            // It may have been trimmed between the two reads.
            None if self
                .first(&doc! {})?
                .and_then(|now| now.get("ts").map(|ts| ts != Value::Timestamp(first)))
                == Some(true) =>
            {
                Err(FollowError::Passing(Error::Protocol(
                    "the oplog is being trimmed".to_owned(),
                )))
            }
            _ => Err(FollowError::Diverged(format!(
                "the primary has not the entry that this standby has applied last, at {}: it is another server, or it was \
                 restored, or this standby was a primary meanwhile. Start it anew from a copy",
                shown(at)
            ))),
        }
    }

    /// Begins to read the entries after a time.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn open(&mut self, after: Timestamp) -> Result<DocBuf> {
        let find = doc! {
            "find": "oplog.rs", "filter": {"ts": {"$gt": after}}, "tailable": true, "awaitData": true,
            "batchSize": BATCH_MAX,
        };
        let reply = self.client.command("local", &find)?;
        let cursor = reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_i64("id"));
        self.cursor = cursor.unwrap_or(0);
        Ok(reply)
    }

    /// The next entries, or none after a second.
    ///
    /// # Errors
    /// Errors of the connection, and of a cursor that has ended.
    pub fn next(&mut self) -> Result<DocBuf> {
        if self.cursor == 0 {
            return Err(Error::Protocol(
                "the cursor on the oplog has ended".to_owned(),
            ));
        }
        let more = doc! {
            "getMore": self.cursor, "collection": "oplog.rs", "maxTimeMS": AWAIT_MS, "batchSize": BATCH_MAX,
        };
        let reply = self.client.command("local", &more)?;
        let cursor = reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_i64("id"));
        self.cursor = cursor.unwrap_or(0);
        Ok(reply)
    }
}

/// The entries in a reply of [`Source::open`] or [`Source::next`].
pub fn entries(reply: &Doc) -> Vec<&Doc> {
    let cursor = reply.get_doc("cursor");
    let batch = cursor.and_then(|cursor| {
        cursor
            .get_array("nextBatch")
            .or_else(|| cursor.get_array("firstBatch"))
    });
    let batch = batch.unwrap_or(Doc::empty());
    batch.values().filter_map(|entry| entry.as_doc()).collect()
}

/// Whether two servers show the same entry. The term depends on the server.
fn is_same(left: &Doc, right: &Doc) -> bool {
    let fields = |entry: &Doc| {
        let mut out = DocBuf::new();
        for (name, value) in entry
            .iter()
            .filter(|(name, _)| *name != "t" && *name != "prevOpTime")
        {
            out.push(name, value);
        }
        out
    };
    fields(left) == fields(right)
}

fn shown(time: Timestamp) -> String {
    format!("Timestamp({}, {})", time.time, time.increment)
}
