//! Everyday operations on small documents: counts, finds, aggregations and writes, one after the other by one connection.
//!
//! Documents `{_id, k, v, u, m, city, w}` go in: `_id` counts from 1 on, `k` is one of 1,000 random integers and `m` one of 100,000,
//! `v` and `u` are below 1,000,000, `city` is one of 26. `k` and `v` have indexes, and a second collection has a document for each `k`.
//! Once the server has written everything, each round does:
//!
//! - counts of all, by an index and without one; `$match` of several conditions, `$sort` with `$limit` and `distinct`, each with
//!   and without an index; `$lookup`; `$group` with few and with many groups; a find of a range of `_id`; a skip;
//! - as often as `--repeats` says: a find by `_id`, one by `$in`, an update, `findAndModify`, a delete and an insert of one document.
//!   Of these the mean time of a round counts as one;
//! - an update and a delete of 1% of the documents, and the insert of those that were deleted, in requests of 1,000.
//!
//! Each round inserts again what it deletes, so that the right answers stay the same (`model.rs`); all answers are checked. The
//! commands are those of MongoDB 3.6 and later.

mod model;
mod options;
mod runner;
mod section;

pub use options::Work;

use crate::documents::everyday::Documents;
use crate::harness::{Run, Workload};
use crate::report::Section;
use frond_client::Result;
use model::Model;
use runner::EverydayRunner;

impl Workload for Work {
    fn name(&self) -> &'static str {
        "everyday"
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let source = Documents::new(run.options.seed);
        let model = Model::new(&source, self.documents());
        run.measure(
            |target| EverydayRunner::open(run, target, self, &source, &model),
            |results| section::build(self, results),
        )
    }
}
