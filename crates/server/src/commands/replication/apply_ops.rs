//! `applyOps`: applies entries of an oplog, which `mongorestore --oplogReplay` and other tools send.
//!
//! The entries are applied one after the other, each with an oplog entry of its own, as MongoDB 8 does: what is done before an
//! error stays. An entry may be applied again: an insert of a document that exists replaces it, and a delete of one that does
//! not exist does nothing.

mod catalog;
mod needs;
mod update;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DeleteRequest, Durability, InsertOptions, Namespace, UpdateRequest};

use crate::arguments::Arguments;
use crate::authorization::{Needs, Requested};
use crate::commands::crud::{delete, insert};
use crate::commands::spec::{Command, Spec};
use crate::commands::support::write::bypass_validation;
use crate::context::Context;
use crate::observability::log::Component;

/// The deepest nesting of `applyOps` entries.
const DEPTH_MAX: usize = 10;

/// MongoDB's `UpdateOperationFailed`, of an update without a document.
const UPDATE_OPERATION_FAILED: i32 = 218;

/// MongoDB's `UnknownError`, of a command some of whose entries failed.
const UNKNOWN_ERROR: i32 = 8;

pub struct ApplyOps;

const SPEC: Spec = Spec {
    names: &["applyOps"],
    doc: "Applies entries of an oplog, one after the other.",
    // Entries are never applied as a whole, also in MongoDB 8, so `allowAtomic` makes no difference.
    fields: &[
        "alwaysUpsert",
        "allowAtomic",
        "bypassDocumentValidation",
        "oplogApplicationMode",
        "prepare",
        "partialTxn",
        "count",
    ],
    unsupported_fields: &["preCondition"],
    on_collection: false,
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

impl Command for ApplyOps {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        needs::needs(request)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        args.flag("allowAtomic")?;
        check_mode(args.str("oplogApplicationMode")?)?;
        let bypass_validation = bypass_validation(&args)?;
        let command = cx.body;
        check(command, 0)?;
        apply_all(cx, command, bypass_validation)
    }
}

/// Checks `oplogApplicationMode`. The other modes are those of members that copy the oplog of another one.
fn check_mode(mode: Option<&str>) -> Result<()> {
    match mode {
        None | Some("ApplyOps") => Ok(()),
        Some(mode @ ("InitialSync" | "Recovering" | "Secondary")) => Err(Error::not_supported(
            format!("the option 'oplogApplicationMode: \"{mode}\"' of the command 'applyOps'"),
        )),
        Some(other) => Err(Error::failed_to_parse(format!(
            "Could not parse oplogApplicationMode :: caused by :: Invalid oplog application mode provided: {other}"
        ))),
    }
}

/// Checks the form of all entries before any of them is applied.
///
/// # Errors
/// MongoDB's: `FailedToParse` (9), `IllegalOperation` (20), and others for fields of prepared and partial transactions.
fn check(command: &Doc, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::failed_to_parse("Too many nested applyOps"));
    }
    for (field, code, message) in [
        ("prepare", 2, "applyOps command can't have 'prepare' field"),
        (
            "partialTxn",
            31056,
            "applyOps command can't have 'partialTxn' field.",
        ),
        ("count", 31240, "applyOps command can't have 'count' field."),
    ] {
        if command.get(field).is_some_and(|value| value.truthy()) {
            return Err(Error::location(code, message));
        }
    }
    let Some((_, Value::Array(entries))) = command.first() else {
        return Err(Error::failed_to_parse("ops has to be an array"));
    };
    let is_single = entries.count() == 1;
    for (at, entry) in entries.iter() {
        let Value::Document(entry) = entry else {
            return Err(Error::failed_to_parse(format!("op not an object: {at}")));
        };
        let kind = text(entry, "op", at)?;
        let ns = text(entry, "ns", at)?;
        if ns.is_empty() && kind != "n" {
            return Err(illegal(format!(
                "\"ns\" field value cannot be empty when op type is not 'n': {at}"
            )));
        }
        match (kind, entry.get_doc("o").and_then(Doc::first)) {
            ("c", Some(("applyOps", _))) => {
                check(entry.get_doc("o").unwrap_or(Doc::empty()), depth + 1)?;
            }
            ("c", Some(("dropDatabase", _))) if depth > 0 => {
                return Err(Error::location(
                    9_585_500,
                    "dropDatabase is not allowed inside nested applyOps",
                ));
            }
            ("c", Some(("dropDatabase", _))) if !is_single => {
                return Err(Error::location(
                    6_275_900,
                    "dropDatabase in an applyOps must be the only entry",
                ));
            }
            ("i" | "u" | "d" | "c" | "n", _) => {}
            _ => return Err(Error::failed_to_parse("Unrecognized opType")),
        }
    }
    Ok(())
}

fn illegal(message: String) -> Error {
    Error::new(ErrorCode::IllegalOperation, message)
}

fn text<'a>(entry: &'a Doc, field: &str, at: &str) -> Result<&'a str> {
    match entry.get(field) {
        Some(Value::String("")) if field == "op" => {
            Err(illegal(format!("\"op\" field value cannot be empty: {at}")))
        }
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(illegal(format!("\"{field}\" field is not a string: {at}"))),
        None => Err(illegal(format!(
            "op does not contain required \"{field}\" field: {at}"
        ))),
    }
}

/// The options of the command that all its entries share.
#[derive(Clone, Copy, Debug)]
struct Options {
    /// Updates insert a document that does not exist.
    always_upsert: bool,
    bypass_validation: bool,
}

/// The failure of an entry.
enum Failure {
    /// Later entries are still applied. As in MongoDB, the log has the reason and the reply has not.
    OfEntry(Error),
    /// The whole command fails with it.
    OfCommand(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::OfCommand(error)
    }
}

impl From<frond_store::Error> for Failure {
    fn from(error: frond_store::Error) -> Failure {
        Failure::OfCommand(error.into())
    }
}

/// Applies the entries of a command. Returns `{applied, results}`, which is a part of the error, too.
fn apply_all(cx: &mut Context<'_>, command: &Doc, bypass_validation: bool) -> Result<DocBuf> {
    let args = Arguments::new("applyOps", command);
    let options = Options {
        always_upsert: args.flag("alwaysUpsert")?.unwrap_or(true),
        bypass_validation,
    };
    let entries = args.array("applyOps")?.unwrap_or(Doc::empty());
    let mut results = ArrayBuf::new();
    let mut errors = 0;
    let summary = |results: ArrayBuf| {
        let mut summary = doc! {"applied": results.len() as i32};
        summary.push("results", results.as_value());
        summary
    };
    for entry in entries.values().filter_map(|entry| entry.as_doc()) {
        let kind = entry.get_str("op").unwrap_or_default();
        if kind == "n" {
            continue;
        }
        let applied = cx
            .limits
            .check()
            .map_err(|error| Failure::OfCommand(error.into()))
            .and_then(|()| match kind {
                "c" => apply_command(cx, entry, bypass_validation).map_err(Failure::OfCommand),
                _ => apply(cx, kind, entry, options),
            });
        results.push(applied.is_ok());
        match applied {
            Ok(()) => {}
            Err(Failure::OfEntry(error)) => {
                errors += 1;
                cx.server.log.info(
                    Component::Command,
                    21064,
                    &cx.connection.name,
                    "applyOps error applying",
                    &doc! {"ns": entry.get_str("ns"), "code": error.code().code(), "error": error.message()},
                );
            }
            Err(Failure::OfCommand(error)) => return Err(error.with_details(summary(results))),
        }
    }
    if errors > 0 {
        return Err(Error::location(
            UNKNOWN_ERROR,
            "applyOps had one or more errors applying ops",
        )
        .with_details(summary(results)));
    }
    Ok(summary(results))
}

/// Applies an entry whose `o` is a command.
fn apply_command(cx: &mut Context<'_>, entry: &Doc, bypass_validation: bool) -> Result<()> {
    let object = entry.get_doc("o").unwrap_or(Doc::empty());
    if let Some(("applyOps", _)) = object.first() {
        return apply_all(cx, object, bypass_validation).map(drop);
    }
    catalog::apply(cx, entry)
}

/// Applies an insert, an update or a delete.
fn apply(cx: &Context<'_>, kind: &str, entry: &Doc, options: Options) -> Result<(), Failure> {
    let ns = Namespace::parse(entry.get_str("ns").unwrap_or_default())?;
    if cx.store().catalog().is_view(&ns) {
        return Err(Failure::OfCommand(Error::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("applyOps not supported on view: {ns}"),
        )));
    }
    let uuid = cx.store().uuid_of(&ns);
    if let Some(Value::Binary { subtype: 4, bytes }) = entry.get("ui")
        && uuid.is_none_or(|uuid| uuid != bytes)
    {
        return Err(Failure::OfEntry(Error::location(
            3_318_200,
            format!(
                "Namespace '{ns}' and UUID '{}' point to different collections",
                frond_bson::hex(bytes)
            ),
        )));
    }
    let Some(object) = entry.get_doc("o") else {
        return Err(Failure::OfCommand(Error::failed_to_parse(
            "the field 'o' of an oplog entry must be an object",
        )));
    };
    if uuid.is_none() {
        return match kind {
            "d" => Ok(()),
            _ => Err(Failure::OfCommand(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("cannot apply insert or update operation on a non-existent namespace {ns}"),
            ))),
        };
    }
    match kind {
        "i" => insert_or_replace(cx, &ns, object, options).map_err(Failure::OfCommand),
        "d" => {
            let filter = id_filter(object, "delete")?;
            let request = DeleteRequest {
                filter: &filter,
                limit_one: true,
                hint: None,
                variables: None,
                collation: None,
            };
            let deleted = delete::delete(cx, &ns, &request, None)?;
            cx.server.metrics.documents_deleted.add(deleted);
            Ok(())
        }
        _ => {
            let criteria = entry.get_doc("o2").unwrap_or(Doc::empty());
            let filter = id_filter(criteria, "update")?;
            let upsert = options.always_upsert || entry.get_bool("b") == Some(true);
            let update = update::Entry {
                ns: &ns,
                filter: &filter,
                object,
                upsert,
                bypass_validation: options.bypass_validation,
            };
            if update.apply(cx)? {
                Ok(())
            } else {
                Err(Failure::OfEntry(Error::location(
                    UPDATE_OPERATION_FAILED,
                    "Failed to apply update: there is no such document",
                )))
            }
        }
    }
}

/// `{_id: …}` of a document.
fn id_filter(document: &Doc, what: &str) -> Result<DocBuf> {
    match document.get("_id") {
        Some(id) => Ok(doc! {"_id": id}),
        None => Err(Error::new(
            ErrorCode::NoSuchKey,
            format!("Failed to apply {what} due to missing _id"),
        )),
    }
}

/// Inserts a document, or replaces the one with its `_id`.
fn insert_or_replace(
    cx: &Context<'_>,
    ns: &Namespace,
    document: &Doc,
    options: Options,
) -> Result<()> {
    let filter = id_filter(document, "insert")?;
    let inserting = InsertOptions {
        ordered: true,
        durability: Durability::Logged,
        bypass_validation: options.bypass_validation,
        keep_empty_timestamps: true,
    };
    let (inserted, errors) = insert::insert(cx, ns, &[document], inserting, None)?;
    cx.server.metrics.documents_inserted.add(inserted as u64);
    match errors.into_iter().next() {
        None => Ok(()),
        Some((_, error)) if error.code() == ErrorCode::DuplicateKey => {
            let request = UpdateRequest {
                upsert: true,
                bypass_validation: options.bypass_validation,
                ..update::request(&filter, Value::Document(document))
            };
            crate::commands::crud::update::update(cx, ns, &request, None)?;
            Ok(())
        }
        Some((_, error)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
