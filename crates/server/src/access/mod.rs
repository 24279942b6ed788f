//! Users and roles: their stored form, and the copy in memory that logins and commands use.
//!
//! They are documents of `admin.system.users` and `admin.system.roles`, as MongoDB's. The store reports every change of
//! these collections after it is visible; then all of the copy is out of date ([`Access::generation`]).

pub mod change;
pub mod stored;
mod system;
pub mod user;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use frond_auth::{Ends, UserName};
use frond_error::Result;
use frond_store::DocumentStore;
use parking_lot::Mutex;

use crate::replication::CONFIG_NAMESPACE;
use crate::settings::SecuritySettings;

use stored::{ROLES, Stored, USERS};
pub use system::Members;
use system::system_user;
pub use user::{Candidate, User};

/// The most users that are kept in memory.
const USERS_KEPT_MAX: usize = 4096;

/// The collections of users and roles, and those of settings that all members of a replica set share.
const WATCHED: &[&str] = &[
    USERS.full,
    ROLES.full,
    CONFIG_NAMESPACE,
    "config.settings",
    "config.clusterParameters",
];

/// Users that are read at the same time.
const TURNS: usize = 32;

/// The users and roles of a server.
pub struct Access {
    store: DocumentStore,
    is_enforced: bool,
    /// Counts the changes of users and roles.
    generation: Arc<AtomicU64>,
    /// Users that were read, each with the generation at which it was.
    users: Mutex<HashMap<UserName, Arc<User>>>,
    /// Whether there was a user or a role once. From then on every client has to log in.
    had_any: AtomicBool,
    /// The last generation at which there was none.
    none_at: AtomicU64,
    /// Held by commands that change users and roles.
    changing: Mutex<()>,
    /// The members of the replica set, as users.
    members: Members,
    /// Held while a user is read; by its name.
    turns: [Mutex<()>; TURNS],
}

impl Access {
    /// The users and roles of a store. `is_enforced` indicates whether commands need privileges.
    #[cfg(test)]
    pub fn new(store: DocumentStore, is_enforced: bool) -> Access {
        Access::with_hook(store, is_enforced, || {})
    }

    /// The users and roles of a store. `is_enforced` indicates whether commands need privileges. `hook` is called after changes of users, roles and stored settings of the server.
    pub fn with_hook(
        store: DocumentStore,
        is_enforced: bool,
        hook: impl Fn() + Send + Sync + 'static,
    ) -> Access {
        let generation = Arc::new(AtomicU64::new(1));
        let counter = generation.clone();
        let hooks = store.catalog().hooks();
        hooks.on_change_of(WATCHED, move || {
            counter.fetch_add(1, Ordering::AcqRel);
            hook();
        });
        Access {
            store,
            is_enforced,
            generation,
            users: Mutex::default(),
            had_any: AtomicBool::new(false),
            none_at: AtomicU64::new(0),
            changing: Mutex::default(),
            members: Members::default(),
            turns: Default::default(),
        }
    }

    /// Accepts the logins of members of the replica set as well, if the settings permit them.
    #[must_use]
    pub fn with_members(self, settings: &SecuritySettings) -> Access {
        Access {
            members: Members::new(settings),
            ..self
        }
    }

    /// The logins of members of the replica set.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Whether commands need privileges.
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Changes with every change of users and roles, after it is visible. A user that was read at an older generation
    /// ([`User::generation`]) may be out of date.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether there is a user or a role, or was since the start of the server. If that cannot be found out, there is.
    pub fn has_users(&self) -> bool {
        if self.had_any.load(Ordering::Acquire) {
            return true;
        }
        let generation = self.generation();
        if self.none_at.load(Ordering::Acquire) == generation {
            return false;
        }
        let stored = Stored::now(&self.store);
        let has_any =
            stored.has_any(&USERS).unwrap_or(true) || stored.has_any(&ROLES).unwrap_or(true);
        if has_any {
            self.had_any.store(true, Ordering::Release)
        } else {
            self.none_at.store(generation, Ordering::Release)
        }
        has_any
    }

    /// A user with everything that its roles grant. `None` if there is no such user.
    ///
    /// # Errors
    /// If the user or one of the roles cannot be read: then a login as this user must fail.
    pub fn find(&self, name: &UserName) -> Result<Option<Arc<User>>> {
        if self.members.is_user(name) {
            return Ok(Some(system_user(self.generation())));
        }
        // Before the documents are read: a change meanwhile makes the user out of date, not current.
        let generation = self.generation();
        if let Some(known) = self.users.lock().get(name)
            && known.generation == generation
        {
            return Ok(Some(known.clone()));
        }
        // After a change all connections of a user miss it at once: the first one reads it for all.
        let _turn = self.turn_of(name).lock();
        let generation = self.generation();
        if let Some(known) = self.users.lock().get(name)
            && known.generation == generation
        {
            return Ok(Some(known.clone()));
        }
        let stored = Stored::now(&self.store);
        let Some(document) = stored.user(name)? else {
            self.users.lock().remove(name);
            return Ok(None);
        };
        let user = Arc::new(User::parse(name, &document, &stored, generation)?);
        let mut users = self.users.lock();
        // Others may have read newer ones meanwhile.
        users.retain(|_, known| known.generation >= generation);
        if users.len() >= USERS_KEPT_MAX {
            users.clear();
        }
        users.insert(name.clone(), user.clone());
        Ok(Some(user))
    }

    /// Held while a user is read. Users may share one.
    fn turn_of(&self, name: &UserName) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let [at, ..] = hasher.finish().to_le_bytes();
        (self.turns.get(usize::from(at) % TURNS))
            .expect("the remainder is less than the number of turns")
    }

    /// The credentials of a user. One document is read in each case, and no role, so that the time does not reveal whether
    /// there is such a user, and roles are never resolved without a login.
    ///
    /// # Errors
    /// If the user cannot be read.
    pub fn find_for_login(&self, name: &UserName) -> Result<Option<Candidate>> {
        let document = Stored::now(&self.store).user(name)?;
        document
            .map(|document| Candidate::parse(name, &document))
            .transpose()
    }

    /// The user of the database `$external` with this name, as the subject of a certificate, for a login.
    ///
    /// # Errors
    /// As [`Access::find_for_login`].
    pub fn external(&self, subject: &str) -> Result<Option<Candidate>> {
        self.find_for_login(&UserName::new(subject, stored::EXTERNAL))
    }

    /// Makes all that is in memory out of date.
    pub fn invalidate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

/// Whether a user may be logged in over a connection between these addresses: its own restrictions, and those of every role
/// that it has, must be met.
pub fn restrictions_allow(user: &User, ends: &Ends) -> bool {
    user.restrictions.iter().all(|one| one.allow(ends))
}

#[cfg(test)]
mod tests;
