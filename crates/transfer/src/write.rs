//! Writing documents to a server, within its limits.

use frond_bson::{Doc, DocBuf, RawElement, Value};
use frond_client::{BulkOptions, Client, Collection, WriteFailure};

use crate::error::{Error, Result};

/// Bytes of documents in one request at most: larger requests do not make it faster.
const REQUEST_BYTES: usize = 8 << 20;

/// Room for the rest of a message.
const HEAD_BYTES: usize = 64 << 10;

/// MongoDB's code for a key that is taken.
pub const DUPLICATE_KEY: i32 = 11000;

/// Documents one after another, with their places.
#[derive(Debug, Default)]
pub struct Run {
    pub bytes: Vec<u8>,
    /// The end of each one.
    pub ends: Vec<usize>,
}

impl Run {
    pub fn push(&mut self, document: &Doc) {
        self.bytes.extend_from_slice(document.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all, and keeps the memory unless it is much.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * REQUEST_BYTES);
        self.ends.clear();
    }

    /// The document at a place.
    pub fn get(&self, at: usize) -> Option<&Doc> {
        let end = *self.ends.get(at)?;
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..end).map(Doc::from_trusted)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Doc> {
        (0..self.len()).map_while(|at| self.get(at))
    }
}

/// Writes all statements by as few requests as the server's limits allow. Failures have the places of their
/// statements in the run.
pub fn write_all(
    client: &mut Client,
    collection: &Collection,
    command: &'static str,
    statements: &Run,
    options: BulkOptions,
) -> Result<Vec<WriteFailure>> {
    let list = match command {
        "insert" => "documents",
        "update" => "updates",
        _ => "deletes",
    };
    let limits = client.limits();
    // A server that does not know OP_MSG takes a command as one document.
    let most = if limits.wire_version < 6 {
        limits.document_bytes
    } else {
        limits.message_bytes
    };
    let most_bytes = most.saturating_sub(HEAD_BYTES).min(REQUEST_BYTES);
    let most_statements = limits.batch_documents.max(1);
    let mut failed = Vec::new();
    let mut from = 0;
    let mut start = 0;
    while from < statements.len() {
        let mut to = from;
        let mut end = start;
        while let Some(next) = statements.ends.get(to) {
            if to > from
                && (next - start + 16 * (to - from) > most_bytes || to - from >= most_statements)
            {
                break;
            }
            end = *next;
            to += 1;
        }
        let bytes = statements.bytes.get(start..end).unwrap_or_default();
        let mut some = client.bulk(collection, command, list, bytes, options)?;
        let stops = options.ordered && !some.is_empty();
        for failure in &mut some {
            failure.index += from;
        }
        failed.append(&mut some);
        if stops {
            break;
        }
        from = to;
        start = end;
    }
    Ok(failed)
}

/// The `_id` of a document as a filter that finds it: `{_id: …}`.
pub fn id_of(document: &Doc) -> Option<DocBuf> {
    let element = document.get_raw("_id")?;
    let mut id = DocBuf::with_capacity(document.len_bytes().min(128));
    id.push_raw(&element);
    Some(id)
}

/// Appends `q: {_id: …}` to a statement. A document is compared by `$eq`, as it may look like operators.
fn push_filter(statement: &mut DocBuf, id: &RawElement<'_>) {
    statement.push_doc("q", |filter| match id.value() {
        Some(Value::Document(_)) => filter.push_doc("_id", |equal| equal.push_raw_as("$eq", id)),
        _ => filter.push_raw(id),
    });
}

/// The statement that puts a document in the place of the one with its `_id`, or inserts it.
pub fn upsert(document: &Doc) -> Result<DocBuf> {
    let id = document
        .get_raw("_id")
        .ok_or_else(|| Error::Data("a document without _id".to_owned()))?;
    let mut statement = DocBuf::with_capacity(document.len_bytes() + 128);
    push_filter(&mut statement, &id);
    statement.push("u", document);
    statement.push("upsert", true);
    Ok(statement)
}

/// The statement that deletes the document with an `_id`, given as `{_id: …}`.
pub fn delete(id: &Doc) -> Result<DocBuf> {
    let id = id
        .get_raw("_id")
        .ok_or_else(|| Error::Data("a document without _id".to_owned()))?;
    let mut statement = DocBuf::new();
    push_filter(&mut statement, &id);
    statement.push("limit", 1);
    Ok(statement)
}

/// The first failure as an error.
pub fn first_failure(command: &str, failed: &[WriteFailure]) -> Result<()> {
    match failed.first() {
        None => Ok(()),
        Some(failure) => Err(Error::Client(frond_client::Error::Server {
            command: command.to_owned(),
            code: failure.code,
            message: failure.message.clone(),
        })),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    #[test]
    fn statements() {
        let document = doc! { "a": 1, "_id": { "$x": 1 } };
        assert_eq!(
            upsert(&document).unwrap(),
            doc! { "q": { "_id": { "$eq": { "$x": 1 } } }, "u": { "a": 1, "_id": { "$x": 1 } }, "upsert": true }
        );
        assert_eq!(
            delete(&id_of(&doc! { "_id": 7 }).unwrap()).unwrap(),
            doc! { "q": { "_id": 7 }, "limit": 1 }
        );
        assert!(upsert(&doc! { "a": 1 }).is_err());
    }

    #[test]
    fn a_run_knows_its_documents() {
        let mut run = Run::default();
        run.push(&doc! { "a": 1 });
        run.push(&doc! {});
        assert_eq!(run.len(), 2);
        assert_eq!(run.iter().map(Doc::len_bytes).collect::<Vec<_>>(), [12, 5]);
        assert!(run.get(2).is_none());
    }
}
