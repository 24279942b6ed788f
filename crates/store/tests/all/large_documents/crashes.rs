//! Random operations, compared with the model, on a disk that may crash at any operation. The recovered state is one that
//! the model had, not older than the last sync: no document ever has half of an update.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use frond_bson::{Doc, DocBuf, doc};
use frond_store::{
    DocumentStore, Durability, EngineOptions, FindRequest, Namespace, OpContext, QueryCursor,
};
use rand::RngExt;

use crate::common::ns;
use crate::large_documents::model::{Change, Docs, Model, same_outcome};
use crate::large_documents::operations::{Op, run};
use crate::large_documents::queries::{
    all, brief, check_all, check_one, check_query, check_sound, differences, in_parts,
};
use crate::large_documents::setting::{SETTINGS, Setting, WHOLE, seeds};
use crate::large_documents::shrink::{HISTORY, shrink};
use crate::large_documents::support::SimDisk;
use crate::large_documents::updates::Shape;
use crate::large_documents::values::Random;

/// Indexes that updates have to maintain; none of them refuses a document.
const INDEXES: &[(&str, &str)] = &[
    ("n.k1", "plain"),
    ("m.k1", "plain"),
    ("a", "plain"),
    ("tags.k0", "plain"),
    ("p.in.k2", "plain"),
    ("m.k3", "sparse"),
    ("p.k0", "partial"),
];

fn index(name: &str, kind: &str) -> DocBuf {
    match kind {
        "sparse" => doc! {"key": {name: 1}, "sparse": true},
        "partial" => {
            doc! {"key": {name: 1}, "partialFilterExpression": {"a": {"$gte": 1}}}
        }
        _ => doc! {"key": {name: 1}},
    }
}

/// A cursor that was opened earlier, and the documents that it must find.
struct Reader {
    cursor: QueryCursor,
    wanted: Vec<DocBuf>,
    /// Steps until it is read to its end.
    left: usize,
}

struct World {
    what: String,
    random: Random,
    setting: Setting,
    shape: Shape,
    disk: SimDisk,
    crashes: bool,
    inline: bool,
    /// Whether the setting changes with each opening.
    changes_setting: bool,
    memtable_bytes: usize,
    c: Namespace,
    /// The documents that survived the last crash.
    base: Docs,
    /// The writes since, by commit. The first `safe` of them are synced.
    commits: Vec<Vec<Change>>,
    safe: usize,
    model: Model,
    operations: u64,
    /// Documents seen that are stored in parts, and stored whole.
    parts: usize,
    whole: usize,
}

impl World {
    fn new(seed: u64, setting: &Setting, crashes: bool) -> World {
        let mut random = Random::new(seed);
        HISTORY.with_borrow_mut(Vec::clear);
        let ids = match setting.threshold {
            0..1000 => 30,
            1000..10_000 => 16,
            _ => 6,
        };
        let hot = random.one_in(2);
        World {
            what: format!("{} {seed}", setting.name),
            disk: SimDisk::new(seed),
            setting: *setting,
            shape: if hot {
                Shape {
                    ids: 1,
                    bytes: setting.threshold * 2,
                    hot: true,
                }
            } else {
                Shape {
                    ids,
                    bytes: setting.threshold,
                    hot: false,
                }
            },
            crashes,
            changes_setting: random.one_in(4),
            // With threads in the background a seed cannot be replayed exactly.
            inline: !random.one_in(if crashes { 8 } else { 2 }),
            memtable_bytes: (16 << 10) << (random.below(4) + 2 * usize::from(hot)),
            c: ns("db.c"),
            base: Docs::new(),
            commits: Vec::new(),
            safe: 0,
            model: Model::default(),
            operations: 0,
            parts: 0,
            whole: 0,
            random,
        }
    }

    fn open(&mut self) -> Option<DocumentStore> {
        let mut options = EngineOptions::with_disk(Arc::new(self.disk.clone()));
        options.memtable_bytes = Some(self.memtable_bytes);
        options.fanout = 4;
        options.inline = self.inline;
        options.flush_threads = 1;
        // Documents stay as they are stored when the setting changes, until they are rewritten.
        let setting = if self.changes_setting {
            SETTINGS
                .iter()
                .chain([&WHOLE])
                .nth(self.random.below(4))
                .unwrap()
        } else {
            &self.setting
        };
        match setting.open(options) {
            Ok(store) => Some(store),
            Err(error) => {
                assert!(
                    self.disk.has_crashed(),
                    "{}: not opened: {error}",
                    self.what
                );
                None
            }
        }
    }

    /// Finds which commits survived, and continues from there.
    fn look(&mut self, store: &DocumentStore) {
        let found = all(store, &self.c);
        let found: Docs = found
            .into_iter()
            .map(|doc| {
                (
                    crate::large_documents::values::key_of(&doc.get("_id").unwrap()),
                    doc,
                )
            })
            .collect();
        let mut state = self.base.clone();
        let mut differing: BTreeSet<Vec<u8>> = state
            .keys()
            .chain(found.keys())
            .filter(|key| state.get(*key) != found.get(*key))
            .cloned()
            .collect();
        let mut survived = differing.is_empty().then_some(0);
        let mut nearest = (differing.len(), 0, state.clone());
        for (n, commit) in self.commits.iter().enumerate() {
            for (key, doc) in commit {
                match doc {
                    Some(doc) => state.insert(key.clone(), doc.clone()),
                    None => state.remove(key),
                };
                if state.get(key) == found.get(key) {
                    differing.remove(key);
                } else {
                    differing.insert(key.clone());
                }
            }
            if differing.is_empty() {
                survived = Some(n + 1);
            } else if differing.len() <= nearest.0 {
                nearest = (differing.len(), n + 1, state.clone());
            }
        }
        let what = &self.what;
        let Some(survived) = survived else {
            let wrong = differences(found.values(), nearest.2.values());
            panic!(
                "{what}: no state of the model is there; after {} of {} commits, {} of them synced: {wrong:?}",
                nearest.1,
                self.commits.len(),
                self.safe
            );
        };
        assert!(
            survived >= self.safe,
            "{what}: {survived} commits survived, {} were synced",
            self.safe
        );
        self.base = found.clone();
        self.model.docs = found;
        self.commits.clear();
        self.safe = 0;
        check_sound(store, &self.c, what);
        check_all(store, &self.c, &self.model.docs, what);
        let parts = in_parts(store, &self.c);
        self.parts += parts;
        self.whole += self.model.docs.len() - parts;
    }

    fn create_indexes(&mut self, store: &DocumentStore) {
        for (name, kind) in INDEXES {
            if self.random.one_in(3) {
                let spec = index(name, kind);
                let specs: Vec<&Doc> = vec![&spec];
                store.create_indexes(&self.c, &specs).unwrap();
            }
        }
        store.engine().flush_log().unwrap();
    }

    /// Opens the store, works, and ends.
    fn live(&mut self, steps: usize) {
        if self.crashes && self.random.one_in(8) {
            self.disk.crash_after(1 + self.random.below(30) as u64);
        }
        let Some(store) = self.open() else {
            self.disk = self.disk.after_crash(&mut self.random.0);
            return;
        };
        if !self.disk.has_crashed() && !self.crashes {
            self.look(&store);
        } else {
            // A crash planned for the opening that did not happen is cancelled.
            self.disk.crash_after(u64::MAX / 2);
            self.look(&store);
        }
        if self.operations == 0 {
            self.create_indexes(&store);
        }
        if self.crashes && !self.random.one_in(8) {
            let reach = [20, 200, 1000][self.random.below(3)];
            self.disk.crash_after(1 + self.random.below(reach) as u64);
        }
        let mut readers = Vec::new();
        for step in 0..steps {
            self.step(&store, step, &mut readers);
            if self.disk.has_crashed() {
                break;
            }
        }
        drop(readers);
        if !self.disk.has_crashed() && self.random.one_in(2) {
            if store.engine().close().is_ok() {
                self.safe = self.commits.len();
            }
        } else if !self.crashes {
            store.engine().flush_log().unwrap();
            self.safe = self.commits.len();
        }
        self.disk.crash_after(0);
        drop(store);
        self.disk = if self.random.one_in(4) {
            self.disk.after_kill()
        } else {
            self.disk.after_crash(&mut self.random.0)
        };
    }

    fn step(&mut self, store: &DocumentStore, step: usize, readers: &mut Vec<Reader>) {
        let op = self.random.operation(&self.model.docs, self.shape);
        let synced = self.random.one_in(10);
        let durability = [Durability::Logged, Durability::Synced][usize::from(synced)];
        let what = format!("{} step {step}: {}", self.what, brief(&op));
        HISTORY.with_borrow_mut(|history| history.push(op.clone()));
        let outcome = run(store, &self.c, &op, durability);
        let (wanted, changes) = match &outcome {
            // The model does not know the limits of indexes. Earlier documents of an update of many stay changed.
            Err((17280, _)) => (outcome.clone(), self.follow(store)),
            _ => self.model.run(&op),
        };
        self.operations += 1;
        match op {
            // One insert may be several commits.
            Op::Insert(_) => self
                .commits
                .extend(changes.iter().map(|one| vec![one.clone()])),
            _ => self.commits.push(changes.clone()),
        }
        if self.disk.has_crashed() {
            return;
        }
        assert!(
            same_outcome(&outcome, &wanted),
            "{what}: {} in place of {}",
            brief(&outcome),
            brief(&wanted)
        );
        // An operation without changes syncs nothing.
        if synced && outcome.is_ok() && !changes.is_empty() {
            self.safe = self.commits.len();
        }
        if self.crashes {
            if self.random.one_in(if self.shape.hot { 50 } else { 200 }) {
                let _ = store.checkpoint();
            }
            return;
        }
        for (key, _) in &changes {
            check_one(store, &self.c, &self.model.docs, key, &what);
        }
        if self.random.one_in(15) {
            let (model, random) = (&self.model, &mut self.random);
            check_query(store, &self.c, model, random, self.shape, &what);
        }
        if self.random.one_in(60) {
            check_all(store, &self.c, &self.model.docs, &what);
        }
        if self.random.one_in(150) {
            store.checkpoint().unwrap();
        }
        if self.random.one_in(30) {
            readers.push(self.reader(store));
        }
        for reader in readers.iter_mut() {
            reader.left = reader.left.saturating_sub(1);
        }
        for reader in readers.extract_if(.., |reader| reader.left == 0) {
            reader.finish(&what);
        }
    }

    /// Sets the model to the contents of the store. Returns the differences.
    fn follow(&mut self, store: &DocumentStore) -> Vec<Change> {
        let mut changes = Vec::new();
        for doc in all(store, &self.c) {
            let key = crate::large_documents::values::key_of(&doc.get("_id").unwrap());
            if self.model.docs.get(&key) != Some(&doc) {
                changes.push((key, Some(doc)));
            }
        }
        changes.iter().for_each(|change| self.model.apply(change));
        changes
    }

    /// A cursor over all current documents, some of which it has read.
    fn reader(&mut self, store: &DocumentStore) -> Reader {
        let request = FindRequest::default();
        let mut cursor = store.find(&self.c, &request, &OpContext::new()).unwrap();
        let mut wanted = self.model.docs.values().cloned().collect::<Vec<_>>();
        for _ in 0..self.random.0.random_range(0..3) {
            let read = cursor.next().unwrap();
            if let Some(doc) = read {
                assert_eq!(doc, wanted.remove(0));
            }
        }
        Reader {
            cursor,
            wanted,
            left: 1 + self.random.below(40),
        }
    }
}

impl Reader {
    fn finish(mut self, what: &str) {
        let mut found = Vec::new();
        while let Some(doc) = self.cursor.next().unwrap() {
            found.push(doc);
        }
        if let Some(wrong) = differences(found.iter(), self.wanted.iter()) {
            panic!("{what}: an older cursor: {wrong}");
        }
    }
}

fn work(seed: u64, setting: &Setting, crashes: bool) -> u64 {
    let mut world = World::new(seed, setting, crashes);
    let lives = 2 + world.random.below(if crashes { 8 } else { 2 });
    for _ in 0..lives {
        // Messages of one key are combined when there are some.
        let steps = match (setting.threshold, world.shape.hot) {
            (0..10_000, true) => 300,
            (0..10_000, false) | (_, true) => 120,
            _ => 25,
        };
        world.live(steps);
    }
    let store = world.open().unwrap();
    world.look(&store);
    DOCUMENTS
        .with_borrow_mut(|counted| *counted = (counted.0 + world.parts, counted.1 + world.whole));
    world.operations
}

thread_local! {
    /// Documents seen in parts, and whole.
    static DOCUMENTS: RefCell<(usize, usize)> = const { RefCell::new((0, 0)) };
}

/// Checks that both kinds of documents occurred, unless only one seed ran.
fn check_kinds() {
    let (parts, whole) = DOCUMENTS.take();
    println!("{parts} documents in parts, {whole} whole");
    assert!(parts + whole < 300 || (parts > whole / 4 && whole > parts / 10));
}

#[test]
fn every_operation_has_the_result_of_whole_documents() {
    let indexes: Vec<DocBuf> = INDEXES
        .iter()
        .map(|(name, kind)| index(name, kind))
        .collect();
    seeds(3000, |seed, setting| {
        let worked = catch_unwind(AssertUnwindSafe(|| work(seed, setting, false)));
        worked.unwrap_or_else(|panic| {
            shrink(setting, &indexes);
            resume_unwind(panic)
        })
    });
    check_kinds();
}

#[test]
fn a_crash_leaves_complete_documents_of_one_state() {
    seeds(3000, |seed, setting| work(seed, setting, true));
    check_kinds();
}
