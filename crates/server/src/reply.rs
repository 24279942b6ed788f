//! Parts that several replies share: the first batch of a cursor, and the errors of a bulk write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frond_bson::{ArrayBuf, DocBuf, Timestamp};
use frond_error::{Error, Result};

use crate::arguments::Arguments;
use crate::context::Context;
use crate::cursors::{Cursor, FIRST_BATCH_DOCUMENTS};
use crate::errors;
use crate::reply_quota::ReplyQuota;

/// Options of the first batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    /// Number of documents; none means the default.
    pub size: Option<u64>,
    /// The cursor is closed after it.
    pub single: bool,
}

impl BatchOptions {
    /// Reads the option `cursor: {batchSize: n}`, which may be missing.
    pub fn of_cursor_field(args: &Arguments<'_>) -> Result<BatchOptions> {
        let Some(cursor) = args.doc_field("cursor")? else {
            return Ok(BatchOptions::default());
        };
        let inner = Arguments::new("cursor", cursor);
        inner.only(&["batchSize"])?;
        Ok(BatchOptions {
            size: inner.u64("batchSize")?,
            single: false,
        })
    }
}

/// The documents of a reply, and what it says of their cursor.
pub struct CursorBatch<'a> {
    /// `firstBatch` or `nextBatch`.
    pub name: &'a str,
    pub documents: ArrayBuf,
    /// The time of a snapshot read.
    pub time: Option<Timestamp>,
    /// The token of a change stream.
    pub resume_token: Option<DocBuf>,
    /// The cursor, 0 if it is closed.
    pub id: i64,
    /// `database.collection`.
    pub namespace: &'a str,
}

/// Reads the first batch; keeps the cursor if there is more. Returns its id, or 0.
pub fn open_cursor(
    cx: &mut Context<'_>,
    mut cursor: Cursor,
    options: BatchOptions,
) -> Result<(ArrayBuf, Option<DocBuf>, i64)> {
    let documents = options.size.unwrap_or(FIRST_BATCH_DOCUMENTS);
    let batch = {
        let mut room = ReplyQuota::new(cx.server, &cx.limits, &mut cx.operation.permits);
        if options.single {
            room = room.last();
        }
        cursor.batch(Some(documents), &mut room)
    };
    if cursor.is_change_stream {
        match &batch {
            Ok(batch) if cursor.splits_events => cx
                .server
                .maintenance
                .oplog
                .count_split_events(batch.as_doc()),
            Ok(_) => {}
            Err(failure) => cx.server.maintenance.oplog.note_failure(failure),
        }
    }
    let batch = batch.map_err(|failure| in_execution(cx, &cursor.namespace, failure))?;
    cx.count_returned(batch.len());
    let resume_token = cursor.resume_token();
    if options.single || cursor.ended() {
        return Ok((batch, resume_token, 0));
    }
    cursor.owner = cx.owner();
    cursor.session = cx.session;
    if let Some(open) = cx.transaction() {
        cursor.transaction = Some(open.number);
        open.has_cursors.store(true, Ordering::Relaxed);
    }
    cursor.query_shape = cx.operation.query_shape;
    cursor.parsed = cx.operation.permits.parsed.take();
    // Without the secrets of the command, as its operation shows it.
    cursor.originating = Arc::new(cx.connection.running.lock().command_doc());
    // The time limit of a find with a tailable cursor applies to its first batch only.
    cursor.time_left = cx
        .max_time
        .filter(|_| !cursor.is_tailable())
        .map(|time| time.saturating_sub(cursor.opened.elapsed()));
    cx.server.metrics.cursors_opened.add(1);
    Ok((
        batch,
        resume_token,
        cx.server.clients.cursors.insert(cursor),
    ))
}

/// An error in the execution of the plan of a cursor that is being opened, with MongoDB's prefix.
#[cold]
fn in_execution(cx: &Context<'_>, namespace: &str, failure: Error) -> Error {
    match cx.name {
        "find" => failure.context(format_args!(
            "Executor error during find command: {namespace}"
        )),
        "aggregate" => failure.context(format_args!(
            "Executor error during aggregate command on namespace: {namespace}"
        )),
        _ => failure,
    }
}

/// The reply of a command that opens a cursor.
pub fn first_batch(cx: &mut Context<'_>, cursor: Cursor, options: BatchOptions) -> Result<DocBuf> {
    let namespace = cursor.namespace.clone();
    let (documents, resume_token, id) = open_cursor(cx, cursor, options)?;
    let batch = CursorBatch {
        name: "firstBatch",
        documents,
        time: cx
            .point_in_time
            .as_ref()
            .map(|point_in_time| point_in_time.time),
        resume_token,
        id,
        namespace: &namespace,
    };
    Ok(batch.into_reply())
}

impl CursorBatch<'_> {
    /// `{cursor: {firstBatch: […], id, ns}}`, in the buffer of the batch, so that a full one is not copied.
    pub fn into_reply(self) -> DocBuf {
        let mut cursor = self.documents.into_field(self.name);
        if let Some(token) = &self.resume_token {
            cursor.push("postBatchResumeToken", token);
        }
        if let Some(time) = self.time {
            cursor.push("atClusterTime", time);
        }
        cursor.push("id", self.id);
        cursor.push("ns", self.namespace);
        cursor.into_field("cursor")
    }
}

/// Bytes of messages and details of the errors in one reply. Further errors have their code and an empty
/// message, so that the reply to many failed statements stays within its limit, as in MongoDB.
pub const ERROR_BYTES_MAX: usize = 1 << 20;

/// The errors of a bulk write, by the index of their statement. Messages that will not go into the reply are dropped at
/// once: each of 100,000 errors may quote megabytes of stored data.
#[derive(Default)]
pub struct WriteErrors {
    list: Vec<(usize, Error)>,
    /// Bytes of all errors but the last one.
    bytes: usize,
}

impl WriteErrors {
    /// Adds an error, of a later statement than those before.
    pub fn push(&mut self, index: usize, failure: Error) {
        if let Some((_, last)) = self.list.last_mut() {
            // `getLastError` returns the last error in full, whether or not it goes into the reply.
            if self.bytes >= ERROR_BYTES_MAX {
                *last = Error::new(last.code(), "");
            }
            self.bytes += errors::len_bytes(last);
        }
        self.list.push((index, errors::truncated(failure)));
    }

    /// True if nothing failed.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The last error, for `getLastError`.
    pub fn last(&self) -> Option<&Error> {
        self.list.last().map(|(_, failure)| failure)
    }

    /// The error of a statement that ends the whole command, if there is one.
    pub fn of_command(&self) -> Option<&Error> {
        let mut errors = self.list.iter().map(|(_, failure)| failure);
        errors.find(|failure| errors::ends_command(failure.code()))
    }

    /// All errors, by index.
    pub fn into_iter(self) -> impl Iterator<Item = (usize, Error)> {
        self.list.into_iter()
    }

    /// True if the statement with this index failed.
    pub fn failed(&self, index: usize) -> bool {
        self.list
            .binary_search_by_key(&index, |(at, _)| *at)
            .is_ok()
    }

    /// The same errors with the indexes of the statements in the client's request.
    pub fn at(mut self, places: &[usize]) -> WriteErrors {
        for (index, _) in &mut self.list {
            *index = places.get(*index).copied().unwrap_or(*index);
        }
        self
    }

    /// Adds `writeErrors` to a reply, if there are any.
    pub fn write(&self, reply: &mut DocBuf) {
        if self.list.is_empty() {
            return;
        }
        let mut bytes = 0;
        reply.push_array("writeErrors", |list| {
            for (index, failure) in &self.list {
                let fits = bytes < ERROR_BYTES_MAX;
                bytes += errors::len_bytes(failure);
                list.push_doc(|error| {
                    error.push("index", *index as i32);
                    error.push("code", failure.code().code());
                    error.push("errmsg", if fits { failure.message() } else { "" });
                    if let Some(details) = failure.details().filter(|_| fits) {
                        error.push_all(details);
                    }
                });
            }
        });
    }
}

/// Adds a count to a reply: an int if it fits, else a long.
pub fn push_count(reply: &mut DocBuf, name: &str, n: u64) {
    match i32::try_from(n) {
        Ok(n) => reply.push(name, n),
        Err(_) => reply.push(name, i64::try_from(n).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use frond_error::ErrorCode;

    #[test]
    fn write_errors_are_bounded() {
        let mut errors = WriteErrors::default();
        let mut reply = DocBuf::new();
        errors.write(&mut reply);
        assert!(reply.is_empty() && errors.is_empty());
        for index in 0..100_000 {
            let error = Error::new(ErrorCode::DuplicateKey, "E11000 ".repeat(50));
            let details = doc! {"keyPattern": {"a": 1}};
            errors.push(index, error.with_details(details));
        }
        errors.write(&mut reply);
        assert!(reply.len_bytes() < 16 << 20, "{}", reply.len_bytes());
        let list = reply.get_array("writeErrors").unwrap();
        let first = list.get_doc("0").unwrap();
        assert!(first.get_doc("keyPattern").is_some());
        let last = list.get_doc("99999").unwrap();
        assert_eq!(last, &*doc! {"index": 99_999, "code": 11000, "errmsg": ""});
    }

    /// The error of a small statement may quote a large stored value.
    #[test]
    fn write_errors_hold_no_more_memory_than_their_reply() {
        let mut errors = WriteErrors::default();
        for index in 0..100 {
            let error = Error::new(ErrorCode::DuplicateKey, format!("E11000 {index}"));
            let details = doc! {"keyValue": {"u": "x".repeat(3 << 20)}};
            errors.push(index, error.with_details(details));
            let held: usize = errors
                .list
                .iter()
                .map(|(_, one)| errors::len_bytes(one))
                .sum();
            assert!(held < 7 << 20, "{index}: {held}");
        }
        // The last one is complete, for getLastError.
        let last = errors.last().unwrap();
        assert_eq!(last.message(), "E11000 99");
        assert!(last.details().is_some());
        let mut reply = DocBuf::new();
        errors.write(&mut reply);
        let list = reply.get_array("writeErrors").unwrap();
        assert!(list.get_doc("0").unwrap().get_doc("keyValue").is_some());
        for (index, error) in list.values().enumerate().skip(1) {
            let expected = doc! {"index": index as i32, "code": 11000, "errmsg": ""};
            assert_eq!(error.as_doc(), Some(&*expected));
        }
    }

    #[test]
    fn a_server_that_cannot_write_for_now_fails_the_whole_command() {
        let mut errors = WriteErrors::default();
        errors.push(0, Error::new(ErrorCode::DuplicateKey, "E11000"));
        assert!(errors.of_command().is_none());
        errors.push(1, Error::new(ErrorCode::ExceededTimeLimit, "full"));
        errors.push(2, Error::new(ErrorCode::DuplicateKey, "E11000"));
        assert_eq!(errors.of_command().unwrap().message(), "full");
    }

    #[test]
    fn counts_are_as_small_as_they_can_be() {
        let mut reply = DocBuf::new();
        push_count(&mut reply, "small", 3);
        push_count(&mut reply, "large", 1 << 40);
        assert_eq!(reply, doc! {"small": 3, "large": 1i64 << 40});
    }
}
