//! Whether a task continues at once, or after the queued tasks.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;

thread_local! {
    pub(super) static YIELD_STATE: Cell<YieldState> = const { Cell::new(YieldState::NoTask) };
}

/// The next step of the task of this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum YieldState {
    /// The thread runs no task.
    NoTask,
    /// The task goes on until it waits.
    Own,
    /// The task goes on after those that are queued.
    AfterOthers,
}

/// Continues after the queued tasks, if they are short. A task calls it before it wakes its client: on a busy machine the client
/// would take the processor from this thread, while other clients wait.
pub async fn yield_to_queued_tasks() {
    let mut is_back = false;
    poll_fn(|_| {
        if is_back || YIELD_STATE.get() != YieldState::Own {
            return Poll::Ready(());
        }
        is_back = true;
        YIELD_STATE.set(YieldState::AfterOthers);
        // The thread runs the task again.
        Poll::Pending
    })
    .await;
}
