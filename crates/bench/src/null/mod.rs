//! A server that stores nothing: the limit of client and loopback.
//!
//! It accepts the messages of a real server, validates every document, and gives plausible answers. Its
//! only state is the number of documents of each collection, so that a run without acknowledgement can
//! be checked. [`start`] runs it inside of a process, [`run`] is the command
//! `frond bench null`.

mod answer;
mod connection;
mod counts;
mod documents;
mod find;
mod listen;

pub use listen::{NullServer, start};

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::signals::stop_on_signals;
use frond_client::{Error, Result, uri::Address};

/// The field of `buildInfo` that is true on a null server only, so that reports can mark it.
pub const BUILD_INFO_FIELD: &str = "nullServer";

/// The name of its storage engine in `serverStatus`.
pub const ENGINE: &str = "null";

/// The version of MongoDB that it reports.
const VERSION: &str = "7.0.0";

/// Command line of `frond bench null`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// TCP port on the loopback interface; 0 takes a free one
    #[arg(long, default_value_t = frond_client::uri::DEFAULT_PORT, value_name = "N")]
    pub port: u16,

    /// Loopback address, or the path of a Unix socket (with a /)
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS|PATH")]
    pub bind: String,
}

impl Options {
    fn address(&self) -> Result<Address> {
        if self.bind.contains('/') {
            return Ok(Address::Unix(PathBuf::from(&self.bind)));
        }
        let loopback = match self.bind.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => self.bind == "localhost",
        };
        if !loopback {
            return Err(Error::Settings(format!(
                "--bind {}: it listens on a loopback address only, such as 127.0.0.1, or on a Unix socket",
                self.bind
            )));
        }
        Ok(Address::Tcp(self.bind.clone(), self.port))
    }
}

/// A free port of the loopback interface, for [`start`].
pub fn any_port() -> Address {
    Address::Tcp("127.0.0.1".to_owned(), 0)
}

/// Serves until the user asks to stop.
pub fn run(options: &Options) -> Result<()> {
    let stop = stop_on_signals()?;
    let server = start(&options.address()?)?;
    eprintln!("frond bench null: {}", server.uri());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_the_loopback_interface_only() {
        let address = |bind: &str| {
            let options = Options {
                port: 5,
                bind: bind.to_owned(),
            };
            options.address()
        };
        for host in ["127.0.0.1", "127.8.9.10", "::1", "localhost"] {
            assert_eq!(address(host).unwrap(), Address::Tcp(host.to_owned(), 5));
        }
        let path = PathBuf::from("/run/null.sock");
        assert_eq!(address("/run/null.sock").unwrap(), Address::Unix(path));
        for other in ["0.0.0.0", "::", "192.0.2.1", "example.org", ""] {
            let error = address(other).unwrap_err().to_string();
            assert!(error.contains("--bind"), "{other}: {error}");
        }
    }
}
