//! Requests encoded into reused buffers, and replies read in place, so that the client costs little.

use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{Flags, MsgBuilder, OpReply, Query, Reply};

use super::write::WIRE_VERSION_WRITE_COMMANDS;
use super::{Client, WIRE_VERSION_MSG, check, command_query, name_of};
use crate::collection::Collection;
use crate::error::{Error, Result};

/// A server below this wire version does not know the command `find`.
pub const WIRE_VERSION_FIND: i32 = 4;

/// A server below this wire version does not know cursors of `aggregate`.
const WIRE_VERSION_AGGREGATION_CURSORS: i32 = 1;

pub type Writer<'a> = &'a dyn Fn(&mut DocBuf);

/// The query and the options of a find.
pub struct Find<'a> {
    pub filter: Writer<'a>,
    /// Which fields of them; all if there is none.
    pub projection: Option<Writer<'a>>,
    pub sort: Option<Writer<'a>>,
    /// Documents at most; 0 is all.
    pub limit: u32,
}

/// Buffers that are kept from one request to the next.
#[derive(Default)]
pub struct Buffers {
    body: DocBuf,
    statement: DocBuf,
    message: Vec<u8>,
}

impl Client {
    /// Whether the server knows the commands `insert`, `update` and `delete`.
    #[must_use]
    pub fn has_write_commands(&self) -> bool {
        self.limits.wire_version >= WIRE_VERSION_WRITE_COMMANDS
    }

    /// Whether the server knows the option `cursor` of `aggregate`, which newer ones demand.
    #[must_use]
    pub fn has_aggregation_cursors(&self) -> bool {
        self.limits.wire_version >= WIRE_VERSION_AGGREGATION_CURSORS
    }

    /// Runs the command that `write` writes, and returns its answer, which is ok.
    pub fn ask(&mut self, database: &str, write: impl FnOnce(&mut DocBuf)) -> Result<&Doc> {
        self.buffers.body.clear();
        write(&mut self.buffers.body);
        self.ask_body(database, None)
    }

    /// Runs a command that writes, with one statement in its list.
    pub fn write_command(
        &mut self,
        collection: &Collection,
        command: &'static str,
        list: &'static str,
        statement: impl FnOnce(&mut DocBuf),
    ) -> Result<&Doc> {
        let buffers = &mut self.buffers;
        buffers.body.clear();
        buffers.body.push(command, collection.name.as_str());
        buffers.body.push("ordered", true);
        buffers
            .body
            .push_doc("writeConcern", |concern| concern.push("w", 1));
        buffers.statement.clear();
        statement(&mut buffers.statement);
        self.ask_body(&collection.database, Some(list))
    }

    /// Sends the body, with the statement in a list of this name if there is one.
    fn ask_body(&mut self, database: &str, list: Option<&'static str>) -> Result<&Doc> {
        let id = self.next_id();
        let Buffers {
            body,
            statement,
            message,
        } = &mut self.buffers;
        let mut message = std::mem::take(message);
        if self.limits.wire_version < WIRE_VERSION_MSG {
            if let Some(list) = list {
                body.push_array(list, |array| array.push(statement.as_doc()));
            }
            message = command_query(id, database, body);
        } else {
            body.push("$db", database);
            message.clear();
            let built = MsgBuilder::new(&mut message, id, 0, Flags::NONE).body(body.as_bytes());
            match list {
                Some(list) => built.sequence(list, [statement.as_bytes()]).finish(),
                None => built.finish(),
            }
        }
        let sent = self.send(&message);
        self.buffers.message = message;
        sent?;
        self.receive(id)?;
        self.answer(name_of(&self.buffers.body))
    }

    /// The document of the last message, if it says that all went well.
    fn answer(&self, command: &str) -> Result<&Doc> {
        let (_, reply) = Reply::parse(self.reply()?)?;
        let bytes = reply
            .first_document()
            .ok_or_else(|| Error::Protocol("a reply without a document".to_owned()))?;
        let document = validate(bytes)?;
        check::ok(document, command)?;
        Ok(document)
    }

    /// Finds documents, all of which are fetched and shown to `each`. Returns how many they were.
    pub fn find(
        &mut self,
        collection: &Collection,
        find: &Find<'_>,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<u64> {
        if self.limits.wire_version < WIRE_VERSION_FIND {
            return self.find_by_opcode(collection, find, each);
        }
        let reply = self.ask(&collection.database, |command| {
            command.push("find", collection.name.as_str());
            command.push_doc("filter", find.filter);
            if let Some(sort) = find.sort {
                command.push_doc("sort", sort);
            }
            if let Some(projection) = find.projection {
                command.push_doc("projection", projection);
            }
            if find.limit > 0 {
                command.push("limit", i64::from(find.limit));
            }
            if find.limit == 1 {
                command.push("singleBatch", true);
            }
        })?;
        let (mut count, mut cursor_id) = batch_of(reply, "firstBatch", each)?;
        while cursor_id != 0 {
            let reply = self.ask(&collection.database, |command| {
                command.push("getMore", cursor_id);
                command.push("collection", collection.name.as_str());
            })?;
            let (more, next) = batch_of(reply, "nextBatch", each)?;
            count += more;
            cursor_id = next;
        }
        Ok(count)
    }

    /// The same by OP_QUERY and OP_GET_MORE.
    fn find_by_opcode(
        &mut self,
        collection: &Collection,
        find: &Find<'_>,
        each: &mut dyn FnMut(&Doc) -> Result<()>,
    ) -> Result<u64> {
        let namespace = collection.to_string();
        let mut query = DocBuf::new();
        match find.sort {
            Some(sort) => {
                query.push_doc("$query", find.filter);
                query.push_doc("$orderby", sort);
            }
            None => (find.filter)(&mut query),
        }
        let projection = find.projection.map(|write| {
            let mut projection = DocBuf::new();
            write(&mut projection);
            projection
        });
        let limit = u64::from(find.limit);
        let id = self.next_id();
        let message = frond_wire::op_query(
            id,
            &Query {
                flags: Query::SECONDARY_OK,
                namespace: &namespace,
                skip: 0,
                // 1 is one document and no cursor.
                count: i32::try_from(find.limit).unwrap_or(0),
                query: query.as_bytes(),
                projection: projection.as_ref().map(|projection| projection.as_bytes()),
            },
        );
        self.send(&message)?;
        self.receive(id)?;
        let (mut count, mut cursor_id) = documents_of(self.reply()?, each)?;
        while cursor_id != 0 && (limit == 0 || count < limit) {
            let id = self.next_id();
            let wanted = i32::try_from(limit.saturating_sub(count)).unwrap_or(0);
            // One document would be one and no cursor, which is fine: it is the last one.
            let message = frond_wire::op_get_more(id, &namespace, wanted, cursor_id);
            self.send(&message)?;
            self.receive(id)?;
            let (more, next) = documents_of(self.reply()?, each)?;
            count += more;
            cursor_id = next;
        }
        if cursor_id != 0 {
            let id = self.next_id();
            self.send(&frond_wire::op_kill_cursors(id, &[cursor_id]))?;
        }
        Ok(count)
    }

    /// Sends a legacy write, given its request id and the namespace, and asks for its result by
    /// `getLastError`.
    pub fn write_by_opcode(
        &mut self,
        collection: &Collection,
        write: impl FnOnce(i32, &str) -> Vec<u8>,
    ) -> Result<&Doc> {
        let mut message = write(self.next_id(), &collection.to_string());
        let id = self.next_id();
        let question = doc! { "getlasterror": 1, "w": 1 };
        message.extend_from_slice(&command_query(id, &collection.database, &question));
        self.send(&message)?;
        self.receive(id)?;
        self.answer("getlasterror")
    }
}

pub(super) fn validate(bytes: &[u8]) -> Result<&Doc> {
    Doc::validate(bytes).map_err(|error| Error::Protocol(error.to_string()))
}

/// The documents of one batch of a cursor: how many, and the cursor with the rest or 0.
pub(super) fn batch_of(
    reply: &Doc,
    name: &str,
    each: &mut dyn FnMut(&Doc) -> Result<()>,
) -> Result<(u64, i64)> {
    let cursor = reply.get_doc("cursor");
    let batch = cursor.and_then(|cursor| Some((cursor.get_array(name)?, cursor.get_i64("id")?)));
    let (batch, id) =
        batch.ok_or_else(|| Error::Protocol(format!("an answer without cursor.{name}")))?;
    let mut count = 0;
    for value in batch.values() {
        let document = value.as_doc().ok_or_else(|| {
            Error::Protocol("a batch with something else than documents".to_owned())
        })?;
        each(document)?;
        count += 1;
    }
    Ok((count, id))
}

/// The same for an OP_REPLY.
pub(super) fn documents_of(
    message: &[u8],
    each: &mut dyn FnMut(&Doc) -> Result<()>,
) -> Result<(u64, i64)> {
    let (_, Reply::Reply(reply)) = Reply::parse(message)? else {
        return Err(Error::Protocol(
            "OP_QUERY was not answered by OP_REPLY".to_owned(),
        ));
    };
    if reply.flags & OpReply::CURSOR_NOT_FOUND != 0 {
        return Err(Error::Protocol("the server has lost the cursor".to_owned()));
    }
    let mut count = 0;
    for bytes in reply.documents {
        let document = validate(bytes)?;
        if reply.flags & OpReply::QUERY_FAILURE != 0 || document.contains_key("$err") {
            check::ok(document, "find")?;
        }
        each(document)?;
        count += 1;
    }
    Ok((count, reply.cursor_id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_batch_is_counted_and_its_cursor_is_known() {
        let mut seen = Vec::new();
        let reply = doc! { "cursor": { "id": 7_i64, "firstBatch": [{ "a": 1 }, { "a": 2 }] } };
        let found = batch_of(&reply, "firstBatch", &mut |document| {
            seen.push(document.get_i32("a").unwrap());
            Ok(())
        });
        assert_eq!(found.unwrap(), (2, 7));
        assert_eq!(seen, [1, 2]);
        for reply in [
            doc! {},
            doc! { "cursor": { "firstBatch": [] } },
            doc! { "cursor": { "id": 0_i64, "nextBatch": [] } },
            doc! { "cursor": { "id": 0_i64, "firstBatch": [1] } },
        ] {
            assert!(batch_of(&reply, "firstBatch", &mut |_| Ok(())).is_err());
        }
    }

    #[test]
    fn an_old_answer_may_be_an_error() {
        let two = [doc! { "a": 1 }, doc! { "a": 2 }];
        let reply = |flags: i32, cursor: i64, documents: &[DocBuf]| {
            let documents: Vec<&[u8]> = documents.iter().map(|d| d.as_bytes()).collect();
            frond_wire::op_reply(1, 2, flags as u32, cursor, 0, documents)
        };
        let read = |message: &[u8]| documents_of(message, &mut |_| Ok(()));
        assert_eq!(read(&reply(0, 5, &two)).unwrap(), (2, 5));
        let failure = [doc! { "$err": "unauthorized", "code": 13 }];
        for message in [
            reply(2, 0, &failure),
            reply(0, 0, &failure),
            reply(1, 0, &[]),
        ] {
            assert!(read(&message).is_err());
        }
    }
}
