//! Entries of `applyOps` that change the catalog: `op: "c"`.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::arguments::Arguments;
use crate::commands::catalog::{
    coll_mod, convert_to_capped, create, create_indexes, drop, drop_database, drop_indexes,
    partitions, rename_collection,
};
use crate::commands::spec::Command;
use crate::concern::WriteConcern;
use crate::context::Context;
use crate::operation::Exhaust;

/// Applies an entry whose `o` is a command on the catalog.
pub(super) fn apply(cx: &mut Context<'_>, entry: &Doc) -> Result<()> {
    let Some(object) = entry.get_doc("o").filter(|object| !object.is_empty()) else {
        return Err(Error::failed_to_parse(
            "the field 'o' of an oplog entry with a command must be an object",
        ));
    };
    // The index is created by the entry that ends its build.
    if let Some(("startIndexBuild" | "abortIndexBuild", _)) = object.first() {
        return Ok(());
    }
    let translated = translate(entry, object)?;
    match run(cx, &translated) {
        Err(error) if translated.accepted.contains(&error.code()) => Ok(()),
        done => done,
    }
}

/// A command with one of the fields of an entry.
fn command_with(name: &str, value: Value<'_>, object: &Doc, field: &str) -> DocBuf {
    let mut command = DocBuf::new();
    command.push(name, value);
    if let Some(given) = object.get(field) {
        command.push(field, given);
    }
    command
}

/// A command that an entry stands for.
pub(super) struct Translated<'a> {
    pub command: &'static dyn Command,
    /// The database that it runs on.
    pub db: &'a str,
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
    let (command, body, accepted): (&'static dyn Command, DocBuf, &'static [ErrorCode]) = match name
    {
        "create" => {
            if matches!(entry.get("ui"), Some(Value::Binary { .. })) {
                return Err(Error::not_supported(
                    "a UUID ('ui') in an oplog entry that creates a collection",
                ));
            }
            (
                &create::Create,
                object.to_owned(),
                &[ErrorCode::NamespaceExists],
            )
        }
        "collMod" => (
            &coll_mod::CollMod,
            object.to_owned(),
            &[ErrorCode::IndexNotFound, ErrorCode::NamespaceNotFound],
        ),
        "createIndexes" => (
            &create_indexes::CreateIndexes,
            create_index(value, object),
            &[],
        ),
        "commitIndexBuild" => (
            &create_indexes::CreateIndexes,
            doc! {
                "createIndexes": value, "indexes": object.get("indexes").unwrap_or(Value::Null),
            },
            &[],
        ),
        "drop" => (
            &drop::Drop,
            object.to_owned(),
            &[ErrorCode::NamespaceNotFound],
        ),
        "dropDatabase" => (
            &drop_database::DropDatabase,
            object.to_owned(),
            &[ErrorCode::NamespaceNotFound],
        ),
        "convertToCapped" => (
            &convert_to_capped::ConvertToCapped,
            object.to_owned(),
            &[ErrorCode::NamespaceNotFound],
        ),
        "addPartition" => (
            &partitions::AddPartition,
            command_with(name, value, object, "newMax"),
            &[ErrorCode::NamespaceNotFound],
        ),
        // It may be dropped already.
        "dropPartition" => (
            &partitions::DropPartition,
            command_with(name, value, object, "id"),
            &[ErrorCode::NamespaceNotFound, ErrorCode::BadValue],
        ),
        "dropIndexes" | "dropIndex" | "deleteIndexes" | "deleteIndex" => (
            &drop_indexes::DropIndexes,
            doc! {"dropIndexes": value, "index": object.get("index").unwrap_or(Value::Null)},
            &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound],
        ),
        "renameCollection" => (
            &rename_collection::RenameCollection,
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
    Ok(Translated {
        command,
        db,
        body,
        accepted,
    })
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

fn run(cx: &mut Context<'_>, translated: &Translated<'_>) -> Result<()> {
    let spec = translated.command.spec();
    let body: &Doc = &translated.body;
    let mut inner = Context {
        server: cx.server,
        caller: cx.caller,
        needs: None,
        connection: cx.connection,
        state: &mut *cx.state,
        operation: &mut *cx.operation,
        name: spec.name(),
        db: translated.db,
        body,
        sequences: &[],
        session: None,
        txn_number: None,
        statement: None,
        point_in_time: None,
        noting: cx.noting.clone(),
        write_concern: WriteConcern::DEFAULT,
        limits: cx.limits.clone(),
        max_time: None,
        exhaust: &mut Exhaust::default(),
        legacy: false,
    };
    if let Some((field, _)) = body
        .iter()
        .skip(1)
        .find(|(field, _)| !spec.takes_any_field && !spec.has_field(field))
    {
        return Err(inner.args().unknown(field));
    }
    translated.command.run(&mut inner).map(drop)
}
