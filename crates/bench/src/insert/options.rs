//! The settings of the insertion workload.

use crate::documents::insertion::INDEXED_FIELDS;
use crate::harness::{WriteOptions, scale};
use crate::system::{Definition, Index};

/// Settings of an insertion run with arrays.
#[derive(Clone, Debug, clap::Args)]
pub struct MultikeyWork {
    /// Strings in the array URI
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub elements: u32,

    /// Everything else.
    #[command(flatten)]
    pub work: Work,
}

impl MultikeyWork {
    /// The settings of the insertion workload with arrays.
    pub fn into_work(self) -> Work {
        Work {
            elements: self.elements,
            ..self.work
        }
    }
}

/// Documents of the original run of the insertion workload.
const ORIGINAL_INSERT: f64 = 198e6;
/// Documents of the original run with arrays.
const ORIGINAL_MULTIKEY: f64 = 3.5e6;
/// Documents when nothing is said.
const DOCUMENTS: u64 = 1_000_000;

#[derive(Clone, Debug, clap::Args)]
pub struct Work {
    /// Collection [default: w1, or w2 with arrays]
    #[arg(long, value_name = "NAME")]
    pub collection: Option<String>,

    /// Documents to insert [default: 1000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub documents: Option<u64>,

    /// Documents as a part of the original run's: 198,000,000, with arrays 3,500,000
    #[arg(long, value_name = "PART", value_parser = scale, conflicts_with = "documents")]
    pub scale: Option<f64>,

    /// Connections that find ten documents at a time by the indexes, as fast as they can, while others insert
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub readers: u16,

    /// Connections and write concern.
    #[command(flatten)]
    pub write: WriteOptions,

    /// Secondary indexes: the first N of URI, name, origin, creation
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(0..=INDEXED_FIELDS.len() as i64))]
    pub indexes: u8,

    /// Insert into the collection as it is, with its documents
    #[arg(long)]
    pub keep: bool,

    /// Strings in the array `URI`; 0 makes it one string.
    #[arg(skip)]
    pub elements: u32,
}

impl Work {
    pub fn documents(&self) -> u64 {
        let original = match self.elements {
            0 => ORIGINAL_INSERT,
            _ => ORIGINAL_MULTIKEY,
        };
        let scaled = self.scale.map(|scale| (original * scale).ceil() as u64);
        self.documents.or(scaled).unwrap_or(DOCUMENTS)
    }

    pub fn collection(&self) -> &str {
        let default = if self.elements == 0 { "w1" } else { "w2" };
        self.collection.as_deref().unwrap_or(default)
    }

    /// Fields that get an index.
    pub fn indexed_fields(&self) -> &'static [&'static str] {
        let count = usize::from(self.indexes);
        INDEXED_FIELDS.get(..count).unwrap_or(&INDEXED_FIELDS)
    }

    /// Entries that a document has in all indexes, the one on `_id` not counted.
    pub fn index_entries(&self) -> u64 {
        let of_the_first = u64::from(self.elements.max(1));
        match u64::from(self.indexes) {
            0 => 0,
            indexes => of_the_first + indexes - 1,
        }
    }

    pub fn definition(&self) -> Definition {
        let index = |field: &'static &'static str| Index {
            multikey: self.elements > 0 && *field == "URI",
            ..Index::on(std::slice::from_ref(field))
        };
        let indexes: Vec<Index> = self.indexed_fields().iter().map(index).collect();
        Definition::with_indexes(&indexes)
    }

    /// The settings as they go into the report.
    pub fn settings(&self, turns: u32) -> Vec<(&'static str, String)> {
        let journal = if self.write.journal {
            "waited for"
        } else {
            "not waited for"
        };
        vec![
            ("documents", self.documents().to_string()),
            ("indexes", self.indexed_fields().join(", ")),
            ("strings in URI", self.elements.max(1).to_string()),
            ("threads", self.write.threads.to_string()),
            ("threads that read", self.readers.to_string()),
            ("documents in an insert", self.write.batch.to_string()),
            ("journal", journal.to_owned()),
            (
                "majority of the replica set",
                if self.write.majority {
                    "waited for"
                } else {
                    "not waited for"
                }
                .to_owned(),
            ),
            ("turns of each server", turns.to_string()),
        ]
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
    fn scale_is_a_part_of_the_original() {
        for (args, documents) in [
            (&[][..], 1_000_000),
            (&["--documents", "7"][..], 7),
            (&["--scale", "0.01"][..], 1_980_000),
            (&["--scale", "0.000000001"][..], 1),
        ] {
            assert_eq!(parse(args).unwrap().documents(), documents, "{args:?}");
        }
        let multikey: MultikeyWork = parse_work(&["--scale", "0.1"]).unwrap();
        let work = multikey.into_work();
        assert_eq!((work.documents(), work.collection()), (350_000, "w2"));
    }

    #[test]
    fn an_array_makes_an_entry_for_each_string() {
        for (indexes, elements, entries, multikey) in [
            (4, 0, 4, vec![false, false, false, false]),
            (4, 100, 103, vec![true, false, false, false]),
            (1, 100, 100, vec![true]),
            (0, 100, 0, vec![]),
        ] {
            let mut work = parse(&[]).unwrap();
            work.indexes = indexes;
            work.elements = elements;
            assert_eq!(work.index_entries(), entries);
            let made = work.definition().indexes;
            let flags: Vec<bool> = made.iter().map(|index| index.multikey).collect();
            assert_eq!(flags, multikey);
        }
    }
}
