//! What a command needs before it may run: which actions on which resources. Each command says it of itself
//! ([`crate::commands::Command::needs`]); the dispatcher compares it with what the client's user has.

use std::borrow::Cow;

use frond_auth::{Privileges, Target};
use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_wire::DocIter;

use crate::arguments::Arguments;
use crate::state::Server;

mod pipeline;

pub use frond_auth::{Action, ActionSet, UserName, is_normal_collection};
pub use pipeline::{NO_COLLECTION, of_pipeline, of_view};

/// A command that a client asks for, before it is known whether it may.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    /// The server.
    pub server: &'a Server,
    /// The proper name of the command.
    pub name: &'static str,
    /// The database.
    pub db: &'a str,
    /// The command's document.
    pub body: &'a Doc,
    /// Document sequences beside it.
    pub sequences: &'a [(&'a str, DocIter<'a>)],
    /// Who is logged in.
    pub user: Option<&'a UserName>,
}

impl<'a> Requested<'a> {
    /// The command's fields.
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
    /// number, as in `aggregate: 1`. A UUID that is nobody's is a collection without a name.
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
        match self.bypasses_validation() {
            true => actions.with(Action::BypassDocumentValidation),
            false => actions,
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

/// What a need is about; as [`Target`], but with names of its own where nothing has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The server as a whole.
    Cluster,
    /// A database as a whole.
    Database(Cow<'a, str>),
    /// A collection of a database.
    Collection(Cow<'a, str>, Cow<'a, str>),
    /// All normal databases and collections at once.
    AnyNormal,
    /// Everything at once.
    AnyResource,
}

impl<'a> Place<'a> {
    /// A collection.
    pub fn collection(db: impl Into<Cow<'a, str>>, name: impl Into<Cow<'a, str>>) -> Place<'a> {
        Place::Collection(db.into(), name.into())
    }

    /// A database.
    pub fn database(db: impl Into<Cow<'a, str>>) -> Place<'a> {
        Place::Database(db.into())
    }

    /// The same, as a target of privileges.
    pub fn target(&self) -> Target<'_> {
        match self {
            Place::Cluster => Target::Cluster,
            Place::Database(db) => Target::Database(db),
            Place::Collection(db, name) => Target::Collection(db, name),
            Place::AnyNormal => Target::AnyNormal,
            Place::AnyResource => Target::AnyResource,
        }
    }

    fn into_owned(self) -> Place<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Place::Cluster => Place::Cluster,
            Place::Database(db) => Place::Database(own(db)),
            Place::Collection(db, name) => Place::Collection(own(db), own(name)),
            Place::AnyNormal => Place::AnyNormal,
            Place::AnyResource => Place::AnyResource,
        }
    }
}

/// What a command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing, not even a login.
    Anyone,
    /// A login.
    LoggedIn,
    /// Actions on a resource.
    On(Place<'a>, ActionSet),
    /// Any privilege on a database, or on something in it.
    SomethingIn(Cow<'a, str>),
    /// All of these.
    All(Vec<Needs<'a>>),
    /// One of these.
    AnyOf(Vec<Needs<'a>>),
    /// Who has the first needs the second, too.
    If(Box<(Needs<'a>, Needs<'a>)>),
}

impl<'a> Needs<'a> {
    /// Actions on a resource.
    pub fn on(place: Place<'a>, actions: impl Into<ActionSet>) -> Needs<'a> {
        Needs::On(place, actions.into())
    }

    /// Actions on the server as a whole.
    pub fn cluster(actions: impl Into<ActionSet>) -> Needs<'a> {
        Needs::on(Place::Cluster, actions)
    }

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
        Ok(match by_uuid {
            true => needs.and(Needs::cluster(Action::UseUuid)),
            false => needs,
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

    /// Every action on everything: for what no finer privilege describes.
    pub fn superuser() -> Needs<'a> {
        Needs::on(Place::AnyResource, ActionSet::any())
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: Needs<'a>) -> Needs<'a> {
        match self {
            Needs::All(mut all) => {
                all.push(other);
                Needs::All(all)
            }
            first => Needs::All(vec![first, other]),
        }
    }

    /// One of both.
    #[must_use]
    pub fn or(self, other: Needs<'a>) -> Needs<'a> {
        match self {
            Needs::AnyOf(mut all) => {
                all.push(other);
                Needs::AnyOf(all)
            }
            first => Needs::AnyOf(vec![first, other]),
        }
    }

    /// This for those who have `condition`; nothing for others.
    #[must_use]
    pub fn if_allowed(self, condition: Needs<'a>) -> Needs<'a> {
        Needs::If(Box::new((condition, self)))
    }

    /// Whether someone with these privileges has what is needed.
    pub fn are_met(&self, is_logged_in: bool, privileges: &Privileges) -> bool {
        let met = |needs: &Needs<'_>| needs.are_met(is_logged_in, privileges);
        match self {
            Needs::Anyone => true,
            Needs::LoggedIn => is_logged_in,
            Needs::On(place, actions) => {
                privileges.actions_on(&place.target()).contains_all(actions)
            }
            Needs::SomethingIn(db) => privileges.allows_any_on(db),
            Needs::All(all) => all.iter().all(met),
            Needs::AnyOf(any) => any.iter().any(met),
            Needs::If(both) => !met(&both.0) || met(&both.1),
        }
    }

    /// The same with names of its own, to be checked again later.
    pub fn into_owned(self) -> Needs<'static> {
        let each = |list: Vec<Needs<'a>>| list.into_iter().map(Needs::into_owned).collect();
        match self {
            Needs::Anyone => Needs::Anyone,
            Needs::LoggedIn => Needs::LoggedIn,
            Needs::SomethingIn(db) => Needs::SomethingIn(Cow::Owned(db.into_owned())),
            Needs::On(place, actions) => Needs::On(place.into_owned(), actions),
            Needs::All(all) => Needs::All(each(all)),
            Needs::AnyOf(any) => Needs::AnyOf(each(any)),
            Needs::If(both) => {
                let (condition, then) = *both;
                Needs::If(Box::new((condition.into_owned(), then.into_owned())))
            }
        }
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
