//! Updates of documents with very many keys, over the wire.

use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_client::{Collection, Result, WriteTarget};

use super::Connection;
use crate::documents::manykeys::Documents;
use crate::documents::updates::Update;
use crate::system::{KeyUpdates, Setup, WriteConcern};

/// The messages of a round, ready to send.
#[derive(Default)]
pub struct EncodedUpdates {
    target: Option<WriteTarget>,
    bytes: Vec<u8>,
    /// Where each message ends, and the request that is answered.
    messages: Vec<(usize, i32)>,
}

impl KeyUpdates for Connection {
    fn encode(
        &mut self,
        collection: &Collection,
        concern: WriteConcern,
        documents: &Documents,
        updates: &mut dyn Iterator<Item = &Update>,
    ) -> Result<()> {
        let target = self.client.write_target(collection, concern);
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.bytes.clear();
        encoded.messages.clear();
        for update in updates {
            let (filter, change) = (update.filter(documents), update.change(documents));
            let id = self
                .client
                .build_update(&target, &filter, &change, &mut encoded.bytes)?;
            encoded.messages.push((encoded.bytes.len(), id));
        }
        encoded.target = Some(target);
        self.encoded = encoded;
        Ok(())
    }

    fn execute(&mut self, done: &mut dyn FnMut(Duration) -> bool) -> Result<()> {
        let mut from = 0;
        if let Some(target) = &self.encoded.target {
            for (to, id) in &self.encoded.messages {
                let start = Instant::now();
                self.client
                    .send_built(self.encoded.bytes.get(from..*to).unwrap_or_default())?;
                self.client.update_reply(target, *id)?;
                if !done(start.elapsed()) {
                    break;
                }
                from = *to;
            }
        }
        self.drain()
    }

    fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)> {
        self.client.find_by_id(collection, id, field)
    }
}
