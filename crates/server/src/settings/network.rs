//! Settings that limit who may connect, and what the files of the server allow.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use frond_auth::AddressRange;

use super::Settings;
use super::table::{Kind, Setting, SettingValue, integer, switch};

/// Connections of one address that are accepted unless the setting says otherwise: half of all that are by default.
pub const CONNECTIONS_PER_ADDRESS: usize = 32_768;

/// Where fewer connections are accepted, one in so many is not for the address that has the most, unless the setting says
/// otherwise: it must not keep all others out, but the only application server of a small server must not lose much either.
const RESERVED_PART: usize = 20;

impl Settings {
    /// Limits all connections, and those of one address, to what the server can have.
    pub fn limit_connections(&mut self, max: usize) {
        self.connections_max = self.connections_max.min(max);
        if !self.given.contains_key(PER_ADDRESS.key) {
            let others = self.connections_max / RESERVED_PART;
            let most = self.connections_max.saturating_sub(others).max(1);
            self.connections_per_address = self.connections_per_address.min(most);
        }
    }
}

/// Whom the limits of connections do not stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Clients of these addresses.
    Range(AddressRange),
    /// Clients of this Unix socket.
    UnixSocket(PathBuf),
}

impl Exempt {
    fn parse(text: &str) -> Result<Exempt, String> {
        match text.starts_with('/') {
            true => Ok(Exempt::UnixSocket(text.into())),
            false => AddressRange::parse(text).map(Exempt::Range).map_err(|_| {
                format!("'{text}' is neither a range of addresses such as 10.0.0.0/8 nor the path of a Unix socket")
            }),
        }
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

pub(super) const OVERRIDE: Setting = Setting {
    flag: "",
    key: "net.maxIncomingConnectionsOverride",
    aliases: &["setParameter.maxIncomingConnectionsOverride"],
    kind: Kind::List("RANGES"),
    help: "Ranges of addresses (10.0.0.0/8) and Unix sockets whose clients the limits of connections do not stop",
    apply: |s, v| match v {
        SettingValue::List(parts) => {
            let exempt: Result<_, _> = parts.iter().map(|part| Exempt::parse(part)).collect();
            s.connections_exempt = exempt?;
            Ok(())
        }
        _ => Err("must be a list".into()),
    },
};

pub(super) const PER_ADDRESS: Setting = Setting {
    flag: "",
    key: "setParameter.maxIncomingConnectionsPerAddress",
    aliases: &[],
    kind: Kind::Integer(0, 1_000_000),
    help: "Simultaneous connections of one IPv4 address or one /64 of IPv6; 0 for no limit (default 32768, and at most 95% of maxIncomingConnections)",
    apply: |s, v| {
        integer(v).map(|n| {
            s.connections_per_address = match n {
                0 => usize::MAX,
                n => n,
            };
        })
    },
};

pub(super) const HONOR_UMASK: Setting = Setting {
    flag: "",
    key: "setParameter.honorSystemUmask",
    aliases: &[],
    kind: Kind::Switch(true),
    help: "Create files with the permissions that the umask of the system leaves; else only the owner may use them (default false)",
    apply: |s, v| switch(v).map(|on| s.honor_umask = on),
};

pub(super) const HTTP_PORT: Setting = Setting {
    flag: "httpPort",
    key: "net.http.port",
    aliases: &[],
    kind: Kind::Integer(0, 65_535),
    help: "Serve the console and metrics by HTTP on this TCP port of the same addresses, by HTTPS if TLS is required \
           (default none; 0 chooses a free one)",
    apply: |s, v| integer(v).map(|port| s.http_port = Some(port)),
};

pub(super) const HTTP_HOSTS: Setting = Setting {
    flag: "httpHosts",
    key: "net.http.hosts",
    aliases: &[],
    kind: Kind::List("NAMES"),
    help: "Further names under which browsers reach the console; addresses, localhost, the name of this machine and those \
           of net.bindIp always work",
    apply: |s, v| match v {
        SettingValue::List(names) => {
            let mut hosts = Vec::new();
            for name in names.iter().map(|name| name.trim()) {
                if name.is_empty() || name.contains(['/', ':', '@', ' ']) {
                    return Err(format!("'{name}' is not the name of a host"));
                }
                hosts.push(name.to_ascii_lowercase());
            }
            s.http_hosts = hosts;
            Ok(())
        }
        _ => Err("must be a list".into()),
    },
};
