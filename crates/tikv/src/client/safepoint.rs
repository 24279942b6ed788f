//! The versions that PD keeps for this server: the rules, without requests. `registration.rs` makes the requests.
//!
//! PD has a timestamp, its *safepoint*; TiKV may delete versions that only snapshots before it see. The safepoint never moves back, and it
//! never passes an entry that is registered and has not expired. So
//! - an entry that PD has accepted proves that the safepoint is not beyond it now, and was not before;
//! - it stays so until the entry expires. That is judged by this machine's monotonic clock from before the request was sent, with a
//!   margin for the clock of PD;
//! - PD refuses an entry before its safepoint. The versions before the safepoint are lost then, and no later entry brings them back.
//!
//! PD has two interfaces for this. Services register safepoints in the old one, `UpdateServiceGCSafePoint`; the new one, of 2025, has
//! barriers and one safepoint for transactions. PD of 2025 and later serves the old calls by the new rules, and its answers can be read the
//! same way: an answer beyond the timestamp that was registered is a refusal. The differences matter to the collector only, which moves the
//! safepoint (`garbage.rs`). So the old calls are used with either.

use std::time::{Duration, Instant};

/// PD removes an entry after this number of seconds. It is short, since a killed server cannot remove its entry.
pub(crate) const ENTRY_SECONDS: i64 = 120;
/// The time for which an accepted entry is relied on. The rest of its life is for a clock of PD that is ahead, as after a change of its
/// leader.
const RELIED_ON: Duration = Duration::from_secs(90);
/// A registration is tried so often while the safepoint moves.
const ATTEMPTS_MAX: u32 = 10;

/// The state of the versions that PD keeps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kept {
    /// The timestamp of the last entry that was accepted, and until when it is relied on.
    entry: Option<(u64, Instant)>,
    /// The versions that only earlier snapshots see may be gone.
    pub(crate) lost_before: u64,
}

/// Whether the versions that a snapshot sees are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    Kept,
    Lost {
        before: u64,
    },
    /// A registration shows it.
    Unknown,
}

/// An entry that PD has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) from: u64,
    /// Whether an earlier timestamp was refused.
    pub(crate) was_refused: bool,
}

impl Kept {
    pub(crate) fn cover(&self, at: u64, now: Instant) -> Cover {
        if at < self.lost_before {
            return Cover::Lost {
                before: self.lost_before,
            };
        }
        match self.entry {
            Some((from, until)) if from <= at && now < until => Cover::Kept,
            _ => Cover::Unknown,
        }
    }

    /// Whether the entry has lasted since it was registered first.
    pub(crate) fn is_held(&self, now: Instant) -> bool {
        self.entry.is_some_and(|(_, until)| now < until)
    }

    /// The timestamp of the entry; 0 if there is none.
    pub(crate) fn from(&self) -> u64 {
        self.entry.map_or(0, |(from, _)| from)
    }

    /// Notes an accepted entry. `asked` is a moment before the request.
    pub(crate) fn note(&mut self, registered: Registered, asked: Instant) {
        self.entry = Some((registered.from, asked + RELIED_ON));
        if registered.was_refused {
            self.lost_before = self.lost_before.max(registered.from);
        }
    }

    /// Notes that versions before a timestamp may be gone.
    pub(crate) fn note_loss(&mut self, before: u64) {
        self.lost_before = self.lost_before.max(before);
    }
}

/// Registers a timestamp, or the safepoint of PD if that is later. `ask` registers one, and returns the safepoint of PD, or of the
/// entry that holds it back; beyond the timestamp it is a refusal. `None` if the safepoint moves again and again.
pub(crate) fn register<E>(
    wanted: u64,
    mut ask: impl FnMut(u64) -> Result<u64, E>,
) -> Result<Option<Registered>, E> {
    let mut from = wanted;
    for _ in 0..ATTEMPTS_MAX {
        let safepoint = ask(from)?;
        if safepoint <= from {
            return Ok(Some(Registered {
                from,
                was_refused: from > wanted,
            }));
        }
        from = safepoint;
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The rules of PD, as its sources have them.
    struct FakePd {
        /// Whether it has barriers and a safepoint of transactions.
        is_new: bool,
        now: u64,
        /// Timestamps and the seconds at which they expire. The old interface has that of the collector here as well.
        entries: BTreeMap<String, (u64, u64)>,
        /// The safepoint of transactions, of the new interface.
        transactions: u64,
        /// TiKV may delete what only earlier snapshots see.
        safepoint: u64,
    }

    const COLLECTOR: &str = "gc_worker";

    impl FakePd {
        fn new(is_new: bool) -> FakePd {
            let collector = (COLLECTOR.to_owned(), (0, u64::MAX));
            FakePd {
                is_new,
                now: 1_000,
                entries: (!is_new).then_some(collector).into_iter().collect(),
                transactions: 0,
                safepoint: 0,
            }
        }

        fn least(&mut self) -> u64 {
            let now = self.now;
            self.entries.retain(|_, (_, until)| *until >= now);
            let least = self.entries.values().map(|(at, _)| *at).min();
            least.unwrap_or(u64::MAX)
        }

        fn need(&mut self, service: &str, seconds: u64, at: u64) -> Result<u64, String> {
            let until = self.now.saturating_add(seconds);
            let least = self.least();
            if !self.is_new {
                if at < least {
                    return Ok(least);
                }
                self.entries.insert(service.to_owned(), (at, until));
                return Ok(self.least());
            }
            if service == COLLECTOR {
                if at < self.transactions {
                    return Err("ErrDecreasingTxnSafePoint".to_owned());
                }
                self.transactions = self.transactions.max(at.min(least));
            } else if at >= self.transactions {
                self.entries.insert(service.to_owned(), (at, until));
            }
            Ok(self.transactions)
        }

        /// Another deployment collects garbage.
        fn collect(&mut self, to: u64) {
            if let Ok(least) = self.need(COLLECTOR, u64::MAX, to) {
                self.safepoint = self.safepoint.max(least.min(to));
            }
        }
    }

    fn registered(pd: &mut FakePd, kept: &mut Kept, wanted: u64, now: Instant) -> Registered {
        let wanted = wanted.max(kept.lost_before);
        let asked = register(wanted, |at| pd.need("a", ENTRY_SECONDS as u64, at));
        let registered = asked.unwrap().unwrap();
        kept.note(registered, now);
        registered
    }

    #[test]
    fn an_entry_before_the_safepoint_is_refused_and_what_is_before_it_is_lost() {
        for is_new in [false, true] {
            let mut pd = FakePd::new(is_new);
            let (mut kept, now) = (Kept::default(), Instant::now());
            assert_eq!(kept.cover(500, now), Cover::Unknown);
            pd.collect(400);
            let found = registered(&mut pd, &mut kept, 300, now);
            assert_eq!((found.from, found.was_refused), (400, true), "{is_new}");
            assert_eq!(kept.cover(399, now), Cover::Lost { before: 400 });
            assert_eq!(kept.cover(400, now), Cover::Kept);
            // It holds the safepoint now, and goes up with what is needed.
            pd.collect(600);
            assert_eq!(pd.safepoint, 400);
            let found = registered(&mut pd, &mut kept, 500, now);
            assert_eq!((found.from, found.was_refused), (500, false));
            assert_eq!(kept.cover(450, now), Cover::Unknown);
            pd.collect(600);
            assert_eq!(pd.safepoint, 500);
        }
    }

    #[test]
    fn an_entry_that_may_have_expired_is_not_relied_on() {
        for (is_new, moves) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut pd = FakePd::new(is_new);
            let (mut kept, began) = (Kept::default(), Instant::now());
            registered(&mut pd, &mut kept, 500, began);
            let later = began + Duration::from_secs(ENTRY_SECONDS as u64);
            pd.now += ENTRY_SECONDS as u64 + 1;
            assert!(kept.is_held(began) && !kept.is_held(later));
            assert_eq!(kept.cover(500, later), Cover::Unknown);
            if moves {
                pd.collect(900);
                assert_eq!(pd.safepoint, 900);
            }
            let found = registered(&mut pd, &mut kept, 500, later);
            assert_eq!(found.was_refused, moves);
            let expected = if moves {
                Cover::Lost { before: 900 }
            } else {
                Cover::Kept
            };
            assert_eq!(kept.cover(500, later), expected);
        }
    }

    #[test]
    fn a_safepoint_that_moves_again_and_again_is_given_up() {
        let endless = register(5, |at| Ok::<u64, ()>(at + 1));
        assert_eq!(endless, Ok(None));
        let mut answers = [9, 12, 12].into_iter();
        let found = register(5, |_| answers.next().ok_or(()));
        let expected = Registered {
            from: 12,
            was_refused: true,
        };
        assert_eq!(found, Ok(Some(expected)));
    }

    /// Two servers take snapshots, renew, are paused and read, while a third deployment collects as much as PD lets it.
    #[test]
    fn no_snapshot_that_is_covered_is_before_the_safepoint() {
        struct Server {
            kept: Kept,
            snapshots: Vec<u64>,
            name: &'static str,
        }
        let origin = Instant::now();
        let (mut covered, mut lost) = (0, 0);
        for (is_new, seed) in [false, true]
            .into_iter()
            .flat_map(|is_new| (1..200).map(move |seed| (is_new, seed)))
        {
            let mut pd = FakePd::new(is_new);
            let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
            let mut random = move |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut servers = ["a", "b"].map(|name| Server {
                kept: Kept::default(),
                snapshots: Vec::new(),
                name,
            });
            for _ in 0..200 {
                pd.now += random(60);
                let now = origin + Duration::from_secs(pd.now);
                let server = &mut servers[random(2) as usize];
                match random(6) {
                    0 => server.snapshots.push(pd.now),
                    1 if !server.snapshots.is_empty() => {
                        let at = random(server.snapshots.len() as u64);
                        server.snapshots.swap_remove(at as usize);
                    }
                    2 | 3 => {
                        let oldest = server.snapshots.iter().min().copied();
                        let wanted = oldest.unwrap_or(pd.now).max(server.kept.lost_before);
                        let name = server.name;
                        let asked = register(wanted, |at| pd.need(name, ENTRY_SECONDS as u64, at));
                        server.kept.note(asked.unwrap().unwrap(), now);
                    }
                    4 => pd.collect(pd.now - random(100).min(pd.now)),
                    _ => {}
                }
                for server in &servers {
                    for at in &server.snapshots {
                        match server.kept.cover(*at, now) {
                            Cover::Kept => {
                                covered += 1;
                                assert!(*at >= pd.safepoint, "{is_new} {seed}");
                            }
                            Cover::Lost { .. } => lost += 1,
                            Cover::Unknown => {}
                        }
                    }
                }
            }
        }
        assert!(covered > 1_000 && lost > 100, "{covered} {lost}");
    }
}
