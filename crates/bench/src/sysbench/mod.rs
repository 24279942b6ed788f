//! Sysbench: transactions of eighteen small operations by many threads, over collections with one
//! secondary index.
//!
//! The workload is that of the Tokutek blog of 2013, after Sysbench for MySQL.

mod chapter;
mod charts;
mod document;
mod drive;
mod kind;
mod lane;
mod options;
mod tables;
mod tally;
mod transaction;

pub use options::{Options, Work};

use crate::contest::Contest;
use crate::error::Result;
use crate::report::Chapter;
use lane::SysbenchLane;

/// Runs the workload on all servers. What was done is in the chapter, also after an error.
pub fn measure(contest: &Contest, work: &Work) -> Result<(Chapter, Result<()>)> {
    work.check()?;
    let mut lanes = Vec::new();
    for contestant in &contest.contestants {
        lanes.push(SysbenchLane::open(contest, contestant, work)?);
    }
    let result = contest.alternate(&mut lanes);
    let ended: Vec<_> = lanes.into_iter().map(SysbenchLane::end).collect();
    Ok((chapter::of(contest, work, &ended), result))
}
