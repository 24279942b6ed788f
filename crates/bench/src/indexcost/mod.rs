//! The cost of an index: large documents go into a collection without an index and into one with an
//! index on their name, batch by batch; after each batch some are found by name.
//!
//! The workload of a blog of 2011, whose author saw inserts with the index fall to 0.27 of the rate
//! without.

mod options;
mod runner;
mod section;

pub use options::Work;

use crate::documents::indexcost::Documents;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::IndexcostRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "indexcost"
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let source = Documents::new(run.options.seed);
        run.measure(
            |target| IndexcostRunner::open(run, target, self, &source),
            |results| section::build(run, self, results),
        )
    }
}
