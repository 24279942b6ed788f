//! Indexed insertion: how fast documents go into a collection with secondary indexes, from empty
//! until the indexes are far larger than memory.

mod chapter;
mod lane;
mod options;
mod reads;

pub use options::{MultikeyOptions, MultikeyWork, Options, Work};

use crate::contest::Contest;
use crate::document::Generator;
use crate::error::{Error, Result};
use crate::report::Chapter;
use lane::InsertLane;

impl Work {
    /// Name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.elements == 0 {
            "insert"
        } else {
            "multikey"
        }
    }
}

/// Runs the workload on all servers. What was done is in the chapter, also after an error.
pub fn measure(contest: &Contest, work: &Work) -> Result<(Chapter, Result<()>)> {
    if contest.servers.drop && work.keep {
        return Err(Error::Settings(
            "--drop and --keep ask for opposite things".to_owned(),
        ));
    }
    let source = Generator::new(contest.servers.seed, work.elements as usize);
    let mut lanes = Vec::new();
    for contestant in &contest.contestants {
        lanes.push(InsertLane::open(contest, contestant, work, &source)?);
    }
    let result = contest.alternate(&mut lanes);
    let ended: Vec<_> = lanes.into_iter().map(InsertLane::end).collect();
    Ok((chapter::of(contest, work, &ended), result))
}
