//! Cursors batch by batch, for callers that do something else between two batches, and for tailable ones.

use std::time::Duration;

use frond_bson::{Doc, DocBuf};
use frond_wire::Query;

use super::request::{WIRE_VERSION_FIND, batch_of, documents_of};
use super::{Client, check};
use crate::collection::Collection;
use crate::error::{Error, Result};

/// The documents that a cursor is for.
pub struct CursorRequest<'a> {
    pub collection: &'a Collection,
    pub filter: &'a Doc,
    /// Which fields; all if there is none.
    pub projection: Option<&'a Doc>,
    pub sort: Option<&'a Doc>,
    /// Documents at most; 0 is all.
    pub limit: u32,
    /// Documents in a batch; 0 leaves it to the server.
    pub batch: u32,
    /// Wait for more documents at the end of a capped collection, such as the oplog.
    pub tailable: bool,
}

/// A cursor on the server.
#[derive(Debug)]
pub struct Cursor {
    id: i64,
    collection: Collection,
    by_opcode: bool,
    batch: u32,
    left: Option<u64>,
}

impl Cursor {
    /// Whether there may be more documents.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.id != 0
    }
}

impl Client {
    /// Opens a cursor and shows its first batch to `each`.
    pub fn open_find(
        &mut self,
        request: &CursorRequest<'_>,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<Cursor> {
        if self.limits.wire_version < WIRE_VERSION_FIND {
            return self.open_query(request, each);
        }
        let mut command = DocBuf::new();
        command.push("find", request.collection.name.as_str());
        command.push("filter", request.filter);
        if let Some(sort) = request.sort {
            command.push("sort", sort);
        }
        if let Some(projection) = request.projection {
            command.push("projection", projection);
        }
        if request.limit > 0 {
            command.push("limit", i64::from(request.limit));
        }
        if request.limit == 1 {
            command.push("singleBatch", true);
        }
        if request.batch > 0 {
            command.push("batchSize", i64::from(request.batch));
        }
        if request.tailable {
            command.push("tailable", true);
            command.push("awaitData", true);
        }
        self.open_command(&request.collection.database, &command, request.batch, each)
    }

    /// Runs a command that answers with a cursor, such as `aggregate`, and shows its first batch to `each`.
    pub fn open_command(
        &mut self,
        database: &str,
        command: &Doc,
        batch: u32,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<Cursor> {
        let name = command.first().map_or("", |(name, _)| name).to_owned();
        let reply = self.ask(database, |body| body.push_all(command))?;
        let namespace = reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_str("ns"));
        let collection = match namespace.and_then(|ns| ns.split_once('.')) {
            Some((database, name)) => Collection {
                database: database.to_owned(),
                name: name.to_owned(),
            },
            None => {
                return Err(Error::Protocol(format!("{name} answered no cursor.ns")));
            }
        };
        let (_, id) = batch_of(reply, "firstBatch", each)?;
        Ok(Cursor {
            id,
            collection,
            by_opcode: false,
            batch,
            left: None,
        })
    }

    /// The next batch. Returns how many documents it had: a tailable cursor may have none for now, and waits for
    /// some as long as `wait` says.
    pub fn more(
        &mut self,
        cursor: &mut Cursor,
        wait: Option<Duration>,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<u64> {
        if cursor.id == 0 {
            return Ok(0);
        }
        if cursor.by_opcode {
            let id = self.next_id();
            let count = i32::try_from(cursor.batch).unwrap_or(0);
            let namespace = cursor.collection.to_string();
            self.send(&frond_wire::op_get_more(id, &namespace, count, cursor.id))?;
            self.receive(id)?;
            let (count, id) = documents_of(self.reply()?, each)?;
            cursor.id = id;
            self.take(cursor, count)?;
            return Ok(count);
        }
        let reply = self.ask(&cursor.collection.database, |command| {
            command.push("getMore", cursor.id);
            command.push("collection", cursor.collection.name.as_str());
            if cursor.batch > 0 {
                command.push("batchSize", i64::from(cursor.batch));
            }
            if let Some(wait) = wait {
                command.push(
                    "maxTimeMS",
                    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX),
                );
            }
        })?;
        if let Some(token) = reply
            .get_doc("cursor")
            .and_then(|cursor| cursor.get_doc("postBatchResumeToken"))
            .map(Doc::to_owned)
        {
            let (count, id) = batch_of(reply, "nextBatch", each)?;
            cursor.id = id;
            self.resume_token = Some(token);
            return Ok(count);
        }
        let (count, id) = batch_of(reply, "nextBatch", each)?;
        cursor.id = id;
        Ok(count)
    }

    /// The `postBatchResumeToken` of the last batch of a change stream.
    #[must_use]
    pub fn resume_token(&self) -> Option<&Doc> {
        self.resume_token.as_deref()
    }

    /// Closes a cursor on the server.
    pub fn close(&mut self, cursor: Cursor) -> Result<()> {
        if cursor.id == 0 {
            return Ok(());
        }
        if cursor.by_opcode {
            let id = self.next_id();
            return self.send(&frond_wire::op_kill_cursors(id, &[cursor.id]));
        }
        self.ask(&cursor.collection.database, |command| {
            command.push("killCursors", cursor.collection.name.as_str());
            command.push_array("cursors", |ids| ids.push(cursor.id));
        })?;
        Ok(())
    }

    /// As [`Client::open_find`], by OP_QUERY.
    fn open_query(
        &mut self,
        request: &CursorRequest<'_>,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<Cursor> {
        let mut query = DocBuf::new();
        match request.sort {
            Some(sort) => {
                query.push("$query", request.filter);
                query.push("$orderby", sort);
            }
            None => query.push_all(request.filter),
        }
        let mut flags = Query::SECONDARY_OK | Query::NO_CURSOR_TIMEOUT;
        if request.tailable {
            flags = Query::SECONDARY_OK | Query::TAILABLE | Query::AWAIT_DATA | Query::OPLOG_REPLAY;
        }
        let wanted = match (request.limit, request.batch) {
            (0, batch) => batch,
            (limit, 0) => limit,
            (limit, batch) => limit.min(batch),
        };
        let id = self.next_id();
        let message = frond_wire::op_query(
            id,
            &Query {
                flags,
                namespace: &request.collection.to_string(),
                skip: 0,
                // 1 is one document and no cursor.
                count: i32::try_from(wanted).unwrap_or(0),
                query: query.as_bytes(),
                projection: request.projection.map(Doc::as_bytes),
            },
        );
        self.send(&message)?;
        self.receive(id)?;
        let (count, id) = documents_of(self.reply()?, each)?;
        let mut cursor = Cursor {
            id,
            collection: request.collection.clone(),
            by_opcode: true,
            batch: request.batch,
            left: (request.limit > 0).then_some(u64::from(request.limit)),
        };
        self.take(&mut cursor, count)?;
        Ok(cursor)
    }

    /// Counts documents of a cursor of opcodes, which knows no limit, and closes it at its limit.
    fn take(&mut self, cursor: &mut Cursor, count: u64) -> Result<()> {
        let Some(left) = &mut cursor.left else {
            return Ok(());
        };
        *left = left.saturating_sub(count);
        if *left == 0 && cursor.id != 0 {
            let id = self.next_id();
            self.send(&frond_wire::op_kill_cursors(id, &[cursor.id]))?;
            cursor.id = 0;
        }
        Ok(())
    }

    /// Speaks from here on as to the oldest servers, by opcodes alone: for servers that announce more than they know.
    pub fn assume_oldest(&mut self) {
        self.limits.wire_version = 0;
        self.limits.batch_documents = self.limits.batch_documents.min(1000);
    }

    /// Fails if a reply is not ok. For replies of commands that were sent by other means.
    pub fn check(reply: &Doc, command: &str) -> Result<()> {
        check::ok(reply, command)
    }
}
