//! Changes of the catalog that an operation makes, noted on its thread for an audit.
//!
//! Two views are compared where one takes the place of the other, so the notes are complete whatever command made a change: a
//! collection that an insert creates, one that `$out` renames, all of a transaction at its commit. What another server or another
//! member of the set has changed is not published there, and so is never attributed to an operation of this server.

use std::cell::RefCell;
use std::sync::Arc;

use frond_bson::{ArrayBuf, DocBuf};
use frond_storage::index::Index;
use frond_storage::namespace::Namespace;

use super::{Collection, View, ViewDefinition};

thread_local! {
    static NOTED: RefCell<Option<Vec<CatalogChange>>> = const { RefCell::new(None) };
}

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogChange {
    DatabaseCreated(String),
    CollectionCreated(Namespace),
    CollectionDropped(Namespace),
    CollectionRenamed {
        from: Namespace,
        to: Namespace,
    },
    ViewCreated(ViewChange),
    ViewDropped(ViewChange),
    /// The progress of an index.
    Index(IndexState, IndexNamed),
    IndexDropped(IndexNamed),
}

/// A view that was created or dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewChange {
    pub ns: Namespace,
    /// The collection or view that it is on, with its database.
    pub on: String,
    pub pipeline: ArrayBuf,
}

/// The progress of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    Started,
    Succeeded,
    Aborted,
}

/// An index with its collection.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexNamed {
    pub ns: Namespace,
    pub name: String,
    pub spec: DocBuf,
}

/// Runs an operation on this thread, and returns the changes of the catalog that it has published.
pub fn noting_changes<T>(operation: impl FnOnce() -> T) -> (T, Vec<CatalogChange>) {
    struct Restore(Option<Vec<CatalogChange>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            NOTED.set(self.0.take());
        }
    }
    let restore = Restore(NOTED.replace(Some(Vec::new())));
    let done = operation();
    let noted = NOTED.take().unwrap_or_default();
    drop(restore);
    (done, noted)
}

/// Notes the changes between two views, if an operation of this thread is noted.
pub(super) fn note(before: &View, after: &View) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            noted.extend(changes(before, after));
        }
    });
}

/// The changes between two views, in an order in which they could have been made.
fn changes(before: &View, after: &View) -> Vec<CatalogChange> {
    let mut out = Vec::new();
    let (mut gone, mut new) = (Vec::new(), Vec::new());
    for (old, now) in before.changed_shards(after) {
        gone.extend(old.values().filter(|one| is_other(one, now.get(&one.ns))));
        new.extend(now.values().filter(|one| is_other(one, old.get(&one.ns))));
    }
    gone.sort_by(|a, b| a.ns.cmp(&b.ns));
    new.sort_by(|a, b| a.ns.cmp(&b.ns));
    let find = |all: &[&Arc<Collection>], one: &Collection| -> Option<Arc<Collection>> {
        let mut same = all.iter().filter(|other| other.uuid == one.uuid);
        same.next().map(|found| Arc::clone(found))
    };
    for old in &gone {
        if find(&new, old).is_none() {
            out.push(CatalogChange::CollectionDropped(old.ns.clone()));
        }
    }
    for now in &new {
        match find(&gone, now) {
            Some(old) => {
                if old.ns != now.ns {
                    push_database(&mut out, before, now.ns.db());
                    out.push(CatalogChange::CollectionRenamed {
                        from: old.ns.clone(),
                        to: now.ns.clone(),
                    });
                }
                push_indexes(&mut out, &old, now);
            }
            None => {
                push_database(&mut out, before, now.ns.db());
                out.push(CatalogChange::CollectionCreated(now.ns.clone()));
                if now.lists_id_index() {
                    let named = IndexNamed {
                        ns: now.ns.clone(),
                        name: now.id_index_name().to_owned(),
                        spec: now.id_index(),
                    };
                    out.push(CatalogChange::Index(IndexState::Succeeded, named));
                }
                for index in &now.indexes {
                    if index.spec.is_id_index() {
                        let named = named(now, index);
                        out.push(CatalogChange::Index(IndexState::Succeeded, named));
                    } else {
                        push_index(&mut out, now, None, index);
                    }
                }
            }
        }
    }
    push_views(&mut out, before, after);
    out
}

/// Whether a view has not this version of a collection under its name.
fn is_other(one: &Arc<Collection>, other: Option<&Arc<Collection>>) -> bool {
    other.is_none_or(|other| !Arc::ptr_eq(one, other))
}

/// A database begins with its first collection.
fn push_database(out: &mut Vec<CatalogChange>, before: &View, db: &str) {
    let created = CatalogChange::DatabaseCreated(db.to_owned());
    if !out.contains(&created) && !before.iter().any(|one| one.ns.db() == db) {
        out.push(created);
    }
}

fn push_indexes(out: &mut Vec<CatalogChange>, old: &Collection, now: &Collection) {
    let find = |all: &[Arc<Index>], one: &Index| -> Option<Arc<Index>> {
        all.iter().find(|other| other.tree == one.tree).cloned()
    };
    // One that is built in the place of another appears when it is ready, as that one.
    let names = |all: &[Arc<Index>], name: &str| all.iter().any(|one| one.spec.name == name);
    for index in &old.indexes {
        if index.replaces.is_some() || names(&now.indexes, &index.spec.name) {
            continue;
        }
        out.push(if index.ready {
            CatalogChange::IndexDropped(named(now, index))
        } else {
            CatalogChange::Index(IndexState::Aborted, named(now, index))
        });
    }
    for index in &now.indexes {
        let before = find(&old.indexes, index);
        let is_replacement = before.is_none() && names(&old.indexes, &index.spec.name);
        let was_replacement = before.as_ref().is_some_and(|old| old.replaces.is_some());
        if index.replaces.is_none() && !is_replacement && !was_replacement {
            push_index(out, now, before.as_deref(), index);
        }
    }
}

/// An index that was there before in this state, or not at all.
fn push_index(
    out: &mut Vec<CatalogChange>,
    collection: &Collection,
    before: Option<&Index>,
    index: &Index,
) {
    let mut push = |state| out.push(CatalogChange::Index(state, named(collection, index)));
    if before.is_none() {
        push(IndexState::Started);
    }
    if index.ready && before.is_none_or(|before| !before.ready) {
        push(IndexState::Succeeded);
    }
}

fn named(collection: &Collection, index: &Index) -> IndexNamed {
    let mut spec = DocBuf::new();
    if !index.spec.doc.contains_key("v") {
        spec.push("v", 2);
    }
    spec.push_all(&index.spec.doc);
    IndexNamed {
        ns: collection.ns.clone(),
        name: index.spec.name.clone(),
        spec,
    }
}

fn push_views(out: &mut Vec<CatalogChange>, before: &View, after: &View) {
    let missing = |one: &View, other: &View| -> Vec<ViewChange> {
        if one.has_same_definitions(other) {
            return Vec::new();
        }
        let gone = one
            .all_definitions()
            .filter(|view| other.definition(&view.ns).is_none());
        let mut gone: Vec<_> = gone.map(|view| view_change(view)).collect();
        gone.sort_by(|a, b| a.ns.cmp(&b.ns));
        gone
    };
    out.extend(
        missing(before, after)
            .into_iter()
            .map(CatalogChange::ViewDropped),
    );
    out.extend(
        missing(after, before)
            .into_iter()
            .map(CatalogChange::ViewCreated),
    );
}

fn view_change(view: &ViewDefinition) -> ViewChange {
    ViewChange {
        ns: view.ns.clone(),
        on: format!("{}.{}", view.ns.db(), view.on),
        pipeline: view.pipeline.clone(),
    }
}
