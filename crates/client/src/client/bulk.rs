//! Writes of many documents at once, whose single failures the caller looks at.

use frond_bson::{Doc, DocBuf, doc};
use frond_wire::{Flags, Insert, MsgBuilder};

use super::request::validate;
use super::write::WIRE_VERSION_WRITE_COMMANDS;
use super::{Client, WIRE_VERSION_MSG, check, command_query};
use crate::collection::Collection;
use crate::error::Result;
use frond_wire::Reply;

/// A statement of a bulk write that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// Its place in the list.
    pub index: usize,
    pub code: i32,
    pub message: String,
}

/// Options of a bulk write.
#[derive(Clone, Copy, Debug, Default)]
pub struct BulkOptions {
    /// Stop at the first failure.
    pub ordered: bool,
    /// Skip the validator of the collection.
    pub bypass_validation: bool,
    /// Wait until it is in the journal.
    pub journal: bool,
}

impl Client {
    /// Writes statements by `insert`, `update` or `delete`; `list` is the name of the command's list. The statements
    /// are whole documents one after another. The caller keeps within the server's [`super::Limits`]. Returns what
    /// failed.
    pub fn bulk(
        &mut self,
        collection: &Collection,
        command: &'static str,
        list: &'static str,
        statements: &[u8],
        options: BulkOptions,
    ) -> Result<Vec<WriteFailure>> {
        if command == "insert" && self.limits.wire_version < WIRE_VERSION_WRITE_COMMANDS {
            return self.insert_by_opcode(collection, statements, options);
        }
        let mut body = DocBuf::new();
        body.push(command, collection.name.as_str());
        let old = self.limits.wire_version < WIRE_VERSION_MSG;
        if old {
            body.reserve(statements.len() * 17 / 16);
            body.push_array(list, |array| {
                for statement in Documents(statements) {
                    array.push(Doc::from_trusted(statement));
                }
            });
        }
        body.push("ordered", options.ordered);
        if options.bypass_validation && self.limits.wire_version >= WIRE_VERSION_BYPASS {
            body.push("bypassDocumentValidation", true);
        }
        body.push_doc("writeConcern", |concern| {
            concern.push("w", 1);
            if options.journal {
                concern.push("j", true);
            }
        });
        let id = self.next_id();
        let message = if old {
            command_query(id, &collection.database, &body)
        } else {
            body.push("$db", collection.database.as_str());
            let mut message = Vec::with_capacity(statements.len() + 512);
            MsgBuilder::new(&mut message, id, 0, Flags::NONE)
                .body(body.as_bytes())
                .sequence(list, [statements])
                .finish();
            message
        };
        self.send(&message)?;
        self.receive(id)?;
        let (_, reply) = Reply::parse(self.reply()?)?;
        let reply = validate(reply.first_document().unwrap_or_default())?;
        check::ok(reply, command)?;
        check::concern(reply, command)?;
        Ok(failures(reply))
    }

    /// Inserts by OP_INSERT, and asks after each failure for the next ones.
    fn insert_by_opcode(
        &mut self,
        collection: &Collection,
        statements: &[u8],
        options: BulkOptions,
    ) -> Result<Vec<WriteFailure>> {
        let mut failed = Vec::new();
        let documents: Vec<&[u8]> = Documents(statements).collect();
        let insert = |client: &mut Client, part: &[&[u8]]| -> Result<Option<(i32, String)>> {
            let namespace = collection.to_string();
            let id = client.next_id();
            let mut message = frond_wire::op_insert(id, 0, &namespace, part.iter().copied());
            let id = client.next_id();
            let mut question = doc! { "getlasterror": 1, "w": 1 };
            if options.journal {
                question.push("j", true);
            }
            message.extend_from_slice(&command_query(id, &collection.database, &question));
            client.send(&message)?;
            client.receive(id)?;
            let (_, reply) = Reply::parse(client.reply()?)?;
            let reply = validate(reply.first_document().unwrap_or_default())?;
            check::ok(reply, "getlasterror")?;
            Ok(reply
                .get_str("err")
                .map(|text| (reply.get_i32("code").unwrap_or(0), text.to_owned())))
        };
        debug_assert_eq!(Insert::CONTINUE_ON_ERROR, 1);
        if insert(self, &documents)?.is_none() {
            return Ok(failed);
        }
        // The answer does not say which one failed, and what was before it is stored.
        for (index, document) in documents.iter().enumerate() {
            if let Some((code, message)) = insert(self, &[document])? {
                failed.push(WriteFailure {
                    index,
                    code,
                    message,
                });
                if options.ordered {
                    break;
                }
            }
        }
        Ok(failed)
    }
}

/// A server below this wire version does not know `bypassDocumentValidation`.
const WIRE_VERSION_BYPASS: i32 = 4;

/// Documents one after another.
struct Documents<'a>(&'a [u8]);

impl<'a> Iterator for Documents<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let len = self.0.first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (first, rest) = self.0.split_at_checked(len.max(5))?;
        self.0 = rest;
        Some(first)
    }
}

/// The failures that the reply of a write lists.
fn failures(reply: &Doc) -> Vec<WriteFailure> {
    let Some(errors) = reply.get_array("writeErrors") else {
        return Vec::new();
    };
    errors
        .values()
        .filter_map(|error| {
            let error = error.as_doc()?;
            Some(WriteFailure {
                index: usize::try_from(error.get_i64("index")?).ok()?,
                code: error.get_i32("code").unwrap_or(0),
                message: error.get_str("errmsg").unwrap_or("no message").to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_their_statements() {
        let reply = doc! { "ok": 1.0, "writeErrors": [
            { "index": 2, "code": 11000, "errmsg": "E11000" }, { "index": 5, "errmsg": "no" },
        ] };
        let found = failures(&reply);
        assert_eq!(
            found.iter().map(|f| (f.index, f.code)).collect::<Vec<_>>(),
            [(2, 11000), (5, 0)]
        );
        assert!(failures(&doc! { "ok": 1.0 }).is_empty());
    }

    #[test]
    fn documents_one_after_another() {
        let mut bytes = doc! { "a": 1 }.as_bytes().to_vec();
        bytes.extend_from_slice(doc! {}.as_bytes());
        assert_eq!(
            Documents(&bytes).map(<[u8]>::len).collect::<Vec<_>>(),
            [12, 5]
        );
        assert_eq!(Documents(&bytes[..3]).count(), 0);
    }
}
