//! Sysbench: transactions of eighteen small operations by many threads, over collections with one
//! secondary index.
//!
//! The workload of the Tokutek blog of 2013, after Sysbench for MySQL.

mod kind;
mod options;
mod runner;
mod section;
mod tally;
mod transaction;

pub use options::Work;

use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use runner::SysbenchRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "sysbench"
    }

    fn check(&self) -> Result<()> {
        self.check_settings()
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        run.measure(
            |target| SysbenchRunner::open(run, target, self),
            |results| section::build(run, self, results),
        )
    }
}
