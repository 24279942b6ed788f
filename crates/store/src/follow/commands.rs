//! Entries that change the catalog.

use frond_bson::{Doc, DocBuf, Value};
use frond_error::ErrorCode;

use super::documents::collection_of;
use crate::catalog::{IndexChange, IndexSelector, SYSTEM_VIEWS, Uuid};
use crate::index_build;
use crate::store::DocumentStore;
use frond_oplog::entry::{Kind, RawEntry};
use frond_storage::context::OpContext;
use frond_storage::error::{Error, Result, command, corrupt};
use frond_storage::index::spec::IndexSpec;
use frond_storage::namespace::Namespace;

/// Whether the documents of a collection are views.
pub(super) fn is_of_view(ns: &str) -> bool {
    ns.split_once('.')
        .is_some_and(|(_, coll)| coll == SYSTEM_VIEWS)
}

/// Applies an entry through a handle that knows the entry. What is done already, because a crash came before the entry was
/// committed, is no error.
///
/// # Errors
/// As [`super::Follower::apply`].
pub(super) fn apply(store: &DocumentStore, entry: &RawEntry<'_>) -> Result<()> {
    if entry.kind() != Kind::Command {
        return apply_to_view(store, entry);
    }
    let o = entry.o();
    let (name, value) = o.first().unwrap_or(("", Value::Null));
    let db = entry.ns().split_once('.').map_or(entry.ns(), |(db, _)| db);
    match name {
        "create" => {
            let ns = Namespace::new(db, text(&value)?)?;
            let uuid = entry.uuid().ok_or_else(|| unknown(o))?;
            store
                .catalog()
                .copy_collection(&ns, &without(o, &["idIndex"]), uuid)
        }
        "drop" => match existing(store, entry)? {
            Some(ns) => accept(store.drop_collection(&ns), &[ErrorCode::NamespaceNotFound]),
            None => Ok(()),
        },
        "dropDatabase" => {
            // Its collections have entries of their own, but for those that belong to this server alone.
            for collection in store.catalog().view().database(db) {
                let dropped = store.drop_collection(&collection.ns);
                accept(dropped, &[ErrorCode::NamespaceNotFound])?;
            }
            Ok(())
        }
        "createIndexes" => create_indexes(store, entry, &[&without(o, &[])]),
        "commitIndexBuild" => {
            let Some(Value::Array(indexes)) = o.get("indexes") else {
                return Err(unknown(o));
            };
            let specs: Vec<&Doc> = indexes.values().filter_map(|spec| spec.as_doc()).collect();
            create_indexes(store, entry, &specs)
        }
        // Of a build that was not finished nothing is known here.
        "startIndexBuild" | "abortIndexBuild" => Ok(()),
        "dropIndexes" => match (existing(store, entry)?, o.get_str("index")) {
            (_, None) => Err(unknown(o)),
            (None, _) => Ok(()),
            (Some(ns), Some(index)) => {
                let dropped = store.drop_indexes(&ns, &IndexSelector::Name(index.to_owned()));
                accept(dropped, &[ErrorCode::IndexNotFound])
            }
        },
        "collMod" => {
            let collection = collection_of(store.catalog(), entry.ns(), entry.uuid())?;
            modify(store, &collection.ns, o)
        }
        "renameCollection" => rename(store, entry),
        _ => Err(unknown(o)),
    }
}

/// The error of a command that this version does not know.
fn unknown(o: &Doc) -> Error {
    command(
        ErrorCode::NotImplemented,
        format!(
            "an entry of the primary's oplog has a command that this version cannot apply: {}",
            frond_storage::text::document(o)
        ),
    )
}

fn text<'a>(value: &'a Value<'_>) -> Result<&'a str> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(corrupt("the name of a collection in an entry of the oplog")),
    }
}

/// The fields behind the name of the command, without some.
fn without(o: &Doc, names: &[&str]) -> DocBuf {
    let mut out = DocBuf::new();
    for (name, value) in o.iter().skip(1).filter(|(name, _)| !names.contains(name)) {
        out.push(name, value);
    }
    out
}

/// The present name of the collection of an entry, if it is there.
fn existing(store: &DocumentStore, entry: &RawEntry<'_>) -> Result<Option<Namespace>> {
    let uuid: &Uuid = entry.uuid().ok_or_else(|| unknown(entry.o()))?;
    let found = store.catalog().by_uuid(uuid);
    Ok(found.map(|collection| collection.ns.clone()))
}

fn accept<T>(done: Result<T>, accepted: &[ErrorCode]) -> Result<()> {
    match done {
        Err(error) if !accepted.contains(&error.code()) => Err(error),
        _ => Ok(()),
    }
}

fn create_indexes(store: &DocumentStore, entry: &RawEntry<'_>, specs: &[&Doc]) -> Result<()> {
    let catalog = store.catalog();
    let collection = collection_of(catalog, entry.ns(), entry.uuid())?;
    let specs = specs.iter().map(|spec| IndexSpec::parse(spec));
    let specs: Vec<IndexSpec> = specs.collect::<Result<_>>()?;
    index_build::create(catalog, &collection.ns, specs, &OpContext::new())?;
    Ok(())
}

fn modify(store: &DocumentStore, ns: &Namespace, o: &Doc) -> Result<()> {
    let Some(index) = o.get_doc("index") else {
        return store.modify_collection(ns, &without(o, &[]));
    };
    let name = index.get_str("name").ok_or_else(|| unknown(o))?;
    let flag = |name| index.get(name).map(|value| value.truthy());
    let change = IndexChange {
        which: IndexSelector::Name(name.to_owned()),
        expire_after: index
            .get("expireAfterSeconds")
            .and_then(|seconds| seconds.as_f64())
            .map(|seconds| seconds as i64),
        hidden: flag("hidden"),
        prepare_unique: flag("prepareUnique"),
        unique: flag("unique") == Some(true),
        dry_run: false,
    };
    let known = [
        "name",
        "expireAfterSeconds",
        "hidden",
        "prepareUnique",
        "unique",
    ];
    if index.iter().any(|(name, _)| !known.contains(&name)) {
        return Err(unknown(o));
    }
    store.modify_index(ns, &change, &OpContext::new())?;
    Ok(())
}

fn rename(store: &DocumentStore, entry: &RawEntry<'_>) -> Result<()> {
    let o = entry.o();
    let to = Namespace::parse(o.get_str("to").ok_or_else(|| unknown(o))?)?;
    let collection = collection_of(store.catalog(), entry.ns(), entry.uuid())?;
    if collection.ns == to {
        return Ok(());
    }
    let drops_target = matches!(o.get("dropTarget"), Some(Value::Binary { .. }));
    store.rename_collection(&collection.ns, &to, drops_target)
}

/// A view is created, changed or dropped by a document of `system.views`.
fn apply_to_view(store: &DocumentStore, entry: &RawEntry<'_>) -> Result<()> {
    let Some(Value::String(name)) = entry.id() else {
        return Err(corrupt("the entry of a view"));
    };
    let after = match entry.kind() {
        Kind::Insert | Kind::Replace => Some(entry.o()),
        Kind::Delete => None,
        _ => return Err(unknown(entry.o())),
    };
    store.catalog().copy_view(&Namespace::parse(name)?, after)
}
