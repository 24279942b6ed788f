//! The asynchronous runtime below consensus.

use std::future::Future;
use std::io;

use openraft::AsyncRuntime;
use openraft_rt_tokio::TokioRuntime;

/// A runtime that can also wait for what blocks: calls of the engine that write, or wait for room.
pub trait Runtime: AsyncRuntime {
    /// Runs `work` where it may block.
    fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;
}

impl Runtime for TokioRuntime {
    // Not `AsyncRuntime::spawn_blocking`, which starts a thread for each call.
    async fn blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        tokio::task::spawn_blocking(work)
            .await
            .map_err(io::Error::other)
    }
}
