//! Updates of documents with very many keys: a few integers among thousands are incremented, at
//! random, in documents whose keys are hard to tell apart.
//!
//! The workload is that of the TokuMX blog of 2013: with all keys side by side, and with keys spread
//! over buckets by hand, which servers need that walk a document key by key.

mod chapter;
pub mod document;
mod lane;
mod model;
mod options;
mod phase;
mod results;
pub mod updates;

pub use options::{Options, Verify, Work};

use crate::contest::Contest;
use crate::error::{Error, Result};
use crate::report::Chapter;
use document::Documents;
use lane::KeysLane;

/// Name on the command line.
pub const NAME: &str = "manykeys";

/// Runs the workload on all servers, which take turns by rounds. What was done is in the chapter, also
/// after an error.
pub fn measure(contest: &Contest, work: &Work) -> Result<(Chapter, Result<()>)> {
    let first = contest
        .contestants
        .first()
        .ok_or_else(|| Error::Settings("no server to measure".to_owned()))?;
    let concerns = work.concerns(&first.defaults())?;
    let sources: Vec<Documents> = work
        .schemas()
        .into_iter()
        .map(|schema| Documents::new(schema, contest.servers.seed, work.keys, work.random_values))
        .collect();
    let mut lanes = Vec::new();
    for contestant in &contest.contestants {
        lanes.push(KeysLane::open(
            contest, contestant, work, &sources, &concerns,
        )?);
    }
    let result = contest.alternate(&mut lanes);
    let results: Vec<_> = lanes.into_iter().map(KeysLane::end).collect();
    let written = chapter::write_rounds(contest, &results);
    let chapter = chapter::of(contest, work, &concerns, &results);
    Ok((chapter, result.and(written)))
}
