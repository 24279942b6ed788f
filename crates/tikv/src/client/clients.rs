//! The client library's client, which is replaced when it is stuck.
//!
//! The library keeps its connections and what it knows of regions to itself, so nothing of that can be corrected from here:
//! - it gives connections no pings and no time limit. One to a machine that is gone stays, and requests wait for it;
//! - it forgets a region after a failed request, but not after a failed attempt to connect. A server that learns of a region while
//!   the region's leader is down sends requests to that leader until it is there again;
//! - it waits for seconds between two attempts to reach PD, and for ever for a timestamp of a PD that hangs.
//!
//! A new client has none of these problems. It costs some connections, and one question to PD for each region that is met again.
//! Requests that are repeated anyway go on with it as soon as it is there.
//!
//! The time limit of requests is a setting of the client, too. It is short, so that the leader of a region that hangs costs little
//! time once another one leads. Nodes that answer, but not in time, get longer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tikv::{Config, TransactionClient};
use tokio::sync::watch;

use crate::client::backoff::Backoff;
use crate::client::pd::Pd;
use crate::options::ClusterOptions;

/// The largest message that the client takes: a page of rows, each just small enough to be whole.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// The time limit of a request does not grow beyond this.
const LIMIT_MAX: Duration = Duration::from_secs(16);
/// The time limit falls to its first value when no request of a node that answers has exceeded it for this time.
const LIMIT_KEPT: Duration = Duration::from_secs(120);
/// The time limit of the garbage collector's requests, which remove large ranges.
const COLLECTOR_LIMIT: Duration = Duration::from_secs(120);
/// The time to connect a new client.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Attempts to replace the client end after this time. The next failure begins them again.
const REPLACE_MAX: Duration = Duration::from_secs(60);
/// The shortest time between two replacements.
const REPLACE_PAUSE: Duration = Duration::from_millis(500);

/// The client of the moment.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) client: TransactionClient,
    /// The number of clients before it.
    pub(crate) generation: u64,
    /// The time limit of one of its requests.
    pub(crate) limit: Duration,
}

pub(crate) struct Clients {
    settings: Settings,
    pd: Arc<Pd>,
    current: watch::Sender<Current>,
    limit: Mutex<Limit>,
    is_replacing: AtomicBool,
    /// A client with long time limits.
    of_collector: tokio::sync::Mutex<Option<TransactionClient>>,
}

/// The addresses and files that every client is connected with.
#[derive(Clone)]
struct Settings {
    addresses: Vec<String>,
    files: Option<[PathBuf; 3]>,
}

impl Settings {
    /// Connects to the addresses of PD that answer. The library connects to all that it gets, and waits for ever for a member that hangs.
    async fn connect(&self, pd: &Pd, limit: Duration) -> tikv::Result<TransactionClient> {
        let mut addresses = pd.answering().await;
        if addresses.is_empty() {
            // The library says why.
            addresses.clone_from(&self.addresses);
        }
        let config = Config::default()
            .with_timeout(limit)
            .with_grpc_max_decoding_message_size(MESSAGE_BYTES_MAX)
            .with_grpc_max_encoding_message_size(MESSAGE_BYTES_MAX);
        let config = match &self.files {
            Some([ca, certificate, key]) => config.with_security(ca, certificate, key),
            None => config,
        };
        let connecting = TransactionClient::new_with_config(addresses, config);
        match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(tikv::Error::StringError(
                "PD did not answer in time".to_owned(),
            )),
        }
    }
}

/// The time limit of a request.
#[derive(Debug, Clone, Copy)]
struct Limit {
    first: Duration,
    now: Duration,
    exceeded_at: Option<Instant>,
}

impl Limit {
    fn new(first: Duration) -> Limit {
        Limit {
            first,
            now: first,
            exceeded_at: None,
        }
    }

    /// After a node that answers has exceeded a limit, which may be an older one.
    fn raise(&mut self, exceeded: Duration, now: Instant) {
        self.exceeded_at = Some(now);
        if exceeded >= self.now {
            self.now = (self.now * 2).min(LIMIT_MAX.max(self.first));
        }
    }

    /// Lowers it if that was long ago.
    fn lower(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= LIMIT_KEPT;
        if self.exceeded_at.is_some_and(is_old) {
            *self = Limit::new(self.first);
        }
    }
}

impl Clients {
    /// Connects to a cluster, once.
    pub(crate) async fn connect(options: &ClusterOptions, pd: Arc<Pd>) -> tikv::Result<Clients> {
        let settings = Settings {
            addresses: options.pd.clone(),
            files: options.tls_files(),
        };
        let limit = Limit::new(options.request_timeout);
        let client = settings.connect(&pd, limit.now).await?;
        let (current, _) = watch::channel(Current {
            client,
            generation: 0,
            limit: limit.now,
        });
        Ok(Clients {
            settings,
            pd,
            current,
            limit: Mutex::new(limit),
            is_replacing: AtomicBool::new(false),
            of_collector: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    /// The client for requests that take long.
    pub(crate) async fn of_collector(&self) -> tikv::Result<TransactionClient> {
        let mut kept = self.of_collector.lock().await;
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let client = self.settings.connect(&self.pd, COLLECTOR_LIMIT).await?;
        *kept = Some(client.clone());
        Ok(client)
    }

    /// After a failure of the collector's client.
    pub(crate) async fn forget_of_collector(&self) {
        *self.of_collector.lock().await = None;
    }

    /// Returns when there is a later client than that of a generation.
    pub(crate) async fn replaced(&self, generation: u64) {
        let mut current = self.current.subscribe();
        let is_later = |current: &Current| current.generation > generation;
        if current.wait_for(is_later).await.is_err() {
            // The sender lives as long as `self`.
            std::future::pending::<()>().await;
        }
    }

    /// Replaces the client of a generation, if that is the present one: it is stuck.
    pub(crate) fn replace(self: &Arc<Clients>, generation: u64) {
        if self.current.borrow().generation != generation
            || self.is_replacing.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let clients = self.clone();
        tokio::spawn(async move {
            clients.replace_now().await;
            tokio::time::sleep(REPLACE_PAUSE).await;
            clients.is_replacing.store(false, Ordering::Release);
        });
    }

    /// After a request of the client of a generation was not answered in time by a node that answers.
    pub(crate) fn note_slow(self: &Arc<Clients>, exceeded: Duration, generation: u64) {
        self.limit.lock().raise(exceeded, Instant::now());
        self.follow_limit(generation);
    }

    /// After a request that was answered.
    pub(crate) fn note_answered(self: &Arc<Clients>, generation: u64) {
        self.limit.lock().lower(Instant::now());
        self.follow_limit(generation);
    }

    /// Replaces the client of a generation if it has another time limit than it should.
    fn follow_limit(self: &Arc<Clients>, generation: u64) {
        let wanted = self.limit.lock().now;
        if self.current.borrow().limit != wanted {
            self.replace(generation);
        }
    }

    /// Connects a new client, again and again for some time.
    async fn replace_now(&self) {
        let until = Instant::now() + REPLACE_MAX;
        let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
        while Instant::now() < until {
            let limit = self.limit.lock().now;
            if let Ok(client) = self.settings.connect(&self.pd, limit).await {
                self.current.send_modify(|current| {
                    *current = Current {
                        client,
                        generation: current.generation + 1,
                        limit,
                    };
                });
                return;
            }
            tokio::time::sleep(pauses.pause()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_follows_nodes_that_are_slow() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut limit = Limit::new(2 * second);
        limit.lower(now);
        for (exceeded, after) in [(2, 4), (2, 4), (4, 8), (2, 8), (8, 16), (16, 16)] {
            limit.raise(exceeded * second, now);
            assert_eq!(limit.now, after * second, "after {exceeded} s");
        }
        limit.raise(2 * second, now + LIMIT_KEPT - second);
        for (later, after) in [(LIMIT_KEPT, 16), (2 * LIMIT_KEPT - second, 2)] {
            limit.lower(now + later);
            assert_eq!(limit.now, after * second, "after {later:?}");
        }
    }

    #[test]
    fn a_limit_that_was_set_is_not_lowered() {
        let mut limit = Limit::new(2 * LIMIT_MAX);
        limit.raise(limit.now, Instant::now());
        assert_eq!(limit.now, 2 * LIMIT_MAX);
    }
}
