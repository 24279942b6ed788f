//! Slows down guesses of passwords over HTTP, where each request is a separate login.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use hyper::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use frond_http::{Refusal, network};

/// Logins of an account from an address that may fail without a pause.
const FREE_OF_ACCOUNT: u32 = 10;

/// Logins of all accounts from an address that may fail without a pause.
const FREE_OF_ADDRESS: u32 = 50;

const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Failures are forgotten after this time without another one.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Addresses, and accounts of an address, that are remembered.
const ENTRIES_MAX: usize = 8192;

/// The hash of an account at an address, or of an address alone.
type Key = u64;

/// Failed logins by address, and by address and account.
#[derive(Default)]
pub struct LoginThrottle {
    hasher: RandomState,
    failures: Mutex<HashMap<Key, Failures>>,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    /// No further login is tried before.
    until: Instant,
    last: Instant,
}

/// A login that is being tried. It counts as failed until it has succeeded, so that one who does not wait for the answer, or tries many
/// at once, gains nothing.
pub struct Attempt {
    account: Key,
    address: Key,
}

impl LoginThrottle {
    /// A login begins. `pause` is that after the first failure that is not free; each further one doubles it. Zero turns this off.
    ///
    /// # Errors
    /// A refusal while the account, or all accounts, must wait at this address.
    pub fn begin(
        &self,
        address: IpAddr,
        user: &str,
        db: &str,
        pause: Duration,
    ) -> Result<Attempt, Refusal> {
        let address = network(address);
        let attempt = Attempt {
            account: self.hasher.hash_one((address, Some((user, db)))),
            address: self.hasher.hash_one((address, None::<(&str, &str)>)),
        };
        if pause.is_zero() {
            return Ok(attempt);
        }
        let now = Instant::now();
        let mut all = self.failures.lock();
        let keys = [
            (attempt.account, FREE_OF_ACCOUNT),
            (attempt.address, FREE_OF_ADDRESS),
        ];
        let known = keys.iter().filter_map(|(key, _)| all.get(key));
        if let Some(until) = known.map(|one| one.until).max()
            && until > now
        {
            return Err(must_wait(until - now));
        }
        make_room(&mut all, now);
        for (key, free) in keys {
            let one = all.entry(key).or_insert(Failures {
                count: 0,
                until: now,
                last: now,
            });
            if now.duration_since(one.last) >= MEMORY {
                one.count = 0;
            }
            one.count = one.count.saturating_add(1);
            one.last = now;
            if let Some(more) = one.count.checked_sub(free + 1) {
                let doubled = 1u32.checked_shl(more).unwrap_or(u32::MAX);
                one.until = now + pause.saturating_mul(doubled).min(PAUSE_MAX);
            }
        }
        Ok(attempt)
    }

    /// A login has succeeded: its account may go on at once.
    pub fn succeeded(&self, attempt: &Attempt) {
        let mut all = self.failures.lock();
        all.remove(&attempt.account);
        if let Some(address) = all.get_mut(&attempt.address) {
            address.count = address.count.saturating_sub(1);
            address.until = address.last;
        }
    }
}

/// Forgets what is old, and, if that is not enough, the older half.
fn make_room(all: &mut HashMap<Key, Failures>, now: Instant) {
    if all.len() + 2 <= ENTRIES_MAX {
        return;
    }
    all.retain(|_, one| now.duration_since(one.last) < MEMORY);
    if all.len() + 2 > ENTRIES_MAX {
        let mut times: Vec<Instant> = all.values().map(|one| one.last).collect();
        let (_, median, _) = times.select_nth_unstable(ENTRIES_MAX / 2);
        let median = *median;
        all.retain(|_, one| one.last > median);
    }
}

fn must_wait(time: Duration) -> Refusal {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let text = format!("too many logins have failed; try again in {seconds} s");
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(seconds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_at_an_account_become_slow() {
        let throttle = LoginThrottle::default();
        let guess = |user: &str, from: u8| throttle.begin(address(from), user, "admin", PAUSE);
        let began = Instant::now();
        let mut guesses = 0;
        // The client sends its guesses without waiting for answers.
        while began.elapsed() < Duration::from_secs(60) {
            guesses += u32::from(guess("ann", 1).is_ok());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!((20..=30).contains(&guesses), "{guesses}");
        assert!(guess("ann", 1).is_err());
        // Others are not affected: another account, another address.
        assert!(guess("bob", 1).is_ok() && guess("ann", 2).is_ok());
        tokio::time::advance(PAUSE_MAX).await;
        let attempt = guess("ann", 1).unwrap();
        throttle.succeeded(&attempt);
        for _ in 0..FREE_OF_ACCOUNT {
            assert!(guess("ann", 1).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_at_many_accounts_become_slow() {
        let throttle = LoginThrottle::default();
        let began = Instant::now();
        let (mut guesses, mut user) = (0, 0);
        while began.elapsed() < Duration::from_secs(60) {
            user += 1;
            let guess = throttle.begin(address(1), &user.to_string(), "admin", PAUSE);
            guesses += u32::from(guess.is_ok());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!((60..=70).contains(&guesses), "{guesses}");
        assert!(throttle.begin(address(2), "1", "admin", PAUSE).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_that_succeed_are_never_slow() {
        let throttle = LoginThrottle::default();
        for _ in 0..1000 {
            let attempt = throttle.begin(address(1), "ann", "admin", PAUSE).unwrap();
            throttle.succeeded(&attempt);
        }
        // Without a delay of failed logins there is none here.
        for _ in 0..1000 {
            assert!(
                throttle
                    .begin(address(1), "bob", "admin", Duration::ZERO)
                    .is_ok()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_failures_are_forgotten() {
        let throttle = LoginThrottle::default();
        for n in 0..3 * ENTRIES_MAX as u32 {
            let [_, a, b, c] = n.to_be_bytes();
            let from = IpAddr::from([10, a, b, c]);
            let _ = throttle.begin(from, "ann", "admin", PAUSE);
            tokio::time::advance(Duration::from_micros(10)).await;
        }
        assert!(throttle.failures.lock().len() <= ENTRIES_MAX);
        for _ in 0..20 {
            let _ = throttle.begin(address(1), "ann", "admin", PAUSE);
        }
        assert!(throttle.begin(address(1), "ann", "admin", PAUSE).is_err());
        tokio::time::advance(MEMORY).await;
        for _ in 0..FREE_OF_ACCOUNT {
            assert!(throttle.begin(address(1), "ann", "admin", PAUSE).is_ok());
        }
    }
}
