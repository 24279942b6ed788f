//! Bringing documents of the target up to date.
//!
//! A change says which document changed; where it does not carry the whole document, the source's document of now is
//! read. So a change can be applied again, and after the last one the document is that of the source, whatever
//! operators the update had.

use std::collections::{HashMap, HashSet};

use frond_bson::{Doc, DocBuf};
use frond_client::{BulkOptions, Client, Collection, CursorRequest};

use crate::error::{Error, Result};
use crate::write::{self, DUPLICATE_KEY, Run};

/// Documents that are read at once.
pub const FETCH: usize = 1_000;

/// The documents with these `_id`s, given as `{_id: …}`.
pub fn any_of(ids: &[DocBuf]) -> DocBuf {
    let mut filter = DocBuf::new();
    filter.push_doc("_id", |condition| {
        condition.push_array("$in", |values| {
            for id in ids {
                if let Some(id) = id.get_raw("_id") {
                    values.push_raw(&id);
                }
            }
        });
    });
    filter
}

/// Reads the documents with these `_id`s from the source, and puts them into the target; those that are not there are
/// deleted. Returns the `_id`s that the target could not take yet, as a unique key of them is taken.
pub fn refetch(
    source: &mut Client,
    target: &mut Client,
    collection: &Collection,
    ids: &[DocBuf],
) -> Result<Vec<DocBuf>> {
    let mut waiting = Vec::new();
    for ids in ids.chunks(FETCH) {
        let mut there = HashSet::new();
        let mut found = Vec::new();
        let filter = any_of(ids);
        let mut each = |document: &Doc| {
            there.insert(write::id_of(document).unwrap_or_default().into_vec());
            found.push(document.to_owned());
            Ok(())
        };
        let request = CursorRequest {
            collection,
            filter: &filter,
            projection: None,
            sort: None,
            limit: 0,
            batch: 0,
            tailable: false,
        };
        let mut cursor = source.open_find(&request, &mut each)?;
        while cursor.is_open() {
            source.more(&mut cursor, None, &mut each)?;
        }
        // A capped collection keeps the order in which documents come.
        let order: HashMap<&[u8], usize> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| (id.as_bytes(), at))
            .collect();
        found.sort_by_cached_key(|document: &DocBuf| {
            write::id_of(document).and_then(|id| order.get(id.as_bytes()).copied())
        });
        let gone: Vec<DocBuf> = ids
            .iter()
            .filter(|id| !there.contains(id.as_bytes()))
            .cloned()
            .collect();
        delete(target, collection, &gone)?;
        let taken = put(target, collection, &found)?;
        if taken.is_empty() {
            continue;
        }
        // They may hold each other's keys.
        delete(target, collection, &taken)?;
        found.retain(|document| write::id_of(document).is_some_and(|id| taken.contains(&id)));
        waiting.extend(put(target, collection, &found)?);
    }
    Ok(waiting)
}

/// Deletes documents by their `_id`s.
pub fn delete(target: &mut Client, collection: &Collection, ids: &[DocBuf]) -> Result<()> {
    let mut run = Run::default();
    for id in ids {
        run.push(&write::delete(id)?);
    }
    let failed = write_some(target, collection, "delete", &run)?;
    write::first_failure("delete", &failed)
}

/// Puts documents in the places of those with their `_id`s. Returns the `_id`s of those that could not be put, as a
/// unique key is taken by a document that changes later.
pub fn put(
    target: &mut Client,
    collection: &Collection,
    documents: &[DocBuf],
) -> Result<Vec<DocBuf>> {
    let mut run = Run::default();
    for document in documents {
        run.push(&write::upsert(document)?);
    }
    let mut waiting = Vec::new();
    for failure in write_some(target, collection, "update", &run)? {
        let document = documents.get(failure.index);
        let id = document
            .and_then(|document| write::id_of(document))
            .unwrap_or_default();
        if failure.code != DUPLICATE_KEY {
            return Err(Error::Refused(format!(
                "{collection}: the target refuses the document {id:?}: {} (code {})",
                failure.message, failure.code
            )));
        }
        waiting.push(id);
    }
    Ok(waiting)
}

fn write_some(
    target: &mut Client,
    collection: &Collection,
    command: &'static str,
    run: &Run,
) -> Result<Vec<frond_client::WriteFailure>> {
    if run.is_empty() {
        return Ok(Vec::new());
    }
    let options = BulkOptions {
        ordered: false,
        bypass_validation: command == "update",
        journal: false,
    };
    write::write_all(target, collection, command, run, options)
}
