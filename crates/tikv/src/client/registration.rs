//! The entry of this server in PD, by which TiKV keeps the versions that its snapshots see.
//!
//! Each server has one of its own, so that a server neither depends on others nor removes an entry that others need. It is
//! registered before the first read, renewed while the server runs, and removed when it ends. The rules are those of `safepoint.rs`.
//!
//! A read checks *after* its answer that the entry was valid all the time: a process can be paused between a check and a request. If the
//! entry may have expired, it is registered again first. If PD refuses that, the snapshot is lost, and its reads fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_kv::{CLOSE_CALLED, Error, Interrupt, Result};
use parking_lot::{Condvar, Mutex};
use tikv::TimestampExt;

use crate::client::connection::{Connection, Kind, PHYSICAL_SHIFT};
use crate::client::pd::Failure;
use crate::client::safepoint::{Cover, ENTRY_SECONDS, Kept, Registered, register};
use crate::client::stamps::InFlight;
use crate::options::{ClusterOptions, Report};
use crate::stats::KeptVersions;

/// Time between two renewals.
const RENEWAL_PAUSE: Duration = Duration::from_secs(20);
/// The same after a renewal that has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a request to PD is repeated.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for the removal of an entry.
const END_MAX: Duration = Duration::from_secs(3);
/// The interval at which a waiting caller checks for interruption.
const CHECK: Duration = Duration::from_millis(20);

/// The entry of this server.
pub(crate) struct Registration {
    /// Its name in PD, which no other server has.
    service: Vec<u8>,
    retention_ms: u64,
    snapshots: Arc<InFlight>,
    state: Mutex<State>,
    /// Wakes the thread that renews it.
    closed: Condvar,
    /// Held while it is renewed.
    renewing: Mutex<()>,
    report: Option<Report>,
}

#[derive(Default)]
struct State {
    kept: Kept,
    is_closed: bool,
    is_failing: bool,
    refusals: u64,
    failures: u64,
}

impl Registration {
    /// Registers a server that begins.
    pub(crate) fn begin(
        connection: &Connection,
        deployment: &[u8],
        options: &ClusterOptions,
        snapshots: Arc<InFlight>,
    ) -> Result<Registration> {
        // No other server begins with the same timestamp.
        let begun = format!("-{:x}", connection.timestamp()?.version());
        let registration = Registration {
            // Without slashes, so that the tools of PD can name it.
            service: [b"frond-", deployment, begun.as_bytes()].concat(),
            retention_ms: u64::try_from(options.retention.as_millis()).unwrap_or(u64::MAX),
            snapshots,
            state: Mutex::default(),
            closed: Condvar::new(),
            renewing: Mutex::default(),
            report: options.report.clone(),
        };
        registration.renew(connection)?;
        Ok(registration)
    }

    /// Fails unless the versions that a snapshot sees were kept until now.
    pub(crate) fn check(&self, connection: &Connection, at: u64) -> Result<()> {
        for _ in 0..2 {
            if let Some(known) = self.known(at) {
                return known;
            }
            self.register(connection, Some(at))?;
        }
        self.known(at).unwrap_or_else(|| {
            Err(Error::Unavailable(
                "PD answers too slowly to tell which versions it keeps".to_owned(),
            ))
        })
    }

    /// `None` if that takes a request to PD.
    fn known(&self, at: u64) -> Option<Result<()>> {
        let state = self.state.lock();
        if state.is_closed {
            return Some(Err(Error::Closed(CLOSE_CALLED.to_owned())));
        }
        match state.kept.cover(at, Instant::now()) {
            Cover::Kept => Some(Ok(())),
            Cover::Lost { before } => {
                let behind_ms = (before >> PHYSICAL_SHIFT).saturating_sub(at >> PHYSICAL_SHIFT);
                Some(Err(Error::SnapshotLost { behind_ms }))
            }
            Cover::Unknown => None,
        }
    }

    /// Renews the entry with what is needed now.
    pub(crate) fn renew(&self, connection: &Connection) -> Result<()> {
        self.register(connection, None)
    }

    /// Registers what is needed, and the timestamp `least` unless it is kept already.
    fn register(&self, connection: &Connection, least: Option<u64>) -> Result<()> {
        let _renewing = loop {
            match self.renewing.try_lock_for(CHECK) {
                Some(renewing) => break renewing,
                None => Interrupt::check_current()?,
            }
        };
        // Another reader may have renewed it meanwhile.
        if least.is_some_and(|at| self.known(at).is_some()) {
            return Ok(());
        }
        if self.state.lock().is_closed {
            return Err(Error::Closed(CLOSE_CALLED.to_owned()));
        }
        let asked = Instant::now();
        let done = self.ask(connection, least);
        let mut state = self.state.lock();
        match done {
            Ok((wanted, registered)) => {
                let was_failing = std::mem::replace(&mut state.is_failing, false);
                state.kept.note(registered, asked);
                state.refusals += u64::from(registered.was_refused);
                drop(state);
                if registered.was_refused {
                    self.report(&refusal(wanted, registered.from));
                } else if was_failing {
                    self.report("PD has renewed what it keeps for this server");
                }
                Ok(())
            }
            Err(error) => {
                state.failures += 1;
                let was_failing = std::mem::replace(&mut state.is_failing, true);
                drop(state);
                if !was_failing && !matches!(error, Error::Interrupted { .. }) {
                    self.report(&format!(
                        "PD does not renew what it keeps for this server; reads of snapshots fail when that expires: {error}"
                    ));
                }
                Err(error)
            }
        }
    }

    /// Registers what is needed now. Returns that, and what PD has accepted.
    fn ask(&self, connection: &Connection, least: Option<u64>) -> Result<(u64, Registered)> {
        let now = connection.timestamp()?.version();
        let retained = (now >> PHYSICAL_SHIFT).saturating_sub(self.retention_ms) << PHYSICAL_SHIFT;
        // A snapshot that is taken from here on has a later timestamp than this server has seen.
        let oldest = self.snapshots.oldest(connection).min(retained);
        let (lost_before, is_held) = {
            let kept = self.state.lock().kept;
            (kept.lost_before, kept.is_held(Instant::now()))
        };
        let wanted = least.map_or(oldest, |least| oldest.min(least));
        let wanted = wanted.max(lost_before);
        let registered = register(wanted, |at| self.need(connection, at, now, is_held))?;
        let text = "the safepoint of PD moves again and again";
        let registered = registered.ok_or_else(|| Error::Unavailable(text.to_owned()))?;
        Ok((wanted, registered))
    }

    /// Registers a timestamp. Returns the least one that PD keeps.
    fn need(&self, connection: &Connection, at: u64, now: u64, is_held: bool) -> Result<u64> {
        let deadline = connection.deadline();
        loop {
            let (pd, service) = (connection.pd().clone(), self.service.clone());
            let told = connection.wait(Kind::Region, async move {
                let least = pd.need(&service, ENTRY_SECONDS, at).await?;
                // An old PD does not compare them; whoever moves its safepoint without being registered passes all entries.
                let safepoint = if is_held { 0 } else { pd.safepoint().await? };
                Ok(least.max(safepoint))
            })?;
            match told {
                Ok(least) => return Ok(least),
                // The safepoint is not in the answer, but it is before the current time.
                Err(text) if is_refusal(&text) => return Ok(now.max(at.saturating_add(1))),
                Err(text) if Instant::now() + REPEAT_PAUSE >= deadline => {
                    return Err(Error::Unavailable(text));
                }
                Err(_) => {
                    Interrupt::check_current()?;
                    std::thread::sleep(REPEAT_PAUSE);
                }
            }
        }
    }

    /// Notes that PD's safepoint is beyond what this server's deployment needs.
    pub(crate) fn note_refusal(&self, wanted: u64, safepoint: u64) {
        {
            let mut state = self.state.lock();
            state.refusals += 1;
            state.kept.note_loss(safepoint);
        }
        self.report(&refusal(wanted, safepoint));
    }

    /// The versions before this timestamp may be gone.
    pub(crate) fn lost_before(&self) -> u64 {
        self.state.lock().kept.lost_before
    }

    pub(crate) fn stats(&self) -> KeptVersions {
        let state = self.state.lock();
        KeptVersions {
            from: state.kept.from(),
            lost_before: state.kept.lost_before,
            refusals: state.refusals,
            failures: state.failures,
        }
    }

    pub(crate) fn report(&self, text: &str) {
        if let Some(report) = &self.report {
            report(text);
        }
    }

    /// Waits until it is time for a renewal. Returns whether the server still runs.
    pub(crate) fn sleep(&self) -> bool {
        let mut state = self.state.lock();
        let pause = if state.is_failing {
            FAILURE_PAUSE
        } else {
            RENEWAL_PAUSE
        };
        let until = Instant::now() + pause;
        while !state.is_closed {
            if self.closed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.is_closed
    }

    /// Removes the entry. Nothing is read afterwards.
    pub(crate) fn end(&self, connection: &Connection) {
        if std::mem::replace(&mut self.state.lock().is_closed, true) {
            return;
        }
        self.closed.notify_all();
        // A renewal under way may come later. Its entry expires soon.
        let _renewing = self.renewing.try_lock_for(END_MAX);
        let (pd, service) = (connection.pd().clone(), self.service.clone());
        // If it fails, the entry expires soon.
        let _ = connection.wait(Kind::Region, async move {
            let released = tokio::time::timeout(END_MAX, pd.release(&service)).await;
            released.unwrap_or_else(|_| Err("PD did not answer in time".to_owned()))
        });
    }
}

/// Whether PD has refused a safepoint, by the names that its versions give the reason.
pub(crate) fn is_refusal(failure: &Failure) -> bool {
    [
        "BehindTxnSafePoint",
        "DecreasingTxnSafePoint",
        "DecreasingGCSafePoint",
    ]
    .iter()
    .any(|name| failure.contains(name))
        || (failure.contains("safe point") && failure.contains("decreas"))
        || failure.contains("behind the txn safe point")
}

fn refusal(wanted: u64, safepoint: u64) -> String {
    let behind = (safepoint >> PHYSICAL_SHIFT).saturating_sub(wanted >> PHYSICAL_SHIFT);
    format!(
        "PD has refused to keep old versions for this server: its safepoint for garbage collection is {behind} ms beyond what is needed. \
         Another user of the cluster has moved it. Reads of older snapshots fail"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_known_by_their_names() {
        let cases = [
            (
                "[PD:gc:ErrGCBarrierTSBehindTxnSafePoint]trying to set a GC barrier",
                true,
            ),
            ("[PD:gc:ErrDecreasingTxnSafePoint]", true),
            ("Unknown: trying to decrease the txn safe point", true),
            ("PD did not answer in time", false),
            ("PD has no leader at present", false),
        ];
        for (text, expected) in cases {
            assert_eq!(is_refusal(&text.to_owned()), expected, "{text}");
        }
    }
}
