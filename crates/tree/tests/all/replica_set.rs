//! The stores of a replica set on simulated disks: entries of a leader, followers that apply them, elections, crashes.
//!
//! The rules of Raft are in this test in their simplest form, with everything in one place: who may lead, and what is committed.
//! The stores get the calls that `frond_kv::MemberLog` permits, in a random order. After each step a member must have exactly what the
//! model has at its position, and what is committed must never be lost.
//!
//! `FROND_SETS` sets the number of seeds, `FROND_SEED` the first one.

mod model;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use frond_kv::{EntryId, LogEntry, MemberLog};
use frond_tree::{Durability, Error, Store, TreeOptions, WriteSet};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use self::model::{Model, content_of, options};
use crate::support::SimDisk;

struct Member {
    disk: SimDisk,
    store: Option<Store>,
    /// The model at the positions at which commits or entries end.
    at: BTreeMap<u64, Rc<Model>>,
    /// Entries that were reported as durable, one more than their number.
    durable: Arc<AtomicU64>,
    /// The term in which it leads, as far as it knows.
    leads: Option<u64>,
    /// Whether its store accepts commits, and whether it has since it was opened.
    accepts: bool,
    has_led: bool,
    vote: Vec<u8>,
}

impl Member {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// The model at the end of an entry, which may have no commits.
    fn model_at(&mut self, to: u64) -> Rc<Model> {
        let (_, model) = self.at.range(..=to).next_back().unwrap();
        let model = model.clone();
        self.at.insert(to, model.clone());
        model
    }

    fn last(&self) -> Option<EntryId> {
        self.store().state().last
    }
}

struct Set {
    random: SmallRng,
    members: Vec<Member>,
    term: u64,
    /// The model after each entry that was ever made, and the entry before it.
    entries: HashMap<EntryId, (Option<EntryId>, Rc<Model>)>,
    committed: Option<EntryId>,
    counts: BTreeMap<&'static str, u64>,
    encrypted: bool,
}

const TREES_MAX: usize = 4;

impl Set {
    /// A set whose first member has some data from before it was a member; the others are copies of it.
    fn new(seed: u64) -> Set {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        let encrypted = seed.is_multiple_of(3);
        let mut alone = options(&disk, encrypted);
        alone.member = false;
        let store = Store::open(alone).unwrap();
        let tree = store.allocate_tree();
        let mut set = WriteSet::new();
        set.create_tree(tree, &TreeOptions::default());
        set.put(tree, b"before", b"the set");
        store.commit(set, Durability::Logged).unwrap();
        store.close().unwrap();
        drop(store);
        let count = *[1, 3, 3, 3, 5].get(random.random_range(0..5)).unwrap();
        let first = Rc::new(Model {
            trees: vec![tree],
            content: BTreeMap::from([((tree, b"before".to_vec()), b"the set".to_vec())]),
        });
        let members = (0..count)
            .map(|_| {
                let disk = disk.copy();
                let store = Store::open(options(&disk, encrypted)).unwrap();
                let end = store.end_position();
                Member {
                    disk,
                    store: Some(store),
                    at: BTreeMap::from([(end, first.clone())]),
                    durable: Arc::default(),
                    leads: None,
                    accepts: false,
                    has_led: false,
                    vote: Vec::new(),
                }
            })
            .collect();
        Set {
            random,
            members,
            term: 0,
            entries: HashMap::new(),
            committed: None,
            counts: BTreeMap::new(),
            encrypted,
        }
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any(&mut self) -> usize {
        self.random.random_range(0..self.members.len())
    }

    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Whether `id` is the entry `of` or one of its predecessors.
    fn has(&self, of: Option<EntryId>, id: EntryId) -> bool {
        let mut at = of;
        while let Some(entry) = at {
            if entry == id {
                return true;
            }
            if entry.index < id.index {
                return false;
            }
            at = self.entries[&entry].0;
        }
        false
    }

    fn step(&mut self) {
        let member = self.any();
        if self.members[member].store.is_none() {
            self.open(member);
            return;
        }
        match self.random.random_range(0..100) {
            0..30 => self.write(member),
            30..50 => self.seal(member),
            50..70 => self.replicate(member),
            70..80 => self.commit(member),
            80..84 => self.elect(),
            84..88 => self.maintain(member),
            88..91 => self.stop(member),
            91..94 => {
                // It crashes in one of the next operations, or while it is opened again.
                let operations = self.random.random_range(1..60);
                self.members[member].disk.crash_after(operations);
            }
            94..96 => self.purge(member),
            _ => self.save_vote(member),
        }
        for member in 0..self.members.len() {
            if self.members[member].store.is_some() {
                if self.members[member].disk.has_crashed() {
                    self.crash(member);
                } else {
                    self.check(member);
                }
            }
        }
    }

    /// Whether a call failed for a reason that the test permits. A crash is found after the step.
    fn is_permitted(&self, member: usize, error: &Error) -> bool {
        self.members[member].disk.has_crashed()
            || matches!(error, Error::Stalled { .. })
            || (matches!(error, Error::NotLeading) && !self.members[member].accepts)
    }

    fn write(&mut self, member: usize) {
        let Some((_, before)) = self.members[member].at.last_key_value() else {
            return;
        };
        let mut model = (**before).clone();
        let store = self.members[member].store().clone();
        let mut set = store.write_set(&store.snapshot(), 0);
        let random = &mut self.random;
        if model.trees.len() < TREES_MAX && random.random_bool(0.05) {
            let tree = store.allocate_tree();
            set.create_tree(tree, &TreeOptions::default());
            model.trees.push(tree);
            model.trees.sort_unstable();
        } else if model.trees.len() > 1 && random.random_bool(0.05) {
            let tree = model
                .trees
                .remove(random.random_range(0..model.trees.len()));
            set.drop_tree(tree);
            model.content.retain(|(of, _), _| *of != tree);
        }
        for _ in 0..random.random_range(1..6) {
            let tree = model.trees[random.random_range(0..model.trees.len())];
            let key = random.random_range(0..200u32).to_be_bytes();
            let at = (tree, key.to_vec());
            match random.random_range(0..10) {
                0..2 => {
                    set.delete(tree, &key);
                    model.content.remove(&at);
                }
                2..4 => {
                    let delta = [random.random::<u8>()];
                    set.merge(tree, &key, &delta);
                    model.content.entry(at).or_default().extend(delta);
                }
                kind => {
                    let bytes = match kind {
                        4 => 3000,
                        _ => 40,
                    };
                    let bytes = if random.random_bool(0.01) {
                        80_000
                    } else {
                        bytes
                    };
                    let value = vec![random.random::<u8>(); random.random_range(0..bytes)];
                    set.put(tree, &key, &value);
                    model.content.insert(at, value);
                }
            }
        }
        let would_end = store.end_position() + 4 + set.payload().len() as u64;
        match store.commit(set, Durability::Logged) {
            Ok(_) => {
                assert!(self.members[member].accepts, "a follower accepts a commit");
                let end = store.end_position();
                self.members[member].at.insert(end, Rc::new(model));
                self.count("commits");
            }
            Err(error) => {
                assert!(self.is_permitted(member, &error), "{error:?}");
                if self.members[member].accepts && self.members[member].disk.has_crashed() {
                    // It may be in the buffers all the same.
                    self.members[member].at.insert(would_end, Rc::new(model));
                }
            }
        }
    }

    /// The leader makes an entry of what has gathered.
    fn seal(&mut self, member: usize) {
        let Some(term) = self.members[member].leads else {
            return;
        };
        if self.members[member].accepts {
            let store = self.members[member].store();
            store.request(store.end_position());
            let mut context = Context::from_waker(Waker::noop());
            if store.poll_group(&mut context) == Poll::Pending {
                return;
            }
        }
        self.seal_in(member, term, b"");
    }

    fn seal_in(&mut self, member: usize, term: u64, note: &[u8]) {
        let before = self.members[member].last();
        let index = before.map_or(0, |last| last.index + 1);
        let id = EntryId { term, index };
        let sealed = self.call(member, |store, done| store.seal(id, note, done));
        // Without its log thread the store has made the entry, or the disk has crashed.
        let read = sealed.and_then(|()| self.members[member].store().read(index, index + 1, 0));
        match read {
            Ok(read) => {
                let model = self.members[member].model_at(read[0].to);
                self.entries.insert(id, (before, model));
                self.count("entries");
            }
            Err(error) => assert!(self.is_permitted(member, &error), "{error:?}"),
        }
    }

    fn call(
        &self,
        member: usize,
        call: impl FnOnce(&Store, frond_kv::Done) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let member = &self.members[member];
        let durable = member.durable.clone();
        let index = member.last().map_or(0, |last| last.index + 1);
        let done = Box::new(move |result: Result<(), Error>| {
            if result.is_ok() {
                durable.fetch_max(index + 1, Ordering::Relaxed);
            }
        });
        call(member.store(), done)
    }

    /// A follower gets entries from the member that leads in the newest term.
    fn replicate(&mut self, member: usize) {
        let leader = (0..self.members.len()).filter(|it| self.members[*it].store.is_some());
        let leader = leader.max_by_key(|it| self.members[*it].leads);
        let Some(leader) = leader.filter(|it| self.members[*it].leads == Some(self.term)) else {
            return;
        };
        if leader == member || self.term == 0 {
            return;
        }
        // A member that gets entries of a later term does not lead any more.
        if self.members[member].leads.take().is_some() {
            self.members[member].accepts = false;
            if let Err(error) = self.members[member].store().set_leading(false) {
                assert!(self.is_permitted(member, &error), "{error:?}");
            }
        }
        let leaders = self.members[leader].last();
        let mut common = self.members[member].last();
        while let Some(entry) = common.filter(|entry| !self.has(leaders, *entry)) {
            common = self.entries[&entry].0;
        }
        if common != self.members[member].last() {
            self.count("truncations");
            let durable = common.map_or(0, |common| common.index + 1);
            (self.members[member].durable).fetch_min(durable, Ordering::Relaxed);
            if let Err(error) = self.members[member].store().truncate_after(common) {
                self.reopen_for(member, &error);
                return;
            }
            let end = self.members[member].store().end_position();
            self.members[member].at.split_off(&(end + 1));
        }
        let first = common.map_or(0, |common| common.index + 1);
        let end = leaders.map_or(0, |last| last.index + 1);
        let bytes = self.random.random_range(0..20_000);
        match self.members[leader].store().read(first, end, bytes) {
            Ok(entries) => {
                let _ = entries
                    .into_iter()
                    .try_for_each(|entry| self.append(member, entry));
            }
            // Another copy of the leader would be due.
            Err(Error::LogGone { .. }) => self.copy(leader, member),
            Err(error) => assert!(self.is_permitted(leader, &error), "{error:?}"),
        }
    }

    /// Appends an entry of the leader; `None` if the next ones do not follow.
    fn append(&mut self, member: usize, entry: LogEntry) -> Option<()> {
        let (id, from, to) = (entry.id, entry.from, entry.to);
        match self.call(member, |store, done| store.append(entry, done)) {
            Ok(()) => {
                let model = self.entries[&id].1.clone();
                self.members[member].at.split_off(&(from + 1));
                self.members[member].at.insert(to, model);
                self.count("appended entries");
                Some(())
            }
            Err(error) => {
                self.reopen_for(member, &error);
                None
            }
        }
    }

    /// Opens a store again if it has to be.
    fn reopen_for(&mut self, member: usize, error: &Error) {
        if matches!(error, Error::MustReopen) {
            self.count("reopened after a deposition");
            let disk = self.members[member].disk.after_kill();
            self.members[member].store = None;
            self.members[member].disk = disk;
            if self.chance(0.1) {
                self.members[member].disk.crash_after(20);
            }
            self.open(member);
        } else {
            assert!(self.is_permitted(member, error), "{error:?}");
        }
    }

    /// A follower that needs entries which were purged becomes a copy of the leader.
    fn copy(&mut self, leader: usize, member: usize) {
        self.count("copies");
        let disk = self.members[leader].disk.after_kill();
        self.members[member].store = None;
        self.members[member].disk = disk;
        self.members[member].at = self.members[leader].at.clone();
        self.members[member].vote = self.members[leader].vote.clone();
        let durable = self.members[leader].durable.load(Ordering::Relaxed);
        self.members[member].durable = Arc::new(AtomicU64::new(durable));
        self.open(member);
    }

    /// The leader finds out what is committed, and some members hear of it.
    fn commit(&mut self, member: usize) {
        let Some(term) = self.members[member].leads.filter(|term| *term == self.term) else {
            return;
        };
        let last = self.members[member].last();
        let mut durable: Vec<u64> = (self.members.iter())
            .filter(|it| it.store.is_some())
            .map(|it| {
                let own = it.durable.load(Ordering::Relaxed);
                let last = it.last();
                let mut common = last;
                while let Some(entry) =
                    common.filter(|entry| !self.has(self.members[member].last(), *entry))
                {
                    common = self.entries[&entry].0;
                }
                own.min(common.map_or(0, |common| common.index + 1))
            })
            .collect();
        durable.sort_unstable_by(|a, b| b.cmp(a));
        let Some(count) = durable.get(self.majority() - 1).copied() else {
            return;
        };
        let mut at = last;
        while let Some(entry) = at.filter(|entry| entry.index >= count) {
            at = self.entries[&entry].0;
        }
        if let Some(entry) = at.filter(|entry| entry.term == term) {
            if let Some(committed) = self.committed {
                assert!(
                    self.has(Some(entry), committed) || self.has(Some(committed), entry),
                    "a committed entry is replaced"
                );
            }
            if self.committed.is_none_or(|committed| committed < entry) {
                self.committed = Some(entry);
            }
        }
        let Some(committed) = self.committed else {
            return;
        };
        for it in 0..self.members.len() {
            if self.members[it].store.is_none() || (it != member && self.chance(0.3)) {
                continue;
            }
            let mut at = Some(committed);
            let last = self.members[it].last();
            while let Some(entry) = at.filter(|entry| !self.has(last, *entry)) {
                at = self.entries[&entry].0;
            }
            let Some(entry) = at else { continue };
            if self.members[it]
                .store()
                .state()
                .committed
                .is_some_and(|is| is >= entry)
            {
                continue;
            }
            match self.members[it].store().apply(entry) {
                Ok(()) => self.count("applied"),
                Err(error) => {
                    assert!(self.is_permitted(it, &error), "{error:?}");
                    if self.members[it].store.is_some() && !self.members[it].disk.has_crashed() {
                        // It is applied in part.
                        self.reopen_for(it, &Error::MustReopen);
                    }
                }
            }
        }
        let leader = &self.members[member];
        if !leader.accepts && !leader.disk.has_crashed() && leader.store.is_some() {
            let state = leader.store().state();
            let is_own =
                state.applied == state.last && state.last.is_some_and(|it| it.term == term);
            if is_own {
                match leader.store().set_leading(true) {
                    Ok(()) => {
                        let leader = &mut self.members[member];
                        (leader.accepts, leader.has_led) = (true, true);
                    }
                    Err(error) => assert!(self.is_permitted(member, &error), "{error:?}"),
                }
            }
        }
    }

    /// A member whose log is not behind those of a majority becomes the leader of a new term.
    fn elect(&mut self) {
        let open: Vec<usize> = (0..self.members.len())
            .filter(|it| self.members[*it].store.is_some() && !self.members[*it].disk.has_crashed())
            .collect();
        if open.len() < self.majority() {
            return;
        }
        let mut voters = open;
        while voters.len() > self.majority() && self.chance(0.5) {
            voters.remove(self.random.random_range(0..voters.len()));
        }
        let Some(winner) = voters.into_iter().max_by_key(|it| self.members[*it].last()) else {
            return;
        };
        self.count("elections");
        self.term += 1;
        // The one before may not know it yet, and goes on.
        let was = self.members[winner].leads.replace(self.term);
        if was.is_some() {
            self.members[winner].accepts = false;
            if let Err(error) = self.members[winner].store().set_leading(false) {
                assert!(self.is_permitted(winner, &error), "{error:?}");
                return;
            }
        }
        let note = format!("members in term {}", self.term).into_bytes();
        self.seal_in(winner, self.term, &note);
    }

    fn maintain(&mut self, member: usize) {
        let store = self.members[member].store().clone();
        let result = match self.random.random_range(0..3) {
            0 => store.checkpoint(),
            1 => store.flush_log(),
            _ => store.compact(),
        };
        if let Err(error) = result {
            assert!(
                self.is_permitted(member, &error) || matches!(error, Error::NotLeading),
                "{error:?}"
            );
        }
    }

    fn save_vote(&mut self, member: usize) {
        let vote = vec![self.random.random::<u8>(); self.random.random_range(0..50)];
        let saved = self.members[member].store().save_vote(&vote);
        match saved {
            Ok(()) => self.members[member].vote = vote,
            Err(error) => {
                assert!(self.is_permitted(member, &error), "{error:?}");
                // Either of the two may be there.
                self.members[member].vote.clear();
            }
        }
    }

    fn purge(&mut self, member: usize) {
        let store = self.members[member].store();
        let state = store.state();
        if let Some(applied) = state
            .applied
            .filter(|applied| Some(*applied) > state.purged)
        {
            store.purge(applied);
            self.count("purges");
        }
    }

    /// Stops a member, with or without the end of its process.
    fn stop(&mut self, member: usize) {
        let kind = self.random.random_range(0..3);
        let random = &mut self.random;
        let it = &mut self.members[member];
        match kind {
            0 => {
                let closed = it.store.take().unwrap().close();
                assert!(closed.is_ok() || it.disk.has_crashed(), "{closed:?}");
                it.disk = if it.disk.has_crashed() {
                    it.disk.after_crash(random)
                } else {
                    it.disk.after_kill()
                };
            }
            1 => {
                let disk = it.disk.after_kill();
                it.store = None;
                it.disk = disk;
            }
            _ => {
                let disk = it.disk.after_crash(random);
                it.store = None;
                it.disk = disk;
            }
        }
        (it.leads, it.accepts) = (None, false);
    }

    fn crash(&mut self, member: usize) {
        self.count("crashes");
        let is_kill = self.chance(0.3);
        let it = &mut self.members[member];
        let disk = if is_kill {
            it.disk.after_kill()
        } else {
            it.disk.after_crash(&mut self.random)
        };
        it.store = None;
        it.disk = disk;
        (it.leads, it.accepts) = (None, false);
    }

    /// Opens a store. It must have what was durable, and the model of what it has applied.
    fn open(&mut self, member: usize) {
        let it = &mut self.members[member];
        (it.leads, it.accepts, it.has_led) = (None, false, false);
        let store = match Store::open(options(&it.disk, self.encrypted)) {
            Ok(store) => store,
            Err(error) => {
                assert!(it.disk.has_crashed(), "{error:?}");
                return self.crash(member);
            }
        };
        let state = store.state();
        let next = state.last.map_or(0, |last| last.index + 1);
        let durable = it.durable.load(Ordering::Relaxed);
        assert!(
            next >= durable,
            "{durable} durable entries, {next} are left"
        );
        if !it.vote.is_empty() {
            assert_eq!(store.vote().unwrap().as_ref(), Some(&it.vote));
        }
        let end = store.end_position();
        it.at.split_off(&(end + 1));
        it.store = Some(store);
        if let Some(last) = state.last
            && let Ok(read) = self.members[member]
                .store()
                .read(last.index, last.index + 1, 0)
        {
            // The crash may have come between the write of an entry and the answer.
            let to = read[0].to;
            if let Some((_, model)) = self.entries.get(&last) {
                let model = model.clone();
                self.members[member].at.insert(to, model);
            } else {
                let index = last.index.checked_sub(1);
                let store = self.members[member].store();
                let before = index.and_then(|index| store.read(index, last.index, 0).ok());
                let before = before.map_or(state.purged, |before| Some(before[0].id));
                let model = self.members[member].model_at(to);
                self.entries.insert(last, (before, model));
            }
        }
        self.count("opens");
        self.check(member);
    }

    /// A member has the model of its position.
    fn check(&mut self, member: usize) {
        let it = &self.members[member];
        let store = it.store();
        let expected = if it.accepts {
            it.at.last_key_value().map(|(_, model)| model.clone())
        } else {
            let state = store.state();
            let applied = state
                .applied
                .map(|applied| self.entries[&applied].1.clone());
            applied.or_else(|| it.at.first_key_value().map(|(_, model)| model.clone()))
        };
        let found = match content_of(store) {
            Ok(found) => found,
            Err(error) => {
                assert!(it.disk.has_crashed(), "{error:?}");
                return self.crash(member);
            }
        };
        if *expected.unwrap() == found {
            return;
        }
        // A leader that was deposed has commits that are in no entry, or in one that is not committed.
        let is_deposed = it.has_led && !it.accepts && it.at.values().any(|model| **model == found);
        assert!(is_deposed, "member {member} has something else");
    }

    /// In the end all members are open and have the same.
    fn settle(&mut self) {
        for member in 0..self.members.len() {
            if self.members[member].disk.has_crashed() {
                self.crash(member);
            } else if self.members[member].store.is_some() {
                // Crashes that are still to come do not.
                let disk = self.members[member].disk.after_kill();
                self.members[member].store = None;
                self.members[member].disk = disk;
            }
            self.open(member);
        }
        let (before, last) = (self.committed, self.entries.len());
        while self.committed == before || self.entries.len() == last {
            self.elect();
            let leader = (0..self.members.len())
                .max_by_key(|it| self.members[*it].leads)
                .unwrap();
            for member in 0..self.members.len() {
                for _ in 0..50 {
                    if self.members[member].last() == self.members[leader].last() {
                        break;
                    }
                    self.replicate(member);
                }
            }
            self.commit(leader);
        }
        let committed = self.committed.unwrap();
        let model = self.entries[&committed].1.clone();
        if let Some(before) = before {
            assert!(
                self.has(Some(committed), before),
                "a committed entry is lost"
            );
        }
        for member in 0..self.members.len() {
            let store = self.members[member].store();
            if store.state().committed < Some(committed) {
                store.apply(committed).unwrap();
            }
            assert!(
                content_of(store).unwrap() == *model,
                "member {member} differs in the end"
            );
            let state = store.state();
            let note = state
                .applied_note
                .map(|(_, note)| String::from_utf8(note.to_vec()).unwrap());
            assert!(note.is_some_and(|note| note.starts_with("members in term")));
            store.close().unwrap();
            let disk = self.members[member].disk.after_kill();
            let verified = Store::verify(&options(&disk, self.encrypted), &mut |_| {}).unwrap();
            // A crash may have torn the superblock that is not in use.
            let mut problems = verified.problems.iter();
            let problem = problems.find(|problem| !problem.what.contains("superblock"));
            assert!(problem.is_none(), "{problem:?}");
        }
    }
}

fn run(seed: u64) -> BTreeMap<&'static str, u64> {
    let mut set = Set::new(seed);
    set.elect();
    let steps = set.random.random_range(50..600);
    for _ in 0..steps {
        set.step();
    }
    set.settle();
    set.counts
}

#[test]
fn members_have_what_is_committed_after_crashes_and_elections() {
    let setting = |name: &str, default| {
        let text = std::env::var(name).ok();
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (first, count) = (setting("FROND_SEED", 1), setting("FROND_SETS", 60u64));
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + count {
        let result = std::panic::catch_unwind(|| run(seed));
        let found = result.unwrap_or_else(|_| panic!("seed {seed} failed"));
        for (what, count) in found {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{counts:?}");
    if count >= 50 {
        for what in [
            "copies",
            "crashes",
            "truncations",
            "reopened after a deposition",
        ] {
            assert!(counts.contains_key(what), "there are no {what}");
        }
    }
}
