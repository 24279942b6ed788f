//! Checks that a reply reports full success.

use frond_bson::{Doc, Value};

use crate::error::{Error, Result};

/// MongoDB's code for an `_id` that is taken.
const DUPLICATE_KEY: i32 = 11000;

/// An answer must be ok.
pub fn ok(reply: &Doc, command: &str) -> Result<()> {
    // An OP_QUERY that failed before the command ran says so in `$err`.
    let failure = reply.get_str("$err");
    let ok = reply.get("ok").is_some_and(|ok| ok.truthy());
    if ok && failure.is_none() {
        return Ok(());
    }
    let message = reply.get_str("errmsg").or(failure).unwrap_or("no message");
    Err(server_error(command, reply, message))
}

/// An insert must have taken all documents.
pub fn insert(reply: &Doc, documents: usize) -> Result<()> {
    write_errors(reply, "insert", "document")?;
    expect(reply, "insert", "n", documents)
}

/// An update must have found one document and changed it.
pub fn update(reply: &Doc) -> Result<()> {
    write_errors(reply, "update", "update")?;
    expect(reply, "update", "n", 1)?;
    expect(reply, "update", "nModified", 1)
}

/// `getLastError` must know of no error.
pub fn last_error(reply: &Doc, opcode: &str) -> Result<()> {
    match reply.get_str("err") {
        None => Ok(()),
        Some(message) => Err(server_error(opcode, reply, message)),
    }
}

/// `getLastError` must report one document that existed.
pub fn last_update(reply: &Doc) -> Result<()> {
    last_error(reply, "OP_UPDATE")?;
    expect(reply, "OP_UPDATE", "n", 1)
}

/// The documents that an update or a delete found.
pub fn found(reply: &Doc, command: &str) -> Result<u64> {
    write_errors(reply, command, "statement")?;
    count(reply, command)
}

/// The documents that an answer counts.
pub fn count(reply: &Doc, command: &str) -> Result<u64> {
    let n = reply.get_i64("n").and_then(|n| u64::try_from(n).ok());
    n.ok_or_else(|| Error::Protocol(format!("{command} answered no n")))
}

/// Whether an insert took its one document: 0 when there is one with its `_id`.
pub fn inserted(reply: &Doc) -> Result<u64> {
    match write_errors(reply, "insert", "document") {
        Err(Error::Server { code, .. }) if code == DUPLICATE_KEY => Ok(0),
        Err(error) => Err(error),
        Ok(()) => expect(reply, "insert", "n", 1).map(|()| 1),
    }
}

/// The same for OP_INSERT, whose `getLastError` counts no documents.
pub fn last_insert(reply: &Doc) -> Result<u64> {
    match last_error(reply, "OP_INSERT") {
        Err(Error::Server { code, .. }) if code == DUPLICATE_KEY => Ok(0),
        other => other.map(|()| 1),
    }
}

/// A write concern must have been met.
pub fn concern(reply: &Doc, command: &str) -> Result<()> {
    match reply.get_doc("writeConcernError") {
        None => Ok(()),
        Some(error) => {
            let message = error.get_str("errmsg").unwrap_or("no message");
            Err(server_error(command, error, message))
        }
    }
}

fn expect(reply: &Doc, command: &str, name: &str, count: usize) -> Result<()> {
    match reply.get_i64(name).and_then(|n| usize::try_from(n).ok()) {
        Some(n) if n == count => Ok(()),
        n => Err(Error::Protocol(format!(
            "{command} of {count} documents answered {name}: {n:?}"
        ))),
    }
}

fn write_errors(reply: &Doc, command: &str, statement: &str) -> Result<()> {
    let first = reply
        .get_array("writeErrors")
        .and_then(|array| array.iter().next());
    if let Some((_, Value::Document(error))) = first {
        let index = error.get_i64("index").unwrap_or(-1);
        let text = error.get_str("errmsg").unwrap_or("no message");
        let message = format!("{statement} {index} of the batch: {text}");
        return Err(server_error(command, error, &message));
    }
    if let Some(error) = reply.get_doc("writeConcernError") {
        let message = error.get_str("errmsg").unwrap_or("no message");
        return Err(server_error(command, error, message));
    }
    Ok(())
}

fn server_error(command: &str, document: &Doc, message: &str) -> Error {
    let code = document.get_i64("code").and_then(|n| i32::try_from(n).ok());
    Error::Server {
        command: command.to_owned(),
        code: code.unwrap_or(0),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;

    #[test]
    fn answers_that_are_not_a_full_success_are_errors() {
        let duplicate = doc! {
            "n": 3, "ok": 1.0,
            "writeErrors": [{ "index": 3, "code": 11000, "errmsg": "E11000 duplicate key" }],
        };
        let concern =
            doc! { "n": 4, "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "late" } };
        for (reply, part) in [
            (&duplicate, "document 3 of the batch: E11000"),
            (&concern, "late"),
            (&doc! { "n": 3, "ok": 1.0 }, "Some(3)"),
            (&doc! { "ok": 1.0 }, "None"),
        ] {
            let error = insert(reply, 4).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(insert(&doc! { "n": 4, "ok": 1.0 }, 4).is_ok());

        for (reply, part) in [
            (
                &doc! { "ok": 0.0, "errmsg": "no such command", "code": 59 },
                "59",
            ),
            (&doc! { "$err": "unauthorized" }, "unauthorized"),
            (&doc! {}, "no message"),
        ] {
            let error = ok(reply, "x").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(ok(&doc! { "ok": 1 }, "x").is_ok());
        let well = doc! { "err": frond_bson::Value::Null, "ok": 1.0, "n": 1 };
        assert!(last_error(&well, "OP_INSERT").is_ok());
        assert!(last_update(&well).is_ok());
        assert!(last_error(&doc! { "err": "E11000", "code": 11000 }, "OP_INSERT").is_err());
        assert!(last_update(&doc! { "err": frond_bson::Value::Null, "n": 0 }).is_err());
    }

    #[test]
    fn a_taken_id_is_no_error_and_others_are() {
        let failed = |code: i32| {
            doc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": code, "errmsg": "no" }] }
        };
        for (reply, expected) in [
            (&doc! { "n": 1, "ok": 1.0 }, Some(1)),
            (&failed(11000), Some(0)),
            (&failed(121), None),
            (&doc! { "n": 0, "ok": 1.0 }, None),
        ] {
            assert_eq!(inserted(reply).ok(), expected, "{reply:?}");
        }
        for (reply, expected) in [
            (
                &doc! { "n": 0, "err": frond_bson::Value::Null, "ok": 1.0 },
                Some(1),
            ),
            (
                &doc! { "n": 0, "err": "E11000 duplicate", "code": 11000, "ok": 1.0 },
                Some(0),
            ),
            (
                &doc! { "n": 0, "err": "full", "code": 10003, "ok": 1.0 },
                None,
            ),
        ] {
            assert_eq!(last_insert(reply).ok(), expected, "{reply:?}");
        }
        assert_eq!(found(&doc! { "n": 0, "ok": 1.0 }, "delete").ok(), Some(0));
        assert!(found(&failed(11000), "update").is_err());
        assert!(found(&doc! { "ok": 1.0 }, "update").is_err());
    }

    #[test]
    fn an_update_that_changed_nothing_is_an_error() {
        let refused = doc! {
            "n": 0, "nModified": 0, "ok": 1.0,
            "writeErrors": [{ "index": 0, "code": 14, "errmsg": "Cannot apply $inc" }],
        };
        for (reply, part) in [
            (&refused, "Cannot apply $inc"),
            (
                &doc! { "n": 0, "nModified": 0, "ok": 1.0 },
                "answered n: Some(0)",
            ),
            (
                &doc! { "n": 1, "nModified": 0, "ok": 1.0 },
                "nModified: Some(0)",
            ),
            (&doc! { "n": 1, "ok": 1.0 }, "nModified: None"),
        ] {
            let error = update(reply).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(update(&doc! { "n": 1, "nModified": 1, "ok": 1.0 }).is_ok());
    }
}
