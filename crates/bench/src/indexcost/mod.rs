//! What an index costs: large documents go into a collection without an index and into one with an
//! index on their name, batch by batch; after each batch some are found by it.
//!
//! The workload is that of a blog of 2011, whose author saw inserts with the index fall to 0.27 of
//! those without.

mod chapter;
mod document;
mod lane;
mod options;

pub use options::{Options, Work};

use crate::contest::Contest;
use crate::error::Result;
use crate::report::Chapter;
use document::Documents;
use lane::IndexcostLane;

/// Runs the workload on all servers. What was done is in the chapter, also after an error.
pub fn measure(contest: &Contest, work: &Work) -> Result<(Chapter, Result<()>)> {
    work.check()?;
    let source = Documents::new(contest.servers.seed);
    let mut lanes = Vec::new();
    for contestant in &contest.contestants {
        lanes.push(IndexcostLane::open(contest, contestant, work, &source)?);
    }
    let result = contest.alternate(&mut lanes);
    let ended: Vec<_> = lanes.into_iter().map(IndexcostLane::end).collect();
    Ok((chapter::of(contest, work, &ended), result))
}
