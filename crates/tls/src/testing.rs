//! Certificates and keys for tests.

mod authority;

use std::path::PathBuf;

pub(crate) use authority::{Authority, write_secret};

use crate::client::ClientOptions;
use crate::server::ServerOptions;

impl Authority {
    /// Options of a server with this certificate.
    pub(crate) fn server(&self, certificate_key_file: PathBuf) -> ServerOptions {
        ServerOptions {
            certificate_key_file,
            password: None,
            ca_file: self.ca_file.clone(),
            crl_file: None,
            allow_connections_without_certificates: false,
            allow_invalid_certificates: false,
            disabled_protocols: Vec::new(),
        }
    }

    /// Options of a client.
    pub(crate) fn client(&self, certificate_key_file: Option<PathBuf>) -> ClientOptions {
        ClientOptions {
            ca_file: Some(self.ca_file.clone()),
            certificate_key_file,
            ..ClientOptions::default()
        }
    }
}
