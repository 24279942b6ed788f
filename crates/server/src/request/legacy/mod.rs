//! The opcodes from before OP_MSG, which drivers up to 2015 speak.
//!
//! Each one becomes the equivalent command of today. Queries and get-mores have an OP_REPLY; writes have
//! no reply, and their errors are kept for `getLastError`.

use std::borrow::Borrow;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode};
use frond_wire::{Delete, GetMore, Insert, KillCursors, OpReply, Query, Request, Update, op_reply};

use super::parse::Request as Command;
use super::pipeline::execute;
use super::{Handled, Stopping};
use crate::authorization::split;
use crate::client::Client;
use crate::connection::AsksForLastError;
use crate::errors::truncated;
use crate::operation::Exhaust;

mod find;
mod old_commands;
mod virtual_collections;

/// A legacy message that is being handled.
struct Legacy<'c, 'a> {
    client: &'c mut Client<'a>,
    request_id: i32,
    /// Whether the client waits for a reply.
    is_acknowledged: bool,
    /// The result so far.
    handled: Handled,
}

/// Why a legacy message has no result.
enum Failure {
    Stopping,
    Failed(Error),
}

impl From<Stopping> for Failure {
    fn from(_: Stopping) -> Failure {
        Failure::Stopping
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl From<frond_bson::Error> for Failure {
    fn from(error: frond_bson::Error) -> Failure {
        Failure::Failed(error.into())
    }
}

type Result<T, E = Failure> = std::result::Result<T, E>;

/// Handles a legacy message. Some have a reply.
///
/// # Errors
/// The server stops.
pub async fn handle(
    client: &mut Client<'_>,
    request_id: i32,
    request: &Request<'_>,
) -> Result<Handled, Stopping> {
    let mut legacy = Legacy {
        client,
        request_id,
        is_acknowledged: true,
        handled: Handled::default(),
    };
    let reply = match request {
        // Handled by the caller.
        Request::Msg(_) => None,
        Request::Query(query) => Some(legacy.query(query).await?),
        Request::GetMore(get_more) => Some(legacy.get_more(get_more).await?),
        write => {
            legacy.is_acknowledged = false;
            match legacy.write(write).await {
                Err(Failure::Stopping) => return Err(Stopping),
                Err(Failure::Failed(failure)) => legacy.keep_error(failure),
                Ok(()) => {}
            }
            None
        }
    };
    let mut handled = legacy.handled;
    if !handled.close {
        handled.reply = reply;
    }
    Ok(handled)
}

impl Legacy<'_, '_> {
    /// Runs a command and returns its whole reply.
    async fn run(&mut self, request: Command<'_>) -> Result<DocBuf, Stopping> {
        let request = Command {
            legacy: true,
            is_acknowledged: self.is_acknowledged,
            ..request
        };
        let answer = execute(self.client, &request, &mut Exhaust::default()).await?;
        self.handled.wait = self.handled.wait.max(answer.wait);
        self.handled.close |= answer.close;
        self.handled.has_secrets |= answer.has_secrets;
        self.handled.permit = answer.permit;
        Ok(answer.reply)
    }

    async fn run_doc(&mut self, db: &str, body: &Doc) -> Result<DocBuf, Stopping> {
        self.run(Command::new(db, body)).await
    }

    /// Keeps the error of a write that could not be turned into a command.
    fn keep_error(&mut self, failure: Error) {
        self.client.server.metrics.user_errors.add(1);
        self.client.state.last_error.begin();
        self.client.state.last_error.failed(failure);
    }

    /// Runs a message without a reply.
    async fn write(&mut self, request: &Request<'_>) -> Result<()> {
        match request {
            Request::Insert(insert) => self.insert(insert).await,
            Request::Update(update) => self.update(update).await,
            Request::Delete(delete) => self.delete(delete).await,
            Request::KillCursors(kill) => self.kill_cursors(kill).await,
            Request::Msg(_) | Request::Query(_) | Request::GetMore(_) => Ok(()),
        }
    }

    async fn insert(&mut self, insert: &Insert<'_>) -> Result<()> {
        let (db, collection) = split(insert.namespace)?;
        if collection == virtual_collections::INDEXES {
            return self.create_indexes(db, insert).await;
        }
        let ordered = insert.flags & Insert::CONTINUE_ON_ERROR == 0;
        let body = doc! {"insert": collection, "ordered": ordered};
        let request = Command {
            sequences: vec![("documents", insert.documents)],
            ..Command::new(db, &body)
        };
        self.run(request).await?;
        Ok(())
    }

    /// A document inserted into `system.indexes` is an index to create.
    async fn create_indexes(&mut self, db: &str, insert: &Insert<'_>) -> Result<()> {
        for bytes in insert.documents {
            let spec = Doc::validate(bytes)?;
            let namespace = spec.get_str("ns").ok_or_else(|| {
                Error::bad_value("an index in system.indexes needs the field 'ns'")
            })?;
            let (of, collection) = split(namespace)?;
            if of != db {
                return Err(Error::bad_value(format!(
                    "cannot create an index of {namespace} in the database {db}"
                ))
                .into());
            }
            let command = virtual_collections::create_index_command(collection, spec);
            self.run_doc(db, &command).await?;
            if self.client.state.last_error.failure.is_some()
                && self.client.state.last_error.age == 0
            {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn update(&mut self, update: &Update<'_>) -> Result<()> {
        let (db, collection) = split(update.namespace)?;
        let (filter, change) = (Doc::validate(update.filter)?, Doc::validate(update.update)?);
        let mut body = doc! {"update": collection, "updates": [{
            "q": filter,
            "u": change,
            "upsert": update.flags & Update::UPSERT != 0,
            "multi": update.flags & Update::MULTI != 0,
        }]};
        // A client that asks for the results does so at once. From the second update on, it is known.
        let asks = &mut self.client.state.asks_for_last_error;
        match *asks {
            AsksForLastError::Unknown => *asks = AsksForLastError::NotYet,
            AsksForLastError::NotYet => body.push("writeConcern", &doc! {"w": 0}),
            AsksForLastError::Yes => {}
        }
        self.run_doc(db, &body).await?;
        Ok(())
    }

    async fn delete(&mut self, delete: &Delete<'_>) -> Result<()> {
        let (db, collection) = split(delete.namespace)?;
        let limit = i32::from(delete.flags & Delete::SINGLE_REMOVE != 0);
        let body = doc! {"delete": collection, "deletes": [{
            "q": Doc::validate(delete.filter)?,
            "limit": limit,
        }]};
        self.run_doc(db, &body).await?;
        Ok(())
    }

    async fn kill_cursors(&mut self, kill: &KillCursors<'_>) -> Result<()> {
        // getLastError does not report it.
        let kept = std::mem::take(&mut self.client.state.last_error);
        let killed = self.kill_each(kill).await;
        self.client.state.last_error = kept;
        killed
    }

    async fn kill_each(&mut self, kill: &KillCursors<'_>) -> Result<()> {
        for id in kill.ids() {
            let Some(namespace) = self.client.server.clients.cursors.namespace(id) else {
                continue;
            };
            if let Ok((db, collection)) = split(&namespace) {
                let command = doc! {"killCursors": collection, "cursors": [id]};
                self.run_doc(db, &command).await?;
            }
        }
        Ok(())
    }

    async fn query(&mut self, query: &Query<'_>) -> Result<Vec<u8>, Stopping> {
        match self.try_query(query).await {
            Err(Failure::Stopping) => Err(Stopping),
            Err(Failure::Failed(failure)) => Ok(self.query_failure(&failure)),
            Ok(reply) => Ok(reply),
        }
    }

    async fn try_query(&mut self, query: &Query<'_>) -> Result<Vec<u8>> {
        let (db, collection) = split(query.namespace)?;
        let body = Doc::validate(query.query)?;
        match collection {
            "$cmd" => {
                let command = command_of(body);
                let command = command.as_deref().unwrap_or(body);
                let modern = old_commands::modern(command);
                let reply = self
                    .run_doc(db, modern.as_deref().unwrap_or(command))
                    .await?;
                Ok(self.op_reply(0, 0, 0, &[reply]))
            }
            // Pseudo-collections by which old shells run these commands.
            "$cmd.sys.inprog" => self.old_admin("currentOp", body).await,
            "$cmd.sys.killop" => self.old_admin("killOp", body).await,
            "$cmd.sys.unlock" => self.old_admin("fsyncUnlock", body).await,
            virtual_collections::INDEXES | virtual_collections::NAMESPACES => {
                self.find_virtual(db, collection, query, body).await
            }
            _ => self.find(db, collection, query, body).await,
        }
    }

    async fn old_admin(&mut self, command: &str, fields: &Doc) -> Result<Vec<u8>> {
        let mut body = DocBuf::new();
        body.push(command, 1);
        body.push_all(fields);
        let reply = self.run_doc("admin", &body).await?;
        Ok(self.op_reply(0, 0, 0, &[reply]))
    }

    async fn get_more(&mut self, request: &GetMore<'_>) -> Result<Vec<u8>, Stopping> {
        match self.try_get_more(request).await {
            Err(Failure::Stopping) => Err(Stopping),
            Err(Failure::Failed(failure)) if failure.code() == ErrorCode::CursorNotFound => {
                Ok(self.op_reply::<&Doc>(OpReply::CURSOR_NOT_FOUND, 0, 0, &[]))
            }
            Err(Failure::Failed(failure)) => Ok(self.query_failure(&failure)),
            Ok(reply) => Ok(reply),
        }
    }

    async fn try_get_more(&mut self, request: &GetMore<'_>) -> Result<Vec<u8>> {
        let (db, collection) = split(request.namespace)?;
        // Old drivers check that the batch starts where the last one ended.
        let start = self
            .client
            .server
            .clients
            .cursors
            .returned(request.cursor_id)
            .unwrap_or(0);
        let body = doc! {
            "getMore": request.cursor_id,
            "collection": collection,
            "batchSize": i64::from(request.count.unsigned_abs()),
        };
        let reply = self.run_doc(db, &body).await?;
        let (batch, id) = batch_of(&reply, "nextBatch")?;
        // A negative count asks for a single batch.
        let id = if request.count < 0 && id != 0 {
            self.client.server.clients.cursors.kill(id);
            0
        } else {
            id
        };
        Ok(self.op_reply(0, id, i32::try_from(start).unwrap_or(i32::MAX), &batch))
    }

    fn op_reply<D: Borrow<Doc>>(
        &mut self,
        flags: u32,
        cursor: i64,
        start: i32,
        documents: &[D],
    ) -> Vec<u8> {
        op_reply(
            self.client.state.next_reply_id(),
            self.request_id,
            flags | OpReply::AWAIT_CAPABLE,
            cursor,
            start,
            documents
                .iter()
                .map(|document| document.borrow().as_bytes()),
        )
    }

    /// The answer to a query that failed.
    fn query_failure(&mut self, failure: &Error) -> Vec<u8> {
        let failure = truncated(failure.clone());
        let document = doc! {"$err": failure.message(), "code": failure.code().code()};
        self.op_reply(OpReply::QUERY_FAILURE, 0, 0, &[document])
    }
}

/// The command inside a wrapper `{$query: {…}, $readPreference: {…}}`; none if there is no wrapper.
fn command_of(body: &Doc) -> Option<DocBuf> {
    match body.first() {
        Some(("$query" | "query", Value::Document(command))) => {
            let mut unwrapped = command.to_owned();
            for (name, value) in body.iter().skip(1) {
                match name {
                    "$readPreference" if !command.contains_key(name) => {
                        unwrapped.push(name, value);
                    }
                    "$maxTimeMS" if !command.contains_key("maxTimeMS") => {
                        unwrapped.push("maxTimeMS", value);
                    }
                    _ => {}
                }
            }
            Some(unwrapped)
        }
        _ => None,
    }
}

/// The documents and the cursor of a reply, or its error.
fn batch_of<'r>(reply: &'r Doc, name: &str) -> Result<(Vec<&'r Doc>, i64)> {
    if reply.get_f64("ok") != Some(1.0) {
        return Err(failure_of(reply).into());
    }
    let cursor = reply.get_doc("cursor");
    let batch = cursor.and_then(|cursor| cursor.get_array(name));
    let documents = batch.map(|batch| batch.values().filter_map(|value| value.as_doc()).collect());
    let id = cursor.and_then(|cursor| cursor.get_i64("id")).unwrap_or(0);
    Ok((documents.unwrap_or_default(), id))
}

/// The error in a reply.
fn failure_of(reply: &Doc) -> Error {
    Error::location(
        reply
            .get_i32("code")
            .unwrap_or(ErrorCode::InternalError.code()),
        reply.get_str("errmsg").unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests;
