//! Which namespaces are meant.

use frond_client::Collection;

/// The database in which a migration keeps its state.
pub const STATE_DATABASE: &str = "frond_migrate";

/// Prefix of the collections that hold the buckets of time series.
pub const BUCKETS: &str = "system.buckets.";

/// `--include` and `--exclude`. A name is `database`, `database.collection`, or has `*` for any text.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Vec<String>,
    exclude: Vec<String>,
}

impl Filter {
    /// Takes the patterns as they were given.
    pub fn new(include: &[String], exclude: &[String]) -> Filter {
        Filter {
            include: include.to_vec(),
            exclude: exclude.to_vec(),
        }
    }

    /// Whether a collection is moved.
    pub fn takes(&self, collection: &Collection) -> bool {
        !is_internal(collection) && self.chooses(collection)
    }

    /// Whether the options choose a collection, even one that a server keeps for itself.
    pub fn chooses(&self, collection: &Collection) -> bool {
        let name = collection.to_string();
        let fits = |pattern: &String| {
            matches(pattern, &name)
                || (!pattern.contains('.') && matches(pattern, &collection.database))
        };
        (self.include.is_empty() || self.include.iter().any(fits)) && !self.exclude.iter().any(fits)
    }

    /// Whether all namespaces are meant.
    pub fn is_open(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

/// Databases that a server, or a migration, keeps for itself.
pub fn is_internal_database(database: &str) -> bool {
    ["local", "config", STATE_DATABASE].contains(&database)
}

/// Collections that a server keeps for itself.
pub fn is_internal(collection: &Collection) -> bool {
    let Collection { database, name } = collection;
    if is_internal_database(database) || name.contains('$') {
        return true;
    }
    (name.starts_with("system.") && name != "system.js")
        || (database == "admin" && ["tempusers", "temproles"].contains(&name.as_str()))
}

/// The time series whose buckets a collection has.
pub fn series_of(collection: &Collection) -> Option<Collection> {
    let name = collection.name.strip_prefix(BUCKETS)?;
    Some(Collection {
        database: collection.database.clone(),
        name: name.to_owned(),
    })
}

/// Whether `*` of a pattern can stand for texts so that it is the name.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => match name.strip_prefix(head) {
            None => false,
            Some(tail) => (0..=tail.len())
                .filter(|at| tail.is_char_boundary(*at))
                .any(|at| matches(rest, tail.get(at..).unwrap_or_default())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let takes = |include: &[&str], exclude: &[&str], database: &str, name: &str| {
            let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            Filter::new(&owned(include), &owned(exclude)).takes(&Collection {
                database: database.to_owned(),
                name: name.to_owned(),
            })
        };
        assert!(takes(&[], &[], "shop", "a"));
        assert!(takes(&["shop"], &[], "shop", "a.b"));
        assert!(!takes(&["shop"], &[], "shop2", "a"));
        assert!(takes(&["shop.a*"], &[], "shop", "a.b"));
        assert!(!takes(&["shop.a*"], &[], "shop", "b"));
        assert!(takes(&["*.log"], &["old*"], "shop", "log"));
        assert!(!takes(&["*.log"], &["old*"], "older", "log"));
        assert!(takes(&["sh*p*.x"], &[], "shop", "y.x"));
        for (database, name) in [
            ("local", "oplog.rs"),
            ("config", "sessions"),
            ("admin", "system.users"),
            ("shop", "system.views"),
            ("shop", "a.$b_1"),
            (STATE_DATABASE, "state"),
        ] {
            assert!(!takes(&[], &[], database, name), "{database}.{name}");
        }
        assert!(takes(&[], &[], "shop", "system.js"));
    }
}
