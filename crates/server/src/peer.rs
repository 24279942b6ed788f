//! The other end of a connection.

use std::net::IpAddr;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Tcp(std::net::SocketAddr),
    /// A client of the Unix socket.
    Unix,
}

impl Peer {
    /// True if the client is on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Peer::Unix => true,
            Peer::Tcp(address) => match address.ip() {
                IpAddr::V4(ip) => ip.is_loopback(),
                IpAddr::V6(ip) => {
                    ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback())
                }
            },
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("anonymous unix socket"),
        }
    }
}
