//! A member that applies entries late, because its server wants to show the state of an earlier time.
//!
//! [`Host::apply_limit`](crate::Host::apply_limit) decides by the member's own [`Peer`](crate::Peer) in the members that consensus has now,
//! also those that are not committed yet. So the delay does not depend on what is in the trees, which are old.
//!
//! # Invariants
//! 1. For the core of consensus an entry is applied once it is committed. It waits in the log, and the core keeps one identifier of
//!    it. Whoever needs to know what is in the trees, such as the purge of the log, reads [`MemberLog::state`](frond_kv::MemberLog).
//! 2. The log learns that an entry is committed when it is old enough, and what other members state in their entries about commits is not
//!    kept (`MemberLog::set_late`). Otherwise its next start would apply the entry. So a restart changes nothing.
//! 3. As long as entries wait, only [`apply_late`] applies any; otherwise only the state machine does.
//! 4. The log of such a member is never opened to commits, because what waits would have to be applied before. It may
//!    win an election, if no other voter has all that is committed. Then it brings one up to date and gives the leadership away.
//!    It is never given any.

use std::sync::Arc;
use std::time::Duration;

use frond_kv::EntryId;
use openraft::async_runtime::watch::{WatchReceiver, WatchSender};

use crate::Runtime;
use crate::driver::Core;
use crate::ids::Membership;
use crate::shared::{Receiver, Shared};

/// The interval of checks whether an entry is old enough.
const CHECK: Duration = Duration::from_millis(500);

impl<R: Runtime> Shared<R> {
    /// Notes members that the log has from now on.
    pub fn note_members(&self, membership: &Membership) {
        let own = membership.get_node(&self.id());
        self.late.lock().send_if_modified(|late| {
            let is_other = late.own.as_ref() != own;
            if is_other {
                late.own = own.cloned();
                let is_late = own.is_some_and(|own| self.host.apply_limit(own).is_some());
                self.log.set_late(is_late);
            }
            is_other
        });
    }

    /// The greatest stamp of commits that may be applied; `None` for all.
    fn apply_limit(&self) -> Option<u64> {
        let late = self.late.lock();
        let late = late.borrow_watched();
        late.own.as_ref().and_then(|own| self.host.apply_limit(own))
    }

    /// Whether this member applies entries late, or has entries that wait from a time when it did.
    pub fn is_late(&self) -> bool {
        let is_waiting = self.late.lock().borrow_watched().waiting.is_some();
        is_waiting || self.apply_limit().is_some()
    }

    /// Keeps a committed entry and those before it for later. Returns false if the caller is to apply them.
    pub fn defer(&self, through: EntryId) -> bool {
        let is_limited = self.apply_limit().is_some();
        let mut is_deferred = false;
        self.late.lock().send_if_modified(|late| {
            let is_first = late.waiting.is_none();
            is_deferred = is_limited || !is_first;
            if is_deferred {
                late.waiting = Some(through);
            }
            is_deferred && is_first
        });
        is_deferred
    }

    /// Applies entries that have waited long enough. Returns whether there may be more of them.
    async fn apply_aged(self: &Arc<Self>) -> std::io::Result<bool> {
        let waiting = self.late.lock().borrow_watched().waiting;
        let Some(through) = waiting else {
            return Ok(false);
        };
        let limit = self.apply_limit();
        let shared = self.clone();
        let applied = R::blocking(move || {
            let target = match limit {
                Some(stamp) => shared.log.aged(through, stamp)?,
                None => Some(through),
            };
            if let Some(target) = target {
                shared.log.apply(target)?;
            }
            Ok(target)
        });
        let Some(target) = applied.await?.map_err(|error| self.fail(error))? else {
            return Ok(false);
        };
        self.late.lock().send_if_modified(|late| {
            if late.waiting == Some(target) {
                late.waiting = None;
            }
            false
        });
        self.trees_advanced();
        Ok(true)
    }
}

/// Applies what has waited long enough, until `ended` is true.
pub(crate) async fn apply_late<R: Runtime>(
    core: Core<R>,
    shared: Arc<Shared<R>>,
    mut ended: Receiver<R, bool>,
) {
    let mut late = shared.late.lock().subscribe();
    while !*ended.borrow_watched() {
        late.borrow_and_update();
        match shared.apply_aged().await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(_) => {
                // The supervisor reports the fault of the log.
                let _ = core.shutdown().await;
                return;
            }
        }
        let is_waiting = late.borrow_watched().waiting.is_some();
        let check = async {
            if is_waiting {
                R::sleep(CHECK).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        R::select3(ended.changed(), late.changed(), check).await;
    }
}
