//! Namespaces: `database.collection`, checked by MongoDB's naming rules.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};

use frond_error::ErrorCode;

use crate::error::{Result, command};

/// Longest database name, in bytes.
const DATABASE_BYTES_MAX: usize = 63;
/// Longest `database.collection`, in bytes.
const NAMESPACE_BYTES_MAX: usize = 255;

/// The full name of a collection: one string, so that look-ups need no
/// allocation. The database ends at the first dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Namespace {
    full: Box<str>,
    dot: usize,
}

impl Namespace {
    /// Checks both names. Error 73 (`InvalidNamespace`) says which one is wrong.
    pub fn new(db: &str, coll: &str) -> Result<Namespace> {
        check_database_name(db)?;
        check_collection_name(db, coll)?;
        // Of the exact length, without the machinery of `format`: each request makes one.
        let mut full = String::with_capacity(db.len() + 1 + coll.len());
        full.push_str(db);
        full.push('.');
        full.push_str(coll);
        Ok(Namespace {
            full: full.into(),
            dot: db.len(),
        })
    }

    /// Splits `"db.coll"` at the first dot and checks both parts.
    pub fn parse(full: &str) -> Result<Namespace> {
        match full.split_once('.') {
            Some((db, coll)) => Namespace::new(db, coll),
            None => Err(command(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{full}'"),
            )),
        }
    }

    /// The pseudo-collection of commands on a whole database.
    pub fn of_database(db: &str) -> Namespace {
        Namespace {
            full: format!("{db}.$cmd.aggregate").into(),
            dot: db.len(),
        }
    }

    pub fn db(&self) -> &str {
        &self.full[..self.dot]
    }

    /// The collection, without its database.
    pub fn coll(&self) -> &str {
        &self.full[self.dot + 1..]
    }

    /// `database.collection`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Refuses to create or write collections with reserved names.
    pub fn check_may_create(&self) -> Result<()> {
        const ALLOWED: [&str; 4] = [
            "system.js",
            "system.users",
            "system.roles",
            "system.version",
        ];
        let is_replica_set_config = &*self.full == "local.system.replset";
        if self.coll().starts_with("system.")
            && !ALLOWED.contains(&self.coll())
            && !is_replica_set_config
        {
            return Err(command(
                ErrorCode::InvalidNamespace,
                format!("Invalid system namespace: {self}"),
            ));
        }
        Ok(())
    }
}

// Hashed and compared as a string, so that a map of namespaces can be searched with a `&str`.
impl Hash for Namespace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.full.hash(state);
    }
}

impl Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.full
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

/// Checks a database name: not empty, at most 63 bytes, none of `/\. "$` and no NUL.
pub fn check_database_name(db: &str) -> Result<()> {
    let bad = |c: char| matches!(c, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
    if db.is_empty() || db.len() > DATABASE_BYTES_MAX || db.contains(bad) {
        return Err(command(
            ErrorCode::InvalidNamespace,
            format!("Invalid database name: '{db}'"),
        ));
    }
    Ok(())
}

fn check_collection_name(db: &str, coll: &str) -> Result<()> {
    let wrong = |message: String| Err(command(ErrorCode::InvalidNamespace, message));
    if coll.is_empty() {
        return wrong(format!("Invalid namespace specified '{db}.'"));
    }
    if coll.contains('\0') {
        return wrong("namespaces cannot have embedded null characters".to_owned());
    }
    if coll.starts_with('.') {
        return wrong(format!("Collection names cannot start with '.': {coll}"));
    }
    if coll.contains('$') {
        return wrong(format!("Invalid collection name: {coll}"));
    }
    if db.len() + 1 + coll.len() > NAMESPACE_BYTES_MAX {
        return wrong(format!(
            "Fully qualified namespace is too long. Namespace: {db}.{coll} Max: {NAMESPACE_BYTES_MAX}"
        ));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn names_follow_the_rules() {
        let long_db = "d".repeat(64);
        let long_coll = format!("a.{}", "c".repeat(254));
        for (full, valid) in [
            ("a.b", true),
            ("a.b.c", true),
            ("admin.system.version", true),
            ("a.system.indexes", true),
            ("a", false),
            ("", false),
            (".b", false),
            ("a.", false),
            ("a..b", false),
            ("a b.c", false),
            ("a$.c", false),
            ("a.$cmd", false),
            ("a.b$c", false),
            ("a/b.c", false),
            ("a.b\0", false),
            (&long_coll, false),
            (&format!("{long_db}.c"), false),
            (&format!("{}.c", &long_db[1..]), true),
        ] {
            match Namespace::parse(full) {
                Ok(ns) => assert!(valid && ns.as_str() == full, "{full:?} was accepted"),
                Err(error) => {
                    assert!(!valid, "{full:?} was refused: {error}");
                    assert_eq!(error.code(), ErrorCode::InvalidNamespace);
                }
            }
        }
    }

    #[test]
    fn parts_and_look_up_by_string() {
        let ns = Namespace::parse("a.b.c").unwrap();
        assert_eq!((ns.db(), ns.coll()), ("a", "b.c"));
        let map = HashMap::from([(ns, 1)]);
        assert_eq!(map.get("a.b.c"), Some(&1));
        assert_eq!(map.get("a.b"), None);
    }

    #[test]
    fn reserved_collections_are_not_created() {
        let may = |s| Namespace::parse(s).unwrap().check_may_create().is_ok();
        assert!(may("a.systems"));
        assert!(may("a.system.js"));
        assert!(!may("a.system.views"));
        assert!(!may("a.system.indexes"));
    }
}
