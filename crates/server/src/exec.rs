//! Where commands run: the one place that decides it.
//!
//! The store is synchronous: it reads files, waits for the journal, and takes as long as a query
//! takes. A command that may touch it tells the runtime that its thread is busy, so that the other
//! connections of that thread move on to another one. Commands that only look at memory run as
//! they are, which saves that hand-over.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::failure::{ErrorCode, Failure, Result};

/// Runs a command; a panic in it becomes an `InternalError`, which the panic hook has logged.
pub fn run<T>(touches_storage: bool, command: impl FnOnce() -> Result<T>) -> Result<T> {
    let caught = AssertUnwindSafe(|| catch_unwind(AssertUnwindSafe(command)));
    let outcome = if touches_storage {
        tokio::task::block_in_place(caught)
    } else {
        caught()
    };
    outcome.unwrap_or_else(|payload| {
        Err(Failure::new(
            ErrorCode::InternalError,
            format!(
                "the server failed inside this command: {}",
                panic_text(&*payload)
            ),
        ))
    })
}

/// What a panic said.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_is_an_error() {
        for touches_storage in [false, true] {
            assert_eq!(run(touches_storage, || Ok(3)), Ok(3));
            let failure = run::<()>(touches_storage, || panic!("a {} thing", "bad"));
            let failure = failure.expect_err("it panicked");
            assert_eq!(failure.code, ErrorCode::InternalError);
            assert!(failure.message.ends_with("a bad thing"));
        }
    }
}
