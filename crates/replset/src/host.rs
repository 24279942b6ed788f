//! Hosts of members: `name:port`.

use frond_error::Result;

use crate::fields::invalid;

/// The host with its port; the default port if it names none.
///
/// # Errors
/// `InvalidReplicaSetConfig` (93) if it is no name or address with an optional port.
pub fn with_port(host: &str) -> Result<String> {
    let wrong = || {
        invalid(format!(
            "Failed to parse the host '{host}': it must be a name or an address, with a port"
        ))
    };
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address without a port are inside of brackets.
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_bracketed = name.starts_with('[') && name.ends_with(']');
    let has_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | ',');
    if name.is_empty() || name.contains(has_bad) || (name.contains(':') && !is_bracketed) {
        return Err(wrong());
    }
    match port {
        None => Ok(format!("{name}:27017")),
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(format!("{name}:{port}")),
            _ => Err(wrong()),
        },
    }
}

/// Whether only this machine can reach the host under its name.
pub fn is_localhost(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name == "::1" || name == "0.0.0.0" || name.starts_with("127.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn hosts_get_a_port() {
        for (given, expected) in [
            ("a", "a:27017"),
            ("a.b:1", "a.b:1"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:27017"),
        ] {
            assert_eq!(with_port(given).unwrap(), expected);
        }
        for wrong in [
            "", ":1", "a:", "a:0", "a:70000", "::1", "a,b", "a b:1", "u@a:1",
        ] {
            assert_eq!(with_port(wrong).unwrap_err().code().code(), 93, "{wrong}");
        }
    }

    #[test]
    fn addresses_of_this_machine() {
        for (host, expected) in [
            ("localhost:27017", true),
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", true),
            ("localhost.example:1", false),
            ("10.0.0.1:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(is_localhost(host), expected, "{host}");
        }
    }
}
