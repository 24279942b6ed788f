//! Logins a second, and what many of them at once do to a client that finds documents.
//!
//! A login is a new connection, its TLS handshake if there is one, the handshake of the protocol, and the conversation. The
//! client derives its keys from the password once, so that its own work does not slow the server on the same machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_client::{Client, Error, Result, first_of_batch, uri::Uri};
use hdrhistogram::Histogram;

use crate::format::thousands;

/// Calls are shallow, and a thousand threads must take little memory.
const STACK_BYTES: usize = 256 << 10;

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
    let seconds = taken.seconds;
    let line = |what: &str, value: String| println!("{what:<38} {value}");
    line("logins", thousands(f64::from(options.logins)));
    line("clients at once", options.threads.to_string());
    line("seconds", format!("{seconds:.3}"));
    line(
        "logins a second",
        thousands(f64::from(options.logins) / seconds),
    );
    shown.insert(0, ("login", taken.times));
    for (what, times) in shown {
        for (name, quantile) in [("median", 0.5), ("99th percentile", 0.99), ("longest", 1.0)] {
            let ms = times.value_at_quantile(quantile) as f64 / 1e6;
            line(&format!("{what}, {name}"), format!("{ms:.3} ms"));
        }
    }
    Ok(())
}

type Times = Histogram<u64>;

/// Longer times are recorded as this one.
const LONGEST: Duration = Duration::from_secs(600);

fn times() -> Result<Times> {
    Histogram::new_with_bounds(1, nanos(LONGEST), 3)
        .map_err(|error| Error::Settings(error.to_string()))
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
        let collection = frond_client::Collection::new(&options.db, &options.collection)?;
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

    fn find_until(&mut self, is_over: impl Fn(&Instant) -> bool) -> Result<Times> {
        let command = doc! {"find": &self.options.collection, "filter": {"_id": 1}, "limit": 1};
        let mut times = times()?;
        let began = Instant::now();
        while !is_over(&began) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let (reply, took) = self.client.timed_command(&self.options.db, &command)?;
            if first_of_batch(&reply).is_none() {
                return Err(Error::Wrong("the document is not found".to_owned()));
            }
            times.saturating_record(nanos(took));
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

struct Taken {
    seconds: f64,
    times: Times,
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

    fn run(&self) -> Result<Taken> {
        let done = self.log_in();
        // The client beside waits for it, however it ends.
        self.is_over.store(true, Ordering::Relaxed);
        done
    }

    fn log_in(&self) -> Result<Taken> {
        // The gate opens once all threads have started.
        let gate = RwLock::new(());
        thread::scope(|scope| {
            let closed = gate.write();
            let mut clients = Vec::new();
            for _ in 0..self.options.threads {
                let client =
                    thread::Builder::new()
                        .stack_size(STACK_BYTES)
                        .spawn_scoped(scope, || {
                            drop(gate.read());
                            self.client()
                        });
                match client {
                    Ok(client) => clients.push(client),
                    Err(error) => {
                        // Those that are there have nothing to do.
                        let enough = u64::from(self.options.logins);
                        self.begun.store(enough, Ordering::Relaxed);
                        return Err(Error::Io("starting a thread".to_owned(), error));
                    }
                }
            }
            drop(closed);
            let began = Instant::now();
            let mut all = times()?;
            for client in clients {
                let of_client = client
                    .join()
                    .unwrap_or_else(|_| Err(Error::Protocol("a thread panicked".to_owned())))?;
                all.add(of_client)
                    .map_err(|error| Error::Settings(error.to_string()))?;
            }
            Ok(Taken {
                seconds: began.elapsed().as_secs_f64(),
                times: all,
            })
        })
    }

    /// One client after the other, until there were enough of all.
    fn client(&self) -> Result<Times> {
        let mut times = times()?;
        while self.begun.fetch_add(1, Ordering::Relaxed) < u64::from(self.options.logins) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let began = Instant::now();
            let client = Client::connect(self.uri, Arc::clone(self.stop))?;
            times.saturating_record(nanos(began.elapsed()));
            drop(client);
        }
        Ok(times)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
