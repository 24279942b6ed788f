//! Batches by COPY in its binary format, single documents by INSERT.

use bytes::{BufMut, BytesMut};
use frond_bench::system::{Batch, Inserts, WriteConcern};
use frond_bench::{Collection, Error, Result};
use frond_bson::{Doc, Value};
use tokio_postgres::Statement;

use super::{Connection, opened};
use crate::client::Param;
use crate::json;
use crate::table::Table;

/// What the binary format of COPY begins with: a signature, no flags, no extension.
const COPY_HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Columns of a row, and the mark after the last one.
const COLUMNS: i16 = 2;
const COPY_END: i16 = -1;

/// Inserts under way.
pub struct Inserting {
    copy: Statement,
    acknowledged: bool,
    rows: Rows,
    /// Documents in what was sent last.
    sent: u64,
}

impl Inserts for Connection {
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()> {
        if concern.majority {
            return Err(Error::Settings(
                "--majority is for replica sets of MongoDB and Frond".to_owned(),
            ));
        }
        self.set_journal(concern)?;
        let table = Table::of(collection).full();
        let copy = format!("COPY {table} (id, doc) FROM STDIN (FORMAT binary)");
        self.inserts = Some(Inserting {
            copy: self.client()?.prepare(&copy)?,
            acknowledged: concern.acknowledged,
            rows: Rows::default(),
            sent: 0,
        });
        Ok(())
    }

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        inserting.rows.encode(batch)
    }

    fn send(&mut self) -> Result<()> {
        let client = opened(&mut self.own, &self.uri, &self.stop)?;
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        inserting.sent = inserting.rows.count;
        client.copy(&inserting.copy, inserting.rows.bytes.split().freeze())
    }

    fn finish(&mut self) -> Result<()> {
        let client = opened(&mut self.own, &self.uri, &self.stop)?;
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        if !inserting.acknowledged {
            return Ok(());
        }
        let rows = client.finish()?;
        if rows != inserting.sent {
            let sent = inserting.sent;
            return Err(Error::Wrong(format!("{rows} of {sent} rows were inserted")));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Rows {
    bytes: BytesMut,
    text: Vec<u8>,
    count: u64,
}

impl Rows {
    fn encode(&mut self, batch: Batch<'_>) -> Result<()> {
        self.bytes.clear();
        self.count = batch.len() as u64;
        self.bytes.put_slice(COPY_HEADER);
        for doc in batch.documents() {
            self.text.clear();
            json::append(doc, &mut self.text)?;
            let values = [id_param(doc)?, Param::Jsonb(self.text.as_slice().into())];
            self.bytes.put_i16(COLUMNS);
            for value in values {
                self.bytes.put_i32(value.len() as i32);
                value.write(&mut self.bytes);
            }
        }
        self.bytes.put_i16(COPY_END);
        Ok(())
    }
}

/// The `_id` of a document as the value of its column.
pub fn id_param(doc: &Doc) -> Result<Param<'static>> {
    match doc.get("_id") {
        Some(Value::ObjectId(id)) => Ok(Param::Bytes(id.bytes().to_vec().into())),
        Some(Value::Int32(id)) => Ok(Param::Int4(id)),
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
    use super::*;
    use frond_bson::doc;

    #[test]
    fn a_batch_is_one_copy_with_a_row_for_each_document() {
        let mut rows = Rows::default();
        let document = doc! { "_id": 7_i32, "a": "b" };
        let bytes = [document.as_bytes(), document.as_bytes()].concat();
        let each = document.as_bytes().len();
        rows.encode(Batch {
            bytes: &bytes,
            each,
        })
        .unwrap();
        assert_eq!(rows.count, 2);
        let row = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x0a\x01{\"a\":\"b\"}";
        let expected = [&COPY_HEADER[..], row, row, b"\xff\xff"];
        assert_eq!(rows.bytes, expected.concat());
        let document = doc! { "_id": "text" };
        let bytes = document.as_bytes();
        let each = bytes.len();
        assert!(rows.encode(Batch { bytes, each }).is_err());
    }
}
