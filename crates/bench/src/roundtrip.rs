//! Requests a second: a `find` by `_id` of documents in memory against a bare `ping`, in turns.
//!
//! A ping costs as much as the client, the loopback and the server's framing. So the ratio of the
//! two is the cost that finding a document adds, on this machine at this moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, ObjectId, Value, doc};
use frond_client::{Client, Collection, Error, Result, first_of_batch, uri::Uri};

use crate::documents::insertion::Generator;
use crate::format::thousands;
use crate::load::fill;
use crate::meter::median;
use crate::mongodb::MongoDb;
use crate::system::Scheme;
use crate::threads::{goes_on, run_all};

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
    let collection = Collection::new(&options.db, &options.collection)?;
    let mut session = MongoDb.open(&options.uri)?.connect(stop)?;
    session.drop_collection(&collection)?;
    fill(session.as_mut(), &collection, &generator, options.documents)?;
    let connect = |_| Client::connect(&uri, Arc::clone(stop));
    let clients = (0..options.threads).map(connect).collect::<Result<_>>()?;
    let mut asking = Asking {
        clients,
        time: Duration::from_secs(options.seconds),
        stop,
    };
    let ids = ids(&generator, options.documents);
    let (mut pings, mut finds) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        pings.push(asking.rate("admin", &|_| doc! {"ping": 1}, &|_| true)?);
        let find = |n: u64| {
            let id = ids.get((n % options.documents) as usize);
            let id = Value::ObjectId(ObjectId(id.copied().unwrap_or_default()));
            doc! {
                "find": &options.collection, "filter": {"_id": id}, "limit": 1, "singleBatch": true,
            }
        };
        let found = |reply: &Doc| first_of_batch(reply).is_some();
        finds.push(asking.rate(&options.db, &find, &found)?);
    }
    let middle = |rates| median(rates).unwrap_or_default();
    let (ping, find) = (middle(pings), middle(finds));
    for (what, value) in [
        ("threads", options.threads.to_string()),
        ("documents", thousands(options.documents as f64)),
        ("ping, median", format!("{}/s", thousands(ping))),
        ("find by _id, median", format!("{}/s", thousands(find))),
        ("find / ping", format!("{:.3}", find / ping)),
    ] {
        println!("{what:<30} {value}");
    }
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

struct Asking<'a> {
    clients: Vec<Client>,
    time: Duration,
    stop: &'a AtomicBool,
}

impl Asking<'_> {
    /// Requests a second that all clients together get answered. Every reply must pass `check`.
    fn rate(
        &mut self,
        database: &str,
        request: &(dyn Fn(u64) -> DocBuf + Sync),
        check: &(dyn Fn(&Doc) -> bool + Sync),
    ) -> Result<f64> {
        let next = AtomicU64::new(0);
        let (end, stop) = (Instant::now() + self.time, self.stop);
        let (_, elapsed) = run_all(&mut self.clients, |client| {
            while goes_on(end, stop)? {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if !check(&client.command(database, &request(n))?) {
                    return Err(Error::Protocol(format!("request {n} found nothing")));
                }
            }
            Ok(())
        })?;
        Ok(next.into_inner() as f64 / elapsed.as_secs_f64())
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
}
