//! What workloads ask, as SQL.

mod finds;
mod inserts;
mod setup;
mod transactions;
mod updates;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use frond_bench::system::{Defaults, Scheme, Session, System, WriteConcern};
use frond_bench::{Collection, Result, Stream};

use crate::client::{Client, Statement};
use crate::uri::{CONNECT_TIMEOUT, Uri};

/// `postgres://`
pub struct Postgres;

impl Scheme for Postgres {
    fn prefix(&self) -> &'static str {
        "postgres://"
    }

    fn open(&self, uri: &str) -> Result<Box<dyn System>> {
        Ok(Box::new(Server(Uri::parse(uri)?)))
    }
}

struct Server(Uri);

impl System for Server {
    fn connect(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Session>> {
        let stream = Stream::open(
            &self.0.address,
            Some(CONNECT_TIMEOUT),
            None,
            Arc::clone(stop),
        )?;
        Ok(Box::new(Connection {
            client: Client::connect(stream, &self.0.user, &self.0.database)?,
            journal: None,
            inserts: None,
            script: updates::Script::default(),
            statements: HashMap::new(),
            multikey: HashMap::new(),
        }))
    }

    fn defaults(&self) -> Defaults {
        Defaults::default()
    }
}

/// A session.
struct Connection {
    client: Client,
    /// What `synchronous_commit` was set to; `None` leaves it as the server has it.
    journal: Option<bool>,
    inserts: Option<inserts::Inserting>,
    script: updates::Script,
    /// Those of each table's transactions.
    statements: HashMap<Collection, transactions::Statements>,
    /// Whether a table's field has a GIN index.
    multikey: HashMap<(String, String), bool>,
}

impl Connection {
    /// Makes commits wait for the log, or not.
    fn set_journal(&mut self, concern: WriteConcern) -> Result<()> {
        if self.journal == Some(concern.journal) {
            return Ok(());
        }
        let value = if concern.journal { "on" } else { "off" };
        self.client
            .run(&format!("SET synchronous_commit = {value}"))?;
        self.journal = Some(concern.journal);
        Ok(())
    }
}

/// The statement of a table, prepared when it is first wanted.
fn prepared<'s>(
    client: &mut Client,
    place: &'s mut Option<Statement>,
    sql: impl FnOnce() -> String,
) -> Result<&'s Statement> {
    match place {
        Some(statement) => Ok(statement),
        None => Ok(place.insert(client.prepare(&sql())?)),
    }
}
