//! Connection strings: those of libpq, with one more option: `pool=N`.

use std::str::FromStr;
use std::time::Duration;

use frond_bench::{Error, Result};
use tokio_postgres::Config;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that transactions share when the string does not say: four for each core of a small machine.
const POOL: usize = 8;

/// The role when the string names none.
const USER: &str = "postgres";

/// The address of a server, with the options of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    pub config: Config,
    /// `pool`: connections at most that the threads of `sysbench` share.
    pub pool: usize,
}

impl Uri {
    /// Reads it. An option that is not known is an error that names it.
    pub fn parse(text: &str) -> Result<Uri> {
        let bad = |text: String| Error::Uri(text);
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        let mut pool = POOL;
        let mut others = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.strip_prefix("pool=") {
                Some(number) => {
                    pool = number.parse().unwrap_or(0);
                    if !(1..=10_000).contains(&pool) {
                        return Err(bad(format!("pool={number} is not from 1 to 10000")));
                    }
                }
                None => others.push(option),
            }
        }
        let rest = match others.is_empty() {
            true => address.to_owned(),
            false => format!("{address}?{}", others.join("&")),
        };
        let mut config = Config::from_str(&rest).map_err(|error| {
            let cause = std::error::Error::source(&error);
            bad(cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")))
        })?;
        if config.get_hosts().is_empty() {
            return Err(bad(format!("{text:?} names no host")));
        }
        if config.get_user().is_none() {
            config.user(USER);
        }
        config.connect_timeout(CONNECT_TIMEOUT);
        config.application_name("frond bench");
        Ok(Uri { config, pool })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::Host;

    #[test]
    fn connection_strings() {
        for (text, host, ports, user, database) in [
            ("postgres://h", "h", &[5432][..], "postgres", None),
            ("postgres://me@h:1/", "h", &[1], "me", None),
            ("postgres://me@[::1]:7/d", "::1", &[7], "me", Some("d")),
            (
                "postgres://h/d?sslmode=disable",
                "h",
                &[5432][..],
                "postgres",
                Some("d"),
            ),
        ] {
            let uri = Uri::parse(text).unwrap();
            let config = &uri.config;
            assert_eq!(config.get_hosts(), [Host::Tcp(host.to_owned())], "{text}");
            assert_eq!(config.get_ports(), ports, "{text}");
            assert_eq!(config.get_user(), Some(user), "{text}");
            assert_eq!(
                config.get_dbname().filter(|name| !name.is_empty()),
                database
            );
            assert_eq!(uri.pool, POOL);
        }
        assert_eq!(Uri::parse("postgres://h/d?pool=3").unwrap().pool, 3);
        for (text, problem) in [
            ("postgres://h:x", "port"),
            ("postgres://", "no host"),
            ("postgres://h/d?pol=2", "pol"),
            ("postgres://h/d?pool=0", "pool=0"),
            ("postgres://h/d?pool=many", "pool=many"),
        ] {
            let error = Uri::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
