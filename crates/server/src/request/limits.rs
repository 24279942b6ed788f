//! The end of an operation by its time limit, by an interruption, or because its client has disconnected.

use std::time::{Duration, Instant};

use frond_store::{Interrupt, OpContext, Waiting};

use crate::connection::Connection;
use crate::operation::Operation;

/// An operation continues for this time after its client has disconnected.
const GRACE: Duration = Duration::from_millis(500);

/// Makes the limits of an operation that a connection begins.
pub struct Limits<'a> {
    connection: &'a Connection,
    started: Instant,
    is_acknowledged: bool,
}

impl<'a> Limits<'a> {
    /// Those of an operation.
    pub fn new(connection: &'a Connection, operation: &Operation) -> Limits<'a> {
        Limits {
            connection,
            started: operation.started,
            is_acknowledged: operation.is_acknowledged,
        }
    }

    /// The events that end the waits of the operation in the store; of a change of the schema only those before it begins.
    pub fn interrupt(&self, time: Option<Duration>, only_schema: bool) -> Interrupt {
        Interrupt {
            killed: self.connection.killed.clone(),
            // A client that expects no reply may disconnect at once and have the write done. A change of the schema goes on, as in
            // MongoDB.
            abandoned: (self.is_acknowledged && !only_schema).then(|| self.connection.gone.clone()),
            deadline: time.and_then(|time| self.started.checked_add(time)),
            only_schema,
            waits: self.connection.commit_waits.clone(),
        }
    }

    /// Limits with this time, counted from the start of the operation.
    pub fn with_limit(&self, time: Option<Duration>) -> OpContext {
        let deadline = time.and_then(|time| self.started.checked_add(time));
        OpContext::with_limits(deadline, self.connection.killed.clone())
    }

    /// Ends the operation some time after its client has disconnected. None if the client asks for no reply: it may disconnect
    /// at once and have the operation done.
    pub fn waiting(&self) -> Option<Waiting> {
        self.is_acknowledged.then(|| Waiting {
            gone: self.connection.gone.clone(),
            grace: self.started + GRACE,
        })
    }
}
