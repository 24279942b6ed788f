//! Documents with very many keys: `stats.eventnames` holds thousands of integers, whose names share
//! long prefixes so that comparing two of them is expensive.
//!
//! All documents of a schema have the same layout, so document *n* is a template with its own values
//! patched in.

use clap::ValueEnum;

use super::{Source, Template, object_id, put};
use crate::random::SplitMix64;

/// Prefixes of the key names; the number of the key follows.
const PREFIXES: [&str; 3] = [
    "baz-baz-baz-baz-baz-baz-",
    "foo-foo-foo-foo-foo-foo-",
    "bar-bar-bar-bar-bar-bar-",
];

/// Initial values are below this when they are random.
const INITIAL_BELOW: u64 = 1_000_000;

pub const RANDOM_LETTERS: usize = 13;

/// Letters of a UUID.
const GUID_LETTERS: usize = 36;

/// The value of `deploytype` in every document.
pub const DEPLOY_TYPE: &str = "production";

/// Names of the fields of `timeslice`.
pub const TIMESLICE: [&str; 5] = ["y", "mo", "d", "h", "m"];

/// Layout of the keys in `stats.eventnames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Schema {
    /// All keys side by side.
    Plain,
    /// Each key in a document named by the first two hexadecimal digits of the MD5 of its name.
    Bucketed,
}

impl Schema {
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Schema::Plain => "plain",
            Schema::Bucketed => "bucketed",
        }
    }
}

/// Keeps the random numbers of one purpose apart from those of another.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Identity = 1,
    /// `random` of a new document.
    FirstText,
    /// `random` that an update sets.
    Text,
    Value,
    Keys,
    Order,
    /// Which documents are read.
    Reads,
}

/// The stream of random numbers of one thing.
pub fn stream(seed: u64, purpose: Purpose, number: u64) -> SplitMix64 {
    SplitMix64::new(seed ^ ((purpose as u64) << 56), number)
}

/// A string such as `uniqid()` makes: 13 hexadecimal digits.
pub fn random_text(seed: u64, purpose: Purpose, number: u64) -> String {
    let digits = format!("{:016x}", stream(seed, purpose, number).next());
    digits.chars().take(RANDOM_LETTERS).collect()
}

/// The fields by which updates find a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The field of that name.
    pub appver: i64,
    /// The field of that name.
    pub g: i64,
    /// A UUID: no two documents share one.
    pub guid: String,
    /// The values of [`TIMESLICE`].
    pub timeslice: [i64; 5],
}

/// Keys that lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The bucket's name; `None` if they lie in `stats.eventnames` itself.
    pub bucket: Option<String>,
    /// The keys, in the order of the document.
    pub keys: Vec<u32>,
}

/// The documents of one schema and seed.
pub struct Documents {
    pub schema: Schema,
    pub seed: u64,
    pub names: Vec<String>,
    pub paths: Vec<String>,
    /// The keys of `stats.eventnames`, in their layout.
    pub groups: Vec<Group>,
    random_values: bool,
    template: Template,
    places: Places,
}

/// Where the template's own values begin.
#[derive(Default)]
struct Places {
    id: usize,
    appver: usize,
    g: usize,
    guid: usize,
    timeslice: [usize; 5],
    random: usize,
    values: Vec<usize>,
    events: usize,
}

impl Documents {
    /// Documents of `keys` keys. Their values are 0, or below a million.
    pub fn new(schema: Schema, seed: u64, keys: u32, random_values: bool) -> Self {
        let names: Vec<String> = (0..keys).map(name_of).collect();
        let groups = group(schema, &names);
        let mut paths = vec![String::new(); names.len()];
        for group in &groups {
            for key in &group.keys {
                let key = *key as usize;
                paths[key] = match &group.bucket {
                    Some(bucket) => format!("stats.eventnames.{bucket}.{}", names[key]),
                    None => format!("stats.eventnames.{}", names[key]),
                };
            }
        }
        let (template, places) = template(&names, &groups);
        Documents {
            schema,
            seed,
            names,
            paths,
            groups,
            random_values,
            template,
            places,
        }
    }

    pub fn identity(&self, number: u64) -> Identity {
        let mut random = stream(self.seed, Purpose::Identity, number);
        let mut below = |bound: u64| random.below(bound) as i64;
        let appver = 123_456 + below(16);
        let g = 123_456 + below(1000);
        let timeslice = [13, 12, 1 + below(28), below(24), below(60)];
        // The last digits are the number, so that no two are the same.
        let (a, b) = (random.next(), random.next());
        let guid = format!(
            "{:08x}-{:04x}-5{:03x}-{:04x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            0x8000 | (b & 0x3fff),
            number & 0xffff_ffff_ffff
        );
        Identity {
            appver,
            g,
            guid,
            timeslice,
        }
    }

    pub fn id(&self, number: u64) -> [u8; 12] {
        object_id(self.seed, number)
    }

    /// Value of a key in the new document `number`.
    pub fn initial_value(&self, number: u64, key: u32) -> i64 {
        if !self.random_values {
            return 0;
        }
        let place = number * self.names.len() as u64 + u64::from(key);
        stream(self.seed, Purpose::Value, place).below(INITIAL_BELOW) as i64
    }
}

impl Source for Documents {
    fn document_bytes(&self) -> usize {
        self.template.len()
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let document = self.template.copy_to(out);
        let places = &self.places;
        let identity = self.identity(number);
        put(document, places.id, &self.id(number));
        put(document, places.appver, &identity.appver.to_le_bytes());
        put(document, places.g, &identity.g.to_le_bytes());
        put(document, places.guid, identity.guid.as_bytes());
        for (at, value) in places.timeslice.iter().zip(identity.timeslice) {
            put(document, *at, &value.to_le_bytes());
        }
        let text = random_text(self.seed, Purpose::FirstText, number);
        put(document, places.random, text.as_bytes());
        if self.random_values {
            let mut sum = 0;
            for (key, at) in (0..).zip(&places.values) {
                let value = self.initial_value(number, key);
                put(document, *at, &value.to_le_bytes());
                sum += value;
            }
            put(document, places.events, &sum.to_le_bytes());
        }
    }
}

fn name_of(key: u32) -> String {
    let prefix = PREFIXES[key as usize % PREFIXES.len()];
    format!("{prefix}{key}")
}

/// Name of the bucket that a key belongs to.
fn bucket_of(name: &str) -> String {
    format!("{:02x}", md5::compute(name).0[0])
}

fn group(schema: Schema, names: &[String]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (key, name) in (0..).zip(names) {
        let bucket = match schema {
            Schema::Plain => None,
            Schema::Bucketed => Some(bucket_of(name)),
        };
        match groups.iter_mut().find(|group| group.bucket == bucket) {
            Some(group) => group.keys.push(key),
            None => groups.push(Group {
                bucket,
                keys: vec![key],
            }),
        }
    }
    groups
}

fn template(names: &[String], groups: &[Group]) -> (Template, Places) {
    let mut out = Template::new();
    let mut places = Places {
        values: vec![0; names.len()],
        ..Places::default()
    };
    places.id = out.field(0x07, "_id", &[0; 12]);
    places.appver = out.field(0x12, "appver", &[0; 8]);
    out.string("deploytype", DEPLOY_TYPE);
    places.g = out.field(0x12, "g", &[0; 8]);
    places.guid = out.string("guid", &"0".repeat(GUID_LETTERS));
    let timeslice = out.open(0x03, "timeslice");
    for (place, name) in places.timeslice.iter_mut().zip(TIMESLICE) {
        *place = out.field(0x12, name, &[0; 8]);
    }
    out.close(timeslice);
    places.random = out.string("random", &"0".repeat(RANDOM_LETTERS));
    let stats = out.open(0x03, "stats");
    let eventnames = out.open(0x03, "eventnames");
    for group in groups {
        let inner = group.bucket.as_ref().map(|bucket| out.open(0x03, bucket));
        for key in &group.keys {
            let key = *key as usize;
            places.values[key] = out.field(0x12, &names[key], &[0; 8]);
        }
        if let Some(inner) = inner {
            out.close(inner);
        }
    }
    out.close(eventnames);
    places.events = out.field(0x12, "events", &[0; 8]);
    out.close(stats);
    (out.finish(), places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::tests::document;
    use frond_bson::Value;
    use std::collections::HashSet;

    #[test]
    fn a_key_lies_in_the_bucket_of_its_md5() {
        // MD5 of the names, from another implementation.
        for (name, bucket) in [
            ("baz-baz-baz-baz-baz-baz-0", "15"),
            ("foo-foo-foo-foo-foo-foo-1", "0b"),
            ("bar-bar-bar-bar-bar-bar-2", "59"),
        ] {
            assert_eq!(bucket_of(name), bucket, "{name}");
        }
        assert_eq!(name_of(0), "baz-baz-baz-baz-baz-baz-0");
        assert_eq!(name_of(1), "foo-foo-foo-foo-foo-foo-1");
        assert_eq!(name_of(20_000), "bar-bar-bar-bar-bar-bar-20000");
    }

    #[test]
    fn documents_have_the_fields_of_the_workload() {
        for schema in [Schema::Plain, Schema::Bucketed] {
            let documents = Documents::new(schema, 7, 300, true);
            for number in [0, 1, 1999] {
                let doc = document(&documents, number);
                let identity = documents.identity(number);
                assert_eq!(doc.get("appver"), Some(Value::Int64(identity.appver)));
                assert_eq!(doc.get("g"), Some(Value::Int64(identity.g)));
                assert_eq!(doc.get_str("guid"), Some(identity.guid.as_str()));
                assert_eq!(identity.guid.len(), GUID_LETTERS);
                assert_eq!(doc.get_str("random").unwrap().len(), RANDOM_LETTERS);
                let slice: Vec<_> = doc.get_doc("timeslice").unwrap().iter().collect();
                let expected: Vec<_> = TIMESLICE
                    .into_iter()
                    .zip(identity.timeslice.map(Value::Int64))
                    .collect();
                assert_eq!(slice, expected);

                let mut sum = 0;
                for (key, path) in (0..).zip(&documents.paths) {
                    let value = documents.initial_value(number, key);
                    assert_eq!(doc.path(path), Some(Value::Int64(value)), "{path}");
                    sum += value;
                }
                assert!(sum > 0);
                assert_eq!(doc.path("stats.events"), Some(Value::Int64(sum)));
                let inner = doc.get_doc("stats").unwrap().get_doc("eventnames").unwrap();
                let entries = match schema {
                    Schema::Plain => 300,
                    Schema::Bucketed => documents.groups.len(),
                };
                assert_eq!(inner.count(), entries);
            }
        }
    }

    #[test]
    fn values_are_zero_unless_asked_for() {
        let documents = Documents::new(Schema::Plain, 1, 20, false);
        let doc = document(&documents, 3);
        for path in &documents.paths {
            assert_eq!(doc.path(path), Some(Value::Int64(0)));
        }
        assert_eq!(doc.path("stats.events"), Some(Value::Int64(0)));
    }

    #[test]
    fn all_keys_are_in_one_group_and_one_only() {
        let documents = Documents::new(Schema::Bucketed, 1, 20_000, false);
        assert_eq!(documents.groups.len(), 256);
        let mut seen: HashSet<u32> = HashSet::new();
        for group in &documents.groups {
            assert!(group.keys.is_sorted());
            seen.extend(group.keys.iter().copied());
        }
        assert_eq!(seen.len(), 20_000);
        assert!(
            (750_000..=850_000)
                .contains(&Documents::new(Schema::Plain, 1, 20_000, false).document_bytes())
        );
    }

    #[test]
    fn identities_are_repeatable_and_do_not_repeat() {
        let documents = Documents::new(Schema::Plain, 5, 5, false);
        assert_eq!(documents.identity(4), documents.identity(4));
        let guids: HashSet<String> = (0..1000).map(|n| documents.identity(n).guid).collect();
        assert_eq!(guids.len(), 1000);
    }
}
