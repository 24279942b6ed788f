//! Addresses, and limits of connections.

use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use frond_auth::AddressRange;

use super::{Settings, SettingsError, UnixSocket};

/// The default limit of connections of one address: half of the default limit of all connections.
pub const CONNECTIONS_PER_ADDRESS: usize = 32_768;

/// With a lower limit of all connections, one of this many is reserved for other addresses unless the operator sets the limit of one
/// address: no address may keep all others out, and the only application server of a small server must not lose much either.
const RESERVED_PART: usize = 20;

impl Settings {
    /// Limits all connections, and those of one address, to what the server can have.
    pub fn limit_connections(&mut self, max: usize) {
        self.connections_max = self.connections_max.min(max);
        if !self.is_explicit("setParameter.maxIncomingConnectionsPerAddress") {
            let others = self.connections_max / RESERVED_PART;
            let most = self.connections_max.saturating_sub(others).max(1);
            self.connections_per_address = self.connections_per_address.min(most);
        }
    }

    /// The address at which clients of a replica set reach this server if nothing else is configured: the first one that it
    /// listens on and that other machines may use, or the name of this machine if it listens on all addresses, else
    /// the local address.
    pub fn reached_at(&self, host: &str, port: u16) -> String {
        let is_local = |name: &str| {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        let is_any =
            |name: &str| name == "*" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        let name = match self.bind_ip.iter().find(|name| !is_local(name)) {
            Some(name) if is_any(name) => host,
            Some(name) => name,
            None => self.bind_ip.first().map_or("localhost", String::as_str),
        };
        if name.contains(':') {
            format!("[{name}]:{port}")
        } else {
            format!("{name}:{port}")
        }
    }

    /// The Unix socket's path, if there is one, once the port is known.
    pub fn unix_socket_path(&self, port: u16) -> Option<PathBuf> {
        match &self.unix_socket {
            UnixSocket::Off => None,
            UnixSocket::InDirectory(directory) => {
                Some(directory.join(format!("mongodb-{port}.sock")))
            }
            UnixSocket::At(path) => Some(path.clone()),
        }
    }
}

/// Clients that the limits of connections do not stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Clients of these addresses.
    Range(AddressRange),
    /// Clients of this Unix socket.
    UnixSocket(PathBuf),
}

impl Exempt {
    pub fn parse(text: &str) -> Result<Exempt, String> {
        if text.starts_with('/') {
            return Ok(Exempt::UnixSocket(text.into()));
        }
        AddressRange::parse(text).map(Exempt::Range).map_err(|_| {
            format!("'{text}' is neither a range of addresses such as 10.0.0.0/8 nor the path of a Unix socket")
        })
    }

    /// Whether it names this address.
    pub fn names(&self, address: IpAddr) -> bool {
        matches!(self, Exempt::Range(range) if range.contains(address))
    }

    /// Whether it names this Unix socket.
    pub fn names_socket(&self, path: &Path) -> bool {
        matches!(self, Exempt::UnixSocket(named) if named == path)
    }
}

/// Resolves the addresses to listen on.
pub fn resolve(names: &[String]) -> Result<Vec<IpAddr>, SettingsError> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for name in names {
        let found = (name.as_str(), 0).to_socket_addrs().map_err(|error| {
            SettingsError(format!("--bind_ip: cannot resolve '{name}': {error}"))
        })?;
        for address in found {
            if !addresses.contains(&address.ip()) {
                addresses.push(address.ip());
            }
        }
    }
    Ok(addresses)
}
