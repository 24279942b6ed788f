//! The first field of `usersInfo` and `rolesInfo`: of whom a client asks.

use frond_auth::UserName;
use frond_bson::Value;
use frond_error::Result;

use crate::access::stored::{Place, parse_name};
use crate::arguments::Arguments;

/// Of whom a client asks.
pub enum Asked {
    /// All of the command's database.
    OfDatabase,
    /// All of all databases.
    Everywhere,
    /// These.
    Named(Vec<UserName>),
}

impl Asked {
    /// Reads the field: 1, a name, a document, or an array of names and documents. `{forAllDBs: true}` asks for users of all
    /// databases.
    ///
    /// # Errors
    /// `BadValue` (2).
    pub fn parse(args: &Arguments<'_>, command: &str, place: &Place, db: &str) -> Result<Asked> {
        let one = |value: &Value<'_>| match value {
            Value::String(name) => Ok(UserName::new(*name, db)),
            other => parse_name(place, other),
        };
        let value = args.get(command).unwrap_or(Value::Null);
        if value.is_number() && value.as_f64() == Some(1.0) {
            return Ok(Asked::OfDatabase);
        }
        if let (Value::Document(given), "user") = (&value, place.key)
            && given.get("forAllDBs").is_some_and(|all| all.truthy())
        {
            return Ok(Asked::Everywhere);
        }
        if let Value::Array(names) = value {
            let names = names.values().map(|value| one(&value));
            return names.collect::<Result<_>>().map(Asked::Named);
        }
        Ok(Asked::Named(vec![one(&value)?]))
    }
}
