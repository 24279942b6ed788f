//! Whether a task goes on at once, or after those that are queued.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    pub(super) static TURN: Cell<Turn> = const { Cell::new(Turn::NoTask) };
}

/// What the task of this thread does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The thread runs no task.
    NoTask,
    /// The task goes on until it waits.
    Own,
    /// The task goes on after those that are queued.
    AfterOthers,
}

/// Lets the tasks go first that are queued, if they are short. For a task that is about to wake its client: on a busy machine
/// the client would take the processor from this thread, while other clients wait.
pub async fn let_others_go_first() {
    let mut is_back = false;
    poll_fn(|_| {
        if is_back || TURN.get() != Turn::Own {
            return Poll::Ready(());
        }
        is_back = true;
        TURN.set(Turn::AfterOthers);
        // The thread runs the task again.
        Poll::Pending
    })
    .await;
}
