//! Commands in the form of shells and drivers before MongoDB 4.0.

use frond_bson::{Doc, DocBuf, Value};

/// Options that the shell of 3.0 put into `options` of an explained find, and the fields of `find` that they became;
/// none for those without an effect on this server.
const FIND_OPTIONS: &[(&str, Option<&str>)] = &[
    ("showDiskLoc", Some("showRecordId")),
    ("partial", Some("allowPartialResults")),
    ("slaveOk", None),
    ("exhaust", None),
    (SNAPSHOT, None),
];

/// Without an effect: every find reads a snapshot, so none returns a document twice because it moved.
pub(super) const SNAPSHOT: &str = "snapshot";

/// The equivalent command of today; none if the command needs no change.
pub(super) fn modern(command: &Doc) -> Option<DocBuf> {
    match command.first()? {
        ("find", _) => find(command),
        ("explain", Value::Document(inner)) if inner.first()?.0 == "find" => {
            let mut explain = DocBuf::new();
            explain.push("explain", &find(inner)?);
            for (name, value) in command.iter().skip(1) {
                explain.push(name, value);
            }
            Some(explain)
        }
        _ => None,
    }
}

/// A find without `snapshot`, and with its `options` as its fields.
fn find(command: &Doc) -> Option<DocBuf> {
    let options = command.get_doc("options");
    if options.is_none() && !command.contains_key(SNAPSHOT) {
        return None;
    }
    let fields = command.iter().filter(|(name, value)| {
        // Options that are not a document stay, and fail with an error that names them.
        *name != "options" || value.as_doc().is_none()
    });
    let mut find = DocBuf::new();
    for (name, value) in fields.chain(options.into_iter().flat_map(Doc::iter)) {
        let renamed = FIND_OPTIONS.iter().find(|(old, _)| *old == name);
        if let Some(name) = renamed.map_or(Some(name), |(_, new)| *new) {
            find.push(name, value);
        }
    }
    Some(find)
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use super::*;

    #[test]
    fn options_of_an_explained_find_become_its_fields() {
        let cases = [
            (
                doc! {"explain": {"find": "c", "filter": {"a": 1}, "options": {}}, "verbosity": "queryPlanner"},
                Some(
                    doc! {"explain": {"find": "c", "filter": {"a": 1}}, "verbosity": "queryPlanner"},
                ),
            ),
            (
                doc! {"explain": {"find": "c", "options": {
                    "slaveOk": true, "showDiskLoc": true, "partial": true, "maxTimeMS": 5, "min": {"a": 1},
                }, "skip": 1}},
                Some(doc! {"explain": {
                    "find": "c", "skip": 1, "showRecordId": true, "allowPartialResults": true, "maxTimeMS": 5,
                    "min": {"a": 1},
                }}),
            ),
            // These pass unchanged, so that their errors name them.
            (doc! {"explain": {"find": "c", "options": 1}}, None),
            (doc! {"explain": {"count": "c", "options": {}}}, None),
            (
                doc! {"find": "c", "snapshot": true, "sort": {"a": 1}},
                Some(doc! {"find": "c", "sort": {"a": 1}}),
            ),
            (doc! {"find": "c", "filter": {"snapshot": 1}}, None),
            (doc! {"explain": 1}, None),
            (doc! {}, None),
        ];
        for (old, expected) in cases {
            assert_eq!(modern(&old), expected, "{old:?}");
        }
    }
}
