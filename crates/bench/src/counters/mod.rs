//! Counters in random order: `$inc` with upsert, in batches and one at a time, while others read and check what they see.

mod model;
mod options;
mod runner;
mod section;

pub use options::Work;

use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::CountersRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        run.measure(
            |target| CountersRunner::open(run, target, self),
            |results| section::build(run, self, results),
        )
    }
}
