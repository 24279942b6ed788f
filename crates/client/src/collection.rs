//! The name of a collection.

use std::fmt;

use crate::error::{Error, Result};

/// A database and a collection in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection {
    pub database: String,
    pub name: String,
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.name)
    }
}

impl Collection {
    /// Refuses names that no server accepts.
    pub fn new(database: &str, name: &str) -> Result<Collection> {
        if name.is_empty() || name.contains(['$', '\0']) {
            return Err(Error::Settings(format!(
                "--collection {name:?} is not a collection name"
            )));
        }
        if database.is_empty() || database.contains(['/', '\\', ' ', '"', '$', '.', '\0']) {
            return Err(Error::Settings(format!(
                "--db {database:?} is not a database name"
            )));
        }
        Ok(Collection {
            database: database.to_owned(),
            name: name.to_owned(),
        })
    }
}
