//! Requests a second: a `find` by `_id` of documents in memory against a bare `ping`, in turns.
//!
//! A ping costs as much as the client, the loopback and the server's framing. So the ratio of the
//! two is the cost that finding a document adds, on this machine at this moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_client::{Client, Collection, Error, Result, first_of_batch, uri::Uri};

use crate::documents::Source;
use crate::documents::insertion::Generator;
use crate::format::thousands;
use crate::system::WriteConcern;

/// Documents in one insert while the collection is filled.
const BATCH: u64 = 1000;

/// Command line of `frond bench roundtrip`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Server to measure: mongodb://host[:port]/[database][?options]
    #[arg(long, default_value = "mongodb://127.0.0.1:27017/", value_name = "URI")]
    pub uri: String,

    /// Database
    #[arg(long, default_value = "frond_bench", value_name = "NAME")]
    pub db: String,

    /// Collection; it is dropped and filled first
    #[arg(long, default_value = "roundtrip", value_name = "NAME")]
    pub collection: String,

    /// Documents to find
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub documents: u64,

    /// Connections that ask at the same time
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Seconds of each kind of request in each round
    #[arg(long, default_value_t = 2, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,

    /// Rounds of both kinds
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
}

/// Runs the workload and prints its figures.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let uri: Uri = options.uri.parse()?;
    let generator = Generator::new(1, 0);
    fill(options, &uri, &generator, stop)?;
    let mut clients = Vec::new();
    for _ in 0..options.threads {
        clients.push(Client::connect(&uri, Arc::clone(stop))?);
    }
    let ids = ids(&generator, options.documents);
    let (mut pings, mut finds) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let ping = |_: u64| doc! {"ping": 1};
        pings.push(rate(&mut clients, options, stop, "admin", &ping, &|_| {
            true
        })?);
        let find = |n: u64| {
            let id = ids.get((n % options.documents) as usize);
            let mut command = doc! {"find": &options.collection};
            command.push_doc("filter", |filter| {
                if let Some(id) = id {
                    filter.push("_id", Value::ObjectId(frond_bson::ObjectId(*id)));
                }
            });
            command.push("limit", 1);
            command.push("singleBatch", true);
            command
        };
        finds.push(rate(
            &mut clients,
            options,
            stop,
            &options.db,
            &find,
            &|reply| first_of_batch(reply).is_some(),
        )?);
    }
    let (ping, find) = (median(&mut pings), median(&mut finds));
    println!("{:<30} {}", "threads", options.threads);
    println!(
        "{:<30} {}",
        "documents",
        thousands(options.documents as f64)
    );
    println!("{:<30} {}/s", "ping, median", thousands(ping));
    println!("{:<30} {}/s", "find by _id, median", thousands(find));
    println!("{:<30} {:.3}", "find / ping", find / ping);
    Ok(())
}

/// The `_id`s of the documents, in an order without a pattern.
fn ids(generator: &Generator, documents: u64) -> Vec<[u8; 12]> {
    let mut ids: Vec<[u8; 12]> = (0..documents).map(|number| generator.id(number)).collect();
    // A stride that shares no factor with the number of documents visits each of them once.
    let mut stride = (documents * 5 / 8) | 1;
    while gcd(stride, documents) != 1 {
        stride += 2;
    }
    ids = (0..documents)
        .filter_map(|n| ids.get(((n * stride) % documents) as usize).copied())
        .collect();
    ids
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn fill(options: &Options, uri: &Uri, generator: &Generator, stop: &Arc<AtomicBool>) -> Result<()> {
    let mut client = Client::connect(uri, Arc::clone(stop))?;
    let collection = Collection::new(&options.db, &options.collection)?;
    client.drop_collection(&collection)?;
    let target = client.write_target(&collection, WriteConcern::ACKNOWLEDGED);
    let (mut documents, mut message) = (Vec::new(), Vec::new());
    let mut first = 0;
    while first < options.documents {
        let end = (first + BATCH).min(options.documents);
        documents.clear();
        for number in first..end {
            generator.append(number, &mut documents);
        }
        let each = generator.document_bytes();
        let id = client.build_insert(&target, &documents, each, &mut message)?;
        client.send(&message)?;
        client.insert_reply(&target, id, (end - first) as usize)?;
        first = end;
    }
    Ok(())
}

/// Requests a second that all clients together get answered. Every reply must pass `check`.
fn rate(
    clients: &mut [Client],
    options: &Options,
    stop: &Arc<AtomicBool>,
    database: &str,
    request: &(dyn Fn(u64) -> DocBuf + Sync),
    check: &(dyn Fn(&Doc) -> bool + Sync),
) -> Result<f64> {
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let end = started + Duration::from_secs(options.seconds);
    let failures: Vec<Error> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let next = &next;
                scope.spawn(move || -> Result<()> {
                    while Instant::now() < end {
                        if stop.load(Ordering::Relaxed) {
                            return Err(Error::Stopped);
                        }
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let reply = client.command(database, &request(n))?;
                        if !check(&reply) {
                            return Err(Error::Protocol(format!("request {n} found nothing")));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| match thread.join() {
                Ok(result) => result.err(),
                Err(_) => Some(Error::Protocol("a client's thread panicked".to_owned())),
            })
            .collect()
    });
    match failures.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(next.into_inner() as f64 / started.elapsed().as_secs_f64()),
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 {
        at(middle)
    } else {
        (at(middle.saturating_sub(1)) + at(middle)) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_document_is_asked_for_once() {
        let generator = Generator::new(1, 0);
        for documents in [1, 2, 3, 8, 10, 1000, 1155] {
            let ids = ids(&generator, documents);
            let distinct: HashSet<_> = ids.iter().collect();
            assert_eq!(distinct.len() as u64, documents, "{documents}");
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, expected) in [
            (&mut [3.0, 1.0, 2.0][..], 2.0),
            (&mut [4.0, 1.0, 2.0, 3.0][..], 2.5),
            (&mut [7.0][..], 7.0),
        ] {
            assert!((median(values) - expected).abs() < 1e-9);
        }
    }
}
