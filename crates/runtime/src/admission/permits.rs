//! Permits of which each thread keeps some that are free.
//!
//! All threads write to a semaphore, twice for each command, and a permit that comes back takes the semaphore's lock. So a permit
//! that no command waits for goes to a bank of the thread that gives it back, and the next command of this thread takes it
//! from there.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use frond_striped::Striped;
use tokio::sync::Semaphore;

use super::Waiting;

pub(super) struct Permits {
    /// Commands that wait get permits from it only, in their order.
    shared: Semaphore,
    /// Free permits. Made when the first one comes back: most users have only a few commands, of few kinds.
    banks: OnceLock<Box<Striped<AtomicUsize>>>,
    waiting: AtomicUsize,
}

/// Takes one of a bank.
fn take_one(bank: &AtomicUsize) -> bool {
    // A bank of another thread is usually empty, and reading it does not take its cache line away.
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
        // A permit that is given back meanwhile is either in a bank by now, or finds that a command waits.
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
    /// Leaves it to [`Permits::give_back`].
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
        // One whose command does not want it any more.
        permits.give_back();
        drop(permits.take().await);
        assert_eq!(permits.free(), 1);
    }

    /// Without the second look at those who wait, a permit could lie in a bank while a command sleeps.
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
