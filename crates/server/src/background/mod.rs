//! The jobs of the server itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use frond_store::OpContext;
use tokio::sync::watch;

use crate::state::Server;

mod audit;
mod certificates;
mod checkpoints;
mod disk_space;
mod expire;
mod fast_updates;
mod history;
mod index_builds;
mod memory;
mod oplog;
mod profiles;
mod reencryption;
mod replica_set;
mod router;
mod transactions;
mod ttl;

pub use audit::sync_audit;
pub use certificates::watch_certificates;
pub use checkpoints::write_checkpoints;
pub use disk_space::watch_disk_space;
pub use expire::expire;
pub use fast_updates::report_fast_updates;
pub use history::record_history;
pub use index_builds::resume_index_builds;
pub use memory::release_memory;
pub use oplog::trim_oplog;
pub use profiles::write_profiles;
pub use reencryption::reencrypt;
pub use replica_set::{await_complete, check_quorum, find_own, follow_set, lead_alone, standings};
pub use router::tell_life;
pub use transactions::expire_transactions;
pub use ttl::Monitor as TtlMonitor;

/// Waits for an event. False if the server stops first.
async fn unless_stopped(stop: &mut watch::Receiver<bool>, event: impl Future) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => false,
        _ = event => true,
    }
}

/// Does a job after each period until the server stops.
async fn every(server: &Arc<Server>, period: Duration, mut job: impl FnMut()) {
    let mut stop = server.stop_signal();
    while unless_stopped(&mut stop, tokio::time::sleep(period)).await {
        job();
    }
}

/// A thread with one job, which can be interrupted.
pub struct Job {
    context: OpContext,
    thread: JoinHandle<()>,
}

impl Job {
    /// Starts a thread with this name.
    fn start(name: &str, job: impl FnOnce(&OpContext) + Send + 'static) -> std::io::Result<Job> {
        let context = OpContext::new();
        let limits = context.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || job(&limits))?;
        Ok(Job { context, thread })
    }

    /// Whether the job with this context is to end.
    fn is_interrupted(context: &OpContext) -> bool {
        context.killed.load(Relaxed)
    }

    /// Asks the job to end.
    fn interrupt(&self) {
        self.context.killed.store(true, Relaxed);
    }

    /// Waits for the end of the job.
    fn join(self) {
        // A panic of the job is logged already.
        let _ = tokio::task::block_in_place(|| self.thread.join());
    }

    /// Interrupts the job and waits for its end.
    pub fn stop(self) {
        self.interrupt();
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_by_its_event_or_the_stop() {
        let (sender, mut stop) = watch::channel(false);
        assert!(unless_stopped(&mut stop, std::future::ready(())).await);
        sender.send_replace(true);
        assert!(!unless_stopped(&mut stop, std::future::pending::<()>()).await);
    }
}
