//! Long reads let other commands go first.
//!
//! There are fewer tickets than clients may run long reads at once. So a read that has held its ticket for a while gives it back when
//! others wait for one, at a point where it holds nothing that these need, and waits for another ticket on its thread. Of the reads
//! that wait in this way, only the first few queue among the new commands; the others wait behind them. So a short command waits for
//! few long ones, and each long one gets on.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::permits::Permits;
use super::{AdmissionClass, AdmissionClasses, HELD, Owner, Sharing, slot};

/// Reads that may wait on their threads to go on.
pub(super) const YIELDED_MAX: usize = 128;

/// The number of them that queue for tickets among new commands.
pub(super) const RETURNING_MAX: usize = 2;

/// The interval at which a read that waits checks for an interruption.
const CHECK: Duration = Duration::from_millis(10);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

/// Waits on this thread for a future, unless `check` fails.
fn block_on<T, E>(
    future: impl Future<Output = T>,
    check: &mut impl FnMut() -> Result<(), E>,
) -> Result<T, E> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        check()?;
        thread::park_timeout(CHECK);
    }
}

fn is_free(tickets: &Permits) -> bool {
    tickets.free() > 0
}

impl Sharing {
    /// The read of this thread gives its ticket back, and returns with another one, if it has run for long and others wait. `check` is
    /// called while it waits.
    ///
    /// # Errors
    /// Those of `check`. The command has to end then.
    pub fn let_others_go_first<E>(
        &self,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(held) = HELD.get().filter(|held| held.class == AdmissionClass::Read) else {
            return Ok(());
        };
        let classes = &*self.0;
        let tickets = classes.tickets(held.class);
        if tickets.waiting.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let Some(own) = held.slot.and_then(|at| tickets.slots.get(at)) else {
            return Ok(());
        };
        if own.state.load(Ordering::Relaxed) != slot::SEEN {
            return Ok(());
        }
        let owner = own.owner.lock().clone();
        let of_user = owner.as_ref().map(|owner| owner.class(held.class));
        // It is about to become one for long commands.
        if is_free(&tickets.long) && of_user.is_none_or(|class| is_free(&class.long)) {
            return Ok(());
        }
        if is_free(&tickets.usual) && of_user.is_none_or(|class| is_free(&class.usual)) {
            return Ok(());
        }
        let Ok(yielded) = classes.yielded.try_acquire() else {
            return Ok(());
        };
        yielded.forget();
        classes.give_back(held, slot::YIELDED);
        // If it fails, the end of the command finds the slot as it is.
        block_on(classes.take_again(held.class, &owner), &mut check)?;
        *own.owner.lock() = owner;
        own.state.store(slot::NEW, Ordering::Relaxed);
        classes.yielded.add_permits(1);
        Ok(())
    }
}

impl AdmissionClasses {
    /// Takes a ticket for a read that has given its own back.
    async fn take_again(&self, class: AdmissionClass, owner: &Owner) {
        let _returning = self.returning.acquire().await;
        self.wait_for_ticket(class, owner).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::sync::mpsc::channel;

    use super::super::{Executor, Ticket, set_held};
    use super::*;
    use crate::waiting::wait_until;

    const READ: AdmissionClass = AdmissionClass::Read;

    /// Takes all read tickets, those for long commands included, for long commands.
    async fn hold_all(executor: &Executor) -> Vec<Ticket<'_>> {
        let mut held = Vec::new();
        for _ in 0..READ.tickets() + READ.long_tickets() {
            held.push(executor.ticket(READ, &None).await);
        }
        // A command that waits for nothing makes the watcher look at all of them.
        while executor.classes.tickets(READ).slots.iter().any(|slot| {
            let state = slot.state.load(Ordering::Relaxed);
            state != slot::SEEN && state != slot::LONG && state != slot::FREE
        }) {
            let more = executor.ticket(READ, &None);
            let more = tokio::time::timeout(Duration::from_millis(20), more).await;
            assert!(more.is_err());
        }
        held
    }

    fn usual<'t, 'e>(held: &'t [Ticket<'e>]) -> Vec<&'t Ticket<'e>> {
        held.iter()
            .filter(|ticket| {
                let slots = &ticket.classes.tickets(READ).slots;
                let state = slots[ticket.held.slot.unwrap()]
                    .state
                    .load(Ordering::Relaxed);
                state == slot::SEEN
            })
            .collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_read_gives_its_ticket_to_a_command_that_waits_and_gets_another_one() {
        let executor = Executor::new(0).unwrap();
        let held = hold_all(&executor).await;
        let long = usual(&held)[0].held();
        let sharing = executor.sharing();
        // As long as no command waits, it keeps its ticket.
        set_held(Some(long));
        sharing.let_others_go_first(|| Err(())).unwrap();
        set_held(None);
        std::thread::scope(|scope| {
            let (told, may_end) = channel();
            let reading = scope.spawn({
                let sharing = sharing.clone();
                move || {
                    set_held(Some(long));
                    let waits = AtomicUsize::new(0);
                    // Until the other command waits.
                    while waits.load(Ordering::Relaxed) == 0 {
                        let check = || {
                            if waits.fetch_add(1, Ordering::Relaxed) == 0 {
                                told.send(()).unwrap();
                            }
                            Ok::<(), ()>(())
                        };
                        sharing.let_others_go_first(check).unwrap();
                        std::thread::yield_now();
                    }
                }
            });
            let short = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(executor.ticket(READ, &None))
            });
            may_end.recv().unwrap();
            assert!(!reading.is_finished(), "it waits for the ticket");
            drop(short);
            reading.join().unwrap();
        });
        drop(held);
        assert_eq!(executor.available(READ), READ.tickets());
        let classes = &executor.classes;
        assert_eq!(classes.yielded.available_permits(), YIELDED_MAX);
        assert_eq!(classes.returning.available_permits(), RETURNING_MAX);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_read_that_waits_to_go_on_can_be_interrupted() {
        let executor = Executor::new(0).unwrap();
        let held = hold_all(&executor).await;
        let long = usual(&held)[0].held();
        let sharing = executor.sharing();
        let waiting = executor.ticket(READ, &None);
        let interrupted = std::thread::spawn(move || {
            set_held(Some(long));
            loop {
                if sharing.let_others_go_first(|| Err("killed")).is_err() {
                    return;
                }
                std::thread::yield_now();
            }
        });
        // It keeps the ticket of the read, which has none at its end.
        let short = waiting.await;
        interrupted.join().unwrap();
        drop((held, short));
        assert_eq!(executor.available(READ), READ.tickets());
        assert_eq!(executor.classes.yielded.available_permits(), YIELDED_MAX);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_the_reads_that_wait_to_go_on_few_queue_before_new_commands() {
        const READS: usize = 10;
        let executor = Executor::new(0).unwrap();
        let held = hold_all(&executor).await;
        let all: Vec<_> = usual(&held).iter().map(|ticket| ticket.held()).collect();
        let (sharing, classes) = (executor.sharing(), &executor.classes);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for read in all.iter().take(READS) {
                scope.spawn(|| {
                    set_held(Some(*read));
                    while !stop.load(Ordering::Relaxed) {
                        sharing.let_others_go_first(|| Ok::<(), ()>(())).unwrap();
                        std::thread::yield_now();
                    }
                });
            }
            let handle = tokio::runtime::Handle::current();
            let others: Vec<_> = (0..READS)
                .map(|_| {
                    let ticket = executor.ticket(READ, &None);
                    tokio::task::block_in_place(|| handle.block_on(ticket))
                })
                .collect();
            wait_until("reads that wait", || {
                classes.yielded.available_permits() == YIELDED_MAX - READS
                    && executor.waiting(READ) == RETURNING_MAX
            });
            drop(others);
            wait_until("reads that go on", || executor.waiting(READ) == 0);
            stop.store(true, Ordering::Relaxed);
        });
        drop(held);
        assert_eq!(executor.available(READ), READ.tickets());
        assert_eq!(classes.yielded.available_permits(), YIELDED_MAX);
    }
}
