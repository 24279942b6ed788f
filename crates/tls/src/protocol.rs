//! Versions of the protocol, under the names that MongoDB's settings use.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::error::{Error, Result};

/// A version of the protocol. The first two are never spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TLS 1.0.
    Tls10,
    /// TLS 1.1.
    Tls11,
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl Protocol {
    /// All of them, the oldest first.
    pub const ALL: [Protocol; 4] = [
        Protocol::Tls10,
        Protocol::Tls11,
        Protocol::Tls12,
        Protocol::Tls13,
    ];

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tls10 => "TLS1_0",
            Protocol::Tls11 => "TLS1_1",
            Protocol::Tls12 => "TLS1_2",
            Protocol::Tls13 => "TLS1_3",
        }
    }

    /// Its number in reports: `1.2`.
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Protocol::Tls10 => "1.0",
            Protocol::Tls11 => "1.1",
            Protocol::Tls12 => "1.2",
            Protocol::Tls13 => "1.3",
        }
    }

    /// Reads a list of names, separated by commas. `none` stands for an empty list.
    ///
    /// # Errors
    /// The name that is not known.
    pub fn parse_list(text: &str) -> std::result::Result<Vec<Protocol>, String> {
        if text == "none" {
            return Ok(Vec::new());
        }
        text.split(',')
            .map(|name| {
                Protocol::ALL
                    .into_iter()
                    .find(|protocol| protocol.name() == name)
                    .ok_or_else(|| name.to_owned())
            })
            .collect()
    }

    /// The version of an established connection.
    #[must_use]
    pub fn from_version(version: rustls::ProtocolVersion) -> Option<Protocol> {
        match version {
            rustls::ProtocolVersion::TLSv1_2 => Some(Protocol::Tls12),
            rustls::ProtocolVersion::TLSv1_3 => Some(Protocol::Tls13),
            _ => None,
        }
    }
}

/// The versions that are left when some are disabled.
pub(crate) fn enabled(disabled: &[Protocol]) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let versions: Vec<_> = [(Protocol::Tls13, &TLS13), (Protocol::Tls12, &TLS12)]
        .into_iter()
        .filter(|(protocol, _)| !disabled.contains(protocol))
        .map(|(_, version)| version)
        .collect();
    if versions.is_empty() {
        Err(Error::Options(
            "all TLS protocols are disabled: leave TLS1_2 or TLS1_3 enabled".into(),
        ))
    } else {
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        use Protocol::*;
        assert_eq!(
            Protocol::parse_list("TLS1_0,TLS1_2"),
            Ok(vec![Tls10, Tls12])
        );
        assert_eq!(Protocol::parse_list("none"), Ok(vec![]));
        assert_eq!(Protocol::parse_list("TLS1_4"), Err("TLS1_4".into()));
        assert_eq!(Protocol::parse_list(""), Err(String::new()));
    }

    #[test]
    fn one_version_must_be_left() {
        use Protocol::*;
        assert_eq!(enabled(&[Tls10, Tls11]).map(|all| all.len()).ok(), Some(2));
        assert_eq!(enabled(&[Tls12]).map(|all| all.len()).ok(), Some(1));
        assert!(enabled(&[Tls12, Tls13]).is_err());
    }
}
