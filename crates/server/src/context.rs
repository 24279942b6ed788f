//! The context of a running command.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use frond_bson::{Doc, Timestamp, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, Namespace, OpContext, update_op_stats};
use frond_wire::DocIter;

use crate::arguments::Arguments;
use crate::authorization::{Caller, Needs};
use crate::concern::WriteConcern;
use crate::connection::{ClientState, Connection};
use crate::fail_points::SwitchName;
use crate::limits::WRITE_BATCH_MAX;
use crate::needs::Owner;
use crate::operation::{Exhaust, Operation};
use crate::sessions::{Open, RetryableWrite, SessionId};
use crate::state::Server;
use crate::transactions::{self, SessionWait, Statement};

/// A command, its arguments, and everything it may use.
pub struct Context<'a> {
    pub server: &'a Server,
    pub caller: &'a Caller,
    /// The needed privileges; `None` without authorization.
    pub needs: Option<Needs<'a>>,
    pub connection: &'a Connection,
    /// State that only commands of this connection see.
    pub state: &'a mut ClientState,
    /// The operation that the command is.
    pub operation: &'a mut Operation,
    /// The proper name of the command.
    pub name: &'static str,
    pub db: &'a str,
    pub body: &'a Doc,
    /// Document sequences beside it.
    pub sequences: &'a [(&'a str, DocIter<'a>)],
    pub session: Option<SessionId>,
    /// The number of the retryable write.
    pub txn_number: Option<i64>,
    /// The statement of a transaction that the command is.
    pub statement: Option<Statement<'a>>,
    /// The snapshot of a read with the level `snapshot`, outside of transactions.
    pub point_in_time: Option<PointInTimeStore>,
    /// A handle of the store that notes the entries of the oplog, for a command that writes.
    pub noting: Option<DocumentStore>,
    /// See [`WriteConcern`].
    pub write_concern: WriteConcern,
    /// Time limit and interrupt switch.
    pub limits: OpContext,
    /// The time that the client allows.
    pub max_time: Option<Duration>,
    /// The replies to the message of the command.
    pub exhaust: &'a mut Exhaust,
    /// The command came by a legacy opcode.
    pub legacy: bool,
}

/// A handle of the store that reads at one time.
pub struct PointInTimeStore {
    pub store: DocumentStore,
    /// The time, which the reply names.
    pub time: Timestamp,
}

impl<'a> Context<'a> {
    pub fn args(&self) -> Arguments<'a> {
        Arguments::new(self.name, self.body)
    }

    /// The store: inside the transaction that the command is a part of, or at the time that it reads.
    pub fn store(&self) -> &DocumentStore {
        let inside = self.statement.as_ref().and_then(Statement::store);
        let at = self
            .point_in_time
            .as_ref()
            .map(|point_in_time| &point_in_time.store);
        let outside = at.or(self.noting.as_ref());
        inside.or(outside).unwrap_or(&self.server.store)
    }

    /// The owner of what the command leaves behind; none where it is not checked who uses it.
    pub fn owner(&self) -> Option<Arc<Owner>> {
        self.caller.owner_of(self.needs.clone())
    }

    /// The transaction that the command is a part of.
    pub fn transaction(&self) -> Option<&Open> {
        self.statement.as_ref().and_then(Statement::open)
    }

    /// The collection that the command's first field names.
    pub fn namespace(&self) -> Result<Namespace> {
        let Some((_, value)) = self.body.first() else {
            return Err(Error::bad_value("the command is empty"));
        };
        let namespace = self.namespace_of(&value)?;
        self.check_uuid(&namespace)?;
        Ok(namespace)
    }

    /// Checks the `collectionUUID` of the command, if it has one: with it a client verifies that a name still means
    /// the same collection.
    ///
    /// # Errors
    /// `CollectionUUIDMismatch` (361), with the name that the collection has now.
    pub fn check_uuid(&self, namespace: &Namespace) -> Result<()> {
        self.check_uuid_in(&self.args(), namespace)
    }

    /// As [`Context::check_uuid`], for a part of the command.
    ///
    /// # Errors
    /// As for the command.
    pub fn check_uuid_in(&self, args: &Arguments<'_>, namespace: &Namespace) -> Result<()> {
        let wanted = match args.get("collectionUUID") {
            None => return Ok(()),
            Some(Value::Binary { subtype: 4, bytes }) if bytes.len() == 16 => bytes,
            Some(other) => {
                return Err(args.wrong_type("collectionUUID", &other, "type 'binData'"));
            }
        };
        let store = self.store();
        if store.uuid_of(namespace).is_some_and(|uuid| uuid == wanted) {
            return Ok(());
        }
        let actual = store.collection_by_uuid(namespace.db(), wanted);
        let uuid = Value::Binary {
            subtype: 4,
            bytes: wanted,
        };
        let mut details = doc! {
            "db": namespace.db(),
            "collectionUUID": uuid,
            "expectedCollection": namespace.coll(),
        };
        details.push(
            "actualCollection",
            actual.as_ref().map(|actual| actual.coll()),
        );
        Err(Error::new(
            ErrorCode::CollectionUUIDMismatch,
            "Collection UUID does not match that specified",
        )
        .with_details(details))
    }

    /// A collection of this command's database.
    pub fn namespace_of(&self, value: &Value<'_>) -> Result<Namespace> {
        match value {
            Value::String(collection) | Value::Symbol(collection) => {
                Ok(Namespace::new(self.db, collection)?)
            }
            Value::NotUtf8(_) => Err(Error::new(
                ErrorCode::InvalidNamespace,
                "The name of a collection has to be valid UTF-8",
            )),
            Value::Binary { subtype: 4, bytes } => {
                let found = self.store().collection_by_uuid(self.db, bytes);
                found.ok_or_else(|| {
                    let digits = frond_bson::hex(bytes);
                    Error::new(
                        ErrorCode::NamespaceNotFound,
                        format!("Unable to resolve {digits}"),
                    )
                })
            }
            other => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("collection name has invalid type {}", other.type_name()),
            )),
        }
    }

    /// The documents of a required field, which may be a document sequence of the message or an
    /// array in the command.
    pub fn documents(&self, field: &str) -> Result<Vec<&'a Doc>> {
        if let Some((_, sequence)) = self.sequences.iter().find(|(name, _)| *name == field) {
            if self.body.contains_key(field) {
                return Err(self.args().duplicate(field));
            }
            let mut documents = Vec::with_capacity(sequence.len());
            for bytes in *sequence {
                documents.push(Doc::validate(bytes)?);
            }
            return Ok(documents);
        }
        self.args()
            .documents(field)?
            .ok_or_else(|| self.args().missing(field))
    }

    /// The retryable write that this command is, if it has a transaction number and is no statement of a transaction.
    ///
    /// # Errors
    /// As [`crate::sessions::Sessions::begin_write`].
    pub fn retryable_write(&self) -> Result<Option<RetryableWrite>> {
        let (Some(id), Some(number)) = (self.session, self.txn_number) else {
            return Ok(None);
        };
        if self.statement.is_some() {
            return Ok(None);
        }
        let wait = SessionWait::new(self.connection, &self.limits);
        let sessions = &self.server.clients.sessions;
        let (write, displaced) =
            sessions.begin_write(id, number, &self.server.store, || wait.check())?;
        if let Some(displaced) = displaced {
            transactions::abort_displaced(self.server, &displaced);
        }
        Ok(Some(write))
    }

    /// Counts documents that its reply has.
    pub fn count_returned(&self, documents: usize) {
        let documents = documents as u64;
        self.server.metrics.documents_returned.add(documents);
        update_op_stats(|op_stats| op_stats.returned += documents);
    }

    /// Asks the fail point `onPrimaryTransactionalWrite` before a statement of a retryable write is executed.
    ///
    /// # Errors
    /// The one that the fail point names.
    pub fn check_fail_point_of_write(&self) -> Result<()> {
        let Some(effect) = self.server.execution.fail_points.of_write() else {
            return Ok(());
        };
        self.connection.closes.fetch_or(effect.close, Relaxed);
        match effect.error {
            None => Ok(()),
            Some(code) => Err(Error::new(
                ErrorCode::from_code(code),
                "Failing write due to failpoint. The write must not be reflected.",
            )),
        }
    }

    /// Waits at a fail point as long as it is on for a namespace.
    ///
    /// # Errors
    /// The limits of the operation, if the fail point says so; `InterruptedAtShutdown` (11600).
    pub fn wait_at(&self, name: SwitchName, namespace: &str) -> Result<()> {
        let points = &self.server.execution.fail_points;
        let Some(waits) = points.acts(name, namespace) else {
            return Ok(());
        };
        self.connection.running.lock().waits_for = Some(name.text());
        self.server.execution.executor.pool.leave();
        let mut outcome = Ok(());
        while outcome.is_ok() && points.is_still_on(name) {
            std::thread::sleep(Duration::from_millis(5));
            if self.server.is_stopping() || self.connection.gone.load(Relaxed) {
                outcome = Err(Error::new(
                    ErrorCode::InterruptedAtShutdown,
                    "interrupted at a fail point",
                ));
            } else if waits.checks_interrupts {
                outcome = self.limits.check().map_err(Error::from);
            }
        }
        self.connection.running.lock().waits_for = None;
        outcome
    }

    /// Checks the number of statements of a write command.
    pub fn check_batch(&self, statements: usize) -> Result<()> {
        if (1..=WRITE_BATCH_MAX).contains(&statements) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidLength,
            format!(
                "Write batch sizes must be between 1 and {WRITE_BATCH_MAX}. Got {statements} \
                 operations."
            ),
        ))
    }
}

/// The error for an option of a MongoDB command that this server does not support.
pub fn unsupported_option(command: &str, option: &str) -> Error {
    Error::not_supported(format!("the option '{option}' of the command '{command}'"))
}
