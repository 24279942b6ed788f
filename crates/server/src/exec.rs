//! Where commands run, and how many at once.
//!
//! A command runs on the thread that read its request, one of [`Pool`]. The store is synchronous: a command holds its
//! thread while it reads files or waits for room in memory. So a command takes a ticket of its lane first, and waits for
//! it without a thread. There are more threads than tickets: writers that all wait for room keep no reader waiting, and
//! commands that read memory only, among them `ping`, `currentOp` and `killOp`, need no ticket.
//!
//! Long commands must not keep short ones waiting. While a command waits for a ticket, those that have held theirs for a
//! while get another kind of ticket, of which there are as many, and release their own. A command that only waits for the process
//! that runs its function of JavaScript goes on without any ticket then.
//!
//! One user's commands must not keep those of others waiting: a fifth of the tickets of each kind is left to other users. Without
//! logins all commands are those of one user, who may have all tickets.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use frond_auth::UserName;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
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
            Lane::Read | Lane::Write | Lane::Transaction => 80,
            // They all are.
            Lane::Maintenance => 0,
        }
    }

    /// The number of its tickets.
    pub fn tickets(self) -> usize {
        match self {
            Lane::Read | Lane::Write | Lane::Transaction => 80,
            Lane::Maintenance => 40,
        }
    }

    /// The number of `tickets` that one user may hold.
    fn of_one_user(tickets: usize) -> usize {
        tickets / 5 * 4
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
const PLACES: usize = 80 + 80 + WAITING_MAX + FUNCTIONS_MAX;

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

/// The tickets that one user may hold.
pub struct UserTickets {
    name: UserName,
    lanes: [UserLane; Lane::ALL.len()],
}

/// The tickets of a lane that one user may hold.
struct UserLane {
    usual: Semaphore,
    long: Semaphore,
}

impl UserTickets {
    fn new(name: &UserName) -> UserTickets {
        UserTickets {
            name: name.clone(),
            lanes: Lane::ALL.map(|lane| UserLane {
                usual: Semaphore::new(Lane::of_one_user(lane.tickets())),
                long: Semaphore::new(Lane::of_one_user(lane.long_tickets())),
            }),
        }
    }

    /// The user.
    pub fn name(&self) -> &UserName {
        &self.name
    }

    fn of(&self, lane: Lane) -> &UserLane {
        let [read, write, maintenance, transaction] = &self.lanes;
        match lane {
            Lane::Read => read,
            Lane::Write => write,
            Lane::Maintenance => maintenance,
            Lane::Transaction => transaction,
        }
    }
}

/// The user of a command, if there are logins.
pub type Owner = Option<Arc<UserTickets>>;

/// Takes a ticket for good, if there is one.
fn try_take(tickets: &Semaphore) -> bool {
    match tickets.try_acquire() {
        Ok(permit) => {
            permit.forget();
            true
        }
        Err(_) => false,
    }
}

/// The tickets of a lane.
struct Tickets {
    lane: Lane,
    usual: Semaphore,
    long: Semaphore,
    places: [Place; PLACES],
    waiting: AtomicUsize,
}

/// A place for a ticket that is held.
struct Place {
    state: AtomicU8,
    owner: Mutex<Owner>,
}

impl Place {
    fn free() -> Place {
        Place {
            state: AtomicU8::new(place::FREE),
            owner: Mutex::new(None),
        }
    }

    fn changes(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

impl Tickets {
    fn new(lane: Lane) -> Tickets {
        Tickets {
            lane,
            usual: Semaphore::new(lane.tickets()),
            long: Semaphore::new(lane.long_tickets()),
            places: std::array::from_fn(|_| Place::free()),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The place of a ticket that was just taken. None if there is none free: then it is not given back before its end.
    fn place(&self) -> Option<usize> {
        self.places.iter().position(|place| {
            place.state.load(Ordering::Relaxed) == place::FREE
                && place.changes(place::FREE, place::NEW)
        })
    }

    /// Sets what a place holds, and gives back the ticket that it held, or the right to wait for a function without one.
    fn give_back(&self, place: &Place, then: u8, functions: &Semaphore) {
        let mut owner = place.owner.lock();
        match place.state.swap(then, Ordering::Relaxed) {
            place::FREE | place::GIVEN_BACK => {}
            place::FUNCTION => functions.add_permits(1),
            place::LONG => self.release(owner.take(), |lane| &lane.long, &self.long),
            _ => self.release(owner.take(), |lane| &lane.usual, &self.usual),
        }
    }

    fn release(&self, owner: Owner, of_user: fn(&UserLane) -> &Semaphore, tickets: &Semaphore) {
        if let Some(owner) = owner {
            of_user(owner.of(self.lane)).add_permits(1);
        }
        tickets.add_permits(1);
    }

    /// Moves the tickets of long commands.
    fn look(&self) {
        for place in &self.places {
            if place.changes(place::NEW, place::SEEN)
                || place.state.load(Ordering::Relaxed) != place::SEEN
            {
                continue;
            }
            // Its command cannot give it back meanwhile.
            let owner = place.owner.lock();
            let of_user = owner.as_ref().map(|owner| owner.of(self.lane));
            if !of_user.is_none_or(|lane| try_take(&lane.long)) {
                continue;
            }
            let is_taken = try_take(&self.long);
            if is_taken && place.changes(place::SEEN, place::LONG) {
                of_user.inspect(|lane| lane.usual.add_permits(1));
                self.usual.add_permits(1);
                continue;
            }
            of_user.inspect(|lane| lane.long.add_permits(1));
            if is_taken {
                self.long.add_permits(1);
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
    /// Gives back the ticket in a place, if it has one.
    fn give_back(&self, held: Held, then: u8) {
        let tickets = self.of(held.lane);
        if let Some(place) = held.place.and_then(|at| tickets.places.get(at)) {
            tickets.give_back(place, then, &self.functions);
        }
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
    /// The owner of a ticket that has no place.
    owner: Owner,
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
        let tickets = self.lanes.of(self.held.lane);
        if self.held.place.is_some() {
            self.lanes.give_back(self.held, place::FREE);
        } else {
            tickets.release(self.owner.take(), |lane| &lane.usual, &tickets.usual);
        }
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
        if tickets.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let has_none = |usual: &Semaphore| usual.available_permits() == 0;
        let place = held.place.and_then(|at| tickets.places.get(at));
        let of_user = place.is_some_and(|place| {
            let owner = place.owner.lock();
            (owner.as_ref()).is_some_and(|owner| has_none(&owner.of(held.lane).usual))
        });
        if !of_user && !has_none(&tickets.usual) {
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
    /// Those of the users whose connections are open.
    users: Mutex<HashMap<UserName, Weak<UserTickets>>>,
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
            users: Mutex::default(),
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

    /// The tickets of a user.
    pub fn user(&self, name: &UserName) -> Arc<UserTickets> {
        let mut users = self.users.lock();
        if let Some(known) = users.get(name).and_then(Weak::upgrade) {
            return known;
        }
        users.retain(|_, user| user.strong_count() > 0);
        let user = Arc::new(UserTickets::new(name));
        users.insert(name.clone(), Arc::downgrade(&user));
        user
    }

    fn taken(&self, lane: Lane, owner: Owner) -> Ticket<'_> {
        let tickets = self.lanes.of(lane);
        let at = tickets.place();
        let owner = match at.and_then(|at| tickets.places.get(at)) {
            Some(place) => {
                *place.owner.lock() = owner;
                None
            }
            None => owner,
        };
        Ticket {
            lanes: &self.lanes,
            held: Held { lane, place: at },
            owner,
        }
    }

    /// A ticket for a command of `owner`, if there is one.
    pub fn try_ticket(&self, lane: Lane, owner: &Owner) -> Option<Ticket<'_>> {
        let of_user = owner.as_ref().map(|owner| &owner.of(lane).usual);
        if !of_user.is_none_or(try_take) {
            return None;
        }
        if !try_take(&self.lanes.of(lane).usual) {
            of_user.inspect(|tickets| tickets.add_permits(1));
            return None;
        }
        Some(self.taken(lane, owner.clone()))
    }

    /// Waits for a ticket for a command of `owner`. Those who wait get theirs in their order.
    pub async fn ticket(&self, lane: Lane, owner: &Owner) -> Option<Ticket<'_>> {
        let tickets = self.lanes.of(lane);
        let _waiting = Waiting::begin(&tickets.waiting);
        self.lanes.wanted.notify_one();
        // They are never closed, so there is one.
        let of_user = match owner {
            Some(owner) => Some(owner.of(lane).usual.acquire().await.ok()?),
            None => None,
        };
        tickets.usual.acquire().await.ok()?.forget();
        of_user.into_iter().for_each(SemaphorePermit::forget);
        Some(self.taken(lane, owner.clone()))
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
        let held: Vec<_> = std::iter::from_fn(|| executor.try_ticket(Lane::Write, &None)).collect();
        assert_eq!(held.len(), Lane::Write.tickets());
        assert_eq!(executor.available(Lane::Write), 0);
        assert!(executor.try_ticket(Lane::Read, &None).is_some());
        let (next, ()) = tokio::join!(executor.ticket(Lane::Write, &None), async {
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
            held.push(executor.ticket(Lane::Read, &None).await.unwrap());
        }
        let more = tokio::time::timeout(4 * LOOK, executor.ticket(Lane::Read, &None));
        assert!(more.await.is_err(), "their number is bounded");
        assert!(executor.try_ticket(Lane::Write, &None).is_some());
        // One that is given back early is not given back twice.
        executor.give_back(held[0].held());
        let extra = executor.ticket(Lane::Read, &None).await.unwrap();
        drop((held, extra));
        let tickets = executor.lanes.of(Lane::Read);
        assert_eq!(executor.available(Lane::Read), Lane::Read.tickets());
        assert_eq!(tickets.long.available_permits(), Lane::Read.long_tickets());
        assert_eq!(tickets.waiting.load(Ordering::Relaxed), 0);
    }
    #[tokio::test(start_paused = true)]
    async fn one_user_leaves_tickets_for_others() {
        let executor = Executor::new().unwrap();
        let name = |name: &str| UserName {
            name: name.to_owned(),
            db: "admin".to_owned(),
        };
        let greedy = Some(executor.user(&name("greedy")));
        assert!(Arc::ptr_eq(
            &executor.user(&name("greedy")),
            greedy.as_ref().unwrap()
        ));
        // First all usual ones, then all that become those of long commands.
        let mut held = Vec::new();
        let limit = Lane::of_one_user(Lane::Read.tickets() + Lane::Read.long_tickets());
        for _ in 0..limit {
            held.push(executor.ticket(Lane::Read, &greedy).await.unwrap());
        }
        let more = tokio::time::timeout(8 * LOOK, executor.ticket(Lane::Read, &greedy));
        assert!(more.await.is_err(), "their number is bounded");
        assert!(executor.try_ticket(Lane::Read, &greedy).is_none());
        let other = Some(executor.user(&name("other")));
        let others: Vec<_> =
            std::iter::from_fn(|| executor.try_ticket(Lane::Read, &other)).collect();
        assert_eq!(others.len(), Lane::Read.tickets() / 5);
        drop((held, others));
        assert_eq!(executor.available(Lane::Read), Lane::Read.tickets());
        let lane = greedy.as_ref().unwrap().of(Lane::Read);
        let free = (
            lane.usual.available_permits(),
            lane.long.available_permits(),
        );
        let usual = Lane::of_one_user(Lane::Read.tickets());
        assert_eq!(free, (usual, Lane::of_one_user(Lane::Read.long_tickets())));
        drop((greedy, other));
        executor.user(&name("third"));
        assert_eq!(executor.users.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn commands_that_wait_for_functions_free_their_tickets_for_those_who_wait() {
        let executor = Executor::new().unwrap();
        let sharing = executor.sharing();
        let all = Lane::Read.tickets() + Lane::Read.long_tickets();
        let mut held = Vec::new();
        for _ in 0..all {
            held.push(executor.ticket(Lane::Read, &None).await.unwrap());
        }
        // As long as no command waits, nothing is given back.
        set_held(Some(held[0].held()));
        sharing.share();
        assert_eq!(executor.available(Lane::Read), 0);
        for shared in 0..FUNCTIONS_MAX {
            let (next, ()) = tokio::join!(executor.ticket(Lane::Read, &None), async {
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
            tokio::join!(executor.ticket(Lane::Read, &None), async {
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
