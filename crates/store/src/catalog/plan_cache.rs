//! The plan that won the last trial run, for each shape of query. Shapes and plans are hashes that the planner
//! computes.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Uses of an entry before the plans are tried again.
const USES_MAX: u32 = 1000;
/// Shapes that are remembered for a collection.
const SHAPES_MAX: usize = 1000;

/// Choices made for a collection, by the shape of the query.
#[derive(Debug, Default)]
pub struct PlanCache(Mutex<HashMap<u64, Choice>>);

#[derive(Debug)]
struct Choice {
    /// The plan's hash.
    plan: u64,
    /// Documents in the collection when it was made.
    documents: i64,
    /// Uses left before the plans are tried again.
    uses_left: u32,
}

impl PlanCache {
    /// Forgets everything.
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
        Some(choice.plan)
    }

    /// Remembers the plan with this hash for a shape.
    pub(crate) fn put(&self, shape: u64, documents: i64, plan: u64) {
        let mut choices = self.0.lock();
        if choices.len() >= SHAPES_MAX {
            choices.clear();
        }
        choices.insert(
            shape,
            Choice {
                plan,
                documents,
                uses_left: USES_MAX,
            },
        );
    }
}
