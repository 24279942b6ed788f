//! Sources of changes: the oplog, a change stream, or none, so that both sides are compared in passes.

use std::time::Duration;

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};
use frond_client::{Client, Cursor, CursorRequest};

use super::changes::Change;
use super::options::FollowMode;
use super::{oplog, stream};
use crate::error::{Error, Result};
use crate::inventory::in_database;
use crate::node::Node;

/// Longest single wait for changes.
const WAIT: Duration = Duration::from_millis(300);

/// The kind of a feed, and the position at which it continues.
#[derive(Clone, Debug, PartialEq)]
pub enum Position {
    /// The oplog: the entry that was applied last.
    Oplog(Timestamp),
    /// A change stream: its token.
    Stream(DocBuf),
    Passes,
    None,
}

impl Position {
    /// The position of now, by the first way that the source knows.
    pub fn now(source: &Node, mode: FollowMode) -> Result<Position> {
        let mut client = source.connect()?;
        let wants = |one: FollowMode| mode == FollowMode::Auto || mode == one;
        if wants(FollowMode::Oplog) {
            match oplog_now(&mut client) {
                Ok(Some(time)) => return Ok(Position::Oplog(time)),
                Err(error) if !error.is_refusal() => return Err(error),
                Err(error) if mode == FollowMode::Oplog => return Err(error),
                _ if mode == FollowMode::Oplog => {
                    return Err(Error::Usage(
                        "the source has no oplog: it is not a member of a replica set".to_owned(),
                    ));
                }
                _ => {}
            }
        }
        if wants(FollowMode::ChangeStream) {
            match stream_now(&mut client) {
                Ok(token) => return Ok(Position::Stream(token)),
                Err(error)
                    if mode == FollowMode::ChangeStream
                        || (!error.is_refusal() && !matches!(error, Error::Usage(_))) =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        Ok(match mode {
            FollowMode::None => Position::None,
            _ => Position::Passes,
        })
    }

    pub fn describe(&self) -> &'static str {
        match self {
            Position::Oplog(_) => "the oplog",
            Position::Stream(_) => "a change stream",
            Position::Passes => "passes that compare both sides",
            Position::None => "nothing",
        }
    }

    /// Its document in the state.
    pub fn to_doc(&self) -> DocBuf {
        match self {
            Position::Oplog(time) => doc! { "oplog": *time },
            Position::Stream(token) => doc! { "stream": token },
            Position::Passes => doc! { "passes": true },
            Position::None => doc! {},
        }
    }

    pub fn from_doc(stored: &Doc) -> Position {
        match stored.first() {
            Some(("oplog", Value::Timestamp(time))) => Position::Oplog(time),
            Some(("stream", Value::Document(token))) => Position::Stream(token.to_owned()),
            Some(("passes", _)) => Position::Passes,
            _ => Position::None,
        }
    }
}

/// The time of the newest entry.
fn oplog_now(client: &mut Client) -> Result<Option<Timestamp>> {
    let newest = newest_entry(client)?;
    // A transaction that is open now may have entries before its commit.
    let mut oldest = None;
    let active = doc! { "state": { "$in": ["prepared", "inProgress"] } };
    let looked = crate::inventory::all_of(
        client,
        &in_database("config", "transactions"),
        &active,
        &mut |transaction| {
            let start = transaction
                .get_doc("startOpTime")
                .and_then(|time| time.get("ts"));
            if let Some(Value::Timestamp(time)) = start {
                oldest = Some(oldest.map_or(time, |before: Timestamp| {
                    if before.to_u64() < time.to_u64() {
                        before
                    } else {
                        time
                    }
                }));
            }
        },
    );
    match looked {
        Err(error) if !error.is_refusal() => return Err(error),
        _ => {}
    }
    Ok(match (newest, oldest) {
        (Some(newest), Some(oldest)) if oldest.to_u64() < newest.to_u64() => Some(oldest),
        (newest, _) => newest,
    })
}

/// The time of the newest entry of the oplog.
pub fn newest_entry(client: &mut Client) -> Result<Option<Timestamp>> {
    let mut found = None;
    let request = CursorRequest {
        collection: &in_database("local", "oplog.rs"),
        filter: Doc::empty(),
        projection: Some(&doc! { "ts": 1 }),
        sort: Some(&doc! { "$natural": -1 }),
        limit: 1,
        batch: 0,
        tailable: false,
    };
    let cursor = client.open_find(&request, &mut |entry| {
        if let Some(Value::Timestamp(time)) = entry.get("ts") {
            found = Some(time);
        }
        Ok(())
    })?;
    client.close(cursor)?;
    Ok(found)
}

fn stream_now(client: &mut Client) -> Result<DocBuf> {
    let open = |client: &mut Client, expanded: bool| {
        client.open_command("admin", &stream::open(None, expanded), 0, &mut |_| Ok(()))
    };
    let mut cursor = match open(client, true).map_err(Error::from) {
        Err(error) if error.is_refusal() => open(client, false)?,
        other => other?,
    };
    if cursor.is_open() {
        client.more(&mut cursor, Some(Duration::from_millis(1)), &mut |_| Ok(()))?;
    }
    let token = client.resume_token().map(Doc::to_owned);
    client.close(cursor)?;
    token.ok_or_else(|| {
        Error::Usage(
            "the change streams of the source give no tokens (MongoDB has them from 4.0.7 on)"
                .to_owned(),
        )
    })
}

pub struct Feed {
    client: Client,
    cursor: Cursor,
    position: Position,
    reader: oplog::Reader,
    first: Vec<DocBuf>,
    /// Entries of the oplog are in the first batch from the position itself on.
    is_checked: bool,
}

impl Feed {
    /// Goes on at a position; none for passes.
    pub fn open(source: &Node, position: &Position) -> Result<Option<Feed>> {
        let mut client = source.connect()?;
        let mut first = Vec::new();
        let mut each = |document: &Doc| {
            first.push(document.to_owned());
            Ok(())
        };
        let cursor = match position {
            Position::Passes | Position::None => return Ok(None),
            Position::Oplog(time) => {
                let request = CursorRequest {
                    collection: &in_database("local", "oplog.rs"),
                    filter: &doc! { "ts": { "$gte": *time } },
                    projection: None,
                    sort: None,
                    limit: 0,
                    batch: 0,
                    tailable: true,
                };
                client.open_find(&request, &mut each)?
            }
            Position::Stream(token) => {
                let opened =
                    client.open_command("admin", &stream::open(Some(token), true), 0, &mut each);
                match opened.map_err(Error::from) {
                    // 40415 is an option that the server does not know.
                    Err(error) if matches!(error.code(), Some(40415 | 9 | 72 | 303)) => client
                        .open_command("admin", &stream::open(Some(token), false), 0, &mut each)?,
                    other => other?,
                }
            }
        };
        Ok(Some(Feed {
            client,
            cursor,
            position: position.clone(),
            reader: oplog::Reader::default(),
            first,
            is_checked: false,
        }))
    }

    /// The next changes. Returns how many entries they were: 0 if there is nothing new for now.
    pub fn next(&mut self, each: &mut dyn FnMut(Change)) -> Result<u64> {
        let mut entries = std::mem::take(&mut self.first);
        if entries.is_empty() {
            if !self.cursor.is_open() {
                return Err(Error::Client(frond_client::Error::Protocol(
                    "the source has closed the cursor".to_owned(),
                )));
            }
            self.client
                .more(&mut self.cursor, Some(WAIT), &mut |document| {
                    entries.push(document.to_owned());
                    Ok(())
                })?;
        }
        for entry in &entries {
            match &mut self.position {
                Position::Oplog(last) => {
                    let Some(Value::Timestamp(time)) = entry.get("ts") else {
                        continue;
                    };
                    if !self.is_checked {
                        self.is_checked = true;
                        if time != *last {
                            return Err(Error::Data(
                                "the oplog of the source no longer reaches back to where the migration is: it was too slow \
                                 or interrupted for too long. Enlarge the oplog, and begin again with --restart --drop"
                                    .to_owned(),
                            ));
                        }
                    }
                    *last = time;
                    self.reader.read(entry, each);
                }
                Position::Stream(last) => {
                    if let Some(change) = stream::change(entry) {
                        each(change);
                    }
                    if let Some(token) = entry.get_doc("_id") {
                        *last = token.to_owned();
                    }
                }
                Position::Passes | Position::None => {}
            }
        }
        if entries.is_empty()
            && let (Position::Stream(last), Some(token)) =
                (&mut self.position, self.client.resume_token())
        {
            *last = token.to_owned();
        }
        Ok(entries.len() as u64)
    }

    /// Whether no entry before the position is still needed.
    pub fn is_whole(&self) -> bool {
        self.reader.is_empty()
    }

    /// Up to where changes were shown.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Seconds that the changes shown are behind the source, if that is known.
    pub fn lag(&mut self, asking: &mut Client) -> Result<u64> {
        match &self.position {
            Position::Oplog(last) => {
                let newest = newest_entry(asking)?.unwrap_or(*last);
                if newest.to_u64() <= last.to_u64() {
                    return Ok(0);
                }
                Ok(u64::from(newest.time.saturating_sub(last.time)).max(1))
            }
            // A stream that has waited in vain has shown all.
            _ => Ok(0),
        }
    }
}
