//! The privileges that the entries of `applyOps` need.

use frond_bson::{Doc, Value};
use frond_error::{Error, Result};

use super::catalog;
use crate::authorization::{Action, Needs, Requested};

/// The privilege to apply entries, and those for what each of them does.
pub(super) fn needs<'a>(request: &Requested<'a>) -> Result<Needs<'a>> {
    let args = request.args();
    let always_upserts = args.flag("alwaysUpsert")?.unwrap_or(true);
    let entries = args.array("applyOps")?.unwrap_or(Doc::empty());
    let mut all = vec![Needs::cluster(Action::ApplyOps)];
    for entry in entries.values().filter_map(|entry| entry.as_doc()) {
        let needs = of_entry(request, entry, always_upserts)?;
        if !all.contains(&needs) {
            all.push(needs);
        }
        let object = entry.get_doc("o").unwrap_or(Doc::empty());
        if has_uuid(entry) || has_uuid(object) {
            all.push(Needs::cluster(Action::UseUuid));
        }
    }
    Ok(Needs::All(all))
}

fn has_uuid(doc: &Doc) -> bool {
    let is_uuid = |value| matches!(value, Value::Binary { subtype: 4, .. });
    doc.values().any(is_uuid)
}

fn of_entry<'a>(
    request: &Requested<'a>,
    entry: &'a Doc,
    always_upserts: bool,
) -> Result<Needs<'a>> {
    let kind = entry.get_str("op").unwrap_or_default();
    let on_ns = |actions| {
        let ns = entry.get_str("ns").unwrap_or_default();
        Needs::on_namespace(ns, request.writing(actions))
    };
    match kind {
        "n" => Ok(Needs::cluster(Action::AppendOplogNote)),
        // A document with the same `_id` is replaced.
        "i" => on_ns([Action::Insert, Action::Update]),
        "u" if always_upserts || entry.get_bool("b") == Some(true) => {
            on_ns([Action::Insert, Action::Update])
        }
        "u" => on_ns([Action::Update, Action::Update]),
        "d" => on_ns([Action::Remove, Action::Remove]),
        "c" => of_command(request, entry),
        _ => Err(Error::failed_to_parse("Unrecognized opType")),
    }
}

fn of_command(request: &Requested<'_>, entry: &Doc) -> Result<Needs<'static>> {
    let object = entry.get_doc("o").unwrap_or(Doc::empty());
    // No finer privilege describes entries inside of entries, or those of an index build.
    if let Some(("applyOps" | "startIndexBuild" | "abortIndexBuild", _)) = object.first() {
        return Ok(Needs::superuser());
    }
    let translated = catalog::translate(entry, object)?;
    let command = translated.command;
    let inner = Requested {
        server: request.server,
        name: command.spec().name(),
        db: translated.db,
        body: &translated.body,
        sequences: &[],
        user: request.user,
    };
    Ok(command.needs(&inner)?.into_owned())
}
