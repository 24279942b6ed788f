//! Where commands run, and how many at once.
//!
//! A command runs on the thread that read its request, one of [`Pool`]. The store is synchronous: a command holds its
//! thread while it reads files or waits for room in memory. So a command takes a ticket of its lane first, and waits for
//! it without a thread. There are more threads than tickets: writers that all wait for room keep no reader waiting, and
//! commands that read memory only, among them `ping`, `currentOp` and `killOp`, need no ticket.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::{Semaphore, SemaphorePermit};

use frond_error::{Error, ErrorCode, Result};

use crate::pool::Pool;
use crate::room::WAITING_MAX;

/// How long a command may keep its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads memory only.
    Instant,
    /// It reads or writes a few documents, usually.
    Short,
    /// It changes the catalog, or scans whole collections.
    Long,
}

/// Commands that share their tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// They read documents.
    Read,
    /// They write documents.
    Write,
    /// They read or change the catalog, or are a part of maintenance.
    Maintenance,
}

impl Lane {
    const ALL: [Lane; 3] = [Lane::Read, Lane::Write, Lane::Maintenance];

    /// The number of its tickets.
    pub fn tickets(self) -> usize {
        match self {
            Lane::Read | Lane::Write => 64,
            Lane::Maintenance => 32,
        }
    }

    /// What a command waits for that has no ticket, for `currentOp`.
    pub fn ticket_name(self) -> &'static str {
        match self {
            Lane::Read => "a read ticket",
            Lane::Write => "a write ticket",
            Lane::Maintenance => "a maintenance ticket",
        }
    }
}

/// The right to run a command of a lane.
pub type Ticket<'e> = SemaphorePermit<'e>;

/// Runs commands.
pub struct Executor {
    /// The threads.
    pub pool: Pool,
    lanes: [Semaphore; Lane::ALL.len()],
}

impl Executor {
    /// An executor whose tasks use the timers of the runtime that this is called in.
    pub fn new() -> std::io::Result<Executor> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let helpers = 2 * cores.max(2);
        let tickets: usize = Lane::ALL.iter().map(|lane| lane.tickets()).sum();
        Ok(Executor {
            pool: Pool::new(helpers, tickets + WAITING_MAX + helpers)?,
            lanes: Lane::ALL.map(|lane| Semaphore::new(lane.tickets())),
        })
    }

    fn lane(&self, lane: Lane) -> &Semaphore {
        let [read, write, maintenance] = &self.lanes;
        match lane {
            Lane::Read => read,
            Lane::Write => write,
            Lane::Maintenance => maintenance,
        }
    }

    /// Tickets of a lane that nobody holds.
    pub fn available(&self, lane: Lane) -> usize {
        self.lane(lane).available_permits()
    }

    /// A ticket, if there is one.
    pub fn try_ticket(&self, lane: Lane) -> Option<Ticket<'_>> {
        self.lane(lane).try_acquire().ok()
    }

    /// Waits for a ticket. Those who wait get theirs in their order.
    pub async fn ticket(&self, lane: Lane) -> Option<Ticket<'_>> {
        // It is never closed, so there is one.
        self.lane(lane).acquire().await.ok()
    }

    /// Gives a ticket back whose owner will forget it.
    pub fn give_back(&self, lane: Lane) {
        self.lane(lane).add_permits(1);
        self.pool.leave();
    }

    /// Runs a command; a panic in it becomes an `InternalError`, which the panic hook has logged.
    pub fn run<T>(&self, work: Work, command: impl FnOnce() -> Result<T>) -> Result<T> {
        if work == Work::Long {
            self.pool.leave();
        }
        catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|payload| {
            Err(Error::new(
                ErrorCode::InternalError,
                format!("internal error in this command: {}", panic_text(&*payload)),
            ))
        })
    }
}

/// The message of a panic.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let executor = Executor::new().unwrap();
        for work in [Work::Instant, Work::Short, Work::Long] {
            assert_eq!(executor.run(work, || Ok(3)), Ok(3));
            let failure = executor.run::<()>(work, || panic!("a {} thing", "bad"));
            let failure = failure.unwrap_err();
            assert_eq!(failure.code(), ErrorCode::InternalError);
            assert!(failure.message().ends_with("a bad thing"));
        }
    }

    #[tokio::test]
    async fn a_lane_without_tickets_keeps_no_other_waiting() {
        let executor = Executor::new().unwrap();
        let held: Vec<_> = std::iter::from_fn(|| executor.try_ticket(Lane::Write)).collect();
        assert_eq!(held.len(), Lane::Write.tickets());
        assert_eq!(executor.available(Lane::Write), 0);
        assert!(executor.try_ticket(Lane::Read).is_some());
        let (next, ()) = tokio::join!(executor.ticket(Lane::Write), async {
            tokio::task::yield_now().await;
            drop(held);
        });
        assert!(next.is_some());
    }
}
