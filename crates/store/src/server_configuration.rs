//! `admin.system.version`: the versions of what is stored. One document has the feature compatibility version, which tools
//! and agents read, and which no client may change.

use frond_bson::{Doc, Value};
use frond_error::ErrorCode;

use frond_storage::error::{Result, command};
use frond_storage::namespace::Namespace;
use frond_storage::text;

/// The name of the collection `admin.system.version`.
pub const SERVER_CONFIGURATION: &str = "admin.system.version";

/// The `_id` of the document with the feature compatibility version.
pub const FEATURE_COMPATIBILITY_ID: &str = "featureCompatibilityVersion";

/// The only feature compatibility version.
pub const FEATURE_COMPATIBILITY_VERSION: &str = "8.0";

fn is_feature_compatibility(ns: &Namespace, doc: &Doc) -> bool {
    ns.as_str() == SERVER_CONFIGURATION
        && doc.get("_id") == Some(Value::String(FEATURE_COMPATIBILITY_ID))
}

/// Checks a document before it is stored: the feature compatibility version has to stay as it is.
///
/// # Errors
/// 4926900 for another version.
pub(crate) fn check_stored(ns: &Namespace, doc: &Doc) -> Result<()> {
    if !is_feature_compatibility(ns, doc) {
        return Ok(());
    }
    match doc.get("version") {
        Some(Value::String(FEATURE_COMPATIBILITY_VERSION)) => Ok(()),
        other => {
            let found = other.map_or("nothing".to_owned(), |found| text::value(found));
            Err(command(
                ErrorCode::Location(4_926_900),
                format!(
                    "Invalid feature compatibility version document in {SERVER_CONFIGURATION}: the version is \
                     {found}, but this server has only \"{FEATURE_COMPATIBILITY_VERSION}\""
                ),
            ))
        }
    }
}

/// Checks a document before it is removed.
///
/// # Errors
/// 40670 for the one with the feature compatibility version.
pub(crate) fn check_removed(ns: &Namespace, doc: &Doc) -> Result<()> {
    if is_feature_compatibility(ns, doc) {
        Err(command(
            ErrorCode::Location(40670),
            "removing FeatureCompatibilityVersion document is not allowed",
        ))
    } else {
        Ok(())
    }
}

/// Checks a collection before it is dropped or renamed.
///
/// # Errors
/// 50755 for this one.
pub(crate) fn check_dropped(ns: &Namespace) -> Result<()> {
    if ns.as_str() == SERVER_CONFIGURATION {
        Err(command(
            ErrorCode::Location(50755),
            format!("dropping the server configuration collection ({ns}) is not allowed."),
        ))
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::{DocBuf, doc};

    use super::*;

    #[test]
    fn only_the_feature_compatibility_version_is_kept_as_it_is() {
        let versions = Namespace::new("admin", "system.version").unwrap();
        let others = Namespace::new("test", "system.version").unwrap();
        let fcv = |version: &str| doc! {"_id": FEATURE_COMPATIBILITY_ID, "version": version};
        let code = |checked: Result<()>| checked.map_err(|error| error.code().code());
        let cases: [(&Namespace, DocBuf, i32, i32); 6] = [
            (&versions, fcv("8.0"), 0, 40670),
            (&versions, fcv("7.0"), 4_926_900, 40670),
            (
                &versions,
                doc! {"_id": FEATURE_COMPATIBILITY_ID},
                4_926_900,
                40670,
            ),
            (
                &versions,
                doc! {"_id": "authSchema", "currentVersion": 5},
                0,
                0,
            ),
            (&versions, doc! {"version": "7.0"}, 0, 0),
            (&others, fcv("7.0"), 0, 0),
        ];
        for (ns, doc, stored, removed) in cases {
            assert_eq!(
                code(check_stored(ns, &doc)).err().unwrap_or(0),
                stored,
                "{doc:?}"
            );
            assert_eq!(
                code(check_removed(ns, &doc)).err().unwrap_or(0),
                removed,
                "{doc:?}"
            );
        }
        assert_eq!(code(check_dropped(&versions)), Err(50755));
        assert_eq!(code(check_dropped(&others)), Ok(()));
    }
}
