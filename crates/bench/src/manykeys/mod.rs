//! Updates of documents with very many keys: a few integers among thousands are incremented, at
//! random, in documents whose keys share long prefixes.
//!
//! The workload of the TokuMX blog of 2013: with all keys side by side, and with keys spread over
//! buckets by hand, which helps servers that walk a document key by key.

mod model;
mod options;
mod phases;
mod results;
mod runner;
mod section;

pub use options::{Verify, Work};

use crate::documents::manykeys::Documents;
use crate::harness::{Run, Workload};
use crate::report::Section;
use crate::system::Defaults;
use frond_client::{Error, Result};
use runner::ManykeysRunner;

/// Name on the command line.
pub const NAME: &str = "manykeys";

impl Workload for Work {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<()> {
        self.concerns(&Defaults::default()).map(drop)
    }

    fn measure(&self, run: &Run) -> Result<(Section, Result<()>)> {
        let first = run
            .targets
            .first()
            .ok_or_else(|| Error::Settings("no server to measure".to_owned()))?;
        let concerns = self.concerns(&first.defaults())?;
        let seed = run.options.seed;
        let documents = |schema| Documents::new(schema, seed, self.keys, self.random_values);
        let sources: Vec<Documents> = self.schemas().into_iter().map(documents).collect();
        let mut written = Ok(());
        let (section, result) = run.measure(
            |target| ManykeysRunner::open(run, target, self, &sources, &concerns),
            |results| {
                written = section::write_rounds(run, results);
                section::build(run, self, &concerns, results)
            },
        )?;
        Ok((section, result.and(written)))
    }
}
