//! Measures rolling data in steady state: the client inserts at full speed while the same number of documents expires.
//!
//! | `--expire` | servers with MongoDB's protocol | PostgreSQL (`benchmarks/peers`) |
//! | --- | --- | --- |
//! | `ttl` | an index with `expireAfterSeconds`; `--ttl-sleep` sets `ttlMonitorSleepSecs` of the whole server, also for partitions | an error: it has none |
//! | `partitions` | `create` with `primaryKey`, `partitioned` and `expireAfterSeconds`; other servers refuse that | declarative partitions by an expression, detached concurrently and dropped; a plain index in place of the primary key |
//! | `delete` | `deleteMany` by the date, five times a second | `DELETE` in batches of 10,000 by an index |
//!
//! - **One turn**: documents expire by the time of day, so each server has its whole run at once. `--minutes` ends it early.
//! - **Speeds**: of the first period, of the rest, and of the last tenth of the time ("exit").
//! - **Backlog**: documents that are older than the lifetime and still there, counted every five seconds and at the end.
//! - **Disk**: bytes for each document that has not expired, at the end and shortly before the first one expires; the quotient
//!   is the cost of those that have expired. Neither waits for compaction.

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
