//! Where commands run, and how many at once.
//!
//! A command runs on the thread that read its request, one of [`Pool`]. The store is synchronous: a command holds its
//! thread while it reads files or waits for room in memory. So a command takes a ticket of its lane first, and waits for
//! it without a thread. There are more threads than tickets: writers that all wait for room keep no reader waiting, and
//! commands that read memory only, among them `ping`, `currentOp` and `killOp`, need no ticket.
//!
//! Long commands must not keep short ones waiting. While somebody waits for a ticket, those who have held theirs for a
//! while get another kind of ticket, of which there are as many, and their own is free again. A command that only waits for the
//! process that runs its function of JavaScript goes on without any ticket then.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use frond_error::{Error, ErrorCode, Result};

use crate::pool::Pool;
use crate::room::{WAITING_MAX, Waiting};

/// How long a command may keep its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It reads memory only, or the document of one user for a login.
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
    /// They are statements of transactions, and found no ticket of another lane: it may be held by writers that wait for
    /// these very transactions.
    Transaction,
}

impl Lane {
    const ALL: [Lane; 4] = [
        Lane::Read,
        Lane::Write,
        Lane::Maintenance,
        Lane::Transaction,
    ];

    /// The number of its tickets for commands that turned out to be long.
    fn long_tickets(self) -> usize {
        match self {
            Lane::Read | Lane::Write | Lane::Transaction => 64,
            // They all are.
            Lane::Maintenance => 0,
        }
    }

    /// The number of its tickets.
    pub fn tickets(self) -> usize {
        match self {
            Lane::Read | Lane::Write | Lane::Transaction => 64,
            Lane::Maintenance => 32,
        }
    }

    /// What a command waits for that has no ticket, for `currentOp`.
    pub fn ticket_name(self) -> &'static str {
        match self {
            Lane::Read => "a read ticket",
            Lane::Write => "a write ticket",
            Lane::Maintenance => "a maintenance ticket",
            Lane::Transaction => "a ticket for transactions",
        }
    }
}

/// While somebody waits for a ticket, those who hold one are looked at this often. Who holds it the second time, has held
/// it for long.
const LOOK: Duration = Duration::from_millis(25);

/// Commands that may wait for functions without a ticket at a time.
const FUNCTIONS_MAX: usize = 128;

/// The most tickets of a lane that are held, with those of long commands and of those that wait for room for a reply or for a
/// function.
const PLACES: usize = 64 + 64 + WAITING_MAX + FUNCTIONS_MAX;

/// What a place holds.
mod place {
    /// No ticket.
    pub const FREE: u8 = 0;
    /// A ticket that was taken since the last look.
    pub const NEW: u8 = 1;
    /// A ticket that was there at the last look.
    pub const SEEN: u8 = 2;
    /// A ticket for long commands.
    pub const LONG: u8 = 3;
    /// What was a ticket before its command gave it back.
    pub const GIVEN_BACK: u8 = 4;
    /// A ticket was here before its command began to wait for a function.
    pub const FUNCTION: u8 = 5;
}

/// The tickets of a lane.
struct Tickets {
    usual: Semaphore,
    long: Semaphore,
    places: [AtomicU8; PLACES],
    waiting: AtomicUsize,
}

impl Tickets {
    fn new(lane: Lane) -> Tickets {
        Tickets {
            usual: Semaphore::new(lane.tickets()),
            long: Semaphore::new(lane.long_tickets()),
            places: [const { AtomicU8::new(place::FREE) }; PLACES],
            waiting: AtomicUsize::new(0),
        }
    }

    /// The place of a ticket that was just taken. None if there is none free: then it is not given back before its end.
    fn place(&self) -> Option<usize> {
        self.places.iter().position(|place| {
            place.load(Ordering::Relaxed) == place::FREE
                && (place.compare_exchange(
                    place::FREE,
                    place::NEW,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ))
                .is_ok()
        })
    }

    /// Sets what a place holds, and gives back the ticket that it held, or the right to wait for a function without one.
    fn give_back(&self, place: Option<usize>, then: u8, functions: &Semaphore) {
        let place = place.and_then(|place| self.places.get(place));
        match place.map_or(place::NEW, |place| place.swap(then, Ordering::Relaxed)) {
            place::FREE | place::GIVEN_BACK => {}
            place::FUNCTION => functions.add_permits(1),
            place::LONG => self.long.add_permits(1),
            _ => self.usual.add_permits(1),
        }
    }

    /// Moves the tickets of long commands.
    fn look(&self) {
        let changes = |place: &AtomicU8, from, to| {
            place
                .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        for place in &self.places {
            if changes(place, place::NEW, place::SEEN)
                || place.load(Ordering::Relaxed) != place::SEEN
            {
                continue;
            }
            let Ok(permit) = self.long.try_acquire() else {
                continue;
            };
            if changes(place, place::SEEN, place::LONG) {
                permit.forget();
                self.usual.add_permits(1);
            }
        }
    }
}

/// The tickets of all lanes.
struct Lanes {
    tickets: [Tickets; Lane::ALL.len()],
    /// Rights to wait for a function without a ticket.
    functions: Semaphore,
    /// Somebody waits.
    wanted: Notify,
}

impl Lanes {
    fn give_back(&self, held: Held, then: u8) {
        self.of(held.lane)
            .give_back(held.place, then, &self.functions);
    }

    fn of(&self, lane: Lane) -> &Tickets {
        let [read, write, maintenance, transaction] = &self.tickets;
        match lane {
            Lane::Read => read,
            Lane::Write => write,
            Lane::Maintenance => maintenance,
            Lane::Transaction => transaction,
        }
    }

    /// Frees the tickets of long commands while others wait for tickets.
    async fn watch(&self) {
        let is_wanted = |tickets: &&Tickets| tickets.waiting.load(Ordering::Relaxed) > 0;
        loop {
            self.wanted.notified().await;
            while self.tickets.iter().any(|tickets| is_wanted(&tickets)) {
                self.tickets
                    .iter()
                    .filter(is_wanted)
                    .for_each(Tickets::look);
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// The right to run a command of a lane, given back on drop.
pub struct Ticket<'e> {
    lanes: &'e Lanes,
    held: Held,
}

/// A ticket that is held, for the command that runs with it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    lane: Lane,
    place: Option<usize>,
}

impl Ticket<'_> {
    /// What its command may give back.
    pub fn held(&self) -> Held {
        self.held
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.lanes.give_back(self.held, place::FREE);
    }
}

thread_local! {
    /// The ticket of the command that runs on this thread.
    static HELD: Cell<Option<Held>> = const { Cell::new(None) };
}

/// Names the ticket of the command that runs on this thread from now on.
pub fn set_held(held: Option<Held>) {
    HELD.set(held);
}

/// Frees tickets of commands that wait for functions.
#[derive(Clone)]
pub struct Sharing(Arc<Lanes>);

impl Sharing {
    /// The command of this thread waits for its function. If another one waits for a ticket and there is none, it gets that of
    /// this command, which goes on without one, unless many do so.
    pub fn share(&self) {
        let Some(held) = HELD.get().filter(|held| held.place.is_some()) else {
            return;
        };
        let tickets = self.0.of(held.lane);
        let is_wanted =
            tickets.waiting.load(Ordering::Relaxed) > 0 && tickets.usual.available_permits() == 0;
        if !is_wanted {
            return;
        }
        if let Ok(permit) = self.0.functions.try_acquire() {
            permit.forget();
            HELD.set(None);
            self.0.give_back(held, place::FUNCTION);
        }
    }
}

/// Runs commands.
pub struct Executor {
    /// The threads.
    pub pool: Pool,
    lanes: Arc<Lanes>,
    watcher: JoinHandle<()>,
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl Executor {
    /// An executor whose tasks use the timers of the runtime that this is called in.
    pub fn new() -> std::io::Result<Executor> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let helpers = 2 * cores.max(2);
        let tickets = |lane: &Lane| lane.tickets() + lane.long_tickets();
        let tickets: usize = Lane::ALL.iter().map(tickets).sum();
        let lanes = Arc::new(Lanes {
            tickets: Lane::ALL.map(Tickets::new),
            functions: Semaphore::new(FUNCTIONS_MAX),
            wanted: Notify::new(),
        });
        let pool = Pool::new(helpers, tickets + WAITING_MAX + FUNCTIONS_MAX + helpers)?;
        let watched = lanes.clone();
        Ok(Executor {
            pool,
            lanes,
            watcher: tokio::spawn(async move { watched.watch().await }),
        })
    }

    /// Frees tickets of commands that wait for functions.
    pub fn sharing(&self) -> Sharing {
        Sharing(self.lanes.clone())
    }

    /// Commands that wait for a ticket of a lane.
    pub fn waiting(&self, lane: Lane) -> usize {
        self.lanes.of(lane).waiting.load(Ordering::Relaxed)
    }

    /// Tickets of a lane that nobody holds.
    pub fn available(&self, lane: Lane) -> usize {
        self.lanes.of(lane).usual.available_permits()
    }

    fn taken(&self, lane: Lane) -> Ticket<'_> {
        let place = self.lanes.of(lane).place();
        Ticket {
            lanes: &self.lanes,
            held: Held { lane, place },
        }
    }

    /// A ticket, if there is one.
    pub fn try_ticket(&self, lane: Lane) -> Option<Ticket<'_>> {
        self.lanes.of(lane).usual.try_acquire().ok()?.forget();
        Some(self.taken(lane))
    }

    /// Waits for a ticket. Those who wait get theirs in their order.
    pub async fn ticket(&self, lane: Lane) -> Option<Ticket<'_>> {
        let tickets = self.lanes.of(lane);
        let _waiting = Waiting::begin(&tickets.waiting);
        self.lanes.wanted.notify_one();
        // It is never closed, so there is one.
        tickets.usual.acquire().await.ok()?.forget();
        Some(self.taken(lane))
    }

    /// Gives a ticket back whose command goes on without it.
    pub fn give_back(&self, held: Held) {
        if held.place.is_some() {
            self.lanes.give_back(held, place::GIVEN_BACK);
        }
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

    #[tokio::test(start_paused = true)]
    async fn long_commands_free_their_tickets_for_those_who_wait() {
        let executor = Executor::new().unwrap();
        let all = Lane::Read.tickets() + Lane::Read.long_tickets();
        let mut held = Vec::new();
        for _ in 0..all {
            held.push(executor.ticket(Lane::Read).await.unwrap());
        }
        let more = tokio::time::timeout(4 * LOOK, executor.ticket(Lane::Read));
        assert!(more.await.is_err(), "their number is bounded");
        assert!(executor.try_ticket(Lane::Write).is_some());
        // One that is given back early is not given back twice.
        executor.give_back(held[0].held());
        let extra = executor.ticket(Lane::Read).await.unwrap();
        drop((held, extra));
        let tickets = executor.lanes.of(Lane::Read);
        assert_eq!(executor.available(Lane::Read), Lane::Read.tickets());
        assert_eq!(tickets.long.available_permits(), Lane::Read.long_tickets());
        assert_eq!(tickets.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn commands_that_wait_for_functions_free_their_tickets_for_those_who_wait() {
        let executor = Executor::new().unwrap();
        let sharing = executor.sharing();
        let all = Lane::Read.tickets() + Lane::Read.long_tickets();
        let mut held = Vec::new();
        for _ in 0..all {
            held.push(executor.ticket(Lane::Read).await.unwrap());
        }
        // As long as no command waits, nothing is given back.
        set_held(Some(held[0].held()));
        sharing.share();
        assert_eq!(executor.available(Lane::Read), 0);
        for shared in 0..FUNCTIONS_MAX {
            let (next, ()) = tokio::join!(executor.ticket(Lane::Read), async {
                tokio::task::yield_now().await;
                set_held(Some(held[shared].held()));
                sharing.share();
                // A second look gives nothing back.
                sharing.share();
            });
            held.push(next.unwrap());
        }
        // Their number is bounded.
        set_held(Some(held[FUNCTIONS_MAX].held()));
        let more = tokio::time::timeout(4 * LOOK, async {
            tokio::join!(executor.ticket(Lane::Read), async {
                tokio::task::yield_now().await;
                sharing.share();
            })
        });
        assert!(more.await.is_err());
        // One that waits for room afterwards is counted there.
        executor.give_back(held[0].held());
        assert_eq!(executor.lanes.functions.available_permits(), 1);
        set_held(None);
        drop(held);
        assert_eq!(executor.available(Lane::Read), Lane::Read.tickets());
        let lanes = &executor.lanes;
        let long = lanes.of(Lane::Read).long.available_permits();
        assert_eq!(long, Lane::Read.long_tickets());
        assert_eq!(lanes.functions.available_permits(), FUNCTIONS_MAX);
    }
}
