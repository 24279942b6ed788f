//! TLS for both sides of a connection, by `rustls` with the primitives of `ring`.
//!
//! [`ServerOptions::load`] reads the files of a server and checks them, [`ClientOptions::load`] those of a client. The results
//! hold the configurations of `rustls`; the sockets belong to the caller.
#![forbid(unsafe_code)]

mod certificate;
mod client;
mod error;
#[cfg(test)]
mod handshake_tests;
mod hex;
mod key;
mod oids;
mod password;
mod pem;
mod protocol;
mod revocation;
mod server;
mod subject;
#[cfg(test)]
mod testing;

pub use rustls;

pub use certificate::CertificateInfo;
pub use client::ClientOptions;
pub use error::{Error, Result};
pub use password::Password;
pub use protocol::Protocol;
pub use revocation::RevocationInfo;
pub use server::{Peer, ServerOptions, ServerTls};
