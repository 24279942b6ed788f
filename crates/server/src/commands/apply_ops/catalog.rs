//! Entries of `applyOps` that change the catalog: `op: "c"`.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::commands;
use crate::concern::WriteConcern;
use crate::context::Context;

/// Applies an entry whose `o` is a command.
pub(super) fn apply(cx: &mut Context<'_>, entry: &Doc, bypass_validation: bool) -> Result<()> {
    let Some(object) = entry.get_doc("o").filter(|object| !object.is_empty()) else {
        return Err(Error::failed_to_parse(
            "the field 'o' of an oplog entry with a command must be an object",
        ));
    };
    match object.first() {
        Some(("applyOps", _)) => {
            super::apply_all(cx, object, bypass_validation)?;
            return Ok(());
        }
        // The index is created by the entry that ends its build.
        Some(("startIndexBuild" | "abortIndexBuild", _)) => return Ok(()),
        _ => {}
    }
    let command = translate(entry, object)?;
    match run(cx, command.db, &command.body) {
        Err(error) if command.accepted.contains(&error.code()) => Ok(()),
        done => done,
    }
}

/// A command that an entry stands for.
pub(super) struct Translated<'a> {
    /// The database that it runs on.
    pub db: &'a str,
    /// Its document.
    pub body: DocBuf,
    /// Errors after which the entry counts as applied.
    accepted: &'static [ErrorCode],
}

/// The command that the object of an entry stands for.
///
/// # Errors
/// `IDLDuplicateField` (40413): the privileges are checked on the first field of a name, and the store may read the last.
/// Others for commands that are not applied.
pub(super) fn translate<'a>(entry: &'a Doc, object: &Doc) -> Result<Translated<'a>> {
    Arguments::new("applyOps.o", object).each_once()?;
    let ns = entry.get_str("ns").unwrap_or_default();
    let db = ns.split_once('.').map_or(ns, |(db, _)| db);
    let (name, value) = object.first().unwrap_or(("", Value::Null));
    let (body, accepted): (DocBuf, &'static [ErrorCode]) = match name {
        "create" => {
            if matches!(entry.get("ui"), Some(Value::Binary { .. })) {
                return Err(Error::not_supported(
                    "a UUID ('ui') in an oplog entry that creates a collection",
                ));
            }
            (object.to_owned(), &[ErrorCode::NamespaceExists])
        }
        "collMod" => (
            object.to_owned(),
            &[ErrorCode::IndexNotFound, ErrorCode::NamespaceNotFound],
        ),
        "createIndexes" => (create_index(value, object), &[]),
        "commitIndexBuild" => (
            doc! {
                "createIndexes": value, "indexes": object.get("indexes").unwrap_or(Value::Null),
            },
            &[],
        ),
        "drop" | "dropDatabase" | "convertToCapped" => {
            (object.to_owned(), &[ErrorCode::NamespaceNotFound])
        }
        "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => (
            doc! {"dropIndexes": value, "index": object.get("index").unwrap_or(Value::Null)},
            &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound],
        ),
        "renameCollection" => (
            rename(object),
            &[ErrorCode::NamespaceNotFound, ErrorCode::NamespaceExists],
        ),
        other => {
            return Err(Error::not_supported(format!(
                "the command '{other}' in an oplog entry"
            )));
        }
    };
    let db = if name == "renameCollection" {
        "admin"
    } else {
        db
    };
    Ok(Translated { db, body, accepted })
}

/// An entry has the fields of one index beside the name of the collection.
fn create_index(collection: Value<'_>, object: &Doc) -> DocBuf {
    let mut index = DocBuf::new();
    for (name, value) in object.iter().skip(1) {
        index.push(name, value);
    }
    doc! {"createIndexes": collection, "indexes": [&index]}
}

/// An entry names the collection that is replaced by its UUID.
fn rename(object: &Doc) -> DocBuf {
    let mut command = DocBuf::new();
    for (name, value) in object.iter() {
        match (name, value) {
            ("dropTarget", Value::Binary { .. }) => command.push(name, true),
            _ => command.push(name, value),
        }
    }
    command
}

/// Runs another command.
fn run(cx: &mut Context<'_>, db: &str, body: &Doc) -> Result<()> {
    let name = body.first().map_or("", |(name, _)| name);
    let Some((_, command)) = commands::find(name) else {
        return Err(Error::failed_to_parse("Unrecognized command in op"));
    };
    let spec = command.spec();
    let mut inner = Context {
        server: cx.server,
        caller: cx.caller,
        needs: None,
        connection: cx.connection,
        state: &mut *cx.state,
        name: spec.name(),
        db,
        body,
        sequences: &[],
        session: None,
        txn_number: None,
        statement: None,
        moment: None,
        noting: cx.noting.clone(),
        write_concern: WriteConcern::DEFAULT,
        limits: cx.limits.clone(),
        max_time: None,
        exhaust_allowed: false,
        legacy: false,
        more_to_come: false,
    };
    if let Some((field, _)) = body
        .iter()
        .skip(1)
        .find(|(field, _)| !spec.takes_any_field && !spec.has_field(field))
    {
        return Err(inner.args().unknown(field));
    }
    command.run(&mut inner).map(drop)
}
