//! The answer to a command.

use std::time::Duration;

use frond_bson::{ArrayBuf, Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::Wanted;

use super::parse::Request;
use super::shared_fields::SharedFields;
use crate::commands;
use crate::errors::{reply_too_large, truncated, write_error};
use crate::labels::{self, Part};
use crate::limits::REPLY_BYTES_MAX;
use crate::memory_quota::Permit;
use crate::operation::Operation;
use crate::replication::Wrote;
use crate::state::Server;

/// A command's reply, and how to send it.
#[derive(Default)]
pub struct Answer {
    /// The reply, with `ok`.
    pub reply: DocBuf,
    /// Another reply follows without a request.
    pub more_to_come: bool,
    /// Wait this long before the reply is sent.
    pub wait: Option<Duration>,
    /// Close the connection instead.
    pub close: bool,
    /// The request holds a secret, and has to be overwritten.
    pub has_secrets: bool,
    /// Memory for the reply, to be held until it is sent.
    pub permit: Option<Permit>,
}

impl Answer {
    /// The reply for an error, in a size that clients accept: an error may quote the request.
    pub fn failed(failure: Error) -> Answer {
        Answer::labelled(failure, |_| None, None)
    }

    /// The reply for an error with the label that its code has in this command, or those of a fail point.
    pub fn labelled(
        failure: Error,
        label: impl FnOnce(ErrorCode) -> Option<&'static str>,
        forced: Option<&ArrayBuf>,
    ) -> Answer {
        let mut reply = DocBuf::new();
        let code = failure.code();
        write_error(&mut reply, &truncated(failure));
        labels::write(&mut reply, forced, label(code));
        Answer {
            reply,
            ..Answer::default()
        }
    }
}

/// The label of a command's error. `reads_change_stream` is true for a getMore of a change stream.
pub fn label(
    request: &Request<'_>,
    reads_change_stream: bool,
    code: ErrorCode,
) -> Option<&'static str> {
    let label = Part::from_command(request.body).label(Some(code), None);
    label.or_else(|| {
        labels::of_change_stream(code, || {
            reads_change_stream || commands::watch::opens(request.body)
        })
    })
}

/// Closes the cursor in a reply that is not sent.
pub fn close_cursor(server: &Server, reply: &Doc) {
    let cursor = reply
        .get_doc("cursor")
        .and_then(|cursor| cursor.get_i64("id"));
    if let Some(id) = cursor.filter(|id| *id != 0) {
        server.clients.cursors.kill(id);
    }
}

/// Adds `writeConcernError` to a reply. The write is applied and its statements are recorded by then: reported as
/// refused, it would be applied again.
pub fn push_unacknowledged(
    server: &Server,
    shared: &SharedFields,
    request: &Request<'_>,
    reply: &mut DocBuf,
    failure: &Error,
) {
    let info = doc! {"writeConcern": &shown_concern(server, request)};
    let (code, message, info) = match failure.code() {
        ErrorCode::PrimarySteppedDown | ErrorCode::InterruptedAtShutdown => {
            (failure.code(), failure.message().to_owned(), info)
        }
        ErrorCode::WriteConcernTimeout => {
            let mut timed_out = doc! {"wtimeout": true};
            timed_out.push_all(&info);
            (failure.code(), failure.message().to_owned(), timed_out)
        }
        _ if matches!(shared.write_concern.wanted, Wanted::Members(0 | 1)) => (
            ErrorCode::WriteConcernTimeout,
            format!(
                "the write is applied, but the journal is not synced yet: {}",
                failure.message()
            ),
            DocBuf::new(),
        ),
        _ => (
            ErrorCode::WriteConcernTimeout,
            format!(
                "the write is applied, but not acknowledged by enough members yet: {}",
                failure.message()
            ),
            info,
        ),
    };
    let mut error = doc! {"code": code.code(), "codeName": &*code.name(), "errmsg": message};
    if !info.is_empty() {
        error.push("errInfo", &info);
    }
    reply.push("writeConcernError", &error);
}

/// The write concern of a command, as errors show it.
fn shown_concern(server: &Server, request: &Request<'_>) -> DocBuf {
    let given = request.body.get_doc("writeConcern").unwrap_or(Doc::empty());
    if given.is_empty()
        && let Some(set) = &server.set.replication
    {
        return set.defaults.shown_write_concern();
    }
    let w = given.get("w").unwrap_or(Value::Int32(1));
    let timeout = given.get("wtimeout").unwrap_or(Value::Int32(0));
    doc! {"w": w, "wtimeout": timeout, "provenance": "clientSupplied"}
}

/// Adds `writeConcernError` to the reply of an applied write whose write concern the replica set cannot satisfy.
pub fn push_unsatisfied(
    server: &Server,
    shared: &SharedFields,
    request: &Request<'_>,
    reply: &mut DocBuf,
) {
    let Some(error) = &shared.write_concern.unsatisfiable else {
        return;
    };
    if reply.contains_key("writeConcernError") {
        return;
    }
    let code = error.code();
    reply.push(
        "writeConcernError",
        &doc! {
            "code": code.code(), "codeName": &*code.name(), "errmsg": error.message(),
            "errInfo": {"writeConcern": &shown_concern(server, request)},
        },
    );
}

/// Whether a write failed by what it found, such as a duplicate. It has the write concern of a success: what others wrote must not
/// be lost after a client has received it.
pub fn has_concern(shared: &SharedFields, request: &Request<'_>, code: ErrorCode) -> bool {
    let found = matches!(
        code,
        ErrorCode::DuplicateKey
            | ErrorCode::NamespaceExists
            | ErrorCode::NamespaceNotFound
            | ErrorCode::IndexNotFound
            | ErrorCode::IndexOptionsConflict
            | ErrorCode::IndexKeySpecsConflict
            | ErrorCode::DocumentValidationFailure
    );
    found && request.writes() && shared.transaction.is_none()
}

/// Adds `writeConcernError` to the reply of a write that has failed by what it found.
pub fn push_concern_of_failure(
    server: &Server,
    shared: &SharedFields,
    request: &Request<'_>,
    reply: &mut DocBuf,
    code: ErrorCode,
    unacknowledged: Option<Error>,
) {
    if !has_concern(shared, request, code) {
        return;
    }
    if let Some(failure) = unacknowledged {
        push_unacknowledged(server, shared, request, reply, &failure);
        let label = Part::from_command(request.body).label(Some(code), Some(failure.code()));
        if !reply.contains_key("errorLabels") {
            labels::write(reply, None, label);
        }
    }
    push_unsatisfied(server, shared, request, reply);
}

/// The error of a command that the stop of the server has interrupted, with which drivers send it to another member.
pub fn at_shutdown(server: &Server, failure: Error) -> Error {
    if failure.code() == ErrorCode::Interrupted && server.is_stopping() {
        return Error::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown");
    }
    failure
}

/// Adds the times that a member of a replica set reports to a reply.
pub fn add_times(
    server: &Server,
    request: &Request<'_>,
    operation: Option<&mut Operation>,
    reply: &mut DocBuf,
) {
    let Some(set) = &server.set.replication else {
        return;
    };
    let entry = operation.and_then(|operation| {
        let written = operation.written.take();
        let entry = written.and_then(|written| written.get());
        operation.entry_at.take().or(entry)
    });
    // A command that failed may have written a part.
    set.add_times(reply, request.writes().then_some(Wrote { entry }));
}

/// Refuses a reply that is larger than clients accept, with room for `ok`.
pub fn check_size(reply: &DocBuf) -> Result<()> {
    const OK_BYTES: usize = 64;
    let bytes = reply.len_bytes() + OK_BYTES;
    if bytes > REPLY_BYTES_MAX {
        return Err(reply_too_large(bytes));
    }
    Ok(())
}
