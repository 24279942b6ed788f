//! Logins a second, and what many of them at once do to a client that finds documents.
//!
//! A login is a new connection, its TLS handshake if there is one, the handshake of the protocol, and the conversation. The
//! client derives its keys from the password once, so that its own work does not slow the server on the same machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_client::{Client, Collection, Error, Result, first_of_batch, uri::Uri};

use crate::format::thousands;
use crate::meter::{Latencies, latencies, record};
use crate::threads::run_all;

/// Command line of `frond bench logins`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Server to measure: mongodb://user:password@host[:port]/[database][?options]
    #[arg(
        long,
        default_value = "mongodb://127.0.0.1:27017/",
        value_name = "URI",
        hide_default_value = true
    )]
    pub uri: String,

    /// Database of the documents that are found beside the logins
    #[arg(long, default_value = "frond_bench", value_name = "NAME")]
    pub db: String,

    /// Collection; it is dropped and filled first
    #[arg(long, default_value = "logins", value_name = "NAME")]
    pub collection: String,

    /// Logins
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub logins: u32,

    /// Clients that log in at the same time
    #[arg(long, default_value_t = 16, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: u16,

    /// Seconds in which documents are found without logins, for comparison; 0 finds none, also beside the logins
    #[arg(long, default_value_t = 3, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=600))]
    pub seconds: u64,
}

/// Runs the workload and prints its figures.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let uri: Uri = options.uri.parse()?;
    let all = Logins::new(options, &uri, stop);
    let mut shown = Vec::new();
    let taken = match options.seconds {
        0 => all.run()?,
        seconds => {
            let mut finder = Finder::new(options, &uri, stop)?;
            let alone =
                finder.find_until(|began| began.elapsed() >= Duration::from_secs(seconds))?;
            let (taken, beside) = thread::scope(|scope| {
                let logins = scope.spawn(|| all.run());
                let beside = finder.find_until(|_| all.is_over.load(Ordering::Relaxed));
                let panicked = || Err(Error::Protocol("a thread panicked".to_owned()));
                (logins.join().unwrap_or_else(|_| panicked()), beside)
            });
            shown = vec![("find, alone", alone), ("find, beside", beside?)];
            taken?
        }
    };
    let (times, elapsed) = taken;
    let seconds = elapsed.as_secs_f64();
    let line = |what: &str, value: String| println!("{what:<38} {value}");
    line("logins", thousands(f64::from(options.logins)));
    line("clients at once", options.threads.to_string());
    line("seconds", format!("{seconds:.3}"));
    line(
        "logins a second",
        thousands(f64::from(options.logins) / seconds),
    );
    shown.insert(0, ("login", times));
    for (what, times) in shown {
        for (name, quantile) in [("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0)] {
            let ms = times.value_at_quantile(quantile) as f64 / 1e3;
            line(&format!("{what}, {name}"), format!("{ms:.3} ms"));
        }
    }
    Ok(())
}

/// A client that finds one document again and again.
struct Finder<'a> {
    client: Client,
    options: &'a Options,
    stop: &'a AtomicBool,
}

impl<'a> Finder<'a> {
    fn new(options: &'a Options, uri: &Uri, stop: &'a Arc<AtomicBool>) -> Result<Finder<'a>> {
        let mut client = Client::connect(uri, Arc::clone(stop))?;
        let collection = Collection::new(&options.db, &options.collection)?;
        client.drop_collection(&collection)?;
        let documents = doc! {
            "insert": &options.collection, "documents": [{"_id": 1, "text": "x".repeat(200)}],
        };
        client.command(&options.db, &documents)?;
        Ok(Finder {
            client,
            options,
            stop,
        })
    }

    fn find_until(&mut self, is_over: impl Fn(&Instant) -> bool) -> Result<Latencies> {
        let command = doc! {"find": &self.options.collection, "filter": {"_id": 1}, "limit": 1};
        let mut times = latencies();
        let began = Instant::now();
        while !is_over(&began) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let (reply, took) = self.client.timed_command(&self.options.db, &command)?;
            if first_of_batch(&reply).is_none() {
                return Err(Error::Wrong("the document is not found".to_owned()));
            }
            record(&mut times, took);
        }
        Ok(times)
    }
}

/// Clients that log in.
struct Logins<'a> {
    options: &'a Options,
    uri: &'a Uri,
    stop: &'a Arc<AtomicBool>,
    begun: AtomicU64,
    is_over: AtomicBool,
}

impl<'a> Logins<'a> {
    fn new(options: &'a Options, uri: &'a Uri, stop: &'a Arc<AtomicBool>) -> Logins<'a> {
        Logins {
            options,
            uri,
            stop,
            begun: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// The times of all logins, and the time until the last one.
    fn run(&self) -> Result<(Latencies, Duration)> {
        let mut clients = vec![(); usize::from(self.options.threads)];
        let done = run_all(&mut clients, |()| self.client());
        // The client beside waits for it, however it ends.
        self.is_over.store(true, Ordering::Relaxed);
        let (times, elapsed) = done?;
        let mut all = latencies();
        for of_client in times {
            all += of_client;
        }
        Ok((all, elapsed))
    }

    /// One client after the other, until there were enough of all.
    fn client(&self) -> Result<Latencies> {
        let mut times = latencies();
        while self.begun.fetch_add(1, Ordering::Relaxed) < u64::from(self.options.logins) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let began = Instant::now();
            let client = Client::connect(self.uri, Arc::clone(self.stop))?;
            record(&mut times, began.elapsed());
            drop(client);
        }
        Ok(times)
    }
}
