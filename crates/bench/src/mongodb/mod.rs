//! Servers that speak MongoDB's wire protocol, of every age.

mod finds;
mod inserts;
mod setup;
mod status;
mod transactions;
mod updates;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::system::{Defaults, Scheme, Session, System};
use frond_client::{Client, Result, uri::Uri};

/// `mongodb://`
pub struct MongoDb;

impl Scheme for MongoDb {
    fn prefix(&self) -> &'static str {
        "mongodb://"
    }

    fn open(&self, uri: &str) -> Result<Box<dyn System>> {
        Ok(Box::new(Server { uri: uri.parse()? }))
    }
}

struct Server {
    uri: Uri,
}

impl System for Server {
    fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        Ok(Box::new(Connection {
            client: Client::connect(&self.uri, Arc::clone(stop))?,
            inserts: None,
            encoded: updates::EncodedUpdates::default(),
        }))
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            database: self.uri.database.clone(),
            write_concern: self.uri.write_concern,
            journal: self.uri.journal,
        }
    }
}

/// A session with such a server.
struct Connection {
    client: Client,
    inserts: Option<inserts::Inserting>,
    encoded: updates::EncodedUpdates,
}
