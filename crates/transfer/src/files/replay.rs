//! The oplog of a dump: what changed while the dump was made.
//!
//! Changes of documents are applied by the server's `applyOps`, which knows every format of updates. The catalog is changed
//! by commands. Indexes are not touched: they are built behind the oplog, so their descriptions are changed instead, as
//! documents may hold each other's unique keys in between.

use std::collections::{HashMap, HashSet};

use frond_bson::bucket::is_bucket;
use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Collection};

use super::choice::{Choice, Chooser, LeftOut, OF_BUCKETS};
use super::dump::Metadata;
use crate::entries::{DEPTH_MAX, split, transaction};
use crate::error::{Error, Result};
use crate::inventory::{self, in_database};
use crate::names;
use crate::schema;

/// Entries in one command at most.
const BATCH_ENTRIES: usize = 1_000;

/// Bytes of entries in one command, but for a larger entry alone.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes of transactions that wait for their commit.
const HELD_MAX: usize = 512 << 20;

/// The fields of an entry that change documents. Others name sessions and UUIDs of another server.
const FIELDS: [&str; 10] = ["ts", "t", "h", "v", "op", "ns", "o", "o2", "b", "wall"];

const OF_USERS: &str =
    "users and roles that changed while the dump was made are imported as the dump has them";
const OF_VIEW: &str = "the change of a view, which the dump has as it was before";
const OF_COMMAND: &str = "no change that can be applied";
const OF_TRANSACTION: &str = "the commit of a transaction that began before the oplog of the dump";

/// Applies entries one after the other.
pub struct Replay<'a> {
    client: Client,
    chooser: &'a Chooser,
    parts: &'a mut Vec<(Collection, Metadata)>,
    with_buckets: &'a mut HashSet<Collection>,
    left_out: &'a mut LeftOut,
    /// The entry that is read.
    number: u64,
    /// Entries that wait for their command, with their numbers.
    batch: Vec<(u64, DocBuf)>,
    batch_bytes: usize,
    /// Entries of transactions that are not committed yet, by session and number.
    held: HashMap<Vec<u8>, Vec<DocBuf>>,
    held_bytes: usize,
}

impl<'a> Replay<'a> {
    /// `parts` are the collections of the dump, whose indexes are not built yet.
    pub fn new(
        client: Client,
        chooser: &'a Chooser,
        parts: &'a mut Vec<(Collection, Metadata)>,
        with_buckets: &'a mut HashSet<Collection>,
        left_out: &'a mut LeftOut,
    ) -> Replay<'a> {
        Replay {
            client,
            chooser,
            parts,
            with_buckets,
            left_out,
            number: 0,
            batch: Vec::new(),
            batch_bytes: 0,
            held: HashMap::new(),
            held_bytes: 0,
        }
    }

    /// Applies an entry, at once or with those that follow.
    pub fn entry(&mut self, entry: &Doc) -> Result<()> {
        self.number += 1;
        match self.take(entry, 0) {
            Err(error) if error.is_refusal() => {
                let number = self.number;
                Err(Error::Refused(format!(
                    "the oplog, entry {number}: {error}"
                )))
            }
            other => other,
        }
    }

    /// Applies what waits. Transactions without a commit are not applied. Returns the number of entries.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.number)
    }

    fn fail<T>(&self, text: &str) -> Result<T> {
        Err(Error::Data(format!(
            "the oplog, entry {}: {text}",
            self.number
        )))
    }

    fn take(&mut self, entry: &Doc, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return self.fail("applyOps is nested too deep");
        }
        let (Some(op), Some(ns)) = (entry.get_str("op"), entry.get_str("ns")) else {
            return self.fail("it has no op and no ns");
        };
        let Some((database, name)) = ns.split_once('.') else {
            // An entry that changes nothing has no namespace.
            return match op {
                "n" => Ok(()),
                _ => self.fail("its ns is no namespace"),
            };
        };
        if is_of_the_server(database) {
            return Ok(());
        }
        match op {
            "i" | "u" | "d" => self.document(entry, op, &in_database(database, name)),
            "c" => self.command(entry, database, depth),
            // Nothing, and what members of a replica set keep of each other's storage.
            "n" | "km" | "ci" | "cu" | "cd" => Ok(()),
            other => {
                self.left_out
                    .add(&format!("the oplog ({other})"), OF_COMMAND, 1);
                Ok(())
            }
        }
    }

    fn document(&mut self, entry: &Doc, op: &str, collection: &Collection) -> Result<()> {
        let o = entry.get_doc("o").unwrap_or(Doc::empty());
        if collection.name == "system.views" {
            return self.view(entry, op, o);
        }
        if collection.name == "system.indexes" {
            let on = o.get_str("ns").and_then(split);
            on.into_iter().for_each(|on| self.add_index(&on, o));
            return Ok(());
        }
        let series = names::series_of(collection);
        let target = series.as_ref().unwrap_or(collection);
        match self.chooser.choose(target) {
            Choice::Nothing | Choice::Oplog => Ok(()),
            Choice::Users | Choice::Roles => {
                self.left_out
                    .add("the oplog (users and roles)", OF_USERS, 1);
                Ok(())
            }
            Choice::LeftOut(why) => {
                self.left_out
                    .add(&format!("the oplog ({collection})"), why, 1);
                Ok(())
            }
            Choice::Import
                if series.is_some() && (self.with_buckets.contains(target) || is_bucket(o)) =>
            {
                self.left_out
                    .add(&format!("the oplog ({target})"), OF_BUCKETS, 1);
                Ok(())
            }
            Choice::Import => self.push(entry),
        }
    }

    /// Puts an entry into the next command.
    fn push(&mut self, entry: &Doc) -> Result<()> {
        let entry = kept(entry);
        let bytes = entry.len_bytes();
        let is_full = self.batch.len() >= BATCH_ENTRIES || self.batch_bytes + bytes > BATCH_BYTES;
        if is_full {
            self.flush()?;
        }
        self.batch_bytes += bytes;
        self.batch.push((self.number, entry));
        Ok(())
    }

    /// Applies the entries that wait.
    fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let entries = batch.iter().map(|(_, entry)| entry);
        let applied = apply(&mut self.client, entries);
        if !matches!(&applied, Err(error) if error.is_refusal()) {
            return applied;
        }
        // One by one they show which of them fails. Those that are applied can be applied again.
        for (number, entry) in &batch {
            match apply(&mut self.client, std::iter::once(entry)) {
                Err(error) if error.is_refusal() => {
                    let ns = entry.get_str("ns").unwrap_or_default();
                    return Err(Error::Refused(format!(
                        "the oplog, entry {number} ({ns}): {error}; the entries before it are applied, and no indexes are built"
                    )));
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The collection that a command of an entry names, if it is imported.
    fn chosen(&self, database: &str, name: Value<'_>) -> Option<Collection> {
        let named = in_database(database, name.as_str()?);
        let collection = names::series_of(&named).unwrap_or(named);
        (self.chooser.choose(&collection) == Choice::Import).then_some(collection)
    }

    fn command(&mut self, entry: &Doc, database: &str, depth: usize) -> Result<()> {
        let o = entry.get_doc("o").unwrap_or(Doc::empty());
        let Some((name, value)) = o.first() else {
            return self.fail("it has no command");
        };
        match name {
            "applyOps" => return self.apply_ops(entry, o, depth),
            "commitTransaction" => return self.commit(entry, depth),
            "abortTransaction" => {
                self.release(entry);
                return Ok(());
            }
            "dropDatabase" => return self.drop_database(database),
            "renameCollection" => return self.rename(value, o),
            // The entry that ends a build has the index.
            "startIndexBuild" | "abortIndexBuild" | "setMultikeyMetadata" | "dbCheck" => {
                return Ok(());
            }
            _ => {}
        }
        let Some(collection) = self.chosen(database, value) else {
            return Ok(());
        };
        match name {
            "create" => self.create(value, collection, o),
            "drop" => {
                self.flush()?;
                self.parts.retain(|(part, _)| *part != collection);
                self.with_buckets.remove(&collection);
                schema::drop(&mut self.client, &collection)
            }
            "createIndexes" => {
                self.add_index(&collection, o);
                Ok(())
            }
            "commitIndexBuild" => {
                let indexes = o.get_array("indexes").unwrap_or(Doc::empty());
                for index in indexes.values().filter_map(|index| index.as_doc()) {
                    self.add_index(&collection, index);
                }
                Ok(())
            }
            "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => {
                let index = o.get_str("index").unwrap_or_default();
                if let Some(metadata) = self.metadata_of(&collection) {
                    let is_meant =
                        |known: &DocBuf| index == "*" || known.get_str("name") == Some(index);
                    metadata.indexes.retain(|known| !is_meant(known));
                }
                Ok(())
            }
            "collMod" => self.coll_mod(entry, &collection, o),
            "convertToCapped" | "emptycapped" | "addPartition" | "dropPartition" => {
                self.push(entry)
            }
            other => {
                let what = format!("the oplog ({other} of {collection})");
                self.left_out.add(&what, OF_COMMAND, 1);
                Ok(())
            }
        }
    }

    fn metadata_of(&mut self, collection: &Collection) -> Option<&mut Metadata> {
        let part = self.parts.iter_mut().find(|(part, _)| part == collection);
        part.map(|(_, metadata)| metadata)
    }

    /// Notes an index, which is built at the end. The description may have the name of the collection before it.
    fn add_index(&mut self, collection: &Collection, description: &Doc) {
        if self.chooser.choose(collection) != Choice::Import {
            return;
        }
        let mut index = DocBuf::new();
        for element in description
            .iter_raw()
            .filter(|e| e.name() != "createIndexes")
        {
            index.push_raw(&element);
        }
        let Some(index) = inventory::specification(&index) else {
            return;
        };
        if self.metadata_of(collection).is_none() {
            self.parts.push((collection.clone(), Metadata::default()));
        }
        if let Some(metadata) = self.metadata_of(collection) {
            let name = index.get_str("name");
            metadata
                .indexes
                .retain(|known| known.get_str("name") != name);
            metadata.indexes.push(index);
        }
    }

    fn create(&mut self, name: Value<'_>, collection: Collection, o: &Doc) -> Result<()> {
        if name.as_str() == Some("system.views") {
            return Ok(());
        }
        if name.as_str() != Some(collection.name.as_str()) {
            let what = format!("the oplog ({collection})");
            self.left_out.add(&what, OF_BUCKETS, 1);
            self.with_buckets.insert(collection);
            return Ok(());
        }
        self.flush()?;
        let mut options = DocBuf::new();
        for element in o.iter_raw().skip(1) {
            options.push_raw(&element);
        }
        let metadata = Metadata {
            options,
            ..Metadata::default()
        };
        if schema::find(&mut self.client, &collection)?.is_none() {
            schema::create(&mut self.client, &metadata.listed(&collection))?;
        }
        if self.metadata_of(&collection).is_none() {
            self.parts.push((collection, metadata));
        }
        Ok(())
    }

    /// Changes of indexes are noted, others are applied.
    fn coll_mod(&mut self, entry: &Doc, collection: &Collection, o: &Doc) -> Result<()> {
        if let Some(change) = o.get_doc("index")
            && let Some(metadata) = self.metadata_of(collection)
        {
            let same = |known: &&mut DocBuf| {
                let by_name = change.get_str("name");
                match by_name {
                    Some(_) => known.get_str("name") == by_name,
                    None => known.get_doc("key") == change.get_doc("keyPattern"),
                }
            };
            if let Some(index) = metadata.indexes.iter_mut().find(same) {
                *index = changed(index, change);
            }
        }
        let mut rest = DocBuf::new();
        let dropped = ["index", "noPadding", "usePowerOf2Sizes"];
        for element in o.iter_raw().filter(|e| !dropped.contains(&e.name())) {
            rest.push_raw(&element);
        }
        if rest.count() == 1 {
            return Ok(());
        }
        let mut command = DocBuf::new();
        for element in entry.iter_raw() {
            match element.name() {
                "o" => command.push("o", &rest),
                _ => command.push_raw(&element),
            }
        }
        self.push(&command)
    }

    /// A view is a document of `system.views`.
    fn view(&mut self, entry: &Doc, op: &str, o: &Doc) -> Result<()> {
        let id = if op == "u" {
            entry.get_doc("o2")
        } else {
            Some(o)
        };
        let id = id.and_then(|id| id.get_str("_id")).or(o.get_str("_id"));
        let Some(view) = id.and_then(split) else {
            return self.fail("the view has no name");
        };
        if self.chooser.choose(&view) != Choice::Import || self.with_buckets.contains(&view) {
            return Ok(());
        }
        let Some(on) = o.get_str("viewOn") else {
            if op == "d" {
                self.parts.retain(|(part, _)| *part != view);
                return schema::drop(&mut self.client, &view);
            }
            let what = format!("the oplog ({view})");
            self.left_out.add(&what, OF_VIEW, 1);
            return Ok(());
        };
        if on.starts_with(names::BUCKETS) {
            return Ok(());
        }
        let mut options = DocBuf::new();
        for element in o.iter_raw().filter(|element| element.name() != "_id") {
            options.push_raw(&element);
        }
        self.parts.retain(|(part, _)| *part != view);
        let metadata = Metadata {
            options,
            indexes: Vec::new(),
            is_view: true,
            is_packed: false,
        };
        self.parts.push((view, metadata));
        Ok(())
    }

    fn drop_database(&mut self, database: &str) -> Result<()> {
        self.flush()?;
        for listed in inventory::collections(&mut self.client, database)? {
            if self.chooser.choose(&listed.collection) == Choice::Import {
                schema::drop(&mut self.client, &listed.collection)?;
            }
        }
        let chooser = self.chooser;
        self.parts.retain(|(part, _)| {
            part.database != database || chooser.choose(part) != Choice::Import
        });
        Ok(())
    }

    fn rename(&mut self, from: Value<'_>, o: &Doc) -> Result<()> {
        let names = from
            .as_str()
            .and_then(split)
            .zip(o.get_str("to").and_then(split));
        let Some((from, to)) = names else {
            return self.fail("the names of the rename are no namespaces");
        };
        let choices = [self.chooser.choose(&from), self.chooser.choose(&to)];
        if choices != [Choice::Import; 2] {
            let what = format!("the oplog (the rename of {from} to {to})");
            let why = "only one of the two names is imported";
            let count = u64::from(choices.contains(&Choice::Import));
            self.left_out.add(&what, why, count);
            return Ok(());
        }
        self.flush()?;
        let mut command = doc! { "renameCollection": from.to_string(), "to": to.to_string() };
        // It may be the UUID of the collection that is dropped.
        command.push(
            "dropTarget",
            o.get("dropTarget").is_some_and(|target| target.truthy()),
        );
        if schema::find(&mut self.client, &from)?.is_some() {
            self.client.command("admin", &command)?;
        }
        self.parts.retain(|(part, _)| *part != to);
        for (part, _) in self.parts.iter_mut().filter(|(part, _)| *part == from) {
            *part = to.clone();
        }
        Ok(())
    }

    /// Several entries in one. Those of a large or prepared transaction count when it is committed.
    fn apply_ops(&mut self, entry: &Doc, o: &Doc, depth: usize) -> Result<()> {
        let is_true = |name: &str| o.get(name).is_some_and(|value| value.truthy());
        let entries = o.get_array("applyOps").unwrap_or(Doc::empty());
        let entries = entries.values().filter_map(|entry| entry.as_doc());
        let waits = is_true("partialTxn") || is_true("prepare");
        if waits && let Some(key) = transaction(entry) {
            let held = self.held.entry(key).or_default();
            for nested in entries {
                self.held_bytes += nested.len_bytes();
                held.push(nested.to_owned());
            }
            if self.held_bytes > HELD_MAX {
                return self
                    .fail("the transactions that are not committed yet are larger than 512 MiB");
            }
            return Ok(());
        }
        let before = self.release(entry).unwrap_or_default();
        for nested in &before {
            self.take(nested, depth + 1)?;
        }
        for nested in entries {
            self.take(nested, depth + 1)?;
        }
        Ok(())
    }

    fn commit(&mut self, entry: &Doc, depth: usize) -> Result<()> {
        let Some(entries) = self.release(entry) else {
            self.left_out
                .add("the oplog (transactions)", OF_TRANSACTION, 1);
            return Ok(());
        };
        for nested in &entries {
            self.take(nested, depth + 1)?;
        }
        Ok(())
    }

    /// The entries that wait for the end of a transaction.
    fn release(&mut self, entry: &Doc) -> Option<Vec<DocBuf>> {
        let entries = self.held.remove(&transaction(entry)?)?;
        let bytes: usize = entries.iter().map(|entry| entry.len_bytes()).sum();
        self.held_bytes -= bytes;
        Some(entries)
    }
}

/// Databases whose changes belong to the server that wrote the oplog.
fn is_of_the_server(database: &str) -> bool {
    ["config", "local"].contains(&database) || database.starts_with("__mdb_internal")
}

/// Whether an entry changes something that is imported.
pub fn is_meant(entry: &Doc, chooser: &Chooser) -> bool {
    let ns = entry.get_str("ns").unwrap_or_default();
    let Some(mut collection) = split(ns) else {
        return false;
    };
    if entry.get_str("op") == Some("n") || is_of_the_server(&collection.database) {
        return false;
    }
    if collection.name == "$cmd" {
        match entry.get_doc("o").and_then(Doc::first) {
            Some(("applyOps", Value::Array(entries))) => {
                let mut nested = entries.values().filter_map(|entry| entry.as_doc());
                return nested.any(|entry| is_meant(entry, chooser));
            }
            // Their changes are in entries of their own.
            Some(("commitTransaction" | "abortTransaction", _)) => return false,
            Some((_, Value::String(name))) => name.clone_into(&mut collection.name),
            _ => return true,
        }
    }
    let collection = names::series_of(&collection).unwrap_or(collection);
    chooser.choose(&collection) != Choice::Nothing
}

fn apply<'d>(client: &mut Client, entries: impl Iterator<Item = &'d DocBuf>) -> Result<()> {
    let mut command = DocBuf::new();
    command.push_array("applyOps", |array| {
        entries.for_each(|entry| array.push(entry))
    });
    client.command("admin", &command)?;
    Ok(())
}

/// An entry as another server takes it.
fn kept(entry: &Doc) -> DocBuf {
    let mut kept = DocBuf::with_capacity(entry.len_bytes());
    for element in entry.iter_raw().filter(|e| FIELDS.contains(&e.name())) {
        kept.push_raw(&element);
    }
    kept
}

/// The description of an index with what `collMod` changes of it.
fn changed(index: &Doc, change: &Doc) -> DocBuf {
    const CHANGEABLE: [&str; 4] = ["expireAfterSeconds", "hidden", "unique", "prepareUnique"];
    let changes = |name: &str| CHANGEABLE.contains(&name) && change.contains_key(name);
    let mut out = DocBuf::new();
    for element in index.iter_raw().filter(|e| !changes(e.name())) {
        out.push_raw(&element);
    }
    for element in change.iter_raw().filter(|e| CHANGEABLE.contains(&e.name())) {
        out.push_raw(&element);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::choice::chooser;

    #[test]
    fn entries_lose_what_belongs_to_another_server() {
        let entry = doc! {
            "lsid": { "id": 1 }, "txnNumber": 5_i64, "op": "u", "ns": "d.c", "ui": 7, "o": { "$v": 2, "diff": {} },
            "o2": { "_id": 1 }, "stmtId": 0, "prevOpTime": {}, "v": 2_i64,
        };
        let expected = doc! {
            "op": "u", "ns": "d.c", "o": { "$v": 2, "diff": {} }, "o2": { "_id": 1 }, "v": 2_i64,
        };
        assert_eq!(kept(&entry), expected);
    }

    #[test]
    fn changes_of_an_index() {
        let index =
            doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 5, "hidden": true };
        assert_eq!(
            changed(&index, &doc! { "name": "a_1", "expireAfterSeconds": 9 }),
            doc! { "key": { "a": 1 }, "name": "a_1", "hidden": true, "expireAfterSeconds": 9 }
        );
        assert_eq!(
            changed(&index, &doc! { "name": "a_1", "hidden": false }),
            doc! { "key": { "a": 1 }, "name": "a_1", "expireAfterSeconds": 5, "hidden": false }
        );
    }

    #[test]
    fn entries_count_that_change_what_is_imported() {
        let nested = doc! { "op": "i", "ns": "shop.a", "o": { "_id": 1 } };
        for (entry, in_all, of_b) in [
            (doc! { "op": "n", "ns": "", "o": {} }, false, false),
            (doc! { "op": "n", "ns": "shop.b", "o": {} }, false, false),
            (doc! { "op": "i", "ns": "shop.b", "o": {} }, true, true),
            (doc! { "op": "i", "ns": "shop.a", "o": {} }, true, false),
            (
                doc! { "op": "u", "ns": "shop.system.buckets.b", "o": {} },
                true,
                true,
            ),
            (
                doc! { "op": "i", "ns": "config.transactions", "o": {} },
                false,
                false,
            ),
            (
                doc! { "op": "c", "ns": "shop.$cmd", "o": { "drop": "a" } },
                true,
                false,
            ),
            (
                doc! { "op": "c", "ns": "shop.$cmd", "o": { "dropDatabase": 1 } },
                true,
                true,
            ),
            (
                doc! { "op": "c", "ns": "admin.$cmd", "o": { "applyOps": [&nested] } },
                true,
                false,
            ),
            (
                doc! { "op": "c", "ns": "admin.$cmd", "o": { "commitTransaction": 1 } },
                false,
                false,
            ),
        ] {
            let meant = |words: &str| is_meant(&entry, &chooser(words));
            assert_eq!(
                (meant(""), meant("--include shop.b")),
                (in_all, of_b),
                "{entry:?}"
            );
        }
    }
}
