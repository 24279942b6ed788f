//! Optimization rules of pipelines: one file each.

mod count;
mod lookup_unwind;
mod match_first;
mod project_group;

use super::Pipeline;

impl Pipeline {
    /// The pipeline after all rules.
    pub(super) fn optimized(mut self) -> Pipeline {
        match_first::apply(&mut self.stages);
        lookup_unwind::apply(&mut self.stages);
        project_group::apply(&mut self.stages);
        self
    }
}
