//! The caller of a command.

use std::sync::{Arc, LazyLock};

use frond_auth::{Action, Privilege, Privileges, Resource, Target, UserName};
use frond_error::{Error, ErrorCode, Result};

use crate::access::User;
use crate::connection::Connection;
use crate::needs::{Needs, Owner};
use crate::sessions::SessionId;
use crate::state::Server;

/// The caller of a command: the logged-in user, if any, and its privileges.
#[derive(Clone, Debug)]
pub struct Caller {
    is_checked: bool,
    user: Option<Arc<User>>,
    is_exception: bool,
}

impl Caller {
    /// The user of a connection, or a client that is not logged in.
    pub fn new(server: &Server, connection: &Connection, user: Option<Arc<User>>) -> Caller {
        let is_checked = server.clients.access.is_enforced();
        Caller {
            is_checked,
            is_exception: is_checked && user.is_none() && may_create_first_user(server, connection),
            user,
        }
    }

    /// The caller of a server without authorization.
    #[cfg(test)]
    pub fn unchecked() -> Caller {
        Caller {
            is_checked: false,
            user: None,
            is_exception: false,
        }
    }

    /// Whether the server checks what callers may do.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// The name of who is logged in.
    pub fn name(&self) -> Option<&UserName> {
        self.user.as_ref().map(|user| &user.name)
    }

    /// Whether a command that needs a login is refused without a look at what it needs.
    pub fn is_stranger(&self) -> bool {
        self.is_checked && self.user.is_none() && !self.is_exception
    }

    /// Whether the caller is anonymous, and was allowed to create the first user when the command began.
    pub fn is_exception(&self) -> bool {
        self.is_exception
    }

    /// Whether the caller may do what has these needs.
    pub fn may(&self, needs: &Needs<'_>) -> bool {
        !self.is_checked || needs.are_met(self.user.is_some(), self.privileges())
    }

    /// The caller's privileges. They count only where authorization is on.
    pub fn privileges(&self) -> &Privileges {
        static NONE: LazyLock<Privileges> = LazyLock::new(Privileges::default);
        match &self.user {
            Some(user) => &user.privileges,
            None if self.is_exception => &EXCEPTION,
            None => &NONE,
        }
    }

    /// Whether the caller may do anything at all with a collection.
    pub fn may_see(&self, db: &str, collection: &str) -> bool {
        let target = Target::Collection(db, collection);
        !self.is_checked || !self.privileges().actions_on(&target).is_empty()
    }

    /// The owner of what a command with these needs leaves behind; none where it is not checked who uses it.
    pub fn owner_of(&self, needs: Option<Needs<'_>>) -> Option<Arc<Owner>> {
        let user = self.name().filter(|_| self.is_checked)?.clone();
        let needs = Arc::new(needs?.into_owned());
        Some(Arc::new(Owner { user, needs }))
    }

    /// The session of the caller that a client names. One with the digest of another user needs the privilege for
    /// `others`. Where nothing is checked, sessions have no owners.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub fn session(&self, named: SessionId, others: Action) -> Result<SessionId> {
        let Some(user) = self.user.as_ref().filter(|_| self.is_checked) else {
            return Ok(named.of_nobody());
        };
        match named.owner() {
            None => Ok(named.owned_by(user.sessions)),
            Some(owner) if owner == user.sessions => Ok(named),
            Some(_) if self.may(&Needs::cluster(others)) => Ok(named),
            Some(_) => Err(Error::new(
                ErrorCode::Unauthorized,
                "Unauthorized to set user digest in LogicalSessionId",
            )),
        }
    }

    /// Whether a session is the caller's own. Where nothing is checked every session is.
    pub fn owns(&self, session: SessionId) -> bool {
        let own = self.user.as_ref().map(|user| user.sessions);
        !self.is_checked || (own.is_some() && own == session.owner())
    }

    /// Whether something of this user is the caller's own. Where nothing is checked everything is.
    pub fn is(&self, owner: Option<&UserName>) -> bool {
        !self.is_checked || (owner.is_some() && owner == self.name())
    }
}

/// The localhost exception: while there is no user and no role, a client on this machine may create the first user, and
/// begin the replica set.
fn may_create_first_user(server: &Server, connection: &Connection) -> bool {
    server.settings.logins.localhost_bypass
        && connection.peer.is_local()
        && !server.clients.access.has_users()
}

/// The privileges of the localhost exception.
static EXCEPTION: LazyLock<Privileges> = LazyLock::new(|| {
    let on = |db: &str| Resource::Database(db.to_owned());
    Privileges::new([
        Privilege::new(on("admin"), [Action::CreateUser, Action::GrantRole]),
        Privilege::new(on("$external"), [Action::CreateUser]),
        Privilege::new(
            Resource::Cluster,
            [Action::ReplSetConfigure, Action::ReplSetGetStatus],
        ),
    ])
});
