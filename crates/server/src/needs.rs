//! The privileges that a command needs: actions on resources.

use std::borrow::Cow;
use std::sync::Arc;

use frond_auth::{ActionSet, Privileges, Target, UserName};

/// The resource of a need: a [`Target`] that may own its names.
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
    AnyResource,
}

impl<'a> Place<'a> {
    pub fn collection(db: impl Into<Cow<'a, str>>, name: impl Into<Cow<'a, str>>) -> Place<'a> {
        Place::Collection(db.into(), name.into())
    }

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

/// The privileges that a command needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// Nothing, not even a login.
    Anyone,
    LoggedIn,
    /// Actions on a resource.
    On(Place<'a>, ActionSet),
    /// Needs stored with a cursor.
    Same(Arc<Needs<'static>>),
    /// Any privilege on a database, or on something in it.
    SomethingIn(Cow<'a, str>),
    All(Vec<Needs<'a>>),
    AnyOf(Vec<Needs<'a>>),
    /// The second, required only of callers who have the first.
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

    /// Every action on everything: for what no finer privilege describes.
    pub fn superuser() -> Needs<'a> {
        Needs::on(Place::AnyResource, ActionSet::any())
    }

    /// All of these, and a login in any case.
    pub fn all(needs: Vec<Needs<'a>>) -> Needs<'a> {
        if needs.is_empty() {
            Needs::LoggedIn
        } else {
            Needs::All(needs)
        }
    }

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
            Needs::Same(needs) => met(needs),
            Needs::SomethingIn(db) => is_logged_in && privileges.allows_any_on(db),
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
            Needs::Same(needs) => Needs::Same(needs),
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

/// The user who opened a cursor, and the privileges that it needed.
#[derive(Debug)]
pub struct Owner {
    pub user: UserName,
    /// The privileges that the opening command needed.
    pub needs: Arc<Needs<'static>>,
}
