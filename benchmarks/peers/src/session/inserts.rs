//! Batches by COPY in its binary format, single documents by INSERT.

use frond_bench::system::{Batch, Inserts, WriteConcern};
use frond_bench::{Collection, Error, Result};
use frond_bson::{Doc, Value};

use super::{Connection, opened};
use crate::client::{Frames, Param};
use crate::json;
use crate::table::Table;

/// What the binary format of COPY begins with: a signature, no flags, no extension.
const COPY_HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Columns of a row, and the mark after the last one.
const COLUMNS: i16 = 2;
const COPY_END: i16 = -1;

/// A message of data is closed when it has grown to this; rows may lie across messages, but need not.
const DATA_BYTES: usize = 64 << 10;

/// Batches that may be unanswered when nobody waits for answers.
const UNANSWERED_MAX: usize = 8;

/// Inserts under way.
pub struct Inserting {
    /// Tells the server that rows follow.
    copy: String,
    acknowledged: bool,
    bytes: Vec<u8>,
    text: Vec<u8>,
    /// Documents in `bytes`, and in what was sent last.
    ready: u64,
    sent: u64,
}

impl Inserts for Connection {
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()> {
        self.set_journal(concern)?;
        let table = Table::of(collection).full();
        self.inserts = Some(Inserting {
            copy: format!("COPY {table} (id, doc) FROM STDIN (FORMAT binary)"),
            acknowledged: concern.acknowledged,
            bytes: Vec::new(),
            text: Vec::new(),
            ready: 0,
            sent: 0,
        });
        Ok(())
    }

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()> {
        self.inserts
            .as_mut()
            .ok_or_else(out_of_order)?
            .prepare(batch)
    }

    fn send(&mut self) -> Result<()> {
        let client = opened(&mut self.own, &self.uri, &self.stop)?;
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        if !inserting.acknowledged {
            while client.expected() >= UNANSWERED_MAX {
                client.finish(|_| Ok(()))?;
            }
        }
        inserting.sent = inserting.ready;
        client.send_encoded("COPY", &inserting.bytes)
    }

    fn finish(&mut self) -> Result<()> {
        let client = opened(&mut self.own, &self.uri, &self.stop)?;
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        if !inserting.acknowledged {
            return Ok(());
        }
        let rows = client.finish(|_| Ok(()))?;
        if rows != inserting.sent {
            let sent = inserting.sent;
            return Err(Error::Wrong(format!("{rows} of {sent} rows were inserted")));
        }
        Ok(())
    }
}

impl Inserting {
    /// One message after another: the statement, rows, the end. The server would answer the first
    /// before it takes the second, but it need not be waited for.
    fn prepare(&mut self, batch: Batch<'_>) -> Result<()> {
        self.bytes.clear();
        self.ready = batch.len() as u64;
        let mut frames = Frames(&mut self.bytes);
        frames.query(&self.copy);
        let mut at = frames.open(b'd');
        frames.0.extend_from_slice(COPY_HEADER);
        for doc in batch.documents() {
            let mut frames = Frames(&mut self.bytes);
            if frames.0.len() - at > DATA_BYTES {
                frames.close(at);
                at = frames.open(b'd');
            }
            frames.int16(COLUMNS);
            id_param(doc, |id| frames.param(&id))?;
            self.text.clear();
            json::append(doc, &mut self.text)?;
            frames.param(&Param::Jsonb(&self.text));
        }
        let mut frames = Frames(&mut self.bytes);
        frames.int16(COPY_END);
        frames.close(at);
        let at = frames.open(b'c');
        frames.close(at);
        Ok(())
    }
}

/// The `_id` of a document as the value of its column.
pub fn id_param<R>(doc: &Doc, with: impl FnOnce(Param<'_>) -> R) -> Result<R> {
    match doc.get("_id") {
        Some(Value::ObjectId(id)) => Ok(with(Param::Bytes(&id.bytes()))),
        Some(Value::Int32(id)) => Ok(with(Param::Int4(id))),
        other => Err(Error::Settings(format!(
            "an _id of {other:?} has no column: it must be an ObjectId or a 32-bit integer"
        ))),
    }
}

fn out_of_order() -> Error {
    Error::Settings("inserts were asked for out of their order".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    #[test]
    fn a_batch_is_one_copy_with_a_row_for_each_document() {
        let mut inserting = Inserting {
            copy: "COPY t".to_owned(),
            acknowledged: true,
            bytes: Vec::new(),
            text: Vec::new(),
            ready: 0,
            sent: 0,
        };
        let document = doc! { "_id": 7_i32, "a": "b" };
        let bytes = [document.as_bytes(), document.as_bytes()].concat();
        let each = document.as_bytes().len();
        inserting
            .prepare(Batch {
                bytes: &bytes,
                each,
            })
            .unwrap();
        assert_eq!(inserting.ready, 2);
        let row = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x0a\x01{\"a\":\"b\"}";
        let expected = [
            &b"Q\0\0\0\x0bCOPY t\0d\0\0\0\x49"[..],
            COPY_HEADER,
            row,
            row,
            b"\xff\xffc\0\0\0\x04",
        ];
        assert_eq!(inserting.bytes, expected.concat());
        let document = doc! { "_id": "text" };
        let bytes = document.as_bytes();
        let each = bytes.len();
        assert!(inserting.prepare(Batch { bytes, each }).is_err());
    }
}
