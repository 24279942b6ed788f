//! The first field of `usersInfo` and `rolesInfo`, which selects users or roles.

use frond_auth::UserName;
use frond_bson::Value;
use frond_error::Result;

use crate::access::stored::{Place, parse_name};
use crate::arguments::Arguments;

/// The selected users or roles.
pub enum Selection {
    /// All of the command's database.
    OfDatabase,
    /// All of all databases.
    Everywhere,
    Named(Vec<UserName>),
}

impl Selection {
    /// Reads the field: 1, a name, a document, or an array of names and documents. `{forAllDBs: true}` selects users of all
    /// databases.
    ///
    /// # Errors
    /// `BadValue` (2).
    pub fn parse(
        args: &Arguments<'_>,
        command: &str,
        place: &Place,
        db: &str,
    ) -> Result<Selection> {
        let one = |value: &Value<'_>| match value {
            Value::String(name) => Ok(UserName::new(*name, db)),
            other => parse_name(place, other),
        };
        let value = args.get(command).unwrap_or(Value::Null);
        if value.is_number() && value.as_f64() == Some(1.0) {
            return Ok(Selection::OfDatabase);
        }
        if let (Value::Document(given), "user") = (&value, place.key)
            && given.get("forAllDBs").is_some_and(|all| all.truthy())
        {
            return Ok(Selection::Everywhere);
        }
        if let Value::Array(names) = value {
            let names = names.values().map(|value| one(&value));
            return names.collect::<Result<_>>().map(Selection::Named);
        }
        Ok(Selection::Named(vec![one(&value)?]))
    }
}
