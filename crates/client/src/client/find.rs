//! Finding one document.

use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_wire::{Query, Reply};

use super::request::WIRE_VERSION_FIND;
use super::{Client, check};
use crate::collection::Collection;
use crate::error::{Error, Result};

impl Client {
    /// Finds the document with this `_id`: the whole of it, or `_id` and one field. `None` if there
    /// is none. The time is that from the first byte sent to the last one received.
    pub fn find_by_id(
        &mut self,
        collection: &Collection,
        id: [u8; 12],
        field: Option<&str>,
    ) -> Result<(Option<DocBuf>, Duration)> {
        let filter = doc! { "_id": Value::ObjectId(ObjectId(id)) };
        let projection = field.map(|field| {
            let mut projection = DocBuf::new();
            projection.push(field, 1);
            projection
        });
        if self.limits.wire_version < WIRE_VERSION_FIND {
            return self.query_by_opcode(collection, &filter, projection.as_deref());
        }
        let mut command = doc! { "find": collection.name.as_str(), "filter": &filter };
        if let Some(projection) = &projection {
            command.push("projection", projection);
        }
        command.push("limit", 1);
        command.push("singleBatch", true);
        let (reply, elapsed) = self.timed_command(&collection.database, &command)?;
        Ok((first_of_batch(&reply).map(Doc::to_owned), elapsed))
    }

    fn query_by_opcode(
        &mut self,
        collection: &Collection,
        filter: &Doc,
        projection: Option<&Doc>,
    ) -> Result<(Option<DocBuf>, Duration)> {
        let id = self.next_id();
        let query = Query {
            flags: Query::SECONDARY_OK,
            namespace: &collection.to_string(),
            skip: 0,
            count: -1,
            query: filter.as_bytes(),
            projection: projection.map(Doc::as_bytes),
        };
        let message = frond_wire::op_query(id, &query);
        let start = Instant::now();
        self.send(&message)?;
        self.receive(id)?;
        let elapsed = start.elapsed();
        let (_, reply) = Reply::parse(self.reply()?)?;
        let Some(bytes) = reply.first_document() else {
            return Ok((None, elapsed));
        };
        let document = Doc::validate(bytes).map_err(|error| Error::Protocol(error.to_string()))?;
        if document.contains_key("$err") {
            check::ok(document, "find")?;
        }
        Ok((Some(document.to_owned()), elapsed))
    }
}

/// The first document of a reply to `find`.
pub fn first_of_batch(reply: &Doc) -> Option<&Doc> {
    let batch = reply.get_doc("cursor")?.get_array("firstBatch")?;
    batch.iter().next().and_then(|(_, first)| first.as_doc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_batch_has_no_document() {
        assert_eq!(first_of_batch(&doc! {"cursor": {"firstBatch": []}}), None);
        let found = doc! {"cursor": {"firstBatch": [{"_id": 1}]}};
        assert_eq!(first_of_batch(&found), Some(doc! {"_id": 1}.as_doc()));
        assert_eq!(first_of_batch(&doc! {}), None);
    }
}
