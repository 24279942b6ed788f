//! Entries of the oplog as changes.

use std::collections::HashMap;

use frond_bson::Doc;

use super::changes::Change;
use crate::entries::{DEPTH_MAX, split, transaction};
use crate::inventory::in_database;
use crate::write::id_of;

/// Reads entries one after the other.
#[derive(Debug, Default)]
pub struct Reader {
    /// Changes of transactions that are not committed yet, by session and number.
    pending: HashMap<Vec<u8>, Vec<Change>>,
}

impl Reader {
    /// Whether no transaction is open.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Shows the changes of an entry to `each`.
    pub fn read(&mut self, entry: &Doc, each: &mut dyn FnMut(Change)) {
        self.read_nested(entry, 0, each);
    }

    fn read_nested(&mut self, entry: &Doc, depth: usize, each: &mut dyn FnMut(Change)) {
        let (Some(op), Some(ns), Some(o)) =
            (entry.get_str("op"), entry.get_str("ns"), entry.get_doc("o"))
        else {
            return;
        };
        let Some(collection) = split(ns) else {
            return;
        };
        if op == "c" {
            self.command(entry, &collection.database, o, depth, each);
            return;
        }
        if collection.database == "admin"
            && ["system.users", "system.roles"].contains(&collection.name.as_str())
        {
            each(Change::Users);
            return;
        }
        if collection.name == "system.users" {
            each(Change::Users);
            return;
        }
        if collection.name == "system.indexes" {
            each_of(o.get_str("ns").and_then(split).map(Change::Schema), each);
            return;
        }
        if collection.name == "system.views" {
            // The `_id` is the namespace of the view.
            each_of(o.get_str("_id").and_then(split).map(Change::Schema), each);
            return;
        }
        match op {
            "i" if o.contains_key("_id") => each(Change::Put(collection, o.to_owned())),
            "u" => {
                let is_whole = o.first().is_some_and(|(name, _)| !name.starts_with('$'))
                    && o.contains_key("_id");
                if is_whole {
                    each(Change::Put(collection, o.to_owned()));
                } else if let Some(id) = entry.get_doc("o2").and_then(id_of) {
                    each(Change::Stale(collection, id));
                }
            }
            "d" => each_of(id_of(o).map(|id| Change::Gone(collection, id)), each),
            _ => {}
        }
    }

    fn command(
        &mut self,
        entry: &Doc,
        database: &str,
        o: &Doc,
        depth: usize,
        each: &mut dyn FnMut(Change),
    ) {
        let Some((name, value)) = o.first() else {
            return;
        };
        let named = || {
            value
                .as_str()
                .map(|collection| in_database(database, collection))
        };
        match name {
            "drop" => each_of(named().map(Change::Drop), each),
            "addPartition" | "dropPartition" => {
                each_of(
                    named().map(|collection| Change::partition(collection, name, o)),
                    each,
                );
            }
            "dropDatabase" => each(Change::DropDatabase(database.to_owned())),
            "renameCollection" => {
                let to = o.get_str("to").and_then(split);
                let from = value.as_str().and_then(split);
                each_of(
                    from.zip(to).map(|(from, to)| Change::Rename { from, to }),
                    each,
                );
            }
            "create" | "createIndexes" | "commitIndexBuild" | "dropIndexes" | "deleteIndexes"
            | "collMod" | "convertToCapped" => each_of(named().map(Change::Schema), each),
            "applyOps" if depth < DEPTH_MAX => self.apply_ops(entry, o, depth, each),
            "commitTransaction" => {
                let key = transaction(entry);
                key.and_then(|key| self.pending.remove(&key))
                    .into_iter()
                    .flatten()
                    .for_each(each);
            }
            "abortTransaction" => {
                if let Some(key) = transaction(entry) {
                    self.pending.remove(&key);
                }
            }
            _ => {}
        }
    }

    /// Several entries in one. Those of a large or prepared transaction count when it is committed.
    fn apply_ops(&mut self, entry: &Doc, o: &Doc, depth: usize, each: &mut dyn FnMut(Change)) {
        let is_true = |name: &str| o.get(name).is_some_and(|value| value.truthy());
        let waits = is_true("partialTxn") || is_true("prepare");
        let key = transaction(entry);
        let entries = o.get_array("applyOps").unwrap_or(Doc::empty());
        if waits && let Some(key) = key {
            let mut held = self.pending.remove(&key).unwrap_or_default();
            for nested in entries.values().filter_map(|value| value.as_doc()) {
                self.read_nested(nested, depth + 1, &mut |change| {
                    held.push(lightened(change))
                });
            }
            self.pending.insert(key, held);
            return;
        }
        key.and_then(|key| self.pending.remove(&key))
            .into_iter()
            .flatten()
            .for_each(&mut *each);
        for nested in entries.values().filter_map(|value| value.as_doc()) {
            self.read_nested(nested, depth + 1, each);
        }
    }
}

fn each_of(change: Option<Change>, each: &mut dyn FnMut(Change)) {
    if let Some(change) = change {
        each(change);
    }
}

/// The change without its document, which would take memory until the commit.
fn lightened(change: Change) -> Change {
    match change {
        Change::Put(collection, document) => match id_of(&document) {
            Some(id) => Change::Stale(collection, id),
            None => Change::Put(collection, document),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frond_bson::{DocBuf, doc};

    fn read(entries: &[DocBuf]) -> Vec<Change> {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        for entry in entries {
            reader.read(entry, &mut |change| found.push(change));
        }
        found
    }

    #[test]
    fn entries_of_every_kind() {
        let c = || in_database("d", "c");
        let id = || doc! { "_id": 1 };
        for (entry, expected) in [
            (
                doc! { "op": "i", "ns": "d.c", "o": { "_id": 1, "a": 2 } },
                Change::Put(c(), doc! { "_id": 1, "a": 2 }),
            ),
            (
                doc! { "op": "u", "ns": "d.c", "o2": { "_id": 1 }, "o": { "_id": 1, "b": 2 } },
                Change::Put(c(), doc! { "_id": 1, "b": 2 }),
            ),
            (
                doc! { "op": "u", "ns": "d.c", "o2": { "_id": 1 }, "o": { "$set": { "b": 2 } } },
                Change::Stale(c(), id()),
            ),
            (
                doc! { "op": "u", "ns": "d.c", "o2": { "_id": 1, "shard": 3 }, "o": { "$v": 2, "diff": {} } },
                Change::Stale(c(), id()),
            ),
            (
                doc! { "op": "d", "ns": "d.c", "o": { "_id": 1 } },
                Change::Gone(c(), id()),
            ),
            (
                doc! { "op": "c", "ns": "d.$cmd", "o": { "create": "c", "idIndex": {} } },
                Change::Schema(c()),
            ),
            (
                doc! { "op": "c", "ns": "d.$cmd", "o": { "drop": "c" } },
                Change::Drop(c()),
            ),
            (
                doc! { "op": "c", "ns": "d.$cmd", "o": { "dropDatabase": 1 } },
                Change::DropDatabase("d".to_owned()),
            ),
            (
                doc! { "op": "c", "ns": "d.$cmd", "o": { "renameCollection": "d.c", "to": "e.f.g", "stayTemp": false } },
                Change::Rename {
                    from: c(),
                    to: in_database("e", "f.g"),
                },
            ),
            (
                doc! { "op": "i", "ns": "d.system.indexes", "o": { "ns": "d.c", "key": { "a": 1 } } },
                Change::Schema(c()),
            ),
            (
                doc! { "op": "i", "ns": "d.system.views", "o": { "_id": "d.c" } },
                Change::Schema(c()),
            ),
            (
                doc! { "op": "u", "ns": "admin.system.users", "o2": {}, "o": {} },
                Change::Users,
            ),
        ] {
            assert_eq!(read(std::slice::from_ref(&entry)), [expected], "{entry:?}");
        }
        assert!(read(&[doc! { "op": "n", "ns": "", "o": { "msg": "periodic noop" } }]).is_empty());
    }

    #[test]
    fn a_large_transaction_counts_when_it_is_committed() {
        let entry = |n: i32, more: &Doc| {
            let mut o = doc! { "applyOps": [{ "op": "i", "ns": "d.c", "o": { "_id": n } }] };
            o.push_all(more);
            doc! { "op": "c", "ns": "admin.$cmd", "lsid": { "id": 1 }, "txnNumber": 5_i64, "o": &o }
        };
        let partial = doc! { "partialTxn": true };
        let stale = |n: i32| Change::Stale(in_database("d", "c"), doc! { "_id": n });
        let put = |n: i32| Change::Put(in_database("d", "c"), doc! { "_id": n });
        assert!(read(&[entry(1, &partial)]).is_empty());
        assert_eq!(
            read(&[entry(1, &partial), entry(2, &doc! {})]),
            [stale(1), put(2)]
        );
        let end = |name: &str| {
            doc! { "op": "c", "ns": "admin.$cmd", "lsid": { "id": 1 }, "txnNumber": 5_i64, "o": { name: 1 } }
        };
        let prepared = entry(3, &doc! { "prepare": true });
        assert_eq!(
            read(&[prepared.clone(), end("commitTransaction")]),
            [stale(3)]
        );
        assert!(read(&[prepared, end("abortTransaction"), end("commitTransaction")]).is_empty());
    }
}
