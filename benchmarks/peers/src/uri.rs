//! Connection strings: `postgres://[user@]host[:port][/database][?pool=N]`.

use std::time::Duration;

use frond_bench::{Address, Error, Result};

/// The port when the string names none.
const PORT: u16 = 5432;

/// How long connecting may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that transactions share when the string does not say: four for each core of a small machine.
const POOL: usize = 8;

/// Where a server is, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Host and port, or a Unix socket.
    pub address: Address,
    /// The role to log in as.
    pub user: String,
    /// The database, which is PostgreSQL's; collections lie in schemas of it.
    pub database: String,
    /// `pool`: connections at most that the threads of `sysbench` share.
    pub pool: usize,
}

impl Uri {
    /// Reads it. What this client does not act on is an error that names it.
    pub fn parse(text: &str) -> Result<Uri> {
        let bad = |text: String| Error::Uri(text);
        let rest = text
            .strip_prefix("postgres://")
            .ok_or_else(|| bad("it must start with postgres://".to_owned()))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut pool = POOL;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("pool", number)) => {
                    pool = number.parse().unwrap_or(0);
                    if !(1..=10_000).contains(&pool) {
                        return Err(bad(format!("pool={number} is not from 1 to 10000")));
                    }
                }
                _ => return Err(bad(format!("the option {option:?} is not supported"))),
            }
        }
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = place.rsplit_once('@').unwrap_or(("postgres", place));
        if user.contains(':') {
            return Err(bad(
                "a password is not supported: log-in is without one (trust) only".to_owned(),
            ));
        }
        let (host, port) = match host.rsplit_once(':') {
            // An address of version 6 has colons of its own.
            Some((name, port)) if !port.ends_with(']') => {
                let port = port.parse();
                (
                    name,
                    port.map_err(|_| bad(format!("{host:?} has no port")))?,
                )
            }
            _ => (host, PORT),
        };
        let host = host.trim_matches(['[', ']']);
        if host.is_empty() || user.is_empty() {
            return Err(bad(format!("{text:?} names no host or no user")));
        }
        Ok(Uri {
            address: Address::Tcp(host.to_owned(), port),
            user: user.to_owned(),
            database: if database.is_empty() { user } else { database }.to_owned(),
            pool,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn connection_strings() {
        for (text, host, port, user, database) in [
            ("postgres://h", "h", 5432, "postgres", "postgres"),
            ("postgres://me@h:1/", "h", 1, "me", "me"),
            ("postgres://me@[::1]:7/d", "::1", 7, "me", "d"),
            ("postgres://[::1]/d", "::1", 5432, "postgres", "d"),
        ] {
            let expected = Uri {
                address: Address::Tcp(host.to_owned(), port),
                user: user.to_owned(),
                database: database.to_owned(),
                pool: POOL,
            };
            assert_eq!(Uri::parse(text).unwrap(), expected, "{text}");
        }
        assert_eq!(Uri::parse("postgres://h/d?pool=3").unwrap().pool, 3);
        for (text, problem) in [
            ("mongodb://h", "must start with"),
            ("postgres://u:p@h", "password"),
            ("postgres://h:x", "port"),
            ("postgres://", "no host"),
            ("postgres://@h", "no user"),
            ("postgres://h/d?sslmode=require", "sslmode"),
            ("postgres://h/d?pool=0", "pool=0"),
            ("postgres://h/d?pool=many", "pool=many"),
        ] {
            let error = Uri::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
