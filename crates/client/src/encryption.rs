//! TLS of connections.

use std::net::TcpStream;
use std::sync::{Arc, OnceLock};

use frond_tls::ClientOptions;
use frond_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::error::{Error, Result};

/// A stream of a socket that is encrypted.
pub type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// The options of a connection string, with the files that they name once these are read. Connections share sessions.
#[derive(Clone, Debug)]
pub struct Encryption {
    options: ClientOptions,
    config: Arc<OnceLock<Arc<ClientConfig>>>,
}

impl Encryption {
    /// Options whose files are not read yet.
    #[must_use]
    pub fn new(options: ClientOptions) -> Encryption {
        Encryption {
            options,
            config: Arc::default(),
        }
    }

    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Encrypts what goes over a socket. The handshake takes place with the first bytes.
    pub fn wrap(&self, socket: TcpStream, host: &str) -> Result<Encrypted> {
        let failed = |error: &dyn std::fmt::Display| Error::Settings(format!("TLS: {error}"));
        let config = match self.config.get() {
            Some(config) => config.clone(),
            None => {
                let config = self.options.load().map_err(|error| failed(&error))?;
                self.config.get_or_init(|| config).clone()
            }
        };
        let name = ClientOptions::server_name(host).map_err(|error| failed(&error))?;
        let session = ClientConnection::new(config, name).map_err(|error| failed(&error))?;
        Ok(StreamOwned::new(session, socket))
    }
}
