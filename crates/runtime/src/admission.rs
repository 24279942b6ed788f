//! The admission of commands, and their execution on the threads of the pool.
//!
//! A command runs on the thread that read its request, one of [`Pool`]. The store is synchronous: a command holds its
//! thread while it reads files or waits for memory. So a command takes a ticket of its admission class first, and waits for
//! it without a thread. There are more threads than tickets: writers that all wait for memory keep no reader waiting, and
//! commands that read memory only, among them `ping`, `currentOp` and `killOp`, need no ticket.
//!
//! Long commands must not keep short ones waiting. While a command waits for a ticket, those that have held theirs for a
//! while exchange it for a ticket of a second, equally large set. A command that only waits for its JavaScript worker process
//! continues without a ticket then. When the second set is in use as well, long reads let others go first ([`yielding`]). And a find by
//! `_id` that finds no ticket takes one of a few others, which only such finds use.
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
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use frond_error::{Error, ErrorCode, Result};
use frond_striped::{STRIPES, stripe};

use crate::pool::{Pool, groups_for};

mod permits;
mod yielding;

use permits::{Claim, Permits};
use yielding::{RETURNING_MAX, YIELDED_MAX};

/// The most commands that wait on their threads for memory, without a ticket.
pub const MEMORY_WAITS_MAX: usize = 128;

/// The expected time for which a command keeps its thread.
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
pub enum AdmissionClass {
    Read,
    Write,
    /// Commands that read or change the catalog, or are a part of maintenance.
    Maintenance,
    /// Statements of transactions that found no ticket of another class: it may be held by writers that wait for
    /// these very transactions.
    Transaction,
    /// Finds by `_id` that found no ticket of another class: it may be held by long reads.
    Lookup,
}

impl AdmissionClass {
    const ALL: [AdmissionClass; 5] = [
        AdmissionClass::Read,
        AdmissionClass::Write,
        AdmissionClass::Maintenance,
        AdmissionClass::Transaction,
        AdmissionClass::Lookup,
    ];

    /// The number of its tickets for commands that turned out to be long.
    pub fn long_tickets(self) -> usize {
        match self {
            AdmissionClass::Read | AdmissionClass::Write | AdmissionClass::Transaction => 80,
            // All of them are long, or none.
            AdmissionClass::Maintenance | AdmissionClass::Lookup => 0,
        }
    }

    /// The number of its tickets.
    pub fn tickets(self) -> usize {
        match self {
            AdmissionClass::Read | AdmissionClass::Write | AdmissionClass::Transaction => 80,
            AdmissionClass::Maintenance => 40,
            AdmissionClass::Lookup => 20,
        }
    }

    /// The number of `tickets` that one user may hold.
    fn of_one_user(tickets: usize) -> usize {
        tickets / 5 * 4
    }

    /// The description in `currentOp` of a wait for a ticket.
    pub fn ticket_name(self) -> &'static str {
        match self {
            AdmissionClass::Read | AdmissionClass::Lookup => "a read ticket",
            AdmissionClass::Write => "a write ticket",
            AdmissionClass::Maintenance => "a maintenance ticket",
            AdmissionClass::Transaction => "a ticket for transactions",
        }
    }
}

/// While a command waits for a ticket, the held tickets are inspected at this interval. A ticket that is held at two inspections
/// belongs to a long command.
const DEMOTE_INTERVAL: Duration = Duration::from_millis(25);

/// Commands that may wait for functions without a ticket at a time.
const FUNCTIONS_MAX: usize = 128;

/// The most tickets of a class that are held, with those of long commands and of those that wait for room for a reply or for a
/// function, or that let others go first.
const SLOTS: usize = 80 + 80 + MEMORY_WAITS_MAX + FUNCTIONS_MAX + YIELDED_MAX;

/// States of a slot.
mod slot {
    pub const FREE: u8 = 0;
    /// A ticket that was taken since the last inspection.
    pub const NEW: u8 = 1;
    /// A ticket that was held at the last inspection.
    pub const SEEN: u8 = 2;
    /// A ticket for long commands.
    pub const LONG: u8 = 3;
    /// The ticket was given back, and its command still runs.
    pub const GIVEN_BACK: u8 = 4;
    /// A ticket was here before its command began to wait for a function.
    pub const FUNCTION: u8 = 5;
    /// The ticket was given back, and its command waits for another one.
    pub const YIELDED: u8 = 6;
}

/// The tickets that one user may hold.
pub struct UserTickets {
    name: UserName,
    classes: [UserClass; AdmissionClass::ALL.len()],
}

/// The tickets of a class that one user may hold.
struct UserClass {
    usual: Permits,
    long: Permits,
}

impl UserTickets {
    fn new(name: &UserName) -> UserTickets {
        UserTickets {
            name: name.clone(),
            classes: AdmissionClass::ALL.map(|class| UserClass {
                usual: Permits::new(AdmissionClass::of_one_user(class.tickets())),
                long: Permits::new(AdmissionClass::of_one_user(class.long_tickets())),
            }),
        }
    }

    pub fn name(&self) -> &UserName {
        &self.name
    }

    fn class(&self, class: AdmissionClass) -> &UserClass {
        let [read, write, maintenance, transaction, lookup] = &self.classes;
        match class {
            AdmissionClass::Read => read,
            AdmissionClass::Write => write,
            AdmissionClass::Maintenance => maintenance,
            AdmissionClass::Transaction => transaction,
            AdmissionClass::Lookup => lookup,
        }
    }
}

/// The user of a command, if there are logins. Each connection has an outer reference of its own, so that the commands of one user's
/// connections do not all write to one reference count.
pub type Owner = Option<Arc<Arc<UserTickets>>>;

/// The tickets of a class.
struct Tickets {
    class: AdmissionClass,
    usual: Permits,
    long: Permits,
    slots: [Slot; SLOTS],
    waiting: AtomicUsize,
}

/// A slot for a ticket that is held, in a cache line of its own.
#[repr(align(64))]
struct Slot {
    state: AtomicU8,
    owner: Mutex<Owner>,
}

impl Slot {
    fn free() -> Slot {
        Slot {
            state: AtomicU8::new(slot::FREE),
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
    fn new(class: AdmissionClass) -> Tickets {
        Tickets {
            class,
            usual: Permits::new(class.tickets()),
            long: Permits::new(class.long_tickets()),
            slots: std::array::from_fn(|_| Slot::free()),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The slot of a ticket that was just taken. None if there is none free: then it is not given back before its end.
    fn slot(&self) -> Option<usize> {
        // Each thread begins its search at another slot, so that it usually gets the slot of its last command, which no other thread
        // writes to.
        let first = stripe() * (SLOTS / STRIPES);
        (first..SLOTS).chain(0..first).find(|at| {
            let slot = &self.slots[*at];
            slot.state.load(Ordering::Relaxed) == slot::FREE && slot.changes(slot::FREE, slot::NEW)
        })
    }

    /// Sets what a slot holds, and gives back the ticket that it held, or the right to wait without one for a function or for others.
    fn give_back(&self, slot: &Slot, then: u8, functions: &Semaphore, yielded: &Semaphore) {
        let mut owner = slot.owner.lock();
        match slot.state.swap(then, Ordering::Relaxed) {
            slot::FREE | slot::GIVEN_BACK => {}
            slot::FUNCTION => functions.add_permits(1),
            slot::YIELDED => yielded.add_permits(1),
            slot::LONG => self.release(owner.take(), |class| &class.long, &self.long),
            _ => self.release(owner.take(), |class| &class.usual, &self.usual),
        }
    }

    fn release(&self, owner: Owner, of_user: fn(&UserClass) -> &Permits, tickets: &Permits) {
        if let Some(owner) = owner {
            of_user(owner.class(self.class)).give_back();
        }
        tickets.give_back();
    }

    /// Moves the tickets of long commands.
    fn demote_long_running(&self) {
        for slot in &self.slots {
            if slot.changes(slot::NEW, slot::SEEN)
                || slot.state.load(Ordering::Relaxed) != slot::SEEN
            {
                continue;
            }
            // Its command cannot give it back meanwhile.
            let owner = slot.owner.lock();
            let of_user = owner.as_ref().map(|owner| owner.class(self.class));
            if !of_user.is_none_or(|class| class.long.try_take()) {
                continue;
            }
            let is_taken = self.long.try_take();
            if is_taken && slot.changes(slot::SEEN, slot::LONG) {
                of_user.inspect(|class| class.usual.give_back());
                self.usual.give_back();
                continue;
            }
            of_user.inspect(|class| class.long.give_back());
            if is_taken {
                self.long.give_back();
            }
        }
    }
}

/// Counts a command that waits.
pub struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    /// Counts one more, until it is dropped.
    pub fn begin(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tickets of all classes.
struct AdmissionClasses {
    tickets: [Tickets; AdmissionClass::ALL.len()],
    /// Rights to wait for a function without a ticket.
    functions: Semaphore,
    /// Rights to wait for another ticket after one was given back, and those of them to queue with new commands.
    yielded: Semaphore,
    returning: Semaphore,
    wanted: Notify,
}

impl AdmissionClasses {
    /// Gives back the ticket in a slot, if it has one.
    fn give_back(&self, held: HeldTicket, then: u8) {
        let tickets = self.tickets(held.class);
        if let Some(slot) = held.slot.and_then(|at| tickets.slots.get(at)) {
            tickets.give_back(slot, then, &self.functions, &self.yielded);
        }
    }

    fn tickets(&self, class: AdmissionClass) -> &Tickets {
        let [read, write, maintenance, transaction, lookup] = &self.tickets;
        match class {
            AdmissionClass::Read => read,
            AdmissionClass::Write => write,
            AdmissionClass::Maintenance => maintenance,
            AdmissionClass::Transaction => transaction,
            AdmissionClass::Lookup => lookup,
        }
    }

    /// Waits for a ticket of a class and of its user.
    async fn wait_for_ticket(&self, class: AdmissionClass, owner: &Owner) {
        let tickets = self.tickets(class);
        let _waiting = Waiting::begin(&tickets.waiting);
        self.wanted.notify_one();
        let of_user = match owner {
            Some(owner) => Some(owner.class(class).usual.take().await),
            None => None,
        };
        tickets.usual.take().await.keep();
        of_user.into_iter().for_each(Claim::keep);
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
                    .for_each(Tickets::demote_long_running);
                tokio::time::sleep(DEMOTE_INTERVAL).await;
            }
        }
    }
}

/// The right to run a command of a class, given back on drop.
pub struct Ticket<'e> {
    classes: &'e AdmissionClasses,
    held: HeldTicket,
    /// The owner of a ticket that has no slot.
    owner: Owner,
}

/// A ticket that is held, for the command that runs with it.
#[derive(Clone, Copy, Debug)]
pub struct HeldTicket {
    class: AdmissionClass,
    slot: Option<usize>,
}

impl Ticket<'_> {
    /// Identifies the ticket to its command, which may give it back.
    pub fn held(&self) -> HeldTicket {
        self.held
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let tickets = self.classes.tickets(self.held.class);
        if self.held.slot.is_some() {
            self.classes.give_back(self.held, slot::FREE);
        } else {
            tickets.release(self.owner.take(), |class| &class.usual, &tickets.usual);
        }
    }
}

thread_local! {
    /// The ticket of the command that runs on this thread.
    static HELD: Cell<Option<HeldTicket>> = const { Cell::new(None) };
}

/// Names the ticket of the command that runs on this thread from now on.
pub fn set_held(held: Option<HeldTicket>) {
    HELD.set(held);
}

/// Frees tickets of commands that wait for functions, or that have run for long.
#[derive(Clone)]
pub struct Sharing(Arc<AdmissionClasses>);

impl Sharing {
    /// The command of this thread waits for its function. If another one waits for a ticket and there is none, it gets that of
    /// this command, which goes on without one, unless many do so.
    pub fn share(&self) {
        let Some(held) = HELD.get().filter(|held| held.slot.is_some()) else {
            return;
        };
        let tickets = self.0.tickets(held.class);
        if tickets.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let has_none = |usual: &Permits| usual.free() == 0;
        let slot = held.slot.and_then(|at| tickets.slots.get(at));
        let of_user = slot.is_some_and(|slot| {
            let owner = slot.owner.lock();
            (owner.as_ref()).is_some_and(|owner| has_none(&owner.class(held.class).usual))
        });
        if !of_user && !has_none(&tickets.usual) {
            return;
        }
        if let Ok(permit) = self.0.functions.try_acquire() {
            permit.forget();
            HELD.set(None);
            self.0.give_back(held, slot::FUNCTION);
        }
    }
}

/// Runs commands on its threads. The tickets limit how many run at once.
pub struct Executor {
    pub pool: Pool,
    classes: Arc<AdmissionClasses>,
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
    /// An executor whose tasks use the timers of the runtime that this is called in. With 0 groups of connections it has as many as
    /// suit the machine.
    pub fn new(groups: usize) -> std::io::Result<Executor> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let groups = if groups == 0 {
            groups_for(cores)
        } else {
            groups
        };
        // Of each group.
        let helpers = (2 * cores.max(2)).div_ceil(groups);
        let tickets = |class: &AdmissionClass| class.tickets() + class.long_tickets();
        let tickets: usize = AdmissionClass::ALL.iter().map(tickets).sum();
        let classes = Arc::new(AdmissionClasses {
            tickets: AdmissionClass::ALL.map(Tickets::new),
            functions: Semaphore::new(FUNCTIONS_MAX),
            yielded: Semaphore::new(YIELDED_MAX),
            returning: Semaphore::new(RETURNING_MAX),
            wanted: Notify::new(),
        });
        let pool = Pool::new(
            groups,
            helpers,
            tickets + MEMORY_WAITS_MAX + FUNCTIONS_MAX + YIELDED_MAX + groups * helpers,
        )?;
        let watched = classes.clone();
        Ok(Executor {
            pool,
            classes,
            users: Mutex::default(),
            watcher: tokio::spawn(async move { watched.watch().await }),
        })
    }

    /// Frees tickets of commands that wait for functions, or that have run for long.
    pub fn sharing(&self) -> Sharing {
        Sharing(self.classes.clone())
    }

    /// Commands that wait for a ticket of a class.
    pub fn waiting(&self, class: AdmissionClass) -> usize {
        self.classes.tickets(class).waiting.load(Ordering::Relaxed)
    }

    /// Free tickets of a class.
    pub fn available(&self, class: AdmissionClass) -> usize {
        self.classes.tickets(class).usual.free()
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

    fn taken(&self, class: AdmissionClass, owner: Owner) -> Ticket<'_> {
        let tickets = self.classes.tickets(class);
        let at = tickets.slot();
        let owner = match at.and_then(|at| tickets.slots.get(at)) {
            Some(slot) => {
                *slot.owner.lock() = owner;
                None
            }
            None => owner,
        };
        Ticket {
            classes: &self.classes,
            held: HeldTicket { class, slot: at },
            owner,
        }
    }

    /// A ticket for a command of `owner`, if there is one.
    pub fn try_ticket(&self, class: AdmissionClass, owner: &Owner) -> Option<Ticket<'_>> {
        let of_user = owner.as_ref().map(|owner| &owner.class(class).usual);
        if !of_user.is_none_or(Permits::try_take) {
            return None;
        }
        if !self.classes.tickets(class).usual.try_take() {
            of_user.inspect(|tickets| tickets.give_back());
            return None;
        }
        Some(self.taken(class, owner.clone()))
    }

    /// Waits for a ticket for a command of `owner`. Waiting commands get tickets in their order.
    pub async fn ticket(&self, class: AdmissionClass, owner: &Owner) -> Ticket<'_> {
        self.classes.wait_for_ticket(class, owner).await;
        self.taken(class, owner.clone())
    }

    /// Gives a ticket back whose command goes on without it.
    pub fn give_back(&self, held: HeldTicket) {
        if held.slot.is_some() {
            self.classes.give_back(held, slot::GIVEN_BACK);
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
        let executor = Executor::new(0).unwrap();
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
        let executor = Executor::new(0).unwrap();
        let held: Vec<_> =
            std::iter::from_fn(|| executor.try_ticket(AdmissionClass::Write, &None)).collect();
        assert_eq!(held.len(), AdmissionClass::Write.tickets());
        assert_eq!(executor.available(AdmissionClass::Write), 0);
        assert!(executor.try_ticket(AdmissionClass::Read, &None).is_some());
        tokio::join!(executor.ticket(AdmissionClass::Write, &None), async {
            tokio::task::yield_now().await;
            drop(held);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn long_commands_free_their_tickets_for_those_who_wait() {
        let executor = Executor::new(0).unwrap();
        let all = AdmissionClass::Read.tickets() + AdmissionClass::Read.long_tickets();
        let mut held = Vec::new();
        for _ in 0..all {
            held.push(executor.ticket(AdmissionClass::Read, &None).await);
        }
        let more = tokio::time::timeout(
            4 * DEMOTE_INTERVAL,
            executor.ticket(AdmissionClass::Read, &None),
        );
        assert!(more.await.is_err(), "their number is bounded");
        assert!(executor.try_ticket(AdmissionClass::Write, &None).is_some());
        // One that is given back early is not given back twice.
        executor.give_back(held[0].held());
        let extra = executor.ticket(AdmissionClass::Read, &None).await;
        drop((held, extra));
        let tickets = executor.classes.tickets(AdmissionClass::Read);
        assert_eq!(
            executor.available(AdmissionClass::Read),
            AdmissionClass::Read.tickets()
        );
        assert_eq!(tickets.long.free(), AdmissionClass::Read.long_tickets());
        assert_eq!(tickets.waiting.load(Ordering::Relaxed), 0);
    }
    #[tokio::test(start_paused = true)]
    async fn one_user_leaves_tickets_for_others() {
        let executor = Executor::new(0).unwrap();
        let user = |name: &str| {
            let name = UserName {
                name: name.to_owned(),
                db: "admin".to_owned(),
            };
            executor.user(&name)
        };
        let greedy = Some(Arc::new(user("greedy")));
        assert!(Arc::ptr_eq(&user("greedy"), greedy.as_ref().unwrap()));
        // First all usual ones, then all that become those of long commands.
        let mut held = Vec::new();
        let limit = AdmissionClass::of_one_user(
            AdmissionClass::Read.tickets() + AdmissionClass::Read.long_tickets(),
        );
        for _ in 0..limit {
            held.push(executor.ticket(AdmissionClass::Read, &greedy).await);
        }
        let more = tokio::time::timeout(
            8 * DEMOTE_INTERVAL,
            executor.ticket(AdmissionClass::Read, &greedy),
        );
        assert!(more.await.is_err(), "their number is bounded");
        assert!(executor.try_ticket(AdmissionClass::Read, &greedy).is_none());
        let other = Some(Arc::new(user("other")));
        let others: Vec<_> =
            std::iter::from_fn(|| executor.try_ticket(AdmissionClass::Read, &other)).collect();
        assert_eq!(others.len(), AdmissionClass::Read.tickets() / 5);
        drop((held, others));
        assert_eq!(
            executor.available(AdmissionClass::Read),
            AdmissionClass::Read.tickets()
        );
        let class = greedy.as_ref().unwrap().class(AdmissionClass::Read);
        let free = (class.usual.free(), class.long.free());
        let usual = AdmissionClass::of_one_user(AdmissionClass::Read.tickets());
        assert_eq!(
            free,
            (
                usual,
                AdmissionClass::of_one_user(AdmissionClass::Read.long_tickets())
            )
        );
        drop((greedy, other));
        user("third");
        assert_eq!(executor.users.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn commands_that_wait_for_functions_free_their_tickets_for_those_who_wait() {
        let executor = Executor::new(0).unwrap();
        let sharing = executor.sharing();
        let all = AdmissionClass::Read.tickets() + AdmissionClass::Read.long_tickets();
        let mut held = Vec::new();
        for _ in 0..all {
            held.push(executor.ticket(AdmissionClass::Read, &None).await);
        }
        // As long as no command waits, nothing is given back.
        set_held(Some(held[0].held()));
        sharing.share();
        assert_eq!(executor.available(AdmissionClass::Read), 0);
        for shared in 0..FUNCTIONS_MAX {
            let (next, ()) = tokio::join!(executor.ticket(AdmissionClass::Read, &None), async {
                tokio::task::yield_now().await;
                set_held(Some(held[shared].held()));
                sharing.share();
                // A second look gives nothing back.
                sharing.share();
            });
            held.push(next);
        }
        // Their number is bounded.
        set_held(Some(held[FUNCTIONS_MAX].held()));
        let more = tokio::time::timeout(4 * DEMOTE_INTERVAL, async {
            tokio::join!(executor.ticket(AdmissionClass::Read, &None), async {
                tokio::task::yield_now().await;
                sharing.share();
            })
        });
        assert!(more.await.is_err());
        // One that waits for room afterwards is counted there.
        executor.give_back(held[0].held());
        assert_eq!(executor.classes.functions.available_permits(), 1);
        set_held(None);
        drop(held);
        assert_eq!(
            executor.available(AdmissionClass::Read),
            AdmissionClass::Read.tickets()
        );
        let classes = &executor.classes;
        let long = classes.tickets(AdmissionClass::Read).long.free();
        assert_eq!(long, AdmissionClass::Read.long_tickets());
        assert_eq!(classes.functions.available_permits(), FUNCTIONS_MAX);
    }
}
