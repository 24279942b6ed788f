//! The server's login state: the enabled mechanisms, iteration counts of new passwords, counters, and the
//! secret by which users who do not exist look as if they did.

mod counters;
mod progress;

use std::sync::atomic::{AtomicU32, Ordering};

use frond_auth::scram::{Credential, Mechanism};
use frond_auth::{LoginMechanism, NoRandomness, UserName, password_digest, random_bytes};
use zeroize::Zeroizing;

pub use counters::Counters;
pub use progress::{Attempt, Pending, Progress, Step};

use crate::settings::LoginSettings;

/// The logins of a server.
pub struct Logins {
    mechanisms: Vec<LoginMechanism>,
    sha1_iterations: AtomicU32,
    sha256_iterations: AtomicU32,
    secret: Zeroizing<[u8; 32]>,
    /// Logins that began and that succeeded.
    pub counters: Counters,
}

impl Logins {
    /// The logins of a server that starts.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn new(settings: &LoginSettings) -> Result<Logins, NoRandomness> {
        Ok(Logins {
            mechanisms: settings.mechanisms.clone(),
            sha1_iterations: AtomicU32::new(settings.sha1_iterations),
            sha256_iterations: AtomicU32::new(settings.sha256_iterations),
            secret: Zeroizing::new(random_bytes()?),
            counters: Counters::default(),
        })
    }

    /// The enabled mechanisms, in the order of their names.
    pub fn mechanisms(&self) -> &[LoginMechanism] {
        &self.mechanisms
    }

    /// Whether a mechanism is enabled.
    pub fn allows(&self, mechanism: LoginMechanism) -> bool {
        self.mechanisms.contains(&mechanism)
    }

    /// Iterations of new credentials.
    pub fn iterations(&self, mechanism: Mechanism) -> u32 {
        self.iterations_of(mechanism).load(Ordering::Relaxed)
    }

    /// Changes [`Logins::iterations`].
    pub fn set_iterations(&self, mechanism: Mechanism, count: u32) {
        self.iterations_of(mechanism)
            .store(count, Ordering::Relaxed);
    }

    fn iterations_of(&self, mechanism: Mechanism) -> &AtomicU32 {
        match mechanism {
            Mechanism::Sha1 => &self.sha1_iterations,
            Mechanism::Sha256 => &self.sha256_iterations,
        }
    }

    /// A digest of a password for MONGODB-CR that no user has. It is the same for the same name while the server runs.
    pub fn fake_digest(&self, user: &UserName) -> Zeroizing<String> {
        let fake = self.fake_credential(Mechanism::Sha1, user);
        let salt = Zeroizing::new(frond_bson::hex(fake.salt()));
        password_digest(&user.name, &salt)
    }

    /// A credential for a user who does not exist, or cannot use the mechanism. It is the same for the same name while
    /// the server runs.
    pub fn fake_credential(&self, mechanism: Mechanism, user: &UserName) -> Credential {
        let iterations = self.iterations(mechanism);
        Credential::fake(mechanism, &*self.secret, user, iterations)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn fake_credentials_follow_the_parameters() {
        let logins = Logins::new(&LoginSettings::default()).unwrap();
        let user = UserName::new("nobody", "admin");
        let fake = logins.fake_credential(Mechanism::Sha256, &user);
        assert_eq!(fake.iterations(), 15_000);
        logins.set_iterations(Mechanism::Sha256, 20_000);
        let later = logins.fake_credential(Mechanism::Sha256, &user);
        assert_eq!((later.iterations(), later.salt()), (20_000, fake.salt()));
        assert_eq!(logins.iterations(Mechanism::Sha1), 10_000);
        // Another server has another secret.
        let other = Logins::new(&LoginSettings::default()).unwrap();
        let other = other.fake_credential(Mechanism::Sha256, &user);
        assert_ne!(other.salt(), fake.salt());
        assert!(!logins.allows(LoginMechanism::MongoCr));
        assert!(logins.allows(LoginMechanism::X509));
    }
}
