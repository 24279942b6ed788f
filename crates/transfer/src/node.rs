//! The servers at both ends.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bson::doc;
use frond_client::{Client, Uri};

use crate::error::Result;

/// A server, to which each thread connects by itself.
#[derive(Clone, Debug)]
pub struct Node {
    uri: Uri,
    stop: Arc<AtomicBool>,
    oldest: bool,
}

/// The version and the role of a server.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Its version, with the name of the product where it is known.
    pub version: String,
    /// The replica set that it is a member of.
    pub set_name: Option<String>,
    /// Whether it routes to the shards of a cluster.
    pub is_router: bool,
}

impl Node {
    /// A server by its connection string.
    pub fn new(uri: &str, oldest: bool, stop: &Arc<AtomicBool>) -> Result<Node> {
        let mut uri = Uri::from_str(uri)?;
        if uri.app_name.is_none() {
            uri.app_name = Some("frond transfer".to_owned());
        }
        Ok(Node {
            uri,
            stop: Arc::clone(stop),
            oldest,
        })
    }

    pub fn connect(&self) -> Result<Client> {
        let mut client = Client::connect(&self.uri, Arc::clone(&self.stop))?;
        if self.oldest {
            client.assume_oldest();
        }
        Ok(client)
    }

    pub fn host_and_port(&self) -> String {
        self.uri.address.host_and_port()
    }

    /// The database that the connection string names.
    pub fn database(&self) -> Option<&str> {
        self.uri.database.as_deref()
    }
}

impl ServerInfo {
    pub fn ask(client: &mut Client) -> Result<ServerInfo> {
        let info = client.command("admin", &doc! { "buildInfo": 1 })?;
        let mut version = info.get_str("version").unwrap_or("unknown").to_owned();
        let product =
            (info.iter())
                .map(|(name, _)| name)
                .find_map(|name| match name.to_ascii_lowercase() {
                    lower if lower.contains("ferretdb") => Some("FerretDB"),
                    lower if lower.contains("frond") => Some("Frond"),
                    _ => None,
                });
        if let Some(product) = product {
            version = format!("{version} ({product})");
        }
        let hello = client.hello();
        Ok(ServerInfo {
            version,
            set_name: hello.get_str("setName").map(str::to_owned),
            is_router: hello.get_str("msg") == Some("isdbgrid"),
        })
    }
}
