//! Counters in random order: `$inc` with upsert, in batches and one at a time, while others read and check what they see.
//!
//! - Nine of ten counters are there before the additions begin (`--preload`); the others are made by upserts.
//! - `--fast-updates` creates Frond's collection with `fastUpdates: true`; other servers do ordinary updates. PostgreSQL has a table of
//!   two integers and `INSERT … ON CONFLICT DO UPDATE` for each batch.
//! - A value that is read beside the additions lies within the bounds of [`model`]. At the end `--compare` counters have their exact
//!   value, and the sum of all is the number of additions (`--skip-sum` leaves that out, since it reads the whole collection).
//!   Anything else ends the run with an error.

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
