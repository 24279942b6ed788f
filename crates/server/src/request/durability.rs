//! The wait of a reply until what it is about is durable.

use std::time::{Duration, Instant};

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use super::waits::{interrupted, until};
use crate::connection::Connection;
use crate::outcome::DurabilityWait;
use crate::replication::Acknowledgment;
use crate::state::Server;

/// Waits until the reply may be sent, the operation is interrupted, or its time is over. The wait goes on when the server stops, because
/// the client has to know that its write is applied. Returns the outcome, the reason why it does not hold, and the time of the wait.
pub async fn wait(
    server: &Server,
    connection: &Connection,
    wait: DurabilityWait,
) -> (Result<DocBuf>, Option<Error>, Duration) {
    let began = Instant::now();
    let is_of_journal = matches!(wait.until, Acknowledgment::Journal);
    let timeout = wait.timeout.filter(|_| !is_of_journal);
    let given_up = timeout.and_then(|timeout| began.checked_add(timeout));
    let failure = tokio::select! {
        done = wait.until.wait(&server.store, server.set.consensus()) => done.err(),
        () = interrupted(connection) => {
            Some(Error::new(ErrorCode::Interrupted, "operation was interrupted"))
        }
        () = until(given_up) => {
            let message = "waiting for replication timed out";
            Some(Error::new(ErrorCode::WriteConcernTimeout, message))
        }
        () = until(wait.deadline) => {
            Some(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"))
        }
    };
    let took = began.elapsed();
    if is_of_journal {
        server.metrics.journal_waits.record(took);
    } else {
        server.metrics.replication_waits.record(took);
    }
    let is_timeout = |error: &Error| error.code() == ErrorCode::WriteConcernTimeout;
    if failure.as_ref().is_some_and(is_timeout) {
        server.metrics.replication_timeouts.add(1);
    }
    (wait.outcome, failure, took)
}
