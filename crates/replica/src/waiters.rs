//! Operations that wait until their commits are on enough members.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;

use crate::{Error, Result};

type Sender = oneshot::Sender<Result<()>>;

/// Whether these members are enough.
pub(crate) type Test = Box<dyn Fn(&BTreeSet<u64>) -> bool + Send>;

/// Identifies a waiter: its position, and a number.
pub(crate) type Key = (u64, u64);

/// Those who wait. They are ordered by position, so that the ones whose time has come are found without looking at the others.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Whether this member leads. Waits on other members fail at once.
    is_open: bool,
    next: u64,
    committed: BTreeMap<Key, Sender>,
    /// Those who wait for certain members to have a position.
    spread: BTreeMap<Key, (Test, Sender)>,
}

impl Waiters {
    pub fn open(&mut self) {
        self.is_open = true;
    }

    /// Fails all, and those that come until [`Self::open`].
    pub fn close(&mut self) {
        self.is_open = false;
        for (_, sender) in std::mem::take(&mut self.committed) {
            let _ = sender.send(Err(Error::LeadershipLost));
        }
        for (_, (_, sender)) in std::mem::take(&mut self.spread) {
            let _ = sender.send(Err(Error::LeadershipLost));
        }
    }

    pub fn add_committed(&mut self, position: u64) -> Result<(Key, oneshot::Receiver<Result<()>>)> {
        let key = self.key(position)?;
        let (sender, receiver) = oneshot::channel();
        self.committed.insert(key, sender);
        Ok((key, receiver))
    }

    pub fn add_spread(
        &mut self,
        position: u64,
        test: Test,
    ) -> Result<(Key, oneshot::Receiver<Result<()>>)> {
        let key = self.key(position)?;
        let (sender, receiver) = oneshot::channel();
        self.spread.insert(key, (test, sender));
        Ok((key, receiver))
    }

    fn key(&mut self, position: u64) -> Result<Key> {
        if !self.is_open {
            return Err(Error::LeadershipLost);
        }
        self.next += 1;
        Ok((position, self.next))
    }

    /// Removes a waiter that waits no more.
    pub fn remove(&mut self, key: Key) {
        self.committed.remove(&key);
        self.spread.remove(&key);
    }

    /// Everything up to `position` is committed.
    pub fn advance(&mut self, position: u64) {
        while let Some(first) = self.committed.first_entry() {
            if first.key().0 > position {
                break;
            }
            let _ = first.remove().send(Ok(()));
        }
    }

    pub fn has_spread(&self) -> bool {
        !self.spread.is_empty()
    }

    /// Answers those whose position is on enough members; `holders` returns the members that have a position durably.
    pub fn check_spread(&mut self, mut holders: impl FnMut(u64) -> BTreeSet<u64>) {
        let mut last: Option<(u64, BTreeSet<u64>)> = None;
        let mut met = Vec::new();
        for (key, (test, _)) in &self.spread {
            if last.as_ref().is_none_or(|(position, _)| *position != key.0) {
                last = Some((key.0, holders(key.0)));
            }
            if last.as_ref().is_some_and(|(_, members)| test(members)) {
                met.push(*key);
            }
        }
        for key in met {
            if let Some((_, sender)) = self.spread.remove(&key) {
                let _ = sender.send(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_answered_in_the_order_of_their_positions() {
        let mut waiters = Waiters::default();
        assert_eq!(waiters.add_committed(5).unwrap_err(), Error::LeadershipLost);
        waiters.open();
        let (_, mut early) = waiters.add_committed(5).unwrap();
        let (_, mut late) = waiters.add_committed(9).unwrap();
        let (gone, _) = waiters.add_committed(4).unwrap();
        waiters.remove(gone);
        waiters.advance(8);
        assert_eq!(early.try_recv(), Ok(Ok(())));
        assert!(late.try_recv().is_err());
        waiters.close();
        assert_eq!(late.try_recv(), Ok(Err(Error::LeadershipLost)));
    }

    #[test]
    fn a_position_is_spread_once_the_test_is_met() {
        let mut waiters = Waiters::default();
        waiters.open();
        let two = || Box::new(|members: &BTreeSet<u64>| members.len() >= 2) as Test;
        let (_, mut near) = waiters.add_spread(5, two()).unwrap();
        let (_, mut far) = waiters.add_spread(50, two()).unwrap();
        waiters.check_spread(|position| {
            if position < 10 {
                BTreeSet::from([1, 2])
            } else {
                BTreeSet::from([1])
            }
        });
        assert_eq!(near.try_recv(), Ok(Ok(())));
        assert!(far.try_recv().is_err());
        assert!(waiters.has_spread());
    }
}
