//! The plan that won the last trial run, for each shape of query. Shapes and plans are hashes that the planner
//! computes.

use std::collections::HashMap;

use frond_bson::DocBuf;
use parking_lot::Mutex;

use frond_storage::clock::now_ms;

/// Uses of an entry before the plans are tried again.
const USES_MAX: u32 = 1000;
/// Shapes that are remembered for a collection.
const SHAPES_MAX: usize = 1000;

/// Choices made for a collection, by the shape of the query.
#[derive(Debug, Default)]
pub struct PlanCache(Mutex<HashMap<u64, Choice>>);

#[derive(Debug)]
struct Choice {
    winner: Winner,
    /// When it was chosen, in milliseconds since 1970.
    chosen_ms: i64,
    /// Documents in the collection when it was made.
    documents: i64,
    /// Uses left before the plans are tried again.
    uses_left: u32,
}

/// The result of a trial run.
#[derive(Clone, Debug)]
pub(crate) struct Winner {
    pub plan: u64,
    /// The `planSummary` of the plan.
    pub summary: String,
    /// Units of work that the plan did in its run, at least one.
    pub works: u64,
    /// The query that was tried, `{query, sort, projection}`. `None` if it is large, or the server made it from a pipeline.
    pub example: Option<DocBuf>,
}

/// A choice as commands list it.
#[derive(Clone, Debug)]
pub(crate) struct Cached {
    /// The hash of the shape.
    pub shape: u64,
    pub winner: Winner,
    /// When it was chosen, in milliseconds since 1970.
    pub chosen_ms: i64,
    /// The number of uses since.
    pub uses: u32,
}

impl PlanCache {
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// The hash of the plan that was chosen for a shape.
    pub(crate) fn get(&self, shape: u64, documents: i64) -> Option<u64> {
        let mut choices = self.0.lock();
        let choice = choices.get_mut(&shape)?;
        // A collection that has grown or shrunk may want another plan.
        let (low, high) = (
            choice.documents / 2,
            choice.documents.saturating_mul(2) + 100,
        );
        if choice.uses_left == 0 || !(low..=high).contains(&documents) {
            choices.remove(&shape);
            return None;
        }
        choice.uses_left -= 1;
        Some(choice.winner.plan)
    }

    /// Forgets the choice for a shape.
    pub(crate) fn remove(&self, shape: u64) {
        self.0.lock().remove(&shape);
    }

    /// The choices, in the order of their shapes.
    pub(crate) fn list(&self) -> Vec<Cached> {
        let choices = self.0.lock();
        let listed = choices.iter().map(|(shape, choice)| Cached {
            shape: *shape,
            winner: choice.winner.clone(),
            chosen_ms: choice.chosen_ms,
            uses: USES_MAX - choice.uses_left,
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable_by_key(|choice| choice.shape);
        listed
    }

    /// Remembers the plan that won for a shape.
    pub(crate) fn put(&self, shape: u64, documents: i64, winner: Winner) {
        let mut choices = self.0.lock();
        if choices.len() >= SHAPES_MAX {
            choices.clear();
        }
        choices.insert(
            shape,
            Choice {
                winner,
                chosen_ms: now_ms(),
                documents,
                uses_left: USES_MAX,
            },
        );
    }
}
