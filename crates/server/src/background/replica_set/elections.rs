//! Which member leads: members that cannot be elected do not stand, and a secondary with a higher priority than the primary takes over.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use frond_replica::Part;
use frond_replset::{Candidate, Standing, State, Takeover, takeover};

use crate::host::clock::now_ms;
use crate::replication::{Cause, Member};
use crate::state::Server;

/// The interval of checks.
const CHECK: Duration = Duration::from_millis(250);

/// A member without priority does not stand for election for so long, which is renewed.
const LONG: Duration = Duration::from_secs(3600);

/// A member without priority stands for election once there was no primary for this number of election timeouts. It may be the only
/// member that has everything a majority has. It hands over as soon as another member has caught up.
const TIMEOUTS_WITHOUT_PRIMARY: u32 = 5;

/// The time for another member to catch up with a primary that is to hand over.
pub const HAND_OVER: Duration = Duration::from_secs(5);

/// The state between two checks.
#[derive(Default)]
struct Elections {
    /// Until when this member does not stand because it has no priority.
    held_until: Option<Instant>,
    /// When it takes over from a primary of lower priority.
    takes_over_at: Option<Instant>,
    without_primary_since: Option<Instant>,
}

/// Applies priorities until the server is dropped.
pub async fn apply_priorities(server: Weak<Server>) {
    let mut elections = Elections::default();
    loop {
        let Some(owned) = server.upgrade() else {
            return;
        };
        elections.step(&owned).await;
        drop(owned);
        tokio::time::sleep(CHECK).await;
    }
}

/// The other members, as their heartbeats show them.
pub fn standings(server: &Server, member: &Member) -> Vec<Standing> {
    let Some(set) = &server.set.replication else {
        return Vec::new();
    };
    let timeout = u64::try_from(member.config.settings.heartbeat_timeout_secs).unwrap_or(0);
    let others = member
        .config
        .members
        .iter()
        .filter(|other| Some(other.id) != member.own);
    others
        .map(|other| {
            let heard = set.heartbeats.heard(other.id);
            let applied = heard.report.as_ref().map(|report| report.applied);
            Standing {
                id: other.id,
                state: heard.state(Duration::from_secs(timeout)),
                applied: member.position(applied.unwrap_or_default()).op,
            }
        })
        .collect()
}

impl Elections {
    async fn step(&mut self, server: &Arc<Server>) {
        let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
            return;
        };
        let Some(member) = set.member() else {
            return;
        };
        let Some(own) = member.configured() else {
            return;
        };
        let now = Instant::now();
        if member.primary.is_some() {
            self.without_primary_since = None;
        } else {
            self.without_primary_since.get_or_insert(now);
        }
        let is_late = consensus.delay_secs().is_some();
        let must_hand_over = match consensus.role().part {
            Part::Leader => is_late || (member.is_primary() && !own.is_electable()),
            _ => false,
        };
        if must_hand_over {
            // It leads only to bring the others up to date.
            let _ = consensus.member().transfer(None, HAND_OVER, false).await;
            return;
        }
        let is_electable = own.is_electable() && !is_late;
        self.hold(server, &member, is_electable, now);
        if member.state == State::Secondary && is_electable {
            self.take_over(server, &member, now).await;
        } else {
            self.takes_over_at = None;
        }
    }

    /// Keeps a member without priority from standing for election, unless there is no primary for long.
    fn hold(&mut self, server: &Server, member: &Member, is_electable: bool, now: Instant) {
        let Some(consensus) = server.set.consensus() else {
            return;
        };
        let timeout = u64::try_from(member.config.settings.election_timeout_ms).unwrap_or(0);
        let patience = Duration::from_millis(timeout) * TIMEOUTS_WITHOUT_PRIMARY;
        let is_needed = (self.without_primary_since)
            .is_some_and(|since| now.saturating_duration_since(since) > patience);
        if is_electable || is_needed {
            if self.held_until.take().is_some() {
                consensus.member().freeze(Duration::ZERO);
            }
        } else if self.held_until.is_none_or(|until| now + LONG / 2 > until) {
            self.held_until = Some(now + LONG);
            consensus.member().freeze(LONG);
        }
    }

    /// Stands for election if the primary has a lower priority, after a delay.
    async fn take_over(&mut self, server: &Server, member: &Member, now: Instant) {
        let (Some(set), Some(consensus)) = (&server.set.replication, server.set.consensus()) else {
            return;
        };
        let others = standings(server, member);
        let primary = others
            .iter()
            .find(|other| Some(other.id) == member.primary && other.state == State::Primary);
        let candidate = Candidate {
            config: &member.config,
            own: member.own,
            state: member.state,
            applied: member.position(set.last_write()).op,
            frozen_until_ms: set.frozen_until_ms(),
            now_ms: now_ms(),
        };
        let due = primary
            .and_then(|primary| takeover(&candidate, *primary, &others, false, rand::random()));
        match (due, self.takes_over_at) {
            (Some(Takeover::Priority { delay_ms }), None) => {
                let delay = Duration::from_millis(u64::try_from(delay_ms).unwrap_or(0));
                self.takes_over_at = Some(now + delay);
            }
            (Some(_), Some(at)) if now >= at => {
                self.takes_over_at = None;
                // A primary that cannot hand over keeps its part, and it is tried again.
                let _ = consensus.step_up(Cause::Priority).await;
            }
            (Some(_), Some(_)) => {}
            (Some(Takeover::CatchUp { .. }) | None, _) => self.takes_over_at = None,
        }
    }
}
