//! What workloads ask, as SQL.

mod counters;
mod everyday;
mod finds;
mod inserts;
mod pool;
mod retention;
mod setup;
mod transactions;
mod updates;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bench::Result;
use frond_bench::system::{Defaults, Scheme, Session, System, WriteConcern};

use crate::client::Client;
use crate::uri::Uri;
use pool::Pool;

/// `postgres://`
pub struct Postgres;

impl Scheme for Postgres {
    fn prefix(&self) -> &'static str {
        "postgres://"
    }

    fn open(&self, uri: &str) -> Result<Box<dyn System>> {
        let uri = Uri::parse(uri)?;
        Ok(Box::new(Server {
            pool: Arc::new(Pool::new(uri.clone())),
            uri,
        }))
    }
}

struct Server {
    uri: Uri,
    pool: Arc<Pool>,
}

impl System for Server {
    fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        Ok(Box::new(Connection {
            uri: self.uri.clone(),
            stop: Arc::clone(stop),
            own: None,
            pool: Arc::clone(&self.pool),
            in_pool: false,
            journal: None,
            inserts: None,
            encoded: updates::EncodedUpdates::default(),
            multikey: HashMap::new(),
        }))
    }

    fn defaults(&self) -> Defaults {
        Defaults::default()
    }
}

struct Connection {
    uri: Uri,
    stop: Arc<AtomicBool>,
    /// Its own connection, opened when it is first wanted. Transactions take one of the pool.
    own: Option<Client>,
    pool: Arc<Pool>,
    in_pool: bool,
    /// What `synchronous_commit` was set to; `None` leaves it as the server has it.
    journal: Option<bool>,
    inserts: Option<inserts::Inserting>,
    encoded: updates::EncodedUpdates,
    /// Whether a table's field has a GIN index.
    multikey: HashMap<(String, String), bool>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.in_pool {
            self.pool.leave();
        }
    }
}

/// The connection in a place, which is opened if there is none.
fn opened<'c>(
    own: &'c mut Option<Client>,
    uri: &Uri,
    stop: &Arc<AtomicBool>,
) -> Result<&'c mut Client> {
    match own {
        Some(client) => Ok(client),
        None => Ok(own.insert(Client::connect(&uri.config, stop)?)),
    }
}

impl Connection {
    /// Its own connection.
    fn client(&mut self) -> Result<&mut Client> {
        opened(&mut self.own, &self.uri, &self.stop)
    }

    /// Makes commits wait for the log, or not.
    fn set_journal(&mut self, concern: WriteConcern) -> Result<()> {
        if self.journal == Some(concern.journal) {
            return Ok(());
        }
        let value = if concern.journal { "on" } else { "off" };
        self.client()?
            .run(&format!("SET synchronous_commit = {value}"))?;
        self.journal = Some(concern.journal);
        Ok(())
    }
}
