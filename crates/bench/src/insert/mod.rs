//! Indexed insertion: how fast documents go into a collection with secondary indexes, from empty
//! until the indexes are far larger than memory.

mod options;
pub mod reads;
mod runner;
mod section;

pub use options::{MultikeyWork, Work};

use crate::documents::insertion::Generator;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::{Error, Result};
use runner::InsertRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        match self.elements {
            0 => "insert",
            _ => "multikey",
        }
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        if run.options.drop && self.keep {
            return Err(Error::Settings(
                "--drop and --keep contradict each other".to_owned(),
            ));
        }
        let source = Generator::new(run.options.seed, self.elements as usize);
        run.measure(
            |target| InsertRunner::open(run, target, self, &source),
            |results| section::build(run, self, results),
        )
    }
}
