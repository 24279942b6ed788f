//! A semaphore with a bank of free permits for each few threads.
//!
//! With a semaphore alone all threads would write to the same cache line twice for each command, and the return of a permit would take
//! a lock. So a thread returns a permit to its bank if no command waits, and takes its next permit from there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use frond_striped::Striped;
use tokio::sync::Semaphore;

use super::Waiting;

pub(super) struct Permits {
    /// Waiting commands get permits only from here, in their order.
    shared: Semaphore,
    /// Free permits. The banks are made when the first permit comes back, because most users run only a few kinds of commands.
    banks: OnceLock<Box<Striped<AtomicUsize>>>,
    waiting: AtomicUsize,
}

/// Takes a permit from a bank.
fn take_one(bank: &AtomicUsize) -> bool {
    // The banks of other threads are usually empty, and a read leaves their cache lines where they are.
    bank.load(Ordering::Relaxed) > 0
        && bank
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |free| {
                free.checked_sub(1)
            })
            .is_ok()
}

impl Permits {
    pub(super) fn new(count: usize) -> Permits {
        Permits {
            shared: Semaphore::new(count),
            banks: OnceLock::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes a permit, if one is free. [`Permits::give_back`] returns it.
    pub(super) fn try_take(&self) -> bool {
        let banks = self.banks.get();
        if banks.is_some_and(|banks| take_one(banks.own())) {
            return true;
        }
        if let Ok(permit) = self.shared.try_acquire() {
            permit.forget();
            return true;
        }
        banks.is_some_and(|banks| banks.iter().any(take_one))
    }

    /// Waits for a permit, and takes it.
    pub(super) async fn take(&self) -> Claim<'_> {
        let _waiting = Waiting::begin(&self.waiting);
        // The thread that returns a permit either has put it into a bank before this, or sees that a command waits.
        self.empty_banks();
        let permit = self.shared.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        Claim(Some(self))
    }

    pub(super) fn give_back(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.shared.add_permits(1);
            return;
        }
        let banks = self.banks.get_or_init(Box::default);
        banks.own().fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.empty_banks();
        }
    }

    fn empty_banks(&self) {
        let banks = self.banks.get().into_iter().flat_map(|banks| banks.iter());
        let free: usize = banks.map(|bank| bank.swap(0, Ordering::SeqCst)).sum();
        if free > 0 {
            self.shared.add_permits(free);
        }
    }

    /// The number of free permits.
    pub(super) fn free(&self) -> usize {
        let banks = self.banks.get().into_iter().flat_map(|banks| banks.iter());
        let banked: usize = banks.map(|bank| bank.load(Ordering::Relaxed)).sum();
        self.shared.available_permits() + banked
    }
}

/// A permit that goes back when this is dropped, unless it is kept.
pub(super) struct Claim<'p>(Option<&'p Permits>);

impl Claim<'_> {
    /// Keeps the permit until [`Permits::give_back`].
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.inspect(|permits| permits.give_back());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_permit_in_the_bank_of_another_thread_is_found() {
        let permits = Permits::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(permits.try_take() && permits.try_take() && !permits.try_take());
                permits.give_back();
                permits.give_back();
            });
        });
        assert_eq!(permits.free(), 2);
        assert!(permits.try_take() && permits.try_take() && !permits.try_take());
    }

    #[tokio::test]
    async fn a_command_that_waits_gets_the_permits_of_all_banks() {
        let permits = Permits::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(permits.try_take());
                permits.give_back();
            });
        });
        permits.take().await.keep();
        assert_eq!(permits.free(), 0);
        // A claim that is dropped returns its permit.
        permits.give_back();
        drop(permits.take().await);
        assert_eq!(permits.free(), 1);
    }

    /// `give_back` checks for waiting commands a second time; otherwise a permit could stay in a bank while a command sleeps.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_command_sleeps_while_a_permit_is_free() {
        const ROUNDS: usize = 20_000;
        let permits = Arc::new(Permits::new(2));
        let tasks = (0..4).map(|_| {
            let permits = permits.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    if !permits.try_take() {
                        permits.take().await.keep();
                    }
                    permits.give_back();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(permits.free(), 2);
        assert_eq!(permits.waiting.load(Ordering::Relaxed), 0);
    }
}
