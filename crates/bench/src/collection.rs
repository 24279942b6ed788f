//! A collection on the server, before and after the clock runs: drop it, make its indexes, count.

use std::fmt;

use frond_bson::{Doc, DocBuf, doc};

use crate::client::{Client, Dialect};
use crate::error::{Error, Result};
use crate::system::WriteConcern;

/// MongoDB's code for a collection that does not exist.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// Where a collection is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection {
    /// Database name.
    pub database: String,
    /// Collection name.
    pub name: String,
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.name)
    }
}

impl Collection {
    /// Names that no server takes are refused.
    pub fn new(database: &str, name: &str) -> Result<Collection> {
        if name.is_empty() || name.contains(['$', '\0']) {
            return Err(Error::Settings(format!(
                "--collection {name:?} is not a collection name"
            )));
        }
        if database.is_empty() || database.contains(['/', '\\', ' ', '"', '$', '.', '\0']) {
            return Err(Error::Settings(format!(
                "--db {database:?} is not a database name"
            )));
        }
        Ok(Collection {
            database: database.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Drops it, if it is there.
    pub fn drop(&self, client: &mut Client) -> Result<()> {
        match client.command(&self.database, &doc! { "drop": self.name.as_str() }) {
            Err(Error::Server { code, message, .. })
                if code == NAMESPACE_NOT_FOUND || message == "ns not found" =>
            {
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Its documents. Old servers report an error for a collection that does not exist.
    pub fn count(&self, client: &mut Client) -> Result<u64> {
        match client.command(&self.database, &doc! { "count": self.name.as_str() }) {
            Ok(reply) => number_counted(&reply),
            Err(Error::Server { code, message, .. })
                if code == NAMESPACE_NOT_FOUND || message == "ns missing" =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the server whether all documents are in. This is what a run without acknowledgement has
    /// to show for itself.
    pub fn check_count(&self, client: &mut Client, expected: u64) -> Result<()> {
        let counted = self.count(client)?;
        if counted == expected {
            return Ok(());
        }
        let last_error = client
            .command(&self.database, &doc! { "ping": 1 })
            .err()
            .map_or_else(String::new, |error| format!("; {error}"));
        Err(Error::Protocol(format!(
            "the collection holds {counted} documents instead of {expected}{last_error}"
        )))
    }

    /// Makes an index for each list of fields.
    pub fn create_indexes(&self, client: &mut Client, indexes: &[&[&str]]) -> Result<()> {
        self.create_indexes_with(client, indexes, Doc::empty())
    }

    /// The same with options that each of them gets.
    pub fn create_indexes_with(
        &self,
        client: &mut Client,
        indexes: &[&[&str]],
        options: &Doc,
    ) -> Result<()> {
        if indexes.is_empty() {
            return Ok(());
        }
        let concern = WriteConcern {
            acknowledged: true,
            journal: false,
        };
        if Dialect::choose(client.limits().wire_version, true) == Dialect::Opcode {
            // Before the command existed an index was made by inserting its description.
            let target = client.write_target(&self.database, "system.indexes", concern);
            for fields in indexes {
                let mut index = index_on(fields, options);
                index.push("ns", self.to_string().as_str());
                let mut message = Vec::new();
                let bytes = index.as_bytes();
                let id = client.build_insert(&target, bytes, bytes.len(), &mut message)?;
                client.send(&message)?;
                client.insert_reply(&target, id, 1)?;
            }
            return Ok(());
        }
        let mut command = doc! { "createIndexes": self.name.as_str() };
        command.push_array("indexes", |array| {
            for fields in indexes {
                array.push(&index_on(fields, options));
            }
        });
        client.command(&self.database, &command)?;
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

fn number_counted(reply: &Doc) -> Result<u64> {
    reply
        .get_i64("n")
        .and_then(|n| u64::try_from(n).ok())
        .ok_or_else(|| Error::Protocol("count without n".to_owned()))
}

/// Refuses batches that this server would refuse.
pub fn check_batch(
    client: &Client,
    acknowledged: bool,
    batch: u32,
    document_bytes: usize,
) -> Result<()> {
    let limits = client.limits();
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
