//! Collections on the server: drop, count, create indexes.

use frond_bson::{Doc, DocBuf, doc};

use super::{Client, Dialect};
use crate::collection::Collection;
use crate::error::{Error, Result};
use crate::write_concern::WriteConcern;

/// MongoDB's code for a collection that does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;

impl Client {
    /// Drops a collection if it exists.
    pub fn drop_collection(&mut self, collection: &Collection) -> Result<()> {
        let command = doc! { "drop": collection.name.as_str() };
        match self.command(&collection.database, &command) {
            Err(Error::Server { code, message, .. })
                if code == NAMESPACE_NOT_FOUND || message == "ns not found" =>
            {
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Counts the documents of a collection. Old servers report an error for a collection that does
    /// not exist.
    pub fn count(&mut self, collection: &Collection) -> Result<u64> {
        let command = doc! { "count": collection.name.as_str() };
        match self.command(&collection.database, &command) {
            Ok(reply) => super::check::count(&reply, "count"),
            Err(Error::Server { code, message, .. })
                if code == NAMESPACE_NOT_FOUND || message == "ns missing" =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates an ascending index for each list of fields, all with the same options.
    pub fn create_indexes(
        &mut self,
        collection: &Collection,
        indexes: &[&[&str]],
        options: &Doc,
    ) -> Result<()> {
        if indexes.is_empty() {
            return Ok(());
        }
        if Dialect::choose(self.limits().wire_version, true) == Dialect::Opcode {
            // Before the command existed, inserting a description created the index.
            let descriptions = Collection {
                database: collection.database.clone(),
                name: "system.indexes".to_owned(),
            };
            let target = self.write_target(&descriptions, WriteConcern::ACKNOWLEDGED);
            for fields in indexes {
                let mut index = index_on(fields, options);
                index.push("ns", collection.to_string().as_str());
                let mut message = Vec::new();
                let bytes = index.as_bytes();
                let id = self.build_insert(&target, bytes, bytes.len(), &mut message)?;
                self.send(&message)?;
                self.insert_reply(&target, id, 1)?;
            }
            return Ok(());
        }
        let mut command = doc! { "createIndexes": collection.name.as_str() };
        command.push_array("indexes", |array| {
            for fields in indexes {
                array.push(&index_on(fields, options));
            }
        });
        self.command(&collection.database, &command)?;
        Ok(())
    }

    /// Refuses batches that this server would refuse.
    pub fn check_batch(&self, acknowledged: bool, batch: u32, document_bytes: usize) -> Result<()> {
        let limits = self.limits();
        let batch = batch as usize;
        if batch > limits.batch_documents {
            return Err(Error::Settings(format!(
                "--batch {batch} is more than the {} documents that this server takes at once",
                limits.batch_documents
            )));
        }
        if document_bytes > limits.document_bytes {
            return Err(Error::Settings(format!(
                "documents of {document_bytes} bytes are larger than the {} that this server takes",
                limits.document_bytes
            )));
        }
        // An element of an array costs up to ten bytes more than the document.
        let bytes = batch * (document_bytes + 10) + 1024;
        let most = match Dialect::choose(limits.wire_version, acknowledged) {
            Dialect::QueryCommand => limits.document_bytes,
            Dialect::Message | Dialect::Opcode => limits.message_bytes,
        };
        if bytes > most {
            return Err(Error::Settings(format!(
                "--batch {batch} makes messages of {bytes} bytes; this server takes {most}"
            )));
        }
        Ok(())
    }
}

/// The description of an ascending index.
fn index_on(fields: &[&str], options: &Doc) -> DocBuf {
    let mut index = DocBuf::new();
    index.push_doc("key", |key| {
        for field in fields {
            key.push(field, 1);
        }
    });
    let name: Vec<String> = fields.iter().map(|field| format!("{field}_1")).collect();
    index.push("name", name.join("_").as_str());
    index.push_all(options);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_named_after_its_fields() {
        for (fields, expected) in [
            (&["URI"][..], doc! { "key": { "URI": 1 }, "name": "URI_1" }),
            (
                &["a", "b"][..],
                doc! { "key": { "a": 1, "b": 1 }, "name": "a_1_b_1" },
            ),
        ] {
            assert_eq!(index_on(fields, Doc::empty()), expected);
        }
    }
}
