//! `commitTransaction`

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::{Command, InTransactions, Traits};
use crate::authorization::{Needs, Requested};
use crate::context::Context;
use crate::exec::{Lane, Work};

/// Commits a transaction.
pub struct CommitTransaction;

impl Command for CommitTransaction {
    fn names(&self) -> &'static [&'static str] {
        &["commitTransaction"]
    }

    fn doc(&self) -> &'static str {
        "Commits a transaction."
    }

    fn fields(&self) -> &'static [&'static str] {
        // It is for transactions over several shards; a replica set accepts and ignores it.
        &["recoveryToken"]
    }

    fn traits(&self) -> Traits {
        Traits {
            work: Work::Short,
            lane: Some(Lane::Write),
            writes: true,
            ..Traits::CHEAP
                .admin()
                .stable(true)
                .in_transactions(InTransactions::Later)
        }
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::LoggedIn)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        match &mut cx.statement {
            Some(statement) => cx.operation.entry_at = statement.commit()?,
            None => {
                return Err(Error::new(
                    ErrorCode::CommandFailed,
                    "commitTransaction must be run within a transaction",
                ));
            }
        }
        Ok(DocBuf::new())
    }
}
