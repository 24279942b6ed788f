//! Names of users and roles.

use std::fmt;

/// The name of a user or of a role: unique in its database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserName {
    pub name: String,
    /// The database that defines it; `$external` for users that another authority vouches for.
    pub db: String,
}

impl UserName {
    /// A name in a database.
    pub fn new(name: impl Into<String>, db: impl Into<String>) -> UserName {
        UserName {
            name: name.into(),
            db: db.into(),
        }
    }

    /// The user as whom the members of a replica set log in to each other. It is stored nowhere.
    pub fn system() -> UserName {
        UserName::new("__system", "local")
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.db)
    }
}
