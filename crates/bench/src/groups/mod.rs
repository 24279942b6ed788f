//! Aggregations over a collection without a secondary index: groups of all documents, groups of a quarter of them, and a find
//! of one in a thousand.

mod options;
mod runner;
mod section;

pub use options::Work;

use crate::documents::groups::Documents;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::GroupsRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let source = Documents::new(run.options.seed);
        run.measure(
            |target| GroupsRunner::open(run, target, self, &source),
            |results| section::build(self, results),
        )
    }
}
