//! Snapshots and keys with many versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use frond_kv::operation::decode;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{HotKey, MemSource, Memtable, for_versions};
use crate::merge::{Fold, Resolver};
use crate::{Kind, Malformed, MergeOperator, TreeId, WriteSet};

const TREE: TreeId = TreeId(1);

/// Values and deltas are texts that are joined, so that the order of deltas counts. A `!` removes all before it.
struct Joiner;

fn last_mark(text: &[u8]) -> Option<usize> {
    text.iter().rposition(|byte| *byte == b'!')
}

impl MergeOperator for Joiner {
    fn apply(
        &self,
        _: TreeId,
        _: &[u8],
        base: Option<&[u8]>,
        delta: &[u8],
    ) -> Result<Option<Vec<u8>>, Malformed> {
        Ok(match last_mark(delta) {
            Some(mark) if mark + 1 == delta.len() => None,
            Some(mark) => Some([b"<", &delta[mark + 1..]].concat()),
            None => Some([base.unwrap_or(b"<"), delta].concat()),
        })
    }

    fn combine(
        &self,
        _: TreeId,
        _: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> Result<Vec<u8>, Malformed> {
        Ok(match last_mark(newer) {
            Some(mark) => newer[mark..].to_vec(),
            None => [older, newer].concat(),
        })
    }

    fn check(&self, _: TreeId, _: &[u8], _: &[u8]) -> Result<(), Malformed> {
        Ok(())
    }
}

fn resolver() -> Resolver {
    Resolver {
        tree: TREE,
        operator: Arc::new(Joiner),
        settles: false,
    }
}

/// The result of the messages of one key.
type State = (Kind, Vec<u8>);
type Model = BTreeMap<Vec<u8>, State>;

fn merged(state: Option<&State>, delta: &[u8]) -> State {
    match state {
        None => (Kind::Merge, delta.to_vec()),
        Some((Kind::Merge, older)) => (
            Kind::Merge,
            Joiner.combine(TREE, &[], older, delta).unwrap(),
        ),
        Some((kind, base)) => {
            let base = (*kind == Kind::Put).then_some(base.as_slice());
            match Joiner.apply(TREE, &[], base, delta).unwrap() {
                Some(value) => (Kind::Put, value),
                None => (Kind::Delete, Vec::new()),
            }
        }
    }
}

struct Table {
    memtable: Arc<Memtable>,
    sequence: u64,
    model: Model,
    random: SmallRng,
    folds: u64,
    /// A commit that is not inserted yet, although the next one may be.
    late: Option<(WriteSet, u64)>,
}

impl Table {
    fn random(&mut self, below: u64) -> u64 {
        self.random.random_range(0..below)
    }

    fn fold(&mut self, hot: HotKey, visible: u64) {
        let Some(folded) = self.memtable.fold(hot, visible, &resolver()) else {
            return;
        };
        let bytes = self.memtable.folded_bytes(&folded);
        assert!(self.memtable.reserve(bytes));
        self.memtable.insert_folded(&folded, bytes);
        self.folds += 1;
    }

    fn step(&mut self) {
        let mut set = WriteSet::new();
        // One key gets most of the messages.
        let number = self.random(30).saturating_sub(20);
        let key = format!("key {number}").into_bytes();
        let text = format!("{} ", self.sequence).into_bytes();
        match self.random(400) {
            0 => {
                let upper = format!("key {}", number + self.random(3)).into_bytes();
                set.delete_range(TREE, &key, Some(&upper));
                let dead = |at: &Vec<u8>| (&key..&upper).contains(&at);
                self.model.retain(|at, _| !dead(at));
                // Older sources have such keys perhaps.
                if !set.is_empty() {
                    for number in 0..10 {
                        let at = format!("key {number}").into_bytes();
                        if dead(&at) {
                            self.model.insert(at, (Kind::Delete, Vec::new()));
                        }
                    }
                }
            }
            1..4 => {
                set.put(TREE, &key, &text);
                self.model.insert(key, (Kind::Put, text));
            }
            4 => {
                set.delete(TREE, &key);
                self.model.insert(key, (Kind::Delete, Vec::new()));
            }
            _ => {
                let text = match self.random(60) {
                    0 => b"!".to_vec(),
                    _ => text,
                };
                set.merge(TREE, &key, &text);
                let state = merged(self.model.get(&key), &text);
                self.model.insert(key, state);
            }
        }
        if set.is_empty() {
            return;
        }
        let first = self.sequence + 1;
        self.sequence += set.len() as u64;
        match self.late.take() {
            None if self.random(4) == 0 => self.late = Some((set, first)),
            None => self.insert(&set, first, self.sequence),
            Some((late, late_first)) => {
                // A commit is overtaken by the next one, which is not visible before it.
                self.insert(&set, first, late_first - 1);
                self.insert(&late, late_first, self.sequence);
            }
        }
    }

    /// Inserts a write set. Afterwards all up to `visible` have been inserted.
    fn insert(&mut self, set: &WriteSet, first: u64, visible: u64) {
        let bytes = Memtable::set_bytes_max(set);
        assert!(self.memtable.reserve(bytes));
        let hot = self
            .memtable
            .insert(decode(set.payload()), set.len(), first, bytes);
        for hot in hot {
            self.fold(hot, visible);
        }
    }
}

/// Compares what a snapshot sees with what it must.
fn check(memtable: &Arc<Memtable>, sequence: u64, model: &Model) {
    // Keys that only a range delete knows have no entry to be found by a walk.
    let mut found = Model::new();
    for number in 0..10 {
        let key = format!("key {number}").into_bytes();
        let (mut fold, mut any) = (Fold::default(), false);
        for_versions(memtable, TREE, &key, sequence, |kind, value, pin| {
            assert_eq!(&*pin(), value);
            any = true;
            !fold.add(&resolver(), &key, kind, value)
        });
        let state = any.then(|| fold.finish(&resolver(), &key).unwrap());
        let expected = model.get(&key);
        assert_eq!(state.as_ref(), expected, "{key:?} at {sequence}");
        found.extend(state.map(|state| (key, state)));
    }
    let Some(mut source) = MemSource::new(memtable, TREE, sequence, resolver()) else {
        assert!(model.is_empty());
        return;
    };
    let ranges = source.ranges();
    let is_entry = |(key, (kind, _)): &(&Vec<u8>, &State)| {
        *kind != Kind::Delete || ranges.covering(key).is_none()
    };
    for forward in [true, false] {
        let mut walked = Model::new();
        if forward {
            source.seek(None)
        } else {
            source.seek_before(None)
        }
        while let Some(key) = source.key() {
            let key = key.to_vec();
            let (kind, value) = source.folded().unwrap();
            walked.insert(key.clone(), (kind, value.into_owned()));
            let last = walked.iter().next().map(|(first, _)| first == &key);
            assert!(forward || last == Some(true), "keys descend");
            if forward {
                source.step()
            } else {
                source.step_back()
            }
        }
        // A delete above a range delete may or may not have an entry.
        walked.retain(|key, state| is_entry(&(key, state)));
        let expected: Model = (found.iter().filter(is_entry))
            .map(|(key, state)| (key.clone(), state.clone()))
            .collect();
        assert_eq!(walked, expected, "forward {forward} at {sequence}");
    }
}

#[test]
fn every_snapshot_sees_its_own_state_of_hot_keys() {
    for seed in 1..4 {
        let mut table = Table {
            memtable: Arc::new(Memtable::new(4 << 20, 0, &Arc::default())),
            sequence: 0,
            model: Model::new(),
            random: SmallRng::seed_from_u64(seed),
            folds: 0,
            late: None,
        };
        let mut then = Vec::new();
        for step in 0..3000 {
            if table.late.is_none() && (step % 50 == 0 || step % 700 < 40) {
                then.push((table.sequence, table.model.clone()));
            }
            table.step();
            if step % 500 == 0 {
                for (sequence, model) in &then {
                    check(&table.memtable, *sequence, model);
                }
            }
        }
        if let Some((late, first)) = table.late.take() {
            table.insert(&late, first, table.sequence);
        }
        then.push((table.sequence, table.model.clone()));
        for (sequence, model) in &then {
            check(&table.memtable, *sequence, model);
        }
        assert!(table.folds > 20, "{} folds", table.folds);
    }
}

#[test]
fn readers_of_hot_keys_go_through_few_messages() {
    let mut table = Table {
        memtable: Arc::new(Memtable::new(32 << 20, 0, &Arc::default())),
        sequence: 0,
        model: Model::new(),
        random: SmallRng::seed_from_u64(1),
        folds: 0,
        late: None,
    };
    // The result of their fold grows for a while. Then it is one small text; what is large by then is folded with it once
    // there are as many bytes of new deltas.
    let (mut size, mut used) = (0, 0);
    for number in 0..20_000u64 {
        let text = match number {
            8000.. => "!small".to_owned(),
            number => format!("{number} "),
        };
        match number {
            ..8000 => size += text.len(),
            17_000.. => size = 0,
            _ => {}
        }
        used += text.len();
        let mut set = WriteSet::new();
        set.merge(TREE, b"hot", text.as_bytes());
        let bytes = Memtable::set_bytes_max(&set);
        assert!(table.memtable.reserve(bytes));
        let hot = (table.memtable).insert(decode(set.payload()), set.len(), number + 1, bytes);
        for hot in hot {
            table.fold(hot, number + 1);
        }
        if number % 17 == 0 {
            let mut met = 0;
            for_versions(&table.memtable, TREE, b"hot", number + 1, |_, value, _| {
                met += 1 + value.len();
                true
            });
            assert!(met <= 700 + size * 4, "{met} at {number}, {size}");
        }
    }
    let folded = table.memtable.bytes() - used;
    assert!(folded < 20_000 * 60, "{folded} bytes besides the texts");
}
