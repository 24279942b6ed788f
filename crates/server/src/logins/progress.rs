//! The progress of a connection's login.

use std::time::{Duration, Instant};

use frond_auth::scram::ServerConversation;
use frond_auth::{LoginMechanism, UserName};

/// A login that was begun must end within this time, where logins are required.
pub const LOGIN_TIME: Duration = Duration::from_secs(10);

/// This many failed logins close a connection, where logins are required.
pub const FAILURES_MAX: u32 = 5;

/// The longest time that a failed login waits for its reply.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// A login that was begun.
#[derive(Debug)]
pub struct Attempt {
    pub mechanism: LoginMechanism,
    pub user: UserName,
    /// Whether it began in a `hello`.
    pub speculative: bool,
    pub began: Instant,
}

/// A SASL conversation between two messages of the client.
#[derive(Debug)]
pub struct Pending {
    pub attempt: Attempt,
    /// The expected message of the client.
    pub step: Step,
}

/// The message that is expected of a client.
#[derive(Debug)]
pub enum Step {
    /// Its final message of SCRAM.
    Proof {
        conversation: ServerConversation,
        /// The `userId` of the user; or why it cannot log in, for the log.
        user: Result<Option<[u8; 16]>, String>,
        /// Whether the login ends with the proof.
        skips_empty: bool,
    },
    /// An empty message that ends the login of a user with this `userId`, who has proved who it is.
    Empty(Option<[u8; 16]>),
}

/// The progress of a connection's login.
#[derive(Debug, Default)]
pub struct Progress {
    pub pending: Option<Pending>,
    /// The last nonce of `getnonce`, valid for one login.
    pub nonce: Option<String>,
    /// The delay of the reply to a failed login, or to the first message of a login.
    pub delay: Option<Duration>,
    /// Set by too many failed logins: the connection is closed after the reply.
    pub closes: bool,
    /// When the first login of those that were begun, and not ended, has to have ended.
    deadline: Option<Instant>,
    failures: u32,
    /// Whether a login in a `hello` has failed.
    has_speculated: bool,
}

impl Progress {
    pub fn begin(&mut self, now: Instant) {
        self.deadline.get_or_insert(now + LOGIN_TIME);
    }

    /// When the login that was begun has to have ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub fn succeeded(&mut self) {
        *self = Progress::default();
    }

    /// A login failed. The reply waits for `delay`, and twice as long for each further failure.
    pub fn failed(&mut self, delay: Duration) {
        let doubled = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let failures = self.failures.saturating_add(1);
        *self = Progress {
            delay: Some(delay.saturating_mul(doubled).min(DELAY_MAX)),
            closes: failures >= FAILURES_MAX,
            failures,
            has_speculated: self.has_speculated,
            ..Progress::default()
        };
    }

    /// A login in a `hello` failed. The first one is free: the driver goes on with another login, and a driver sends one
    /// `hello` of this kind per connection.
    pub fn speculation_failed(&mut self, delay: Duration) {
        if std::mem::replace(&mut self.has_speculated, true) {
            self.failed(delay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_cost_more_and_more_time() {
        let mut progress = Progress::default();
        let mut delays = Vec::new();
        for _ in 0..FAILURES_MAX {
            assert!(!progress.closes);
            progress.failed(Duration::from_millis(400));
            delays.push(progress.delay.map_or(0, |delay| delay.as_millis()));
        }
        assert_eq!(delays, [400, 800, 1600, 3200, 5000]);
        assert!(progress.closes);
        for _ in 0..100 {
            progress.failed(Duration::from_millis(400));
        }
        assert_eq!(progress.delay, Some(DELAY_MAX));
        progress.succeeded();
        progress.failed(Duration::ZERO);
        assert_eq!(progress.delay, Some(Duration::ZERO));
    }

    #[test]
    fn the_first_failed_speculation_is_free() {
        let mut progress = Progress::default();
        progress.speculation_failed(Duration::from_millis(100));
        assert_eq!((progress.delay, progress.closes), (None, false));
        for _ in 0..FAILURES_MAX {
            assert!(!progress.closes);
            progress.speculation_failed(Duration::from_millis(100));
        }
        assert_eq!(progress.delay, Some(Duration::from_millis(1600)));
        assert!(progress.closes);
    }

    /// A new attempt does not extend the deadline.
    #[test]
    fn the_time_counts_from_the_first_message() {
        let mut progress = Progress::default();
        let now = Instant::now();
        progress.begin(now);
        progress.begin(now + LOGIN_TIME / 2);
        assert_eq!(progress.deadline(), Some(now + LOGIN_TIME));
        progress.failed(Duration::ZERO);
        assert_eq!(progress.deadline(), None);
        progress.begin(now + LOGIN_TIME);
        assert_eq!(progress.deadline(), Some(now + 2 * LOGIN_TIME));
        progress.succeeded();
        assert_eq!(progress.deadline(), None);
    }
}
