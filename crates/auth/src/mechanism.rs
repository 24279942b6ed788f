//! The ways to log in.

use std::fmt;

use crate::scram;

/// A way to log in, as the parameter `authenticationMechanisms` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoginMechanism {
    /// `MONGODB-CR`, of the drivers before 2015.
    MongoCr,
    /// `MONGODB-X509`: the verified certificate of the client.
    X509,
    /// `SCRAM-SHA-1` or `SCRAM-SHA-256`.
    Scram(scram::Mechanism),
}

impl LoginMechanism {
    /// All of them, in the order of their names.
    pub const ALL: [LoginMechanism; 4] = [
        LoginMechanism::MongoCr,
        LoginMechanism::X509,
        LoginMechanism::Scram(scram::Mechanism::Sha1),
        LoginMechanism::Scram(scram::Mechanism::Sha256),
    ];

    /// Those that are enabled unless the operator names others.
    pub const DEFAULT: [LoginMechanism; 3] = [
        LoginMechanism::X509,
        LoginMechanism::Scram(scram::Mechanism::Sha1),
        LoginMechanism::Scram(scram::Mechanism::Sha256),
    ];

    pub fn name(self) -> &'static str {
        match self {
            LoginMechanism::MongoCr => "MONGODB-CR",
            LoginMechanism::X509 => "MONGODB-X509",
            LoginMechanism::Scram(mechanism) => mechanism.name(),
        }
    }

    /// The mechanism with this name. Names are compared exactly.
    pub fn named(name: &str) -> Option<LoginMechanism> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }
}

impl fmt::Display for LoginMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_exactly() {
        for mechanism in LoginMechanism::ALL {
            assert_eq!(LoginMechanism::named(mechanism.name()), Some(mechanism));
        }
        for name in ["scram-sha-1", "PLAIN", "", "SCRAM-SHA-512"] {
            assert_eq!(LoginMechanism::named(name), None, "{name}");
        }
        assert!(!LoginMechanism::DEFAULT.contains(&LoginMechanism::MongoCr));
    }
}
