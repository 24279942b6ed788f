//! The state of a session's newest transaction number, as MongoDB's rules change it.

use frond_error::{Error, ErrorCode, Result};

use super::SessionId;

/// The kind of the newest number.
#[derive(Debug)]
enum Phase<T> {
    /// Of a retryable write; or there was no number yet.
    Write,
    /// Of a transaction that is open.
    Open(T),
    /// Of a transaction that was committed.
    Committed,
    /// Of a transaction that was aborted.
    Aborted,
}

/// The newest transaction number of a session, with what an open transaction holds.
#[derive(Debug)]
pub struct Machine<T> {
    number: i64,
    phase: Phase<T>,
}

/// The state that a command finds that continues a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'m, T> {
    /// The transaction is open.
    Open(&'m T),
    /// It was committed before, and the command commits it again.
    Committed,
}

/// A change of the newest number, which ends the transaction that was open.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed<T> {
    /// False for another try of the same retryable write.
    pub is_new: bool,
    /// The state of the transaction with the number before.
    pub displaced: Option<T>,
}

impl<T> Default for Machine<T> {
    fn default() -> Self {
        Machine {
            number: -1,
            phase: Phase::Write,
        }
    }
}

impl<T> Machine<T> {
    /// Takes over what is known of the session from before: its newest number, and whether that is of a transaction, which
    /// was committed. A number that a session has got since then takes precedence.
    pub fn restore(&mut self, number: i64, is_committed: bool) {
        if self.number < 0 {
            self.number = number;
            self.phase = if is_committed {
                Phase::Committed
            } else {
                Phase::Write
            };
        }
    }

    /// Takes over what another server has done with the session. Returns whether its number is newer than the one here.
    /// A transaction that is open here goes on, and fails at its commit if need be.
    pub fn follow(&mut self, number: i64, is_committed: bool) -> bool {
        let is_newer = number > self.number;
        if matches!(self.phase, Phase::Open(_)) || number < self.number {
            return false;
        }
        if is_newer || is_committed {
            self.number = number;
            self.phase = if is_committed {
                Phase::Committed
            } else {
                Phase::Write
            };
        }
        is_newer
    }

    /// The number; none if nothing is known.
    pub fn number(&self) -> Option<i64> {
        (self.number >= 0).then_some(self.number)
    }

    /// The state of the open transaction.
    pub fn open(&self) -> Option<&T> {
        match &self.phase {
            Phase::Open(held) => Some(held),
            _ => None,
        }
    }

    fn newer(&self) -> &'static str {
        match self.phase {
            Phase::Write => "retryable write",
            _ => "transaction",
        }
    }

    fn change(&mut self, number: i64, phase: Phase<T>) -> Option<T> {
        self.number = number;
        match std::mem::replace(&mut self.phase, phase) {
            Phase::Open(held) => Some(held),
            _ => None,
        }
    }

    /// Begins or repeats the retryable write with this number, in the session with this name.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if there is a newer number, `IncompleteTransactionHistory` (217) if the number is of a
    /// transaction.
    pub fn write(&mut self, session: SessionId, number: i64) -> Result<Changed<T>> {
        if number < self.number {
            return Err(Error::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "Retryable write with txnNumber {number} is prohibited on session {} because a newer {} with \
                     txnNumber {} has already started on this session.",
                    session.digits(),
                    self.newer(),
                    self.number
                ),
            ));
        }
        if number > self.number {
            return Ok(Changed {
                is_new: true,
                displaced: self.change(number, Phase::Write),
            });
        }
        match self.phase {
            Phase::Write => Ok(Changed {
                is_new: false,
                displaced: None,
            }),
            _ => Err(Error::new(
                ErrorCode::IncompleteTransactionHistory,
                "Cannot retry a retryable write that has been converted into a transaction",
            )),
        }
    }

    /// Begins a transaction; `open` makes what it holds. Returns what the one before held, if that is still open.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if there is a newer number, `ConflictingOperationInProgress` (117) if it is the newest.
    pub fn start(
        &mut self,
        session: SessionId,
        number: i64,
        open: impl FnOnce() -> Result<T>,
    ) -> Result<Option<T>> {
        self.check_age(session, number)?;
        if number == self.number {
            return Err(Error::new(
                ErrorCode::ConflictingOperationInProgress,
                "Only servers in a sharded cluster can start a new transaction at the active transaction number",
            ));
        }
        let held = open()?;
        Ok(self.change(number, Phase::Open(held)))
    }

    /// Finds the transaction with this number; `commits` is true for a command that commits it.
    ///
    /// # Errors
    /// `TransactionTooOld` (225) if there is a newer number, `NoSuchTransaction` (251) if the number is of no transaction or
    /// of one that was aborted, `TransactionCommitted` (256).
    pub fn find(&self, session: SessionId, number: i64, commits: bool) -> Result<Found<'_, T>> {
        self.check_age(session, number)?;
        if number > self.number || matches!(self.phase, Phase::Write) {
            return Err(Error::new(
                ErrorCode::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress transactions. The active transaction \
                     number is {}",
                    self.number
                ),
            ));
        }
        match &self.phase {
            Phase::Open(held) => Ok(Found::Open(held)),
            Phase::Committed if commits => Ok(Found::Committed),
            Phase::Committed => Err(Error::new(
                ErrorCode::TransactionCommitted,
                format!("Transaction with {{ txnNumber: {number} }} has been committed."),
            )),
            Phase::Aborted | Phase::Write => Err(aborted(number)),
        }
    }

    fn check_age(&self, session: SessionId, number: i64) -> Result<()> {
        if number >= self.number {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::TransactionTooOld,
            format!(
                "Cannot start transaction with {{ txnNumber: {number} }} on session {} because a newer {} with \
                 txnNumberAndRetryCounter {{ txnNumber: {} }} has already started on this session.",
                session.digits(),
                self.newer(),
                self.number
            ),
        ))
    }

    /// Ends the open transaction. Returns what it held.
    pub fn end(&mut self, is_committed: bool) -> Option<T> {
        self.open()?;
        let phase = if is_committed {
            Phase::Committed
        } else {
            Phase::Aborted
        };
        self.change(self.number, phase)
    }
}

/// The error of a command of a transaction that was aborted.
pub fn aborted(number: i64) -> Error {
    Error::new(
        ErrorCode::NoSuchTransaction,
        format!("Transaction with {{ txnNumber: {number} }} has been aborted."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SessionId = SessionId::of_key([0xab; 16]);

    /// An action on a number, and the code of the error or 0.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Write(i64),
        Start(i64),
        Statement(i64),
        Commit(i64),
        Abort(i64),
        /// The server aborts it: a statement failed, or its time is over.
        Fail,
    }

    fn run(machine: &mut Machine<i64>, step: Step) -> i32 {
        let outcome = match step {
            Step::Write(number) => machine.write(S, number).map(drop),
            Step::Start(number) => machine.start(S, number, || Ok(number)).map(drop),
            Step::Statement(number) => machine.find(S, number, false).map(drop),
            Step::Commit(number) => match machine.find(S, number, true) {
                Ok(Found::Open(held)) => {
                    assert_eq!(*held, number);
                    machine.end(true);
                    Ok(())
                }
                other => other.map(drop),
            },
            Step::Abort(number) => match machine.find(S, number, false) {
                Ok(_) => {
                    machine.end(false);
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            Step::Fail => {
                machine.end(false);
                Ok(())
            }
        };
        outcome.err().map_or(0, |failure| failure.code().code())
    }

    #[test]
    fn numbers_and_states_follow_the_rules() {
        use Step::{Abort, Commit, Fail, Start, Statement, Write};
        let walks: &[&[(Step, i32)]] = &[
            &[(Statement(1), 251), (Commit(1), 251), (Abort(1), 251)],
            &[
                (Start(1), 0),
                (Statement(1), 0),
                (Commit(1), 0),
                (Commit(1), 0),
                (Abort(1), 256),
                (Statement(1), 256),
            ],
            &[
                (Start(1), 0),
                (Abort(1), 0),
                (Abort(1), 251),
                (Commit(1), 251),
                (Statement(1), 251),
            ],
            &[
                (Start(1), 0),
                (Fail, 0),
                (Statement(1), 251),
                (Commit(1), 251),
                (Start(1), 117),
                (Start(2), 0),
            ],
            &[
                (Start(5), 0),
                (Start(5), 117),
                (Statement(4), 225),
                (Statement(6), 251),
                (Start(4), 225),
                (Commit(4), 225),
            ],
            // A newer number ends the open transaction.
            &[
                (Start(1), 0),
                (Start(2), 0),
                (Commit(1), 225),
                (Commit(2), 0),
            ],
            &[
                (Start(1), 0),
                (Write(2), 0),
                (Commit(1), 225),
                (Commit(2), 251),
                (Write(2), 0),
            ],
            &[
                (Start(1), 0),
                (Write(1), 217),
                (Commit(1), 0),
                (Write(1), 217),
                (Write(0), 225),
            ],
            &[
                (Write(3), 0),
                (Start(3), 117),
                (Statement(3), 251),
                (Start(4), 0),
                (Write(3), 225),
                (Commit(4), 0),
            ],
        ];
        for walk in walks {
            let mut machine = Machine::default();
            for (step, expected) in *walk {
                assert_eq!(run(&mut machine, *step), *expected, "{step:?} of {walk:?}");
            }
        }
    }

    #[test]
    fn a_newer_number_returns_what_the_open_transaction_held() {
        let mut machine = Machine::default();
        assert_eq!(machine.start(S, 1, || Ok("one")), Ok(None));
        assert_eq!(machine.start(S, 2, || Ok("two")), Ok(Some("one")));
        let failed = machine.start(S, 3, || Err(Error::bad_value("no room")));
        assert!(failed.is_err());
        assert_eq!((machine.number, machine.open()), (2, Some(&"two")));
        let changed = machine.write(S, 4);
        let expected = Changed {
            is_new: true,
            displaced: Some("two"),
        };
        assert_eq!(changed, Ok(expected));
        assert_eq!(machine.open(), None);
        assert_eq!(machine.end(true), None);
    }

    #[test]
    fn messages_name_the_numbers() {
        let mut machine = Machine::default();
        let text = |failure: Option<Error>| {
            failure.map_or_else(String::new, |failure| failure.message().to_owned())
        };
        assert_eq!(
            text(machine.find(S, 1, false).err()),
            "Given transaction number 1 does not match any in-progress transactions. The active transaction number is -1"
        );
        assert_eq!(machine.start(S, 7, || Ok(())), Ok(None));
        assert_eq!(
            text(machine.write(S, 6).err()),
            "Retryable write with txnNumber 6 is prohibited on session \
             abababababababababababababababab because a newer transaction with txnNumber 7 has already started on this session."
        );
        machine.end(false);
        assert_eq!(
            text(machine.find(S, 7, true).err()),
            "Transaction with { txnNumber: 7 } has been aborted."
        );
    }
}
