//! Collections, views and indexes of the target, made as those of the source.

use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Collection};

use crate::error::{Error, Result};
use crate::inventory::{self, Listed};

/// MongoDB's codes that say that it is done already.
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
const BAD_VALUE: i32 = 2;
const INDEX_NOT_FOUND: i32 = 27;

/// MongoDB's code for an index that another client is building, such as a migration that was killed.
const INDEX_BUILD_IN_PROGRESS: i32 = 285;

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);

/// Something that the target does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its target: a collection, or a part of it.
    pub what: String,
    pub why: String,
}

impl Refusal {
    fn new(what: String, error: &Error) -> Refusal {
        let why = match error {
            Error::Client(frond_client::Error::Server { code, message, .. }) => {
                format!("{message} (code {code})")
            }
            other => other.to_string(),
        };
        Refusal { what, why }
    }
}

/// Runs a command, and takes an error with one of these codes as success.
fn run(client: &mut Client, database: &str, command: &Doc, fine: &[i32]) -> Result<()> {
    match client.command(database, command).map_err(Error::from) {
        Err(error) if error.code().is_some_and(|code| fine.contains(&code)) => Ok(()),
        Err(Error::Client(frond_client::Error::Server { message, .. }))
            if message == "ns not found" =>
        {
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

/// Creates a collection or view.
pub fn create(client: &mut Client, listed: &Listed) -> Result<()> {
    let mut command = doc! { "create": listed.collection.name.as_str() };
    command.push_all(&listed.options);
    run(client, &listed.collection.database, &command, &[])
}

/// Drops a collection or view if it exists.
pub fn drop(client: &mut Client, collection: &Collection) -> Result<()> {
    let command = doc! { "drop": collection.name.as_str() };
    run(
        client,
        &collection.database,
        &command,
        &[NAMESPACE_NOT_FOUND],
    )
}

/// Adds or drops a partition. It may be so already, as changes may be applied twice.
pub fn change_partition(client: &mut Client, collection: &Collection, command: &Doc) -> Result<()> {
    run(
        client,
        &collection.database,
        command,
        &[NAMESPACE_NOT_FOUND, BAD_VALUE],
    )
}

pub fn drop_database(client: &mut Client, database: &str) -> Result<()> {
    run(client, database, &doc! { "dropDatabase": 1 }, &[])
}

/// Creates indexes: all together, and one by one where that fails. Returns those that the target refuses.
pub fn create_indexes(
    client: &mut Client,
    collection: &Collection,
    indexes: &[DocBuf],
) -> Result<Vec<Refusal>> {
    if indexes.is_empty() {
        return Ok(Vec::new());
    }
    let mut create = |indexes: &[&DocBuf]| -> Result<()> {
        let mut command = doc! { "createIndexes": collection.name.as_str() };
        command.push_array("indexes", |array| {
            for index in indexes {
                array.push(*index);
            }
        });
        loop {
            match run(client, &collection.database, &command, &[]) {
                Err(error) if error.code() == Some(INDEX_BUILD_IN_PROGRESS) => {
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    };
    let all: Vec<&DocBuf> = indexes.iter().collect();
    match create(&all) {
        Err(error) if error.is_refusal() => {}
        other => return other.map(|()| Vec::new()),
    }
    let mut refused = Vec::new();
    for index in indexes {
        match create(&[index]) {
            Err(error) if error.is_refusal() => {
                let name = index.get_str("name").unwrap_or("?");
                refused.push(Refusal::new(
                    format!("index {name} of {collection}"),
                    &error,
                ));
            }
            other => other?,
        }
    }
    Ok(refused)
}

fn drop_index(client: &mut Client, collection: &Collection, name: &str) -> Result<()> {
    let command = doc! { "dropIndexes": collection.name.as_str(), "index": name };
    run(
        client,
        &collection.database,
        &command,
        &[NAMESPACE_NOT_FOUND, INDEX_NOT_FOUND],
    )
}

/// The database in which it is tried what the target takes.
fn scratch_database() -> String {
    format!("frond_migrate_try_{}", std::process::id())
}

/// Tries in a scratch database of the target which collections, views and indexes it refuses.
pub fn try_all(client: &mut Client, all: &[(Listed, Vec<DocBuf>)]) -> Result<Vec<Refusal>> {
    let scratch = scratch_database();
    let mut refused = Vec::new();
    let mut used = false;
    for (at, (listed, indexes)) in all.iter().enumerate() {
        let kind = if listed.is_view { "view" } else { "collection" };
        // Collections without anything unusual are taken by every server.
        let is_plain = listed.options.is_empty();
        if is_plain && indexes.is_empty() {
            continue;
        }
        used = true;
        let tried = Listed {
            collection: inventory::in_database(&scratch, &format!("try_{at}")),
            ..listed.clone()
        };
        let mut exists = is_plain;
        if !is_plain {
            match create(client, &tried) {
                Ok(()) => exists = true,
                Err(error) if error.is_refusal() => {
                    refused.push(Refusal::new(
                        format!("{kind} {}", listed.collection),
                        &error,
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        if exists && !listed.is_view {
            for mut refusal in create_indexes(client, &tried.collection, indexes)? {
                let name = tried.collection.to_string();
                let full = listed.collection.to_string();
                refusal.what = refusal.what.replace(&name, &full);
                refusal.why = refusal.why.replace(&name, &full);
                refused.push(refusal);
            }
            drop(client, &tried.collection)?;
        }
    }
    if used {
        drop_database(client, &scratch)?;
    }
    Ok(refused)
}

/// Makes one namespace of the target as it is at the source now: creates or drops it, changes its options and its
/// indexes. Documents are not looked at. Returns what the target refuses.
pub fn synchronize(
    source: &mut Client,
    target: &mut Client,
    collection: &Collection,
) -> Result<Vec<Refusal>> {
    let at_source = find(source, collection)?;
    let at_target = find(target, collection)?;
    let Some(wanted) = at_source else {
        if at_target.is_some() {
            drop(target, collection)?;
        }
        return Ok(Vec::new());
    };
    let indexes = if wanted.is_view {
        Vec::new()
    } else {
        inventory::indexes(source, collection)?
    };
    synchronize_with(target, &wanted, at_target, &indexes)
}

/// The same, for what is known of both sides.
pub fn synchronize_with(
    target: &mut Client,
    wanted: &Listed,
    at_target: Option<Listed>,
    indexes: &[DocBuf],
) -> Result<Vec<Refusal>> {
    let collection = &wanted.collection;
    let mut refused = Vec::new();
    match at_target {
        None => match create(target, wanted) {
            Err(error) if error.code() == Some(NAMESPACE_EXISTS) => {}
            Err(error) if error.is_refusal() => {
                return Ok(vec![Refusal::new(collection.to_string(), &error)]);
            }
            other => other?,
        },
        Some(there)
            if there.is_view != wanted.is_view
                || (wanted.is_view && there.options != wanted.options) =>
        {
            drop(target, collection)?;
            create(target, wanted)?;
        }
        Some(there) => {
            if let Some(command) = changed_validator(&there, wanted)
                && let Err(error) = run(target, &collection.database, &command, &[])
            {
                if !error.is_refusal() {
                    return Err(error);
                }
                refused.push(Refusal::new(format!("validator of {collection}"), &error));
            }
        }
    }
    if wanted.is_view {
        return Ok(refused);
    }
    let there = inventory::indexes(target, collection)?;
    for index in &there {
        let name = index.get_str("name").unwrap_or_default();
        let same = indexes
            .iter()
            .find(|wanted| wanted.get_str("name") == Some(name));
        if same.is_none_or(|wanted| !same_index(wanted, index)) {
            drop_index(target, collection, name)?;
        }
    }
    let there = inventory::indexes(target, collection)?;
    let missing: Vec<DocBuf> = indexes
        .iter()
        .filter(|wanted| {
            !there
                .iter()
                .any(|index| index.get_str("name") == wanted.get_str("name"))
        })
        .cloned()
        .collect();
    refused.extend(create_indexes(target, collection, &missing)?);
    Ok(refused)
}

/// A collection or view as a server lists it now.
pub fn find(client: &mut Client, collection: &Collection) -> Result<Option<Listed>> {
    let listed = inventory::collections(client, &collection.database)?;
    Ok(listed
        .into_iter()
        .find(|listed| listed.collection == *collection))
}

/// `collMod` for the validator, where it is another one.
fn changed_validator(there: &Listed, wanted: &Listed) -> Option<DocBuf> {
    let fields = ["validator", "validationLevel", "validationAction"];
    let differs = |name: &&str| there.options.get(name) != wanted.options.get(name);
    if !fields.iter().any(differs) {
        return None;
    }
    let mut command = doc! { "collMod": wanted.collection.name.as_str() };
    for (name, default) in fields.iter().zip(["", "strict", "error"]) {
        match wanted.options.get(name) {
            Some(value) => command.push_value(name, &value),
            None if *name == "validator" => command.push_doc(name, |_| ()),
            None => command.push(name, default),
        }
    }
    Some(command)
}

/// Whether two descriptions are of the same index. What one server adds by itself does not count.
fn same_index(wanted: &Doc, there: &Doc) -> bool {
    let number = |value: Option<Value<'_>>| value.and_then(|value| value.as_f64());
    let keys = |index: &Doc| -> Vec<(String, Option<f64>, Option<String>)> {
        index
            .get_doc("key")
            .unwrap_or(Doc::empty())
            .iter()
            .map(|(name, value)| {
                (
                    name.to_owned(),
                    value.as_f64(),
                    value.as_str().map(str::to_owned),
                )
            })
            .collect()
    };
    keys(wanted) == keys(there)
        && wanted.get_bool("unique") == there.get_bool("unique")
        && wanted.get_bool("sparse") == there.get_bool("sparse")
        && number(wanted.get("expireAfterSeconds")) == number(there.get("expireAfterSeconds"))
        && wanted.get_doc("partialFilterExpression") == there.get_doc("partialFilterExpression")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn indexes_are_compared_by_what_they_do() {
        let index = doc! { "key": { "a": 1.0, "b": "2d" }, "name": "x", "unique": true };
        assert!(same_index(
            &index,
            &doc! { "key": { "a": 1, "b": "2d" }, "name": "x", "unique": true, "min": 5 }
        ));
        assert!(!same_index(
            &index,
            &doc! { "key": { "a": 1, "b": "2d" }, "name": "x" }
        ));
        assert!(!same_index(
            &index,
            &doc! { "key": { "b": "2d", "a": 1 }, "name": "x", "unique": true }
        ));
    }

    #[test]
    fn a_validator_that_is_gone_is_emptied() {
        let listed = |options: DocBuf| Listed {
            collection: inventory::in_database("d", "c"),
            options,
            is_view: false,
            is_ordered: false,
        };
        let with = listed(doc! { "validator": { "a": 1 }, "validationAction": "warn" });
        let without = listed(doc! {});
        assert!(changed_validator(&with, &with).is_none());
        assert_eq!(
            changed_validator(&with, &without).unwrap(),
            doc! { "collMod": "c", "validator": {}, "validationLevel": "strict", "validationAction": "error" }
        );
    }
}
