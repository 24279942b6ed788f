//! Readers that wait for entries of the oplog, and what wakes them.
//!
//! A reader waits for a place: a collection, a database, or everything. A commit marks the places of its entries that have
//! readers; when the entries are durable, the readers of the marked places are woken. So a stream on a collection
//! without writes sleeps, however much is written elsewhere. Entries of commands wake all readers.
//!
//! A reader that looks for entries without a notification, because its client polls once in a second, does not have to read
//! what was written elsewhere: [`Reader::quiet_until`] says up to which time its place has no entries. Commits that are under way
//! are known for that, since one can be durable before it has notified readers. So each commit with entries is in a list
//! while it runs, also if there are no readers: one may come before it ends.
//!
//! Of several servers, each knows what it commits itself. What the others commit is looked for in the oplog, as long as there are
//! readers ([`Readers::found`]); a place is quiet up to there at most.
//!
//! A thread of its own wakes, so that neither a commit nor the log waits for it. Each waked reader costs a command. So a place
//! with many readers is notified less often: a thousand readers of one collection do not take the processor from its writers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::signal::TailSignal;

/// The least time between two notifications of one place.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The most time between them.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The time between them for each reader that was woken.
const PAUSE_FOR_EACH: Duration = Duration::from_micros(500);

/// Parts of the list of commits that are under way, so that writers seldom meet.
const SHARDS: usize = 16;

/// The part of the store that a reader waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A collection, by its name.
    Collection(Box<str>),
    Database(Box<str>),
    Everything,
}

/// The namespaces of the entries of one commit.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Box<str>>);

impl Places {
    /// Adds that of an entry.
    pub fn add(&mut self, ns: &str) {
        // Most commits are about one collection, so the last one is the first to look at.
        if !self.0.iter().rev().any(|known| **known == *ns) {
            self.0.push(ns.into());
        }
    }

    /// Adds those of another commit.
    pub fn append(&mut self, other: Places) {
        other.0.iter().for_each(|ns| self.add(ns));
    }

    /// Whether entries may be about any collection: a command can be about two of them, in two databases.
    fn is_everywhere(&self) -> bool {
        self.0.iter().any(|ns| ns.ends_with(".$cmd"))
    }
}

/// All readers of an oplog.
#[derive(Debug, Default)]
pub struct Readers {
    /// The number of readers.
    count: AtomicUsize,
    /// Entries up to this time are durable.
    durable: AtomicU64,
    state: Mutex<State>,
    /// Signals changes of [`State::due`].
    changed: Condvar,
    /// For each commit that is under way a time before those of its entries.
    in_flight: [Mutex<Vec<u64>>; SHARDS],
    /// A time before the entries of the leader's commit that this server is applying, if it is a follower.
    applying: Mutex<Option<u64>>,
    /// With other servers: the time up to which their entries were looked for.
    polled_until: Option<AtomicU64>,
}

/// A commit with entries that has not yet notified readers.
#[derive(Debug)]
pub struct InFlightCommit<'a> {
    shard: &'a Mutex<Vec<u64>>,
    after: u64,
}

impl Drop for InFlightCommit<'_> {
    fn drop(&mut self) {
        let mut commits = self.shard.lock();
        if let Some(place) = commits.iter().position(|after| *after == self.after) {
            commits.swap_remove(place);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    places: HashMap<Place, Watched>,
    /// Places with entries that are not durable yet.
    marked: Vec<Place>,
    /// Places that have to be notified, and when.
    due: HashMap<Place, Instant>,
    /// Whether the thread runs that wakes readers.
    wakes: bool,
}

/// A place with readers.
#[derive(Debug)]
struct Watched {
    signal: Arc<TailSignal>,
    readers: usize,
    /// The times of the first and the last entry for which readers have not been notified.
    marked: Option<(u64, u64)>,
    /// No notification is sent before this.
    not_before: Option<Instant>,
    /// Whether one is being sent.
    notifies: bool,
}

/// A reader. Its place is watched until it is dropped.
#[derive(Debug)]
pub struct Reader {
    readers: Arc<Readers>,
    place: Place,
    signal: Arc<TailSignal>,
}

impl Reader {
    /// Is notified when there are durable entries that the reader may not have seen.
    pub fn signal(&self) -> &Arc<TailSignal> {
        &self.signal
    }

    /// The greatest time, not after `durable`, up to which the place has no entries but those that the first `notified_until` notifications
    /// were about. `None` if there may be such entries anywhere. `durable` was read from the engine before the call.
    pub fn quiet_until(&self, durable: u64, notified_until: u64) -> Option<u64> {
        let found = (self.readers.polled_until.as_ref())
            .map_or(u64::MAX, |polled_until| polled_until.load(Ordering::SeqCst));
        let known = durable.min(self.readers.notified_until()).min(found);
        let state = self.readers.state.lock();
        let watched = state.places.get(&self.place)?;
        if watched.signal.insertions() != notified_until
            || watched.notifies
            || state.due.contains_key(&self.place)
        {
            return None;
        }
        match watched.marked {
            None => Some(known),
            Some((first, _)) => Some(known.min(first.checked_sub(1)?)),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        self.readers.count.fetch_sub(1, Ordering::SeqCst);
        if let Some(watched) = state.places.get_mut(&self.place) {
            watched.readers -= 1;
            if watched.readers == 0 {
                state.places.remove(&self.place);
                state.due.remove(&self.place);
                state.marked.retain(|place| *place != self.place);
            }
        }
        if state.places.is_empty() {
            // The thread has nothing to do any more.
            self.readers.changed.notify_all();
        }
    }
}

impl Readers {
    /// Readers of an oplog that other servers write to.
    pub fn beside_others() -> Readers {
        Readers {
            polled_until: Some(AtomicU64::new(0)),
            ..Readers::default()
        }
    }

    /// The time up to which entries of other servers were looked for. `None` if there are no readers.
    pub fn polled_until(&self) -> Option<u64> {
        let polled_until = self.polled_until.as_ref().filter(|_| self.any())?;
        Some(polled_until.load(Ordering::SeqCst))
    }

    /// Notifies readers of all entries behind [`Readers::polled_until`], up to a time that is durable: as [`Readers::committed`], if there are
    /// some.
    pub fn found(self: &Arc<Readers>, places: Option<&Places>, first: u64, until: u64) {
        if places.is_none_or(|places| !places.0.is_empty()) {
            self.committed(places, first, until);
        }
        if let Some(polled_until) = &self.polled_until {
            // In one order with readers that begin.
            let _state = self.state.lock();
            polled_until.store(until, Ordering::SeqCst);
        }
    }

    /// Begins to watch a place. The reader looks by itself before it waits. `last` gives the time of the last commit: if
    /// that is not durable, the reader is notified when it is, because the commit may have looked for readers before.
    pub fn watch(self: &Arc<Readers>, place: Place, last: impl FnOnce() -> u64) -> Reader {
        let mut state = self.state.lock();
        if self.count.fetch_add(1, Ordering::SeqCst) == 0
            && let Some(polled_until) = &self.polled_until
        {
            // The first look of the reader finds everything that was written before.
            polled_until.store(self.durable.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let watched = state
            .places
            .entry(place.clone())
            .or_insert_with(|| Watched {
                signal: Arc::default(),
                readers: 0,
                marked: None,
                not_before: None,
                notifies: false,
            });
        watched.readers += 1;
        let signal = watched.signal.clone();
        let last = last();
        if last > self.durable.load(Ordering::SeqCst) {
            // Which of the entries up to there are of this place is not known.
            self.mark(&mut state, &place, 0, last);
            self.begin_waking(&mut state);
        }
        drop(state);
        Reader {
            readers: self.clone(),
            place,
            signal,
        }
    }

    /// Whether there are readers. A commit that finds none need not notify any.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Notes that a commit is under way. `given_out` is the last timestamp that was given out; those of the commit come later. To
    /// be dropped when the commit has notified readers.
    pub fn begin(&self, given_out: u64) -> InFlightCommit<'_> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        }
        let [first, ..] = &self.in_flight;
        let shard = SHARD
            .with(|shard| self.in_flight.get(*shard))
            .unwrap_or(first);
        shard.lock().push(given_out);
        InFlightCommit {
            shard,
            after: given_out,
        }
    }

    /// All commits up to this time have notified readers, except for those that begin after the call.
    fn notified_until(&self) -> u64 {
        let shards = self.in_flight.iter();
        let first = shards.filter_map(|shard| shard.lock().iter().min().copied());
        let first = first.min().unwrap_or(u64::MAX);
        first.min(self.applying.lock().unwrap_or(u64::MAX))
    }

    /// Notes that a commit of the leader is about to become visible, and durable for readers, whose entries come after a time. Until
    /// [`Readers::end_applying`] they take nothing behind it for quiet.
    pub fn begin_applying(&self, after: u64) {
        *self.applying.lock() = Some(after);
    }

    /// The readers are notified of the commit.
    pub fn end_applying(&self) {
        *self.applying.lock() = None;
    }

    /// Notifies readers of a commit, the entries of which have times from `first` to `last`. Without `places` they may be of any namespace.
    /// Returns whether a reader waits for them to become durable.
    pub fn committed(self: &Arc<Readers>, places: Option<&Places>, first: u64, last: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut state = self.state.lock();
        let marked: Vec<Place> = match places.filter(|places| !places.is_everywhere()) {
            None => state.places.keys().cloned().collect(),
            Some(places) => {
                let of = |ns: &str| {
                    let db = ns.split('.').next().unwrap_or_default();
                    [Place::Collection(ns.into()), Place::Database(db.into())]
                };
                let all = places.0.iter().flat_map(|ns| of(ns));
                all.chain([Place::Everything]).collect()
            }
        };
        let mut is_read = false;
        for place in &marked {
            is_read |= self.mark(&mut state, place, first, last);
        }
        self.begin_waking(&mut state);
        is_read
    }

    /// Notes that entries up to this time are durable.
    pub fn advance(self: &Arc<Readers>, durable: u64) {
        self.durable.fetch_max(durable, Ordering::SeqCst);
        if !self.any() {
            return;
        }
        let mut state = self.state.lock();
        let marked = std::mem::take(&mut state.marked);
        for place in marked {
            let Some(watched) = state.places.get_mut(&place) else {
                continue;
            };
            let Some((first, last)) = watched.marked else {
                continue;
            };
            if first > durable {
                state.marked.push(place);
                continue;
            }
            watched.marked = (last > durable).then(|| (durable + 1, last));
            let not_before = watched.not_before;
            if last > durable {
                state.marked.push(place.clone());
            }
            state.make_due(place, not_before);
        }
        self.begin_waking(&mut state);
    }

    /// Marks a place: it may have entries between these times. Returns whether it has readers.
    fn mark(&self, state: &mut State, place: &Place, from: u64, to: u64) -> bool {
        let Some(watched) = state.places.get_mut(place) else {
            return false;
        };
        // The lock is held, so that an entry is either durable here, or marked when `advance` looks.
        if to <= self.durable.load(Ordering::SeqCst) {
            let not_before = watched.not_before;
            state.make_due(place.clone(), not_before);
            return true;
        }
        match &mut watched.marked {
            Some((first, last)) => (*first, *last) = ((*first).min(from), (*last).max(to)),
            none => {
                *none = Some((from, to));
                state.marked.push(place.clone());
            }
        }
        true
    }

    /// Lets the thread look at what is due.
    fn begin_waking(self: &Arc<Readers>, state: &mut State) {
        if state.due.is_empty() {
            return;
        }
        if state.wakes {
            self.changed.notify_all();
            return;
        }
        let readers = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("oplog-readers".to_owned());
        match thread.spawn(move || wake(&readers)) {
            Ok(_) => state.wakes = true,
            // Without a thread the caller does it.
            Err(_) => {
                let (due, _) = state.take_due(Instant::now() + PAUSE_MAX);
                for (place, signal) in due {
                    let count = signal.notify();
                    state.woken(&place, count);
                }
            }
        }
    }
}

impl State {
    fn make_due(&mut self, place: Place, not_before: Option<Instant>) {
        let now = Instant::now();
        let at = not_before.map_or(now, |not_before| not_before.max(now));
        self.due.entry(place).or_insert(at);
    }

    /// Takes the places that are due. Returns when the next one is, too.
    fn take_due(&mut self, now: Instant) -> (Vec<(Place, Arc<TailSignal>)>, Option<Instant>) {
        let due = self.due.extract_if(|_, at| *at <= now);
        let due = due.filter_map(|(place, _)| {
            let watched = self.places.get_mut(&place)?;
            watched.notifies = true;
            let signal = watched.signal.clone();
            Some((place, signal))
        });
        (due.collect(), self.due.values().min().copied())
    }

    /// Notes that readers of a place were woken.
    fn woken(&mut self, place: &Place, count: usize) {
        let pause = PAUSE_FOR_EACH.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let not_before = Instant::now() + pause.clamp(PAUSE_MIN, PAUSE_MAX);
        if let Some(watched) = self.places.get_mut(place) {
            watched.not_before = Some(not_before);
            watched.notifies = false;
            if let Some(at) = self.due.get_mut(place) {
                *at = not_before;
            }
        }
    }
}

/// Wakes readers until there are none, or the store is gone.
fn wake(readers: &Weak<Readers>) {
    while let Some(readers) = readers.upgrade() {
        let mut state = readers.state.lock();
        if state.places.is_empty() {
            state.due.clear();
            state.wakes = false;
            return;
        }
        match state.take_due(Instant::now()) {
            (due, _) if !due.is_empty() => {
                // Commits do not wait meanwhile.
                drop(state);
                for (place, signal) in due {
                    let count = signal.notify();
                    readers.state.lock().woken(&place, count);
                }
            }
            (_, Some(next)) => drop(readers.changed.wait_until(&mut state, next)),
            (_, None) => readers.changed.wait(&mut state),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::waiting::wait_until;

    fn collection(ns: &str) -> Place {
        Place::Collection(ns.into())
    }

    fn committed(readers: &Arc<Readers>, ns: &str, time: u64) -> bool {
        let mut places = Places::default();
        places.add(ns);
        readers.committed(Some(&places), time, time)
    }

    #[test]
    fn nothing_is_left_of_a_place_without_readers() {
        let readers = Arc::new(Readers::default());
        for _ in 0..3 {
            drop(readers.watch(collection("db.c"), || 5));
        }
        let state = readers.state.lock();
        assert!(state.places.is_empty() && state.marked.is_empty() && state.due.is_empty());
    }

    /// The number of notifications of a place; `None` while it is notified, or is about to be.
    fn notifications(reader: &Reader) -> Option<u64> {
        let state = reader.readers.state.lock();
        let watched = state.places.get(&reader.place).unwrap();
        let is_settled = !watched.notifies && !state.due.contains_key(&reader.place);
        is_settled.then(|| watched.signal.insertions())
    }

    /// Waits until the signal has been sent more than `seen` times.
    fn wait_until_told(reader: &Reader, seen: u64) {
        wait_until("a notification", || notifications(reader) > Some(seen));
    }

    /// Whether the signal has been sent `seen` times, and is not about to be sent again.
    fn stays_quiet(reader: &Reader, seen: u64) -> bool {
        notifications(reader) == Some(seen)
    }

    #[test]
    fn a_reader_is_told_of_its_place_when_it_is_durable() {
        let readers = Arc::new(Readers::default());
        assert!(!committed(&readers, "d.a", 1), "nobody reads");
        readers.advance(1);
        let a = readers.watch(collection("d.a"), || 1);
        let b = readers.watch(collection("d.b"), || 1);
        let d = readers.watch(Place::Database("d".into()), || 1);
        let all = readers.watch(Place::Everything, || 1);

        assert!(committed(&readers, "d.a", 2));
        assert!(stays_quiet(&a, 0), "it is not durable");
        readers.advance(2);
        for reader in [&a, &d, &all] {
            wait_until_told(reader, 0);
        }
        assert!(stays_quiet(&b, 0), "another collection");

        assert!(committed(&readers, "e.c", 3));
        readers.advance(3);
        wait_until_told(&all, 1);
        assert!(stays_quiet(&a, 1) && stays_quiet(&d, 1));
    }

    /// A thousand clients that connect again did not leave each other in peace.
    #[test]
    fn a_new_reader_wakes_no_others() {
        let readers = Arc::new(Readers::default());
        let first = readers.watch(collection("d.a"), || 0);
        committed(&readers, "d.a", 5);
        readers.advance(5);
        wait_until_told(&first, 0);
        let second = readers.watch(collection("d.a"), || 5);
        assert!(stays_quiet(&first, 1));
        assert_eq!(second.quiet_until(5, 1), Some(5));
    }

    #[test]
    fn a_command_and_a_commit_of_unknown_places_are_told_of_everywhere() {
        let readers = Arc::new(Readers::default());
        let reader = readers.watch(collection("d.a"), || 0);
        assert!(committed(&readers, "e.$cmd", 1));
        readers.advance(1);
        wait_until_told(&reader, 0);
        assert!(readers.committed(None, 2, 2));
        readers.advance(2);
        wait_until_told(&reader, 1);
        assert!(!readers.committed(Some(&Places::default()), 3, 3));
    }

    #[test]
    fn a_place_is_quiet_up_to_what_is_known_of_it() {
        let readers = Arc::new(Readers::default());
        let reader = readers.watch(collection("d.a"), || 3);
        assert_eq!(
            reader.quiet_until(2, 0),
            None,
            "what was written before is not known"
        );
        readers.advance(3);
        wait_until_told(&reader, 0);
        assert_eq!(reader.quiet_until(3, 0), None, "there was a notification");
        assert_eq!(reader.quiet_until(3, 1), Some(3));
        assert_eq!(reader.quiet_until(9, 1), Some(9));
        let first = readers.begin(9);
        let second = readers.begin(12);
        assert_eq!(
            reader.quiet_until(20, 1),
            Some(9),
            "a commit has not told yet"
        );
        committed(&readers, "d.b", 10);
        drop(first);
        assert_eq!(reader.quiet_until(20, 1), Some(12));
        let mut places = Places::default();
        places.add("d.a");
        readers.committed(Some(&places), 15, 17);
        drop(second);
        assert_eq!(
            reader.quiet_until(20, 1),
            Some(14),
            "a commit of this place"
        );
        readers.advance(17);
        assert_eq!(reader.quiet_until(20, 1), None);
        wait_until_told(&reader, 1);
        assert_eq!(reader.quiet_until(20, 2), Some(20));
    }

    #[test]
    fn entries_that_are_durable_in_part_are_told_of_twice() {
        let readers = Arc::new(Readers::default());
        let reader = readers.watch(Place::Everything, || 0);
        committed(&readers, "d.a", 5);
        committed(&readers, "d.a", 9);
        readers.advance(6);
        wait_until_told(&reader, 0);
        readers.advance(8);
        wait_until_told(&reader, 1);
        readers.advance(9);
        wait_until_told(&reader, 2);
        readers.advance(20);
        assert!(stays_quiet(&reader, 3));
    }

    #[test]
    fn the_commit_before_the_first_look_is_told_of() {
        let readers = Arc::new(Readers::default());
        // The commit of time 7 found no reader; it is not durable.
        let reader = readers.watch(collection("d.a"), || 7);
        assert!(stays_quiet(&reader, 0));
        readers.advance(7);
        wait_until_told(&reader, 0);
    }

    #[test]
    fn many_readers_are_told_less_often() {
        let readers = Arc::new(Readers::default());
        let reader = readers.watch(Place::Everything, || 0);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut waiting: Vec<_> = (0..600)
            .map(|_| Box::pin(reader.signal().newer(0)))
            .collect();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut context).is_pending());
        }
        let began = Instant::now();
        committed(&readers, "d.a", 1);
        readers.advance(1);
        wait_until_told(&reader, 0);
        committed(&readers, "d.a", 2);
        readers.advance(2);
        wait_until_told(&reader, 1);
        assert!(began.elapsed() >= PAUSE_FOR_EACH * 600);
    }

    #[test]
    fn entries_of_other_servers_are_told_of_when_they_are_found() {
        let readers = Arc::new(Readers::beside_others());
        assert_eq!(readers.polled_until(), None, "nobody reads");
        readers.advance(7);
        let a = readers.watch(collection("d.a"), || 5);
        assert_eq!(readers.polled_until(), Some(7));
        readers.advance(20);
        assert_eq!(
            a.quiet_until(20, 0),
            Some(7),
            "what others wrote is not known"
        );
        readers.found(Some(&Places::default()), 20, 20);
        assert_eq!(a.quiet_until(20, 0), Some(20));
        readers.advance(30);
        let mut places = Places::default();
        places.add("d.b");
        readers.found(Some(&places), 21, 30);
        assert!(stays_quiet(&a, 0), "another collection");
        readers.advance(40);
        readers.found(None, 31, 40);
        wait_until_told(&a, 0);
        assert_eq!(a.quiet_until(40, 0), None);
    }

    #[test]
    fn a_place_without_readers_is_forgotten() {
        let readers = Arc::new(Readers::default());
        let first = readers.watch(collection("d.a"), || 0);
        let second = readers.watch(collection("d.a"), || 0);
        assert!(Arc::ptr_eq(first.signal(), second.signal()));
        drop(first);
        assert!(committed(&readers, "d.a", 1));
        drop(second);
        assert!(!readers.any() && !committed(&readers, "d.a", 2));
        assert!(readers.state.lock().places.is_empty());
        // The thread that woke readers ends, and another one begins.
        let third = readers.watch(collection("d.a"), || 0);
        committed(&readers, "d.a", 3);
        readers.advance(3);
        wait_until_told(&third, 0);
    }
}
