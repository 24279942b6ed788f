//! Events of a change stream as changes.

use frond_bson::{Doc, DocBuf, doc};

use super::changes::Change;
use crate::inventory::in_database;
use crate::write::id_of;

/// The command that opens a stream over all databases. With `expanded`, which servers from MongoDB 6.0 on know, events
/// include indexes and options.
pub fn open(token: Option<&Doc>, expanded: bool) -> DocBuf {
    let mut stage = doc! { "allChangesForCluster": true };
    if expanded {
        stage.push("showExpandedEvents", true);
    }
    if let Some(token) = token {
        stage.push("resumeAfter", token);
    }
    doc! {
        "aggregate": 1,
        "pipeline": [{ "$changeStream": &stage }],
        "cursor": {},
    }
}

/// The change of an event, if it is one that counts.
pub fn change(event: &Doc) -> Option<Change> {
    let named = |field: &str| {
        let ns = event.get_doc(field)?;
        Some(in_database(ns.get_str("db")?, ns.get_str("coll")?))
    };
    let key = || event.get_doc("documentKey").and_then(id_of);
    match event.get_str("operationType")? {
        "insert" | "replace" => Some(Change::Put(
            named("ns")?,
            event.get_doc("fullDocument")?.to_owned(),
        )),
        "update" => Some(Change::Stale(named("ns")?, key()?)),
        "delete" => Some(Change::Gone(named("ns")?, key()?)),
        "drop" => Some(Change::Drop(named("ns")?)),
        "rename" => Some(Change::Rename {
            from: named("ns")?,
            to: named("to")?,
        }),
        "dropDatabase" => Some(Change::DropDatabase(
            event.get_doc("ns")?.get_str("db")?.to_owned(),
        )),
        name @ ("addPartition" | "dropPartition") => {
            let details = event.get_doc("operationDescription")?;
            Some(Change::partition(named("ns")?, name, details))
        }
        "create" | "createIndexes" | "dropIndexes" | "modify" => Some(Change::Schema(named("ns")?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_every_kind() {
        let c = || in_database("d", "c");
        let ns = doc! { "db": "d", "coll": "c" };
        for (event, expected) in [
            (
                doc! { "operationType": "insert", "ns": &ns, "fullDocument": { "_id": 1 } },
                Some(Change::Put(c(), doc! { "_id": 1 })),
            ),
            (
                doc! { "operationType": "update", "ns": &ns, "documentKey": { "shard": 1, "_id": 1 } },
                Some(Change::Stale(c(), doc! { "_id": 1 })),
            ),
            (
                doc! { "operationType": "delete", "ns": &ns, "documentKey": { "_id": 1 } },
                Some(Change::Gone(c(), doc! { "_id": 1 })),
            ),
            (
                doc! { "operationType": "drop", "ns": &ns },
                Some(Change::Drop(c())),
            ),
            (
                doc! { "operationType": "dropPartition", "ns": &ns, "operationDescription": { "id": 3, "numRecords": 5 } },
                Some(Change::Partition(
                    c(),
                    doc! { "dropPartition": "c", "id": 3 },
                )),
            ),
            (
                doc! { "operationType": "modify", "ns": &ns },
                Some(Change::Schema(c())),
            ),
            (
                doc! { "operationType": "dropDatabase", "ns": { "db": "d" } },
                Some(Change::DropDatabase("d".to_owned())),
            ),
            (doc! { "operationType": "invalidate" }, None),
        ] {
            assert_eq!(change(&event), expected, "{event:?}");
        }
    }
}
