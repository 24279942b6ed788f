//! Reads beside a paced writer: how much longer they take than without it.
//!
//! 1. `--documents` of W1 are inserted at full speed, until they are larger than memory. The speed of their second half is the
//!    full speed. Then the server compacts, at most for `--compaction-wait`.
//! 2. For `--rounds` times, each of `--seconds`: `--readers` connections find documents of the load at random, by turns one by its
//!    `_id` and ten in the order of an index, without a writer (**alone**) and then beside one that inserts `--pace` of the full
//!    speed (**beside**).
//!
//! - **The readers** send their next find when the last one is answered, or `--read-rate` finds a second together. The time of a
//!   find then counts from the moment when it was due.
//! - **The writer** sends a batch when it is due. One that falls behind does not catch up by more than a batch.
//! - **Servers take turns by rounds**, after all have loaded.

mod options;
mod pace;
mod reads;
mod runner;
mod section;

pub use options::Work;

use crate::documents::insertion::Generator;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::MixedRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "mixed"
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let source = Generator::new(run.options.seed, 0);
        run.measure(
            |target| MixedRunner::open(run, target, self, &source),
            |results| section::build(run, self, results),
        )
    }
}
