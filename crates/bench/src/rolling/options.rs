//! The settings of the workload on documents of a limited lifetime.

use std::time::Duration;

use crate::documents::insertion::INDEXED_FIELDS;
use crate::format::value_name;
use crate::harness::{WriteOptions, number, scale};
use crate::system::{Definition, Expire, Index, Retain};
use frond_client::{Error, Result};

/// The field with the date by which documents expire.
pub const DATE: &str = "creation";

/// Seconds that documents stay at scale 1.
const RETENTION_S: f64 = 600.0;
/// The part of them when nothing is said.
const SCALE: f64 = 0.1;

/// The settings of a run with documents of a limited lifetime.
#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Collection of the documents that expire
    #[arg(long, default_value = "w7", value_name = "NAME")]
    pub collection: String,

    /// The way in which documents are removed
    #[arg(long, value_enum, default_value_t = Expire::Ttl, value_name = "WAY")]
    pub expire: Expire,

    /// Seconds that a document stays [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub retention: Option<u32>,

    /// Seconds that a document stays as a part of 600
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "retention")]
    pub scale: Option<f64>,

    /// Length of the run in retention periods. In the first one nothing expires
    #[arg(long, default_value_t = 4.0, value_name = "N", value_parser = |text: &str| number(text, 1.5..=1000.0, ""))]
    pub periods: f64,

    /// Seconds of a partition [default: a tenth of those that a document stays]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,

    /// Seconds between two passes of the server's TTL monitor (setParameter ttlMonitorSleepSecs); 0 leaves it as it is
    #[arg(long, default_value_t = 1, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub ttl_sleep: u32,

    /// Connections that find ten documents at a time by the indexes, as fast as they can, while others insert
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub readers: u16,

    /// Connections and write concern.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Secondary indexes: the first N of URI, name, origin, creation
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(0..=INDEXED_FIELDS.len() as i64))]
    pub indexes: u8,
}

impl Work {
    /// Refuses settings that contradict each other.
    pub fn check_settings(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Settings(text.to_owned()));
        if self.every.is_some() && self.expire != Expire::Partitions {
            return refuse("--every is for --expire partitions");
        }
        if self.every() > self.retention() {
            return refuse("--every must not be longer than --retention");
        }
        Ok(())
    }

    /// Seconds that a document stays.
    pub fn retention(&self) -> u32 {
        let scaled = (RETENTION_S * self.scale.unwrap_or(SCALE)).round().max(2.0);
        self.retention.unwrap_or(scaled as u32)
    }

    /// Seconds of a partition.
    pub fn every(&self) -> u32 {
        self.every.unwrap_or((self.retention() / 10).max(1))
    }

    /// The time in which the first documents stay.
    pub fn first_period(&self) -> Duration {
        Duration::from_secs(self.retention().into())
    }

    /// The time of the whole run.
    pub fn time(&self) -> Duration {
        self.first_period().mul_f64(self.periods)
    }

    pub fn retain(&self) -> Retain {
        Retain {
            field: DATE,
            seconds: self.retention(),
            by: self.expire,
            every: self.every(),
            ttl_sleep: self.ttl_sleep,
        }
    }

    /// Fields that get an index.
    pub fn indexed_fields(&self) -> &'static [&'static str] {
        let count = usize::from(self.indexes);
        INDEXED_FIELDS.get(..count).unwrap_or(&INDEXED_FIELDS)
    }

    /// Fields with random values that get an index, by which documents are found.
    pub fn found_by(&self) -> Vec<&'static str> {
        let fields = self.indexed_fields().iter().copied();
        fields.filter(|field| *field != DATE).collect()
    }

    /// The collection. Deletes by the client find the date by an index, too.
    pub fn definition(&self) -> Definition {
        let fields = self.indexed_fields();
        let mut indexes: Vec<Index> = fields
            .iter()
            .map(|field| Index::on(std::slice::from_ref(field)))
            .collect();
        if self.expire != Expire::Partitions && !fields.contains(&DATE) {
            indexes.push(Index::on(&[DATE]));
        }
        Definition {
            indexes,
            compression: None,
            retention: Some(self.retain()),
            integer_ids: false,
        }
    }

    /// The settings as they go into the report.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("documents expire by", value_name(&self.expire)),
            (
                "seconds that a document stays",
                self.retention().to_string(),
            ),
            ("length in retention periods", self.periods.to_string()),
            ("indexes", self.indexed_fields().join(", ")),
            ("threads", self.write.threads.to_string()),
            ("threads that read", self.readers.to_string()),
            ("documents in an insert", self.write.batch.to_string()),
        ];
        match self.expire {
            Expire::Partitions => {
                settings.push(("seconds of a partition", self.every().to_string()))
            }
            Expire::Ttl | Expire::Delete => {}
        }
        if self.expire != Expire::Delete && self.ttl_sleep > 0 {
            settings.push(("ttlMonitorSleepSecs", self.ttl_sleep.to_string()));
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::parse_work;

    #[test]
    fn lifetimes_and_partitions_follow_from_one_another() {
        for (args, retention, every, seconds) in [
            (&[][..], 60, 6, 240.0),
            (&["--scale", "1"], 600, 60, 2400.0),
            (&["--retention", "5", "--periods", "2.5"], 5, 1, 12.5),
            (
                &[
                    "--retention",
                    "20",
                    "--expire",
                    "partitions",
                    "--every",
                    "7",
                ],
                20,
                7,
                80.0,
            ),
        ] {
            let work: Work = parse_work(args).unwrap();
            work.check_settings().unwrap();
            assert_eq!((work.retention(), work.every()), (retention, every));
            assert!((work.time().as_secs_f64() - seconds).abs() < 1e-9);
        }
        for (args, message) in [
            (&["--every", "7"][..], "--every is for"),
            (
                &["--expire", "partitions", "--retention", "5", "--every", "6"],
                "longer than",
            ),
        ] {
            let work: Work = parse_work(args).unwrap();
            let error = work.check_settings().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        for args in [
            &["--retention", "1"][..],
            &["--periods", "1"],
            &["--expire", "never"],
            &["--retention", "5", "--scale", "1"],
        ] {
            assert!(parse_work::<Work>(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn the_date_has_an_index_unless_documents_are_in_partitions_by_it() {
        for (args, fields) in [
            (&[][..], "URI,name,origin,creation"),
            (&["--indexes", "1"], "URI,creation"),
            (&["--indexes", "1", "--expire", "delete"], "URI,creation"),
            (&["--indexes", "1", "--expire", "partitions"], "URI"),
            (&["--expire", "partitions"], "URI,name,origin,creation"),
        ] {
            let work: Work = parse_work(args).unwrap();
            let indexes = work.definition().indexes;
            let names: Vec<&str> = indexes
                .iter()
                .flat_map(|index| index.fields)
                .copied()
                .collect();
            assert_eq!(names.join(","), fields);
            assert!(!work.found_by().contains(&DATE));
        }
    }
}
