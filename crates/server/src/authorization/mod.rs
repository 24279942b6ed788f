//! Authorization of commands. Each command declares what it needs ([`crate::commands::Command::needs`]) of a [`Requested`]; the
//! dispatcher compares it with what its [`Caller`] may.

use std::borrow::Cow;

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_wire::DocIter;

use crate::arguments::Arguments;
pub use crate::needs::{Needs, Place};
use crate::state::Server;

mod caller;
mod pipeline;

pub use caller::Caller;
pub use frond_auth::{Action, ActionSet, UserName, is_normal_collection};
pub use pipeline::{NO_COLLECTION, of_pipeline, of_view};

/// A command that a client asks for, before it is known whether it may.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    pub server: &'a Server,
    /// The proper name of the command.
    pub name: &'static str,
    pub db: &'a str,
    pub body: &'a Doc,
    /// Document sequences beside it.
    pub sequences: &'a [(&'a str, DocIter<'a>)],
    pub user: Option<&'a UserName>,
}

impl<'a> Requested<'a> {
    pub fn args(&self) -> Arguments<'a> {
        Arguments::new(self.name, self.body)
    }

    /// The same request with another body: a command inside of this one.
    pub fn inner(&self, name: &'static str, body: &'a Doc) -> Requested<'a> {
        Requested {
            name,
            body,
            sequences: &[],
            ..*self
        }
    }

    /// The collection that the command's first field names, and whether it does by its UUID; none if the field is a
    /// number, as in `aggregate: 1`. An unknown UUID is a collection without a name.
    ///
    /// # Errors
    /// `InvalidNamespace` if the field has another type.
    pub fn collection(&self) -> Result<Option<(Cow<'a, str>, bool)>> {
        let value = self.body.first().map_or(Value::Null, |(_, value)| value);
        match value {
            number if number.is_number() => Ok(None),
            value => self.named(&value).map(Some),
        }
    }

    /// The collection of the command's database that a value names.
    fn named(&self, value: &Value<'a>) -> Result<(Cow<'a, str>, bool)> {
        match *value {
            Value::String(name) | Value::Symbol(name) => Ok((name.into(), false)),
            Value::Binary { subtype: 4, bytes } => {
                let found = self.server.store.collection_by_uuid(self.db, bytes);
                let name = found.map_or_else(String::new, |found| found.coll().to_owned());
                Ok((name.into(), true))
            }
            ref other => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("collection name has invalid type {}", other.type_name()),
            )),
        }
    }

    /// Whether the command asks not to validate what it writes.
    pub fn bypasses_validation(&self) -> bool {
        let flag = self.body.get("bypassDocumentValidation");
        flag.is_some_and(|flag| flag.truthy())
    }

    /// These actions, and the one to bypass validation if the command asks for that.
    pub fn writing(&self, actions: impl Into<ActionSet>) -> ActionSet {
        let actions = actions.into();
        if self.bypasses_validation() {
            actions.with(Action::BypassDocumentValidation)
        } else {
            actions
        }
    }

    /// The documents of a field, which may be a document sequence of the message or an array in the command.
    ///
    /// # Errors
    /// Those of invalid documents.
    pub fn documents(&self, field: &str) -> Result<Vec<&'a Doc>> {
        let mut documents = Vec::new();
        for (_, sequence) in self.sequences.iter().filter(|(name, _)| *name == field) {
            for bytes in *sequence {
                documents.push(Doc::validate(bytes)?);
            }
        }
        documents.extend(self.args().documents(field)?.unwrap_or_default());
        Ok(documents)
    }
}

impl<'a> Needs<'a> {
    /// Actions on the database of the command.
    pub fn on_database(request: &Requested<'a>, actions: impl Into<ActionSet>) -> Needs<'a> {
        Needs::on(Place::database(request.db), actions)
    }

    /// Actions on the collection that the command's first field names. Who names it by its UUID needs the privilege
    /// to do so.
    ///
    /// # Errors
    /// `InvalidNamespace` if the field names no collection.
    pub fn on_collection(
        request: &Requested<'a>,
        actions: impl Into<ActionSet>,
    ) -> Result<Needs<'a>> {
        let value = request.body.first().map_or(Value::Null, |(_, value)| value);
        Needs::on_collection_of(request, &value, actions)
    }

    /// Actions on the collection of the command's database that a value names.
    ///
    /// # Errors
    /// As [`Needs::on_collection`].
    pub fn on_collection_of(
        request: &Requested<'a>,
        value: &Value<'a>,
        actions: impl Into<ActionSet>,
    ) -> Result<Needs<'a>> {
        let (name, by_uuid) = request.named(value)?;
        let needs = Needs::on(Place::collection(request.db, name), actions);
        Ok(if by_uuid {
            needs.and(Needs::cluster(Action::UseUuid))
        } else {
            needs
        })
    }

    /// Actions on a collection that is named with its database.
    ///
    /// # Errors
    /// `InvalidNamespace` if there is no database in the name.
    pub fn on_namespace(namespace: &'a str, actions: impl Into<ActionSet>) -> Result<Needs<'a>> {
        let (db, name) = split(namespace)?;
        Ok(Needs::on(Place::collection(db, name), actions))
    }
}

/// Splits `database.collection`.
///
/// # Errors
/// `InvalidNamespace` if there is no database in the name.
pub fn split(namespace: &str) -> Result<(&str, &str)> {
    namespace.split_once('.').ok_or_else(|| {
        Error::new(
            ErrorCode::InvalidNamespace,
            format!("Invalid namespace specified '{namespace}'"),
        )
    })
}

/// The only field of this name. A document that has it twice is refused: which of the two counts would otherwise be
/// decided once here and once where the command runs.
///
/// # Errors
/// `FailedToParse` if the field is there twice.
pub fn sole<'d>(doc: &'d Doc, field: &str) -> Result<Option<Value<'d>>> {
    let mut found = doc.iter().filter(|(name, _)| *name == field);
    let first = found.next().map(|(_, value)| value);
    match found.next() {
        None => Ok(first),
        Some(_) => Err(Error::failed_to_parse(format!(
            "the field '{field}' is there twice"
        ))),
    }
}

#[cfg(test)]
mod tests;
