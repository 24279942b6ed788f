//! Documents of a limited lifetime in steady state: inserts at full speed, while as many documents expire.

mod options;
mod runner;
mod section;

pub use options::Work;

use crate::documents::insertion::Generator;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::RollingRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "rolling"
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let source = Generator::new(run.options.seed, 0);
        run.measure(
            |target| RollingRunner::open(run, target, self, &source),
            |results| section::build(run, self, results),
        )
    }
}
