//! Requests of one kind again and again, so that a profiler sees where a server's time of that kind goes.
//!
//! Documents of finds and updates are those of Sysbench, in memory. Inserts go into collections of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use frond_bson::{Doc, doc};
use frond_client::{Client, Collection, Error, Result, uri::Uri};

use crate::documents::Source;
use crate::documents::insertion::{Generator, INDEXED_FIELDS};
use crate::documents::sysbench::{C_CHARACTERS, Documents, random_c};
use crate::format::{thousands, value_name};
use crate::harness::number;
use crate::load::{BATCH, fill, insert};
use crate::mongodb::MongoDb;
use crate::random::SplitMix64;
use crate::system::{Definition, Index, Operation as Request, Scheme, Session, WriteConcern};
use crate::threads::{goes_on, run_all};

const RANGE: u32 = 100;

/// Strings in the array of [`Operation::InsertArray`].
const ELEMENTS: usize = 100;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// A bare ping: client, loopback and framing
    Ping,
    /// One document by `_id`, a field of it
    Find,
    /// A field of 100 documents, by a range of `_id`
    Range,
    /// The sum of a field of 100 documents
    Sum,
    /// A field of 100 documents in the order of the field
    Ordered,
    /// Different values of a field of 100 documents
    Distinct,
    /// A new value for a field without an index
    UpdatePlain,
    /// 1 more in a field with an index
    UpdateIndexed,
    /// One document
    InsertOne,
    /// 1,000 documents without an index
    InsertBatch,
    /// 1,000 documents with four indexes
    InsertIndexes,
    /// 1,000 documents with an index on an array of 100 strings
    InsertArray,
}

/// Command line of `frond bench operations`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Server to measure: mongodb://host[:port]/[database][?options]
    #[arg(long, default_value = "mongodb://127.0.0.1:27017/", value_name = "URI")]
    pub uri: String,

    /// Database
    #[arg(long, default_value = "frond_bench", value_name = "NAME")]
    pub db: String,

    /// Documents to find and to update; they are inserted first if there are not as many
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub documents: u32,

    /// Connections that send requests at the same time
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Seconds of each kind
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", value_parser = |text: &str| number(text, 0.0..=3600.0, " seconds"))]
    pub seconds: f64,

    /// Kinds to run, one or several [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<Operation>,
}

impl Operation {
    /// The collection of inserts, and its indexes.
    fn inserts(self, db: &str) -> Result<Option<(Collection, Definition)>> {
        let [first, ..] = &INDEXED_FIELDS;
        let index = |field| Index::on(std::slice::from_ref(field));
        let (name, indexes) = match self {
            Operation::InsertOne => ("operations_one", Vec::new()),
            Operation::InsertBatch => ("operations_batch", Vec::new()),
            Operation::InsertIndexes => (
                "operations_indexes",
                INDEXED_FIELDS.iter().map(index).collect(),
            ),
            Operation::InsertArray => (
                "operations_array",
                vec![Index {
                    multikey: true,
                    ..index(first)
                }],
            ),
            _ => return Ok(None),
        };
        Ok(Some((
            Collection::new(db, name)?,
            Definition::with_indexes(&indexes),
        )))
    }
}

/// Runs each kind and prints how many requests of it were answered, and in what time.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let uri: Uri = options.uri.parse()?;
    let server = MongoDb.open(&options.uri)?;
    let collection = Collection::new(&options.db, "operations")?;
    let documents = Documents::new(1, 1, options.documents);
    let mut session = server.connect(stop)?;
    let count = u64::from(options.documents);
    make_ready(session.as_mut(), &collection, &documents, count)?;
    let all: &[Operation] = Operation::value_variants();
    let chosen = match options.only.as_slice() {
        [] => all,
        only => only,
    };
    println!("operation,requests,seconds,requests_per_s");
    for operation in chosen {
        let mut target = collection.clone();
        if let Some((collection, definition)) = operation.inserts(&options.db)? {
            session.drop_collection(&collection)?;
            session.create(&collection, &definition)?;
            target = collection;
        }
        let mut senders = Vec::new();
        for number in 0..options.threads {
            senders.push(Sender {
                operation: *operation,
                session: server.connect(stop)?,
                client: Client::connect(&uri, Arc::clone(stop))?,
                target: &target,
                documents: options.documents,
                random: SplitMix64::new(2, u64::from(number)),
                c: [0; C_CHARACTERS],
                bytes: Vec::new(),
            });
        }
        let (requests, elapsed) = drive(&mut senders, options, stop)?;
        println!(
            "{},{requests},{:.3},{}",
            value_name(operation),
            elapsed.as_secs_f64(),
            thousands(requests as f64 / elapsed.as_secs_f64()).replace(',', "")
        );
    }
    Ok(())
}

/// Inserts the documents of finds and updates, unless they are there.
fn make_ready(
    session: &mut dyn Session,
    collection: &Collection,
    documents: &Documents,
    count: u64,
) -> Result<()> {
    if session.count(collection)? == count {
        return Ok(());
    }
    session.drop_collection(collection)?;
    session.create(collection, &Definition::with_indexes(&[Index::on(&["k"])]))?;
    fill(session, collection, documents, count)
}

struct Sender<'a> {
    operation: Operation,
    session: Box<dyn Session>,
    client: Client,
    target: &'a Collection,
    documents: u32,
    random: SplitMix64,
    c: [u8; C_CHARACTERS],
    bytes: Vec<u8>,
}

/// Lets all connections send for the time of a kind. Returns the number of requests.
fn drive(
    senders: &mut [Sender<'_>],
    options: &Options,
    stop: &AtomicBool,
) -> Result<(u64, Duration)> {
    let generator = match senders.first().map(|sender| sender.operation) {
        Some(Operation::InsertArray) => Generator::new(1, ELEMENTS),
        _ => Generator::new(1, 0),
    };
    let next = AtomicU64::new(0);
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let (requests, elapsed) = run_all(senders, |sender| {
        let mut requests = 0;
        while goes_on(end, stop)? {
            sender.send(&generator, &next)?;
            requests += 1;
        }
        Ok(requests)
    })?;
    Ok((requests.iter().sum(), elapsed))
}

impl Sender<'_> {
    /// Sends one request, and checks its answer.
    fn send(&mut self, generator: &Generator, next: &AtomicU64) -> Result<()> {
        let (session, target) = (self.session.as_mut(), self.target);
        let id = 1 + self.random.below(u64::from(self.documents)) as i32;
        let last_start = self.documents - RANGE + 1;
        let first = 1 + self.random.below(u64::from(last_start)) as i32;
        let ids = first..=first + RANGE as i32 - 1;
        let request = match self.operation {
            Operation::Ping => {
                self.client.command("admin", &doc! {"ping": 1})?;
                return Ok(());
            }
            Operation::Find => Request::Point(id),
            Operation::Range => Request::Range(ids),
            Operation::Sum => Request::Sum(ids),
            Operation::Ordered => Request::Ordered(ids),
            Operation::Distinct => Request::Distinct(ids),
            Operation::UpdatePlain => Request::UpdateC(id, random_c(&mut self.random, &mut self.c)),
            Operation::UpdateIndexed => Request::UpdateK(id),
            Operation::InsertOne => {
                self.bytes.clear();
                generator.append(next.fetch_add(1, Ordering::Relaxed), &mut self.bytes);
                Request::Insert(Doc::from_trusted(&self.bytes))
            }
            Operation::InsertBatch | Operation::InsertIndexes | Operation::InsertArray => {
                session.insert_into(target, WriteConcern::ACKNOWLEDGED)?;
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                insert(session, generator, first..first + BATCH, &mut self.bytes)?;
                return Ok(());
            }
        };
        match session.operate(target, &request)? {
            0 => Err(Error::Wrong(format!(
                "{}: nothing is found",
                value_name(&self.operation)
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_name_and_inserts_have_collections() {
        let mut collections = Vec::new();
        for operation in Operation::value_variants() {
            assert!(!value_name(operation).is_empty());
            if let Ok(Some((collection, definition))) = operation.inserts("d") {
                assert!(value_name(operation).starts_with("insert"));
                collections.push((collection.name, definition.indexes.len()));
            }
        }
        let indexes: Vec<usize> = collections.iter().map(|(_, indexes)| *indexes).collect();
        assert_eq!(indexes, [0, 0, 4, 1]);
    }
}
