//! Transactions of several statements: the statements, and how transactions end.
//!
//! A statement uses its session until it has ended. Whoever else wants to end the transaction meanwhile, as `killSessions`
//! does, condemns it and interrupts the statement, which aborts it at its end.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use frond_bson::{DocBuf, Timestamp, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DocumentStore, Durability, OpContext, SnapshotReads};

use crate::connection::{Connection, Peer};
use crate::observability::log::{Component, Severity};
use crate::sessions::{AbortReason, Found, NewTransaction, Open, SessionId, Used, aborted};
use crate::state::Server;

/// The fields of a command about its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRequest {
    /// `txnNumber`
    pub number: i64,
    /// `startTransaction`
    pub starts: bool,
    /// Whether it is `commitTransaction`.
    pub commits: bool,
    /// `readConcern.level`
    pub read_level: Option<String>,
}

/// The wait of an operation for its session, which another command uses. `currentOp` shows it.
pub struct SessionWait<'a> {
    connection: &'a Connection,
    limits: &'a OpContext,
    is_shown: Cell<bool>,
}

impl<'a> SessionWait<'a> {
    /// A wait that the limits of the operation end, and the loss of its client.
    pub fn new(connection: &'a Connection, limits: &'a OpContext) -> SessionWait<'a> {
        SessionWait {
            connection,
            limits,
            is_shown: Cell::new(false),
        }
    }

    /// Whether to go on waiting.
    ///
    /// # Errors
    /// `Interrupted` (11601), `MaxTimeMSExpired` (50).
    pub fn check(&self) -> Result<()> {
        if !self.is_shown.replace(true) {
            self.connection.running.lock().waits_for = Some("its session");
        }
        if self.connection.gone.load(Relaxed) {
            return Err(Error::new(ErrorCode::Interrupted, "the client is gone"));
        }
        Ok(self.limits.check()?)
    }
}

impl Drop for SessionWait<'_> {
    fn drop(&mut self) {
        if self.is_shown.get() {
            self.connection.running.lock().waits_for = None;
        }
    }
}

/// A statement of a transaction that runs. Dropping it without [`Statement::finish`] aborts the transaction.
pub struct Statement<'s> {
    server: &'s Server,
    connection: &'s Connection,
    session: Option<Used>,
    /// None if the transaction is committed already, or has ended.
    open: Option<Arc<Open>>,
    /// Why the server aborts the transaction, if the statement has aborted it.
    aborted_for: Option<AbortReason>,
}

impl<'s> Statement<'s> {
    /// Waits for the session, and begins or continues a transaction. A new one reads the given moment, or the current one.
    ///
    /// # Errors
    /// Those of the wait, and MongoDB's for a number or a state of the session that does not fit.
    pub fn begin(
        server: &'s Server,
        connection: &'s Connection,
        id: SessionId,
        asked: &TransactionRequest,
        at: Option<SnapshotReads>,
        limits: &OpContext,
    ) -> Result<Statement<'s>> {
        let wait = SessionWait::new(connection, limits);
        let mut session = server.clients.sessions.enter(id, || wait.check())?;
        drop(wait);
        // A statement that still waits is not interrupted with the transaction: it finds that it has ended.
        connection.running.lock().transaction = Some(asked.number);
        session.load(id, &server.store)?;
        let mut displaced = None;
        let open = if asked.starts {
            let new = NewTransaction {
                number: asked.number,
                read_level: asked.read_level.clone(),
                at,
                client: describe(connection),
            };
            let sessions = &server.clients.sessions;
            let (open, before) =
                sessions.begin_transaction(&mut session, id, new, &server.store)?;
            displaced = before;
            Some(open)
        } else {
            if asked.commits && server.store.is_shared() {
                settle_elsewhere(server, &mut session, id, asked.number)?;
            }
            match session.find(id, asked.number, asked.commits)? {
                Found::Open(open) => Some(open.clone()),
                Found::Committed => None,
            }
        };
        if let Some(open) = &open {
            open.begin_statement();
        }
        let statement = Statement {
            server,
            connection,
            session: Some(session),
            open,
            aborted_for: None,
        };
        if let Some(displaced) = displaced {
            abort_displaced(server, &displaced);
        }
        if statement.abort_reason().is_some() {
            // It was condemned while it was idle.
            return Err(aborted(asked.number));
        }
        Ok(statement)
    }

    fn abort_reason(&self) -> Option<AbortReason> {
        let open = self.open.as_ref();
        open.map_or(self.aborted_for, |open| open.abort_reason())
    }

    /// The transaction; none if it is committed.
    pub fn open(&self) -> Option<&Open> {
        self.open.as_deref()
    }

    /// The store, for requests inside the transaction.
    pub fn store(&self) -> Option<&DocumentStore> {
        self.open.as_ref().map(|open| &open.store)
    }

    /// Commits the transaction. One that is committed already is committed again. Returns the time of its entry in the oplog,
    /// if it has one now.
    ///
    /// # Errors
    /// Those of the store; the transaction is aborted then.
    pub fn commit(&mut self) -> Result<Option<Timestamp>> {
        let Some(open) = self.open.clone() else {
            self.server
                .clients
                .sessions
                .counts
                .retried_commits
                .fetch_add(1, Relaxed);
            return Ok(None);
        };
        // The dispatcher waits for the journal.
        let durability = Durability::Logged;
        let committed = match &mut self.session {
            None => open.transaction.commit(durability),
            Some(session) => {
                let of = session.commit_of(&open);
                let committed = open.transaction.commit_recorded(durability, of);
                committed.map(|is_recorded| {
                    if is_recorded {
                        session.commit_stored();
                    }
                })
            }
        };
        // Not before: if the commit panics, the drop ends the transaction.
        self.open = None;
        self.leave(&open, committed.is_ok());
        committed?;
        Ok(open.transaction.committed_at())
    }

    /// Aborts the transaction, if it is open.
    pub fn abort(&mut self) {
        if let Some(open) = self.open.take() {
            self.aborted_for = open.abort_reason();
            self.leave(&open, false);
        }
    }

    /// The statement has succeeded, or the transaction has ended. The transaction stays open for the next statement, unless it
    /// was condemned meanwhile or its client is gone.
    pub fn finish(mut self) {
        let is_gone = self.connection.gone.load(Relaxed);
        if is_gone || self.abort_reason().is_some() {
            return self.abort();
        }
        let Some(open) = self.open.take() else {
            return;
        };
        open.end_statement();
        if let Some(mut session) = self.session.take() {
            session.used();
        }
        if let Some(why) = open.abort_reason() {
            // By someone who found the session in use just before.
            abort_soon(self.server, &open, why);
        }
    }

    /// The error that its client gets for an error of the statement: an interrupted one says why.
    pub fn explain(&self, failure: Error) -> Error {
        match (failure.code(), self.abort_reason()) {
            (ErrorCode::Interrupted, Some(AbortReason::Expired)) => Error::new(
                ErrorCode::TransactionExceededLifetimeLimitSeconds,
                "operation was interrupted because the transaction exceeded the configured \
                 'transactionLifetimeLimitSeconds'",
            ),
            // As when MongoDB's cache is full. The client is to run the transaction again.
            (ErrorCode::Interrupted, Some(AbortReason::Memory)) => Error::new(
                ErrorCode::WriteConflict,
                "the transaction was aborted because memory is scarce",
            ),
            (ErrorCode::Interrupted, Some(AbortReason::SteppedDown)) => {
                frond_replset::interrupted()
            }
            _ => failure,
        }
    }

    /// The transaction has ended: lets others use the session.
    fn leave(&mut self, open: &Arc<Open>, is_committed: bool) {
        // While the session is locked, so that no one else ends the transaction a second time.
        self.server.clients.sessions.forget_open(open);
        if let Some(mut session) = self.session.take() {
            session.end_transaction(is_committed);
            session.used();
        }
        end(self.server, open, is_committed);
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Settles the outcome of a transaction that is not open on this server before its commit is answered. Another server over the same data
/// may have it open: afterwards that server has committed it, or cannot commit it any more.
fn settle_elsewhere(server: &Server, session: &mut Used, id: SessionId, number: i64) -> Result<()> {
    let is_unknown = |found: &Result<Found<'_, Arc<Open>>>| matches!(found, Err(failure) if failure.code() == ErrorCode::NoSuchTransaction);
    if !is_unknown(&session.find(id, number, true)) {
        return Ok(());
    }
    match server.store.refuse_commit(&id.key(), number) {
        // It was committed at the same moment, or refused.
        Err(failure) if failure.code() == ErrorCode::WriteConflict => {}
        refused => refused?,
    }
    session.load(id, &server.store)
}

/// A client, as `currentOp` shows it with an idle transaction.
fn describe(connection: &Connection) -> DocBuf {
    let mut out = doc! {"connectionId": connection.id};
    if let Peer::Tcp(address) = &connection.peer {
        out.push("client", &address.to_string());
    }
    if let Some(name) = connection.application() {
        out.push("appName", name);
    }
    if let Some(client) = connection.client.get() {
        out.push("clientMetadata", client);
    }
    out
}

/// The steps after the end of a transaction, once its session has recorded it.
fn end(server: &Server, open: &Arc<Open>, is_committed: bool) {
    open.end_statement();
    server.clients.sessions.forget_open(open);
    if !is_committed {
        open.transaction.abort();
    }
    if open.has_cursors.load(Relaxed) {
        server
            .clients
            .cursors
            .kill_transaction(open.session, open.number);
    }
    let counts = &server.clients.sessions.counts;
    let count = if is_committed {
        &counts.committed
    } else {
        &counts.aborted
    };
    count.fetch_add(1, Relaxed);
    match open.abort_reason().filter(|_| !is_committed) {
        Some(AbortReason::Expired) => &counts.expired,
        Some(AbortReason::Memory) => &counts.aborted_for_memory,
        Some(AbortReason::Killed | AbortReason::SteppedDown) | None => {
            return log_if_slow(server, open, is_committed);
        }
    }
    .fetch_add(1, Relaxed);
    log_if_slow(server, open, is_committed);
}

fn log_if_slow(server: &Server, open: &Open, is_committed: bool) {
    let now = Instant::now();
    let took = now.saturating_duration_since(open.started);
    server.metrics.transactions.record(took);
    let severity = if took >= server.slow_operation() {
        Severity::Info
    } else {
        Severity::Debug(1)
    };
    if !server.log.wants(Component::Transaction, severity) {
        return;
    }
    let active = open.activity().active_for(now);
    let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let mut attributes = doc! {
        "parameters": {
            "lsid": &open.session.to_doc(), "txnNumber": open.number, "autocommit": false,
            "readConcern": &read_concern(open),
        },
        "terminationCause": if is_committed { "committed" } else { "aborted" },
        "timeActiveMicros": micros(active),
        "timeInactiveMicros": micros(took.saturating_sub(active)),
        "bytes": i64::try_from(open.transaction.bytes()).unwrap_or(i64::MAX),
        "durationMillis": i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
    };
    let why = match open.abort_reason() {
        Some(AbortReason::Killed) => "the session was ended",
        Some(AbortReason::Expired) => "transactionLifetimeLimitSeconds",
        Some(AbortReason::Memory) => "memory is scarce",
        Some(AbortReason::SteppedDown) => "step down",
        None => "",
    };
    if !why.is_empty() {
        attributes.push("abortedBy", why);
    }
    let component = Component::Transaction;
    (server.log).line(
        severity,
        component,
        51802,
        "transaction",
        "transaction",
        &attributes,
    );
}

/// The `readConcern` that the client named.
pub fn read_concern(open: &Open) -> DocBuf {
    match &open.read_level {
        Some(level) => doc! {"level": level.as_str()},
        None => DocBuf::new(),
    }
}

/// Completes the end of a transaction that a newer number of its session has ended.
pub fn abort_displaced(server: &Server, displaced: &Arc<Open>) {
    end(server, displaced, false);
}

/// Aborts a transaction that others may use: at once if it is idle, else at the end of its statement, which is interrupted.
pub fn abort_soon(server: &Server, open: &Arc<Open>, why: AbortReason) {
    let Some(owner) = open.mark_for_abort(why) else {
        // Unless it has ended meanwhile.
        if server.clients.sessions.forget_open(open) {
            end(server, open, false);
        }
        return;
    };
    let Some(mut session) = owner.try_lock() else {
        server
            .clients
            .connections
            .kill_transaction(open.session, open.number);
        return;
    };
    let is_aborted = session.abort(open);
    drop(session);
    if is_aborted {
        end(server, open, false);
    }
}

/// Aborts an idle transaction. False if a statement runs.
pub fn abort_idle(server: &Server, open: &Arc<Open>, why: AbortReason) -> bool {
    if open.activity().is_active() {
        return false;
    }
    abort_soon(server, open, why);
    true
}

/// Closes the cursors of a session and aborts its open transaction. What it has committed stays known, so that its client may
/// repeat a commit or a write.
pub fn clear_session(server: &Server, id: SessionId) {
    server.clients.cursors.kill_session(id);
    if let Some(open) = server.clients.sessions.open_transaction(id) {
        abort_soon(server, &open, AbortReason::Killed);
    }
}

/// Interrupts the operations of the sessions that are chosen, but not those of one connection, and does what
/// [`clear_session`] does for each.
pub fn clear_sessions(server: &Server, connection: i64, is_chosen: impl Fn(SessionId) -> bool) {
    for cursor in server.clients.cursors.list() {
        if cursor.session.is_some_and(&is_chosen) {
            server.clients.cursors.kill(cursor.id);
        }
    }
    server
        .clients
        .connections
        .kill_sessions(connection, &is_chosen);
    for open in server.clients.sessions.open_transactions() {
        if is_chosen(open.session) {
            abort_soon(server, &open, AbortReason::Killed);
        }
    }
}

/// Aborts the transactions that are open for too long, and those that were condemned when their session was locked although no
/// statement ran. Returns how many were open for too long.
pub fn abort_expired(server: &Server, now: Instant) -> usize {
    let mut expired = 0;
    for open in server.clients.sessions.open_transactions() {
        match open.abort_reason() {
            Some(why) => abort_soon(server, &open, why),
            None if open.is_expired(now) => {
                expired += 1;
                abort_soon(server, &open, AbortReason::Expired);
            }
            None => {}
        }
    }
    expired
}

#[cfg(test)]
mod tests;
