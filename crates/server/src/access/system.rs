//! The members of a replica set as users: `__system`, who is stored nowhere and may do everything.

use std::sync::{Arc, OnceLock};

use frond_auth::builtin_roles::builtin;
use frond_auth::scram::{Credential, Mechanism, ScramError};
use frond_auth::{Privileges, UserName};

use super::user::User;
use crate::sessions::SessionOwner;
use crate::settings::{ClusterAuthMode, Secret, SecuritySettings};

/// The logins of members of the replica set.
#[derive(Default)]
pub struct Members {
    keys: Vec<Secret>,
    mode: ClusterAuthMode,
    /// The credentials of the keys by SCRAM-SHA-1 and by SCRAM-SHA-256. They are derived at the first login, because that takes long.
    derived: [OnceLock<Vec<Credential>>; 2],
}

impl Members {
    pub fn new(settings: &SecuritySettings) -> Members {
        Members {
            keys: settings.keys.clone(),
            mode: settings.cluster_auth,
            derived: Default::default(),
        }
    }

    /// Whether this is the user of the members, and members may log in.
    pub fn is_user(&self, name: &UserName) -> bool {
        let may_log_in = self.mode.accepts_certificates() || !self.keys.is_empty();
        may_log_in && name.db == "local" && *name == UserName::system()
    }

    /// Whether this user may log in by a key.
    pub fn logs_in_by_key(&self, name: &UserName) -> bool {
        self.mode.accepts_keys() && !self.keys.is_empty() && self.is_user(name)
    }

    /// Whether a member may log in by its certificate.
    pub fn accept_certificates(&self) -> bool {
        self.mode.accepts_certificates()
    }

    /// The credentials of the keys, each of which is right.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn credentials(
        &self,
        mechanism: Mechanism,
        iterations: u32,
    ) -> Result<&[Credential], ScramError> {
        let [sha1, sha256] = &self.derived;
        let derived = match mechanism {
            Mechanism::Sha1 => sha1,
            Mechanism::Sha256 => sha256,
        };
        if let Some(known) = derived.get() {
            return Ok(known);
        }
        let user = UserName::system().name;
        let keys = self.keys.iter().map(Secret::expose);
        let made = Credential::of_any(mechanism, &user, keys, iterations)?;
        Ok(derived.get_or_init(|| made))
    }
}

/// The user of the members.
pub(super) fn system_user(generation: u64) -> Arc<User> {
    let name = UserName::system();
    let role = UserName::new("__system", "admin");
    Arc::new(User {
        id: None,
        privileges: Arc::new(Privileges::new(builtin(&role).unwrap_or_default())),
        all_roles: [role].into(),
        restrictions: Vec::new(),
        sessions: SessionOwner::for_user(&name),
        name,
        generation,
    })
}
