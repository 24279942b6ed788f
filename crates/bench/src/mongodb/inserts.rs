//! Inserts over the wire.

use super::Connection;
use crate::system::{Batch, Inserts, WriteConcern};
use frond_client::{Collection, Error, Result, WriteTarget};

pub struct Inserting {
    target: WriteTarget,
    message: Vec<u8>,
    ready: Option<Request>,
    sent: Option<Request>,
}

#[derive(Clone, Copy)]
struct Request {
    id: i32,
    documents: usize,
}

impl Inserts for Connection {
    fn insert_into(&mut self, collection: &Collection, concern: WriteConcern) -> Result<()> {
        self.inserts = Some(Inserting {
            target: self.client.write_target(collection, concern),
            message: Vec::new(),
            ready: None,
            sent: None,
        });
        Ok(())
    }

    fn prepare(&mut self, batch: Batch<'_>) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        let id = self.client.build_insert(
            &inserting.target,
            batch.bytes,
            batch.each,
            &mut inserting.message,
        )?;
        inserting.ready = Some(Request {
            id,
            documents: batch.len(),
        });
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        inserting.sent = Some(inserting.ready.take().ok_or_else(out_of_order)?);
        self.client.send(&inserting.message)
    }

    fn finish(&mut self) -> Result<()> {
        let inserting = self.inserts.as_mut().ok_or_else(out_of_order)?;
        let sent = inserting.sent.take().ok_or_else(out_of_order)?;
        self.client
            .insert_reply(&inserting.target, sent.id, sent.documents)
    }
}

fn out_of_order() -> Error {
    Error::Settings("inserts were asked for out of their order".to_owned())
}
