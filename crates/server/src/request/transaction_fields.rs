//! The fields of commands about transactions (`txnNumber`, `autocommit` and `startTransaction`), and the commands that
//! transactions may contain.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};

use super::parse::Request;
use crate::commands::{InTransactions, Spec};
use crate::transactions::TransactionRequest;

/// The fields of a command about a transaction or a retryable write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
    /// Whether the command has an `lsid`.
    pub has_session: bool,
    /// `txnNumber`
    pub number: Option<i64>,
    /// `autocommit`
    pub autocommit: Option<bool>,
    /// `startTransaction`
    pub start: Option<bool>,
    /// `readConcern`
    pub read_concern: Option<&'a Doc>,
    /// Whether the command has a `writeConcern`.
    pub has_write_concern: bool,
}

impl Fields<'_> {
    /// Checks them. Returns the transaction that the command is a statement of.
    ///
    /// # Errors
    /// `InvalidOptions` (72) for fields that do not fit together, `NotARetryableWriteCommand` (50768),
    /// `OperationNotSupportedInTransaction` (263).
    pub fn check(
        &self,
        name: &str,
        spec: &Spec,
        request: &Request<'_>,
    ) -> Result<Option<TransactionRequest>> {
        let invalid = |message: &str| Err(Error::new(ErrorCode::InvalidOptions, message));
        match (self.number, self.has_session) {
            (Some(_), false) => {
                return invalid("Transaction number requires a session ID to also be specified");
            }
            (Some(number), true) if number < 0 => {
                return invalid("Transaction number cannot be negative");
            }
            (None, _) if self.autocommit.is_some() => {
                return invalid(
                    "'autocommit' field requires a transaction number to also be specified",
                );
            }
            _ => {}
        }
        let starts = match (self.autocommit, self.start) {
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed."),
            (None, Some(_)) => {
                return invalid(
                    "'startTransaction' field requires 'autocommit' field to also be specified",
                );
            }
            (Some(false), Some(false)) => {
                return invalid("Specifying startTransaction=false is not allowed.");
            }
            (_, start) => start.is_some(),
        };
        let number = match (self.number, self.autocommit) {
            (Some(number), Some(_)) => number,
            (Some(_), None) if !spec.retryable => {
                return Err(Error::new(
                    ErrorCode::NotARetryableWriteCommand,
                    format!(
                        "txnNumber may only be provided for multi-document transactions and \
                         retryable write commands. autocommit:false was not provided, and {name} \
                         is not a retryable write command."
                    ),
                ));
            }
            _ => return Ok(None),
        };
        check_command(name, spec, request, starts)?;
        let is_end = matches!(name, "commitTransaction" | "abortTransaction");
        if self.has_write_concern && !is_end {
            return invalid("writeConcern is not allowed within a multi-statement transaction");
        }
        Ok(Some(TransactionRequest {
            number,
            starts,
            commits: name == "commitTransaction",
            read_level: self.read_level(starts)?,
        }))
    }

    /// The level of the read concern, which only the first statement may have.
    fn read_level(&self, starts: bool) -> Result<Option<String>> {
        let Some(concern) = self.read_concern.filter(|concern| !concern.is_empty()) else {
            return Ok(None);
        };
        let invalid = |message: &str| Err(Error::new(ErrorCode::InvalidOptions, message));
        if !starts {
            return invalid("Only the first command in a transaction may specify a readConcern");
        }
        Ok(concern.get_str("level").map(str::to_owned))
    }
}

/// Refuses commands, databases and collections that transactions may not have.
fn check_command(name: &str, spec: &Spec, request: &Request<'_>, starts: bool) -> Result<()> {
    let refused = |message: String| {
        Err(Error::new(
            ErrorCode::OperationNotSupportedInTransaction,
            message,
        ))
    };
    match spec.in_transactions {
        InTransactions::Always => {}
        InTransactions::Later if !starts => {}
        InTransactions::Later => {
            return refused(format!(
                "Cannot run '{name}' as the first operation in a transaction."
            ));
        }
        InTransactions::Never if name == "count" => {
            return refused(
                "Cannot run 'count' in a multi-document transaction. Please see \
                 http://dochub.mongodb.org/core/transaction-count for a recommended alternative."
                    .to_owned(),
            );
        }
        InTransactions::Never => {
            return refused(format!(
                "Cannot run '{name}' in a multi-document transaction."
            ));
        }
    }
    let collection = match request.body.first() {
        Some((_, Value::String(collection))) if spec.on_collection => collection,
        _ => "",
    };
    let namespaces = request
        .body
        .get_array("nsInfo")
        .into_iter()
        .flat_map(Doc::values);
    let sequences = (request.sequences.iter()).filter(|(name, _)| *name == "nsInfo");
    let in_sequences = sequences.flat_map(|(_, documents)| *documents);
    let in_sequences = in_sequences.filter_map(|bytes| Doc::validate(bytes).ok());
    let named = namespaces
        .filter_map(|info| info.as_doc())
        .chain(in_sequences);
    let named = named.filter_map(|info| info.get_str("ns")?.split_once('.'));
    for (db, collection) in std::iter::once((request.db, collection)).chain(named) {
        // Some commands run against `admin`, but have no collection there.
        if matches!(db, "config" | "local") || (db == "admin" && !collection.is_empty()) {
            return refused(format!(
                "Cannot run command against the '{db}' database in a transaction."
            ));
        }
        if matches!(collection, "system.profile" | "system.views") {
            return refused(format!(
                "Cannot run command against the '{db}.{collection}' collection in a transaction."
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::sessions::SessionId;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn fields_that_do_not_fit_together_are_refused() {
        let mut server = TestServer::new();
        let lsid = SessionId::random().to_doc();
        let fields: Vec<(DocBuf, i32, &str)> = vec![
            (
                doc! {"txnNumber": 1i64, "autocommit": false},
                72,
                "requires a session ID",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": -1i64},
                72,
                "cannot be negative",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1, "autocommit": false},
                14,
                "wrong type",
            ),
            (
                doc! {"lsid": &lsid, "autocommit": false},
                72,
                "'autocommit' field requires",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": true},
                72,
                "autocommit=true is not allowed",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": 0},
                14,
                "wrong type",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "startTransaction": true},
                72,
                "requires 'autocommit' field",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "startTransaction": false},
                72,
                "startTransaction=false is not allowed",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64},
                50768,
                "autocommit:false was not provided",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false},
                251,
                "Given transaction number 1",
            ),
            (
                doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "readConcern": {"level": "local"}},
                72,
                "Only the first command",
            ),
            (
                doc! {
                    "lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "startTransaction": true,
                    "readConcern": {"level": "available"},
                },
                72,
                "The readConcern level must be",
            ),
            (
                doc! {
                    "lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "startTransaction": true,
                    "readConcern": {"level": "x"},
                },
                2,
                "not a valid value",
            ),
        ];
        for (fields, code, text) in fields {
            let mut find = doc! {"find": "c"};
            find.push_all(&fields);
            let reply = server.reply("test", find);
            assert_eq!(reply.get_i32("code"), Some(code), "{reply:?}");
            assert!(reply.get_str("errmsg").unwrap().contains(text), "{reply:?}");
        }
        let mut insert = doc! {"insert": "c", "documents": [{}], "writeConcern": {"w": 1}};
        insert.push_all(
            &doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "startTransaction": true},
        );
        let reply = server.reply("test", insert);
        assert_eq!(
            reply.get_str("errmsg"),
            Some("writeConcern is not allowed within a multi-statement transaction")
        );
        // None of them began a transaction.
        assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commands_and_collections_that_transactions_cannot_have_are_refused() {
        let mut server = TestServer::new();
        server.run("test", doc! {"create": "c"});
        let lsid = SessionId::random().to_doc();
        let first =
            doc! {"lsid": &lsid, "txnNumber": 1i64, "autocommit": false, "startTransaction": true};
        let cases = [
            ("test", doc! {"count": "c"}),
            ("test", doc! {"drop": "c"}),
            ("test", doc! {"listCollections": 1}),
            ("test", doc! {"listIndexes": "c"}),
            ("test", doc! {"explain": {"find": "c"}}),
            ("test", doc! {"collMod": "c"}),
            ("admin", doc! {"getParameter": 1, "logLevel": 1}),
            ("test", doc! {"ping": 1}),
            ("test", doc! {"killCursors": "c", "cursors": [1i64]}),
            ("test", doc! {"hello": 1}),
            ("test", doc! {"buildInfo": 1}),
            ("admin", doc! {"commitTransaction": 1}),
            ("local", doc! {"find": "c"}),
            ("admin", doc! {"find": "c"}),
            ("config", doc! {"insert": "c", "documents": [{}]}),
            ("test", doc! {"find": "system.profile"}),
            (
                "admin",
                doc! {"bulkWrite": 1, "nsInfo": [{"ns": "config.c"}], "ops": [{"insert": 0, "document": {}}]},
            ),
        ];
        for (db, mut command) in cases {
            command.push_all(&first);
            let reply = server.reply(db, command);
            assert_eq!(reply.get_i32("code"), Some(263), "{reply:?}");
            assert!(reply.get("errorLabels").is_none());
        }
        assert_eq!(server.server.clients.sessions.open_transactions().len(), 0);
        let stages = [
            doc! {"$out": "d"},
            doc! {"$merge": {"into": "d"}},
            doc! {"$unionWith": "d"},
            doc! {"$collStats": {"count": {}}},
            doc! {"$indexStats": {}},
            doc! {"$planCacheStats": {}},
            doc! {"$facet": {"f": [{"$lookup": {"from": "c", "as": "x", "pipeline": [{"$unionWith": "d"}]}}]}},
        ];
        for (number, stage) in (2i64..).zip(&stages) {
            let mut command = doc! {"aggregate": "c", "pipeline": [stage], "cursor": {}};
            command.push_all(&doc! {"lsid": &lsid, "txnNumber": number, "autocommit": false, "startTransaction": true});
            assert_eq!(server.code("test", command), 263, "{stage:?}");
        }
    }
}
