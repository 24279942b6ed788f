//! The counts of an operation: examined, written, waited for.
//!
//! The server lends an operation its [`OpStats`] by [`watch`]; whatever runs on the thread meanwhile adds to them, through
//! all layers. So neither requests nor their results carry them. Without [`watch`] nothing is kept. Adding costs little
//! more than the additions: texts and hashes are made of a [`UsedPlan`] only for those who look at them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf};
use frond_query::matcher::Filter;
use frond_query::sort::SortSpec;
use parking_lot::Mutex;

use crate::catalog::Collection;
use crate::plan::cache;
use crate::plan::summary::Summary;
use frond_storage::merge::Counts;

thread_local! {
    static CURRENT: RefCell<Option<Box<OpStats>>> = const { RefCell::new(None) };
}

/// The plan of a query, and the query, as far as their identities need them.
#[derive(Clone, Debug)]
pub struct UsedPlan {
    summary: Summary,
    query: Option<(Arc<Filter>, SortSpec, Arc<Collection>)>,
}

/// Hashes that identify a query and its plan, as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHashes {
    /// Of the shape of the query: `queryHash`, `planCacheShapeHash`.
    pub shape: String,
    /// Of the shape and the indexes that there are: `planCacheKey`.
    pub key: String,
}

impl PlanHashes {
    /// Those of a query on a collection.
    pub(crate) fn for_query(
        filter: &Filter,
        sort: &SortSpec,
        collection: &Collection,
    ) -> PlanHashes {
        PlanHashes::of_shape(cache::shape(filter, sort), collection)
    }

    /// Those of a query of this shape on a collection.
    pub(crate) fn of_shape(shape: u64, collection: &Collection) -> PlanHashes {
        let indexes = collection.ready_indexes();
        let key = cache::shape_with_indexes(shape, indexes.map(|index| index.tree));
        PlanHashes {
            shape: format!("{:08X}", shape as u32),
            key: format!("{:08X}", key as u32),
        }
    }
}

impl UsedPlan {
    /// `planSummary`.
    pub fn summary(&self) -> String {
        self.summary.text()
    }

    /// Whether it reads every document of the collection.
    pub fn is_collection_scan(&self) -> bool {
        matches!(self.summary, Summary::Named("COLLSCAN"))
    }

    /// The hashes. `None` if there was nothing to plan.
    pub fn hashes(&self) -> Option<PlanHashes> {
        let (filter, sort, collection) = self.query.as_ref()?;
        Some(PlanHashes::for_query(filter, sort, collection))
    }
}

/// Entries of indexes that a commit adds and removes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeysWritten {
    pub inserted: u64,
    pub deleted: u64,
}

impl KeysWritten {
    /// Adds them to the figures of the operation, with those of `_id` for the documents that the commit adds or removes.
    pub fn add_to_op_stats(self, collection: &Collection, counts: Counts) {
        // Where documents have record ids, the index on `_id` is one like any other.
        let ids = if collection.is_by_record() {
            0
        } else {
            counts.documents
        };
        let (added, removed) = (ids.max(0).unsigned_abs(), ids.min(0).unsigned_abs());
        update(|op_stats| {
            op_stats.keys_inserted += self.inserted + added;
            op_stats.keys_deleted += self.deleted + removed;
        });
    }
}

/// The plan of an operation that takes longer, as others see it while it runs.
#[derive(Debug, Default)]
pub struct ShownPlan {
    is_set: AtomicBool,
    plan: Mutex<Option<(String, Option<PlanHashes>)>>,
}

impl ShownPlan {
    /// `planSummary` and the hashes, if the operation has examined enough to show them.
    pub fn get(&self) -> Option<(String, Option<PlanHashes>)> {
        self.plan.lock().clone()
    }

    /// Forgets the plan, for another operation.
    pub fn clear(&self) {
        if self.is_set.swap(false, Ordering::Relaxed) {
            *self.plan.lock() = None;
        }
    }

    fn set(&self, plan: &UsedPlan) {
        if !self.is_set.swap(true, Ordering::Relaxed) {
            *self.plan.lock() = Some((plan.summary(), plan.hashes()));
        }
    }
}

/// The figures of an operation.
#[derive(Clone, Debug, Default)]
pub struct OpStats {
    pub keys_examined: u64,
    pub docs_examined: u64,
    /// Entries added to indexes, that of `_id` included.
    pub keys_inserted: u64,
    /// Entries removed from indexes.
    pub keys_deleted: u64,
    pub returned: u64,
    /// Commits that were refused because another writer was faster.
    pub write_conflicts: u64,
    /// Time between a conflict and the next attempt.
    pub conflict_wait: Duration,
    /// Time that it waited for memory for its reply.
    pub room_wait: Duration,
    /// Whether documents were sorted, because no index gave their order.
    pub has_sort_stage: bool,
    /// Whether it wrote temporary files.
    pub used_disk: bool,
    /// Whether several plans were tried.
    pub from_multi_planner: bool,
    /// Whether the plan was one that had won before.
    pub from_plan_cache: bool,
    /// The plan of its first query.
    pub plan: Option<UsedPlan>,
    /// The stages of that plan with their statistics.
    pub exec_stats: Option<DocBuf>,
    /// Where others see its plan while it runs.
    pub shown: Option<Arc<ShownPlan>>,
    /// From when on `exec_stats` is made.
    stats_from: Option<Instant>,
    /// The filter and the sort as the client gave them, for `exec_stats`.
    asked: (Option<DocBuf>, Option<DocBuf>),
}

impl OpStats {
    /// Asks for [`OpStats::exec_stats`] of what is still running at that time.
    pub fn want_exec_stats(&mut self, from: Instant, filter: Option<&Doc>, sort: Option<&Doc>) {
        self.stats_from = Some(from);
        self.asked = (filter.map(Doc::to_owned), sort.map(Doc::to_owned));
    }

    /// Makes them those of another operation of the same connection.
    pub fn clear(&mut self) {
        let shown = self.shown.take();
        *self = OpStats {
            shown,
            ..OpStats::default()
        };
    }

    /// Figures of a part of the operation, with the same settings.
    pub fn part(&self) -> OpStats {
        OpStats {
            stats_from: self.stats_from,
            shown: self.shown.clone(),
            ..OpStats::default()
        }
    }

    /// Adds those of a part of the operation.
    pub fn add(&mut self, part: OpStats) {
        self.keys_examined += part.keys_examined;
        self.docs_examined += part.docs_examined;
        self.keys_inserted += part.keys_inserted;
        self.keys_deleted += part.keys_deleted;
        self.returned += part.returned;
        self.write_conflicts += part.write_conflicts;
        self.conflict_wait += part.conflict_wait;
        self.room_wait += part.room_wait;
        self.has_sort_stage |= part.has_sort_stage;
        self.used_disk |= part.used_disk;
        self.from_multi_planner |= part.from_multi_planner;
        self.from_plan_cache |= part.from_plan_cache;
        self.plan = self.plan.take().or(part.plan);
        self.exec_stats = self.exec_stats.take().or(part.exec_stats);
    }
}

/// Runs an operation, or a part of one, on this thread; what it does is added to `op_stats`. Without a panic they are there
/// afterwards.
pub fn watch<T>(op_stats: &mut Option<Box<OpStats>>, operation: impl FnOnce() -> T) -> T {
    struct Restore<'f>(&'f mut Option<Box<OpStats>>, Option<Box<OpStats>>);
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            let outer = self.1.take();
            *self.0 = CURRENT.with_borrow_mut(|current| std::mem::replace(current, outer));
        }
    }
    let own = op_stats.take().unwrap_or_default();
    let outer = CURRENT.with_borrow_mut(|current| current.replace(own));
    let _restore = Restore(op_stats, outer);
    operation()
}

/// Runs a part of an operation, and returns its figures, which are added to those of the operation too.
pub fn watch_part<T>(operation: impl FnOnce() -> T) -> (T, OpStats) {
    let part = CURRENT.with_borrow(|current| current.as_deref().map(OpStats::part));
    let mut part = part.map(Box::new);
    let done = watch(&mut part, operation);
    let part = part.map(|part| *part).unwrap_or_default();
    update(|op_stats| op_stats.add(part.clone()));
    (done, part)
}

/// Adds to the figures of the operation on this thread, if there is one.
#[inline]
pub fn update(add: impl FnOnce(&mut OpStats)) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(op_stats) = current {
            add(op_stats);
        }
    });
}

/// Shows the plan of the operation, which has examined some hundred keys or documents by now.
pub(crate) fn show_plan() {
    CURRENT.with_borrow(|current| {
        if let Some(op_stats) = current
            && let (Some(shown), Some(plan)) = (&op_stats.shown, &op_stats.plan)
        {
            shown.set(plan);
        }
    });
}

/// Notes what was done instead of a plan.
pub(crate) fn set_summary(name: &'static str) {
    update(|op_stats| {
        op_stats.plan.get_or_insert_with(|| UsedPlan {
            summary: Summary::Named(name),
            query: None,
        });
    });
}

/// Notes the plan of a query. True if it is the first one of the operation.
pub(crate) fn set_plan(
    plan: impl FnOnce() -> (Summary, Arc<Filter>, SortSpec, Arc<Collection>),
) -> bool {
    let mut is_first = false;
    update(|op_stats| {
        if op_stats.plan.is_none() {
            let (summary, filter, sort, collection) = plan();
            op_stats.plan = Some(UsedPlan {
                summary,
                query: Some((filter, sort, collection)),
            });
            is_first = true;
        }
    });
    is_first
}

/// The filter and the sort to show in `execStats`, if these are wanted by now.
pub(crate) fn wanted_exec_stats() -> Option<(DocBuf, DocBuf)> {
    CURRENT.with_borrow(|current| {
        let op_stats = current.as_ref()?;
        let from = op_stats.stats_from?;
        let asked = || {
            let (filter, sort) = op_stats.asked.clone();
            (filter.unwrap_or_default(), sort.unwrap_or_default())
        };
        (from <= Instant::now()).then(asked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_and_nothing_is_kept_without_an_operation() {
        update(|_| unreachable!("nobody watches"));
        let mut op_stats = None;
        let ((), part) = watch(&mut op_stats, || {
            update(|op_stats| op_stats.keys_examined += 1);
            let part = watch_part(|| update(|op_stats| op_stats.keys_examined += 2));
            update(|op_stats| op_stats.docs_examined += 1);
            set_summary("EOF");
            set_summary("IDHACK");
            part
        });
        let op_stats = op_stats.unwrap_or_default();
        assert_eq!(part.keys_examined, 2);
        assert_eq!((op_stats.keys_examined, op_stats.docs_examined), (3, 1));
        assert_eq!(op_stats.plan.map(|plan| plan.summary()), Some("EOF".into()));
        update(|_| unreachable!("the operation is over"));
    }

    #[test]
    fn a_panic_keeps_the_figures_and_ends_the_watch() {
        let mut op_stats = None;
        let operation = std::panic::AssertUnwindSafe(|| {
            watch(&mut op_stats, || {
                update(|op_stats| op_stats.returned += 1);
                panic!("in the operation");
            })
        });
        assert!(std::panic::catch_unwind(operation).is_err());
        assert_eq!(op_stats.unwrap_or_default().returned, 1);
        update(|_| unreachable!("the operation is over"));
    }
}
