//! Parts that the write commands share: options, running of statements, retryable writes, the reply.

use frond_bson::{Doc, DocBuf};
use frond_error::{Error, Result};

use frond_store::StatementId;

use super::statement_record::{self, Outcome};
use crate::arguments::Arguments;
use crate::context::Context;
use crate::errors::ends_command;
use crate::labels::ends_transaction_for_now;
use crate::reply::WriteErrors;
use crate::sessions::{Recorded, RetryableWrite};
use crate::statements::Statements;

/// Options of every bulk write.
pub struct WriteOptions {
    /// Whether the first error ends the command.
    pub ordered: bool,
    pub bypass_validation: bool,
    pub keep_empty_timestamps: bool,
    /// The values of `let`.
    pub variables: Option<DocBuf>,
}

impl WriteOptions {
    /// Reads the options of a command. In a transaction the first error ends the command, also with `ordered: false`.
    pub fn parse(cx: &Context<'_>) -> Result<WriteOptions> {
        let args = &cx.args();
        let ordered = args.bool("ordered")?.unwrap_or(true);
        Ok(WriteOptions {
            ordered: ordered || cx.statement.is_some(),
            bypass_validation: bypass_validation(args)?,
            keep_empty_timestamps: keep_empty_timestamps(args)?,
            variables: args.variables()?,
        })
    }
}

pub fn bypass_validation(args: &Arguments<'_>) -> Result<bool> {
    Ok(args.flag("bypassDocumentValidation")?.unwrap_or(false))
}

/// `bypassEmptyTsReplacement`: a top-level `Timestamp(0, 0)` is stored unchanged. By default the server replaces it by the
/// current time, in inserted documents and in replacements.
pub fn keep_empty_timestamps(args: &Arguments<'_>) -> Result<bool> {
    Ok(args.bool("bypassEmptyTsReplacement")?.unwrap_or(false))
}

/// The statements of a write command.
pub struct Batch<'a> {
    /// Their documents, from the command or from a document sequence.
    pub statements: Vec<&'a Doc>,
    /// Their numbers as parts of a retryable write.
    pub ids: Statements,
}

impl<'a> Batch<'a> {
    /// Reads the statements, which are in this field.
    pub fn parse(cx: &Context<'a>, field: &str) -> Result<Batch<'a>> {
        let statements = cx.documents(field)?;
        cx.check_batch(statements.len())?;
        let ids = Statements::parse(&cx.args(), statements.len())?;
        Ok(Batch { statements, ids })
    }

    /// Runs one request for each statement, in their order; the first error ends an ordered batch. `run` gets the
    /// retryable write and the number of the statement, `done` its place and its result.
    pub fn run<R, T: Outcome>(
        &self,
        cx: &Context<'_>,
        requests: &[R],
        ordered: bool,
        run: impl Fn(&R, Option<&mut RetryableWrite>, i32) -> Result<T>,
        done: impl FnMut(usize, T),
    ) -> Result<WriteErrors> {
        let none = |_: &[R], _: Option<&mut RetryableWrite>, _: usize| Group::default();
        self.run_in_groups(cx, requests, ordered, none, run, done)
    }

    /// As [`Batch::run`]. `group` may run several of the first statements at once: it gets all that are left, and the place of the
    /// first one. `run` gets those that it leaves.
    pub fn run_in_groups<R, T: Outcome>(
        &self,
        cx: &Context<'_>,
        requests: &[R],
        ordered: bool,
        group: impl Fn(&[R], Option<&mut RetryableWrite>, usize) -> Group<T>,
        run: impl Fn(&R, Option<&mut RetryableWrite>, i32) -> Result<T>,
        mut done: impl FnMut(usize, T),
    ) -> Result<WriteErrors> {
        let mut retry = cx.retryable_write()?;
        let mut errors = WriteErrors::default();
        let mut at = 0;
        while let Some(request) = requests.get(at) {
            let outcome = match self.statements.get(at) {
                Some(statement) if cx.operation.profile_level() > 0 => {
                    let run = || {
                        let one = std::slice::from_ref(request);
                        let mut group = group(one, retry.as_mut(), at);
                        match (group.done.pop(), group.failure) {
                            (Some(done), _) => Ok(done),
                            (None, Some(error)) => Err(error),
                            (None, None) => run(request, retry.as_mut(), self.ids.id(at)),
                        }
                    };
                    statement_record::profiled(cx, statement, run)
                }
                _ => {
                    let rest = requests.get(at..).unwrap_or_default();
                    let group = group(rest, retry.as_mut(), at);
                    let is_empty = group.done.is_empty();
                    for result in group.done {
                        done(at, result);
                        at += 1;
                    }
                    match group.failure {
                        Some(error) => Err(error),
                        None if is_empty => run(request, retry.as_mut(), self.ids.id(at)),
                        None => continue,
                    }
                }
            };
            match outcome {
                Ok(result) => done(at, result),
                Err(error) => {
                    let ends = ordered || ends_command(error.code());
                    errors.push(at, error);
                    if ends {
                        break;
                    }
                }
            }
            at += 1;
        }
        Ok(errors)
    }
}

/// The statements that were run at once.
pub struct Group<T> {
    /// The results of the first ones.
    pub done: Vec<T>,
    /// The failure of the next one.
    pub failure: Option<Error>,
}

impl<T> Default for Group<T> {
    fn default() -> Group<T> {
        Group {
            done: Vec::new(),
            failure: None,
        }
    }
}

/// Runs a statement, unless an earlier try of the same retryable write did: then returns the recorded result. `run` stores the
/// record together with the changes, if it is given a statement; `changed` is true of a result with changes.
pub fn once<T>(
    retry: Option<&mut RetryableWrite>,
    statement: i32,
    replay: impl FnOnce(&Recorded) -> Option<T>,
    record: impl FnOnce(&T) -> Recorded,
    changed: impl FnOnce(&T) -> bool,
    run: impl FnOnce(Option<StatementId>) -> Result<T>,
) -> Result<T> {
    let Some(retry) = retry else {
        return run(None);
    };
    if let Some(result) = retry.executed(statement).and_then(replay) {
        return Ok(result);
    }
    let result = run(Some(retry.statement(statement)))?;
    retry.record(statement, record(&result), changed(&result));
    Ok(result)
}

/// Keeps the last error for `getLastError`, and makes the reply: the counts, then the errors. A client that waits for
/// no write gets neither. Fails if an error is one of the whole command. In a transaction every error ends the transaction,
/// and one after which the transaction may be run again is one of the whole command.
pub fn reply(
    cx: &mut Context<'_>,
    errors: &WriteErrors,
    counts: impl FnOnce(&mut DocBuf),
) -> Result<DocBuf> {
    if let Some(error) = errors.last() {
        cx.state.last_error.failed(error.clone());
    }
    end_transaction_after(cx, errors.last())?;
    let mut reply = DocBuf::new();
    if !cx.write_concern.is_unacknowledged() {
        if let Some(failure) = errors.of_command() {
            return Err(failure.clone());
        }
        counts(&mut reply);
        errors.write(&mut reply);
    }
    Ok(reply)
}

/// Aborts the transaction that a command is a part of, if a statement of the command failed.
///
/// # Errors
/// The statement's error, if the transaction may succeed when it is run again.
pub fn end_transaction_after(cx: &mut Context<'_>, failure: Option<&Error>) -> Result<()> {
    if let (Some(statement), Some(failure)) = (&mut cx.statement, failure) {
        statement.abort();
        if ends_transaction_for_now(failure.code()) {
            return Err(failure.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
