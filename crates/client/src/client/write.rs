//! Writes: messages for servers of every version, and write concerns.

use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{Flags, MsgBuilder, Update};

use super::{Client, WIRE_VERSION_MSG, check, command_query};
use crate::collection::Collection;
use crate::error::Result;
use crate::write_concern::WriteConcern;

/// A server below this wire version does not know write commands.
pub const WIRE_VERSION_WRITE_COMMANDS: i32 = 2;

/// The messages that carry writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// A command in an OP_MSG.
    Message,
    /// A command in an OP_QUERY.
    QueryCommand,
    /// OP_INSERT and OP_UPDATE, followed by `getLastError` when acknowledged.
    Opcode,
}

impl Dialect {
    /// The newest dialect that the server knows.
    #[must_use]
    pub fn choose(wire_version: i32, acknowledged: bool) -> Dialect {
        if wire_version >= WIRE_VERSION_MSG {
            Dialect::Message
        } else if wire_version >= WIRE_VERSION_WRITE_COMMANDS && acknowledged {
            Dialect::QueryCommand
        } else {
            Dialect::Opcode
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Message => "OP_MSG",
            Dialect::QueryCommand => "OP_QUERY command",
            Dialect::Opcode => "legacy opcodes",
        }
    }
}

/// The collection and write concern of writes.
#[derive(Clone, Debug)]
pub struct WriteTarget {
    collection: Collection,
    concern: WriteConcern,
    dialect: Dialect,
    /// The bodies of the commands in an OP_MSG, made once.
    insert: DocBuf,
    update: DocBuf,
}

impl WriteTarget {
    fn flags(&self) -> Flags {
        if self.concern.acknowledged {
            Flags::NONE
        } else {
            Flags::MORE_TO_COME
        }
    }
}

impl Client {
    /// Prepares for writes to one collection.
    #[must_use]
    pub fn write_target(&self, collection: &Collection, concern: WriteConcern) -> WriteTarget {
        let body = |command: &str| {
            let mut body = DocBuf::new();
            body.push(command, collection.name.as_str());
            body.push("ordered", true);
            body.push("writeConcern", &concern.to_document());
            body.push("$db", collection.database.as_str());
            body
        };
        WriteTarget {
            collection: collection.clone(),
            concern,
            dialect: Dialect::choose(self.limits.wire_version, concern.acknowledged),
            insert: body("insert"),
            update: body("update"),
        }
    }

    /// Builds the message that inserts `documents`, BSON documents of `each` bytes one after
    /// another, into `out`. Returns the number of the request that will be answered.
    pub fn build_insert(
        &mut self,
        target: &WriteTarget,
        documents: &[u8],
        each: usize,
        out: &mut Vec<u8>,
    ) -> Result<i32> {
        out.clear();
        let id = self.next_id();
        match target.dialect {
            Dialect::Message => {
                // The documents are one run of bytes already; the sequence takes it as it is.
                MsgBuilder::new(out, id, 0, target.flags())
                    .body(target.insert.as_bytes())
                    .sequence("documents", [documents])
                    .finish();
                Ok(id)
            }
            Dialect::QueryCommand => {
                let mut body = DocBuf::with_capacity(documents.len() * 17 / 16 + 256);
                body.push("insert", target.collection.name.as_str());
                body.push_array("documents", |array| {
                    for document in documents.chunks_exact(each) {
                        array.push(Doc::from_trusted(document));
                    }
                });
                body.push("ordered", true);
                body.push("writeConcern", &target.concern.to_document());
                out.extend_from_slice(&command_query(id, &target.collection.database, &body));
                Ok(id)
            }
            Dialect::Opcode => {
                let namespace = target.collection.to_string();
                let documents = documents.chunks_exact(each);
                out.extend_from_slice(&frond_wire::op_insert(id, 0, &namespace, documents));
                if !target.concern.acknowledged {
                    return Ok(id);
                }
                Ok(self.ask_for_last_error(target, out))
            }
        }
    }

    /// Appends the message that updates the first document that `filter` finds to `out`, in the form
    /// in which [`Client::send_built`] sends it. Returns the number of the request that will be
    /// answered.
    pub fn build_update(
        &mut self,
        target: &WriteTarget,
        filter: &Doc,
        update: &Doc,
        out: &mut Vec<u8>,
    ) -> Result<i32> {
        let id = self.next_id();
        let mut message = Vec::with_capacity(filter.len_bytes() + update.len_bytes() + 256);
        let mut statement = DocBuf::with_capacity(filter.len_bytes() + update.len_bytes() + 16);
        statement.push("q", filter);
        statement.push("u", update);
        match target.dialect {
            Dialect::Message => MsgBuilder::new(&mut message, id, 0, target.flags())
                .body(target.update.as_bytes())
                .sequence("updates", [statement.as_bytes()])
                .finish(),
            Dialect::QueryCommand => {
                let mut body = DocBuf::new();
                body.push("update", target.collection.name.as_str());
                body.push_array("updates", |array| array.push(statement.as_doc()));
                body.push("ordered", true);
                body.push("writeConcern", &target.concern.to_document());
                message = command_query(id, &target.collection.database, &body);
            }
            Dialect::Opcode => {
                let namespace = target.collection.to_string();
                let update = Update {
                    namespace: &namespace,
                    flags: 0,
                    filter: filter.as_bytes(),
                    update: update.as_bytes(),
                };
                out.extend_from_slice(&frond_wire::op_update(id, &update));
                if target.concern.acknowledged {
                    return Ok(self.ask_for_last_error(target, out));
                }
                return Ok(id);
            }
        }
        match self.compressor {
            Some(compressor) => {
                out.extend_from_slice(&frond_wire::compress(&message, compressor)?);
            }
            None => out.extend_from_slice(&message),
        }
        Ok(id)
    }

    /// Appends the question of servers that did not answer to writes by themselves.
    fn ask_for_last_error(&mut self, target: &WriteTarget, out: &mut Vec<u8>) -> i32 {
        let mut question = doc! { "getlasterror": 1, "w": 1 };
        if target.concern.journal {
            question.push("j", true);
        }
        let id = self.next_id();
        out.extend_from_slice(&command_query(id, &target.collection.database, &question));
        id
    }

    /// Sends bytes as they are, which holds for those of [`Client::build_update`].
    pub fn send_built(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.send(bytes)
    }

    /// Takes the answer to an update, if there is one. Anything but one document changed is an error.
    pub fn update_reply(&mut self, target: &WriteTarget, id: i32) -> Result<()> {
        if !target.concern.acknowledged {
            return Ok(());
        }
        if target.dialect == Dialect::Opcode {
            return check::last_update(&self.command_reply(id, "getlasterror")?);
        }
        check::update(&self.command_reply(id, "update")?)
    }

    /// Takes the answer to an insert of `documents` documents. Anything but all of them inserted
    /// is an error.
    pub fn insert_reply(&mut self, target: &WriteTarget, id: i32, documents: usize) -> Result<()> {
        if !target.concern.acknowledged {
            return Ok(());
        }
        if target.dialect == Dialect::Opcode {
            let reply = self.command_reply(id, "getlasterror")?;
            return check::last_error(&reply, "OP_INSERT");
        }
        let reply = self.command_reply(id, "insert")?;
        check::insert(&reply, documents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialect_by_wire_version() {
        for (version, acknowledged, dialect) in [
            (0, true, Dialect::Opcode),
            (1, false, Dialect::Opcode),
            (2, true, Dialect::QueryCommand),
            (2, false, Dialect::Opcode),
            (5, true, Dialect::QueryCommand),
            (6, true, Dialect::Message),
            (21, false, Dialect::Message),
        ] {
            assert_eq!(Dialect::choose(version, acknowledged), dialect, "{version}");
        }
    }
}
