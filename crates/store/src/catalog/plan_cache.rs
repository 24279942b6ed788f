//! The plan that won the last trial run, for each shape of query. Shapes and plans are hashes that the planner
//! computes.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::clock::now_ms;

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
    /// What the plan scans, as `planSummary` tells it.
    summary: String,
    /// When it was chosen, in milliseconds since 1970.
    chosen_ms: i64,
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

    /// The choices: for each shape what the plan scans, when it was chosen, and how often it was used since.
    pub(crate) fn list(&self) -> Vec<(u64, String, i64, u32)> {
        let choices = self.0.lock();
        let listed = choices.iter().map(|(shape, choice)| {
            let uses = USES_MAX - choice.uses_left;
            (*shape, choice.summary.clone(), choice.chosen_ms, uses)
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort_unstable();
        listed
    }

    /// Remembers the plan with this hash for a shape; `summary` tells what it scans.
    pub(crate) fn put(&self, shape: u64, documents: i64, plan: u64, summary: String) {
        let mut choices = self.0.lock();
        if choices.len() >= SHAPES_MAX {
            choices.clear();
        }
        choices.insert(
            shape,
            Choice {
                plan,
                summary,
                chosen_ms: now_ms(),
                documents,
                uses_left: USES_MAX,
            },
        );
    }
}
