//! The fields of commands that hold secrets, which neither the log nor `currentOp` shows.

use frond_bson::{Doc, Value};
use frond_wire::DocIter;

use super::parse::Request;
use crate::commands::{Command, Spec, find};

/// The fields of writes that may hold credentials of users.
const WRITTEN: [&str; 7] = [
    "applyOps",
    "deletes",
    "documents",
    "ops",
    "query",
    "update",
    "updates",
];

/// Whether a name is that of the collection of users, or of one in which mongorestore prepares it; with or without the
/// database.
fn is_of_users(name: &str) -> bool {
    name.contains("system.users") || name.contains("tempusers")
}

/// Whether a write names a collection of users. The documents that are written are not searched: there may be many.
fn names_users(body: &Doc, sequences: &[(&str, DocIter<'_>)]) -> bool {
    let is_named = |doc: &Doc| doc.get_str("ns").is_some_and(is_of_users);
    match body.first() {
        Some(("applyOps", Value::Array(entries))) => {
            let mut entries = entries.values().filter_map(|entry| entry.as_doc());
            entries.any(|entry| {
                let holds_entries = |inner: &&Doc| inner.contains_key("applyOps");
                let inner = entry.get_doc("o").filter(holds_entries);
                is_named(entry) || inner.is_some_and(|inner| names_users(inner, &[]))
            })
        }
        Some(("bulkWrite", _)) => {
            let mut infos = body.get_array("nsInfo").unwrap_or(Doc::empty()).values();
            let mut sequences = sequences.iter().filter(|(name, _)| *name == "nsInfo");
            infos.any(|info| info.as_doc().is_some_and(is_named))
                || sequences.any(|(_, infos)| {
                    // One that is malformed may name anything.
                    infos
                        .into_iter()
                        .any(|info| Doc::validate(info).map_or(true, is_named))
                })
        }
        Some((_, Value::String(collection))) => is_of_users(collection),
        // A UUID may be that of the collection of users.
        Some((_, Value::Binary { .. })) => true,
        _ => false,
    }
}

/// The fields of a command whose values are shown nowhere.
pub fn secrets(spec: &Spec, request: &Request<'_>) -> &'static [&'static str] {
    match request.body.first() {
        Some(("explain", Value::Document(inner))) => {
            let name = inner.first().map_or("", |(name, _)| name);
            let hides = |command: &dyn Command| {
                !secrets_in(command.spec(), request.db, inner, &[]).is_empty()
            };
            if find(name).is_some_and(|(_, command)| hides(command)) {
                &["explain"]
            } else {
                &[]
            }
        }
        _ => secrets_in(spec, request.db, request.body, &request.sequences),
    }
}

fn secrets_in(
    spec: &Spec,
    db: &str,
    body: &Doc,
    sequences: &[(&str, DocIter<'_>)],
) -> &'static [&'static str] {
    if spec.secrets.iter().any(|field| body.contains_key(field)) {
        return spec.secrets;
    }
    // A restore of users writes their credentials as documents.
    if spec.writes && db == "admin" && names_users(body, sequences) {
        &WRITTEN
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::{DocBuf, Value, doc};

    use super::*;

    fn hidden(body: &DocBuf) -> &'static [&'static str] {
        let request = Request::new("admin", body);
        let known = request.known.expect("the command exists");
        secrets(known.spec, &request)
    }

    #[test]
    fn secrets_are_found_by_the_names_of_collections() {
        let of_users = doc! {"update": "system.users", "updates": [{"q": {}, "u": {}}]};
        let uuid = Value::Binary {
            subtype: 4,
            bytes: &[7; 16],
        };
        let entry = doc! {"op": "i", "ns": "admin.system.users", "o": {}};
        let entries = doc! {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [&entry]}};
        let writes = [
            of_users.clone(),
            doc! {"insert": "tempusers", "documents": [{}]},
            doc! {"insert": uuid, "documents": [{}]},
            doc! {"bulkWrite": 1, "ops": [], "nsInfo": [{"ns": "admin.c"}, {"ns": "admin.system.users"}]},
            doc! {"applyOps": [{"op": "n", "ns": ""}, &entry]},
            doc! {"applyOps": [&entries]},
        ];
        for write in writes {
            assert_eq!(hidden(&write), WRITTEN, "{write:?}");
        }
        let create = doc! {"createUser": "a", "pwd": "pencil", "roles": []};
        for inner in [of_users, create] {
            assert_eq!(hidden(&doc! {"explain": &inner}), ["explain"]);
        }
        // The text inside of documents says nothing.
        let text = doc! {"a": "tempusers and system.users"};
        let shown = [
            doc! {"bulkWrite": 1, "ops": [{"insert": 0, "document": &text}], "nsInfo": [{"ns": "admin.c"}]},
            doc! {"insert": "c", "documents": [&text]},
            doc! {"find": "system.users"},
            doc! {"explain": {"find": "c", "filter": &text}},
        ];
        for command in shown {
            assert!(hidden(&command).is_empty(), "{command:?}");
        }
    }
}
