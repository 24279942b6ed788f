//! Settings of a member.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

use crate::{Error, Result};

/// Settings of a member. All members of a set should have the same times.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of the member, for ever: a member with this number that has lost its log and its vote is another member.
    pub id: u64,
    /// About the time without a leader after which another member is elected. A leader that reaches no majority for this time
    /// accepts no more commits.
    pub election_timeout: Duration,
    /// The time between two messages of a leader that has nothing to say.
    pub heartbeat_interval: Duration,
    /// Whether a member that wants to stand for election first finds out whether it could win. Without it, a member that was cut off
    /// forces an election when it returns.
    pub pre_vote: bool,
    /// About the largest size of a message with entries. A single entry may be larger.
    pub batch_bytes: usize,
    /// Messages with entries that may be on their way to one member.
    pub batches_in_flight: usize,
}

impl Settings {
    /// Settings with defaults, for the member `id`.
    ///
    /// A leader is missed for one second before another member leads. Most elections take one more round trip. Heartbeats are five times
    /// as frequent, so that one or two may be lost.
    #[must_use]
    pub fn new(id: u64) -> Settings {
        Settings {
            id,
            election_timeout: Duration::from_secs(1),
            heartbeat_interval: Duration::from_millis(200),
            pre_vote: true,
            batch_bytes: 4 << 20,
            batches_in_flight: 4,
        }
    }

    /// The configuration of `openraft`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the times contradict each other.
    pub(crate) fn config(&self) -> Result<Config> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX >> 8);
        // `openraft` asks for votes after a time between these, and members refuse for the longer one after the last message of a
        // leader. So the first round mostly fails, and the second one comes after about the election timeout.
        let timeout = millis(self.election_timeout);
        let timeout_min = timeout / 100 * 45;
        let timeout_max = (timeout / 100 * 60).max(timeout_min + 1);
        if self.batch_bytes == 0 || self.batches_in_flight == 0 {
            return Err(Error::Invalid(
                "batches must have a size and a number".to_owned(),
            ));
        }
        let config = Config {
            cluster_name: String::new(),
            election_timeout_min: timeout_min,
            election_timeout_max: timeout_max,
            heartbeat_interval: millis(self.heartbeat_interval),
            install_snapshot_timeout: timeout_max,
            // The size of a message is limited in bytes, where the log is read.
            max_payload_entries: 4096,
            // The host decides what is removed from the log: `Member::purge`.
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            purge_batch_size: 1,
            enable_pre_vote: Some(self.pre_vote),
            // A leader that was restarted may have lost entries which it had sent in its term, and would use their numbers again.
            enable_leader_restore: Some(false),
            // A follower whose log is shorter than it has said has lost its disk. It must not be counted.
            allow_log_reversion: Some(false),
            // A leader that gets no answers pauses its heartbeats, so that members which still receive them can elect another one.
            quorum_loss_probe_interval: Some(timeout_max.saturating_mul(3)),
            broadcast_submitted_on_append: Some(true),
            ..Config::default()
        };
        config
            .validate()
            .map_err(|error| Error::Invalid(error.to_string()))
    }
}
