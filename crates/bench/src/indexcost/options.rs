//! The settings of the workload on the cost of an index.

use crate::format::thousands;
use crate::harness::{WriteOptions, scale};
use frond_client::{Error, Result};

/// Documents of each collection of the original run.
const ORIGINAL: f64 = 60_000_000.0;
/// Documents of each collection when nothing is said.
const DOCUMENTS: u64 = 500_000;

/// Settings of a run without and with an index.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Documents in each of the two collections [default: 500000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub documents: Option<u64>,

    /// Documents as a part of the original run's 60,000,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// Batches that are timed, of each collection
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batches: u32,

    /// Collections: this name, and with _indexed behind it
    #[arg(long, default_value = "w5", value_name = "NAME")]
    pub collection: String,

    /// Connections and write concern.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Finds by name after each batch, in each collection
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub finds: u32,
}

impl Work {
    /// Refuses settings that cannot go together.
    pub fn check_settings(&self) -> Result<()> {
        if u64::from(self.batches) > self.documents() {
            return Err(Error::Settings(format!(
                "--batches {} of {} documents leave batches without any",
                self.batches,
                self.documents()
            )));
        }
        Ok(())
    }

    pub fn documents(&self) -> u64 {
        match self.scale {
            Some(scale) => ((ORIGINAL * scale).round() as u64).max(1),
            None => self.documents.unwrap_or(DOCUMENTS),
        }
    }

    /// Names of the collections, without and with the index.
    pub fn collections(&self) -> [String; 2] {
        [
            self.collection.clone(),
            format!("{}_indexed", self.collection),
        ]
    }

    /// The settings as they go into the report. `acknowledged` is by server.
    pub fn settings(&self, acknowledged: &[bool]) -> Vec<(&'static str, String)> {
        let names: Vec<&str> = acknowledged
            .iter()
            .map(|acknowledged| match acknowledged {
                _ if self.write.majority => "majority",
                true => "1",
                false => "0",
            })
            .collect();
        vec![
            (
                "documents in each collection",
                thousands(self.documents() as f64),
            ),
            ("batches", self.batches.to_string()),
            ("connections", self.write.threads.to_string()),
            ("documents in one insert", self.write.batch.to_string()),
            ("w", names.join(", ")),
            (
                "journal",
                if self.write.journal { "yes" } else { "no" }.to_owned(),
            ),
            ("finds after each batch", self.finds.to_string()),
        ]
    }

    /// Numbers of the documents of a batch. Batches differ by one document at most.
    pub fn numbers(&self, batch: u32) -> std::ops::Range<u64> {
        let end = |batches: u32| {
            let part = u128::from(self.documents()) * u128::from(batches);
            u64::try_from(part / u128::from(self.batches)).unwrap_or(u64::MAX)
        };
        end(batch)..end(batch + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    fn parse(args: &[&str]) -> std::result::Result<Work, String> {
        parse_work(args)
    }

    #[test]
    fn batches_cover_all_documents_once() {
        for (args, documents) in [
            (&[][..], 500_000),
            (&["--scale", "1"], 60_000_000),
            (&["--documents", "7", "--batches", "3"], 7),
            (&["--documents", "10", "--batches", "10"], 10),
        ] {
            let work = parse(args).unwrap();
            work.check_settings().unwrap();
            assert_eq!(work.documents(), documents, "{args:?}");
            let mut next = 0;
            for batch in 0..work.batches {
                let range = work.numbers(batch);
                assert_eq!(range.start, next, "{args:?}");
                assert!(range.end > range.start, "{args:?}");
                next = range.end;
            }
            assert_eq!(next, documents, "{args:?}");
        }
    }
}
