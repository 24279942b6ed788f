use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

pub struct CommitTransaction;

const SPEC: Spec = Spec {
    names: &["commitTransaction"],
    doc: "Commits a transaction.",
    // It is for transactions over several shards; a replica set accepts and ignores it.
    fields: &["recoveryToken"],
    work: Work::Short,
    admission: Some(AdmissionClass::Write),
    writes: true,
    admin_only: true,
    stable_api: true,
    in_transactions: InTransactions::Later,
    ..Spec::CHEAP
};

impl Command for CommitTransaction {
    fn spec(&self) -> &'static Spec {
        &SPEC
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
