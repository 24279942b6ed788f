//! Requests are sent to their peers, again and again if that fails.
//!
//! # Design
//! ```text
//! attempt, with the present client and a time limit:
//!     answered                      done
//!     another client is there       again at once, if the request only reads
//!     a lasting error               give up
//!     no connection to a node       the client is replaced: it would ask the same node again
//!     a connection broke            is the node still there? If not, it counts as lost
//!     no answer in time             the same. If the node is there, it is slow: longer limits
//!     no timestamp                  the client is replaced when PD is there again
//!     a lock, a moved region, …     again
//! pause, longer each time; give up after two lost nodes, or when the time of the operation is over
//! ```
//! Whether a node is still there is found out beside the next attempt, so that it costs no time.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_kv::{Error, Result};
use parking_lot::Mutex;
use tikv::TransactionClient;

use crate::client::attempts::{Attempts, Next};
use crate::client::calls::{Calls, Kind};
use crate::client::clients::{Clients, Current, MESSAGE_BYTES_MAX};
use crate::client::failure::{self, Fault};
use crate::client::pd::{Pd, encode_key};
use crate::client::peers::{Answer, Peers};

/// The time between two looks of one operation for its peer.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// An attempt of a small transaction, or a commit, may take this many time limits of its requests, since a dropped attempt leaves locks.
const TRANSACTION_LIMITS: u32 = 8;
/// It may take another second for this number of bytes.
const TRANSACTION_BYTES_PER_SECOND: usize = 256 << 10;

/// A request, and the time until which it is sent again.
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// A key of it, by which its peer is found.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) deadline: Instant,
}

/// A failed attempt whose peer is looked for.
struct Look {
    fault: Fault,
    /// The attempt was dropped; the client library did not end it.
    is_expired: bool,
    /// The time limit of its requests.
    limit: Duration,
    /// The generation of the client that sent it.
    generation: u64,
}

/// The way to the cluster.
pub(crate) struct Reach {
    pub(crate) clients: Arc<Clients>,
    pub(crate) calls: Arc<Calls>,
    pd: Arc<Pd>,
    peers: Peers,
}

impl Reach {
    pub(crate) fn new(clients: Clients, pd: Arc<Pd>) -> Reach {
        Reach {
            clients: Arc::new(clients),
            calls: Arc::default(),
            peers: Peers::new(pd.tls().clone()),
            pd,
        }
    }

    /// Repeats a request until it succeeds, fails for good, or its time is over.
    pub(crate) async fn patiently<T, F, W>(
        self: &Arc<Reach>,
        request: &Request,
        work: F,
    ) -> Result<T>
    where
        F: Fn(TransactionClient) -> W,
        W: Future<Output = tikv::Result<T>>,
    {
        let attempts = Arc::new(Mutex::new(Attempts::new(request.kind.name())));
        let mut looked: Option<Instant> = None;
        let is_read = matches!(request.kind, Kind::Timestamp | Kind::Get | Kind::Scan);
        loop {
            let Current {
                client,
                generation,
                limit,
            } = self.clients.current();
            let until = match request.kind {
                Kind::Timestamp => Instant::now() + limit,
                // A node that does not answer costs one limit, and then the library requests another one from PD.
                Kind::Get | Kind::Scan | Kind::Region => Instant::now() + 2 * limit,
                Kind::Commit => Instant::now() + self.transaction_limit(0),
                Kind::Collector => request.deadline,
            };
            let attempt = async {
                match request.kind {
                    Kind::Collector => work(self.clients.of_collector().await?).await,
                    _ => work(client).await,
                }
            };
            let attempt = tokio::time::timeout_at(until.min(request.deadline).into(), attempt);
            let outcome = tokio::select! {
                biased;
                outcome = attempt => outcome,
                () = self.clients.replaced(generation), if is_read => continue,
            };
            let is_expired = outcome.is_err();
            let (fault, text) = match outcome {
                Ok(Err(error)) if failure::is_too_large(&error) => {
                    return Err(Error::TooLarge {
                        what: "an answer of the storage cluster",
                        bytes: MESSAGE_BYTES_MAX,
                        limit: MESSAGE_BYTES_MAX,
                    });
                }
                Ok(Ok(done)) => {
                    self.clients.note_answered(generation);
                    return Ok(done);
                }
                Ok(Err(error)) => (failure::of_read(&error), error.to_string()),
                Err(_) => (Fault::Slow, "it was not answered in time".to_owned()),
            };
            Calls::count(&self.calls.retries);
            match (request.kind, fault) {
                (_, Fault::Lasting | Fault::Passing) if request.kind != Kind::Timestamp => {}
                (Kind::Collector, _) => self.clients.forget_of_collector().await,
                (Kind::Timestamp, _) => self.clients.replace(generation),
                (_, Fault::Slow | Fault::Connection | Fault::Unreached) => {
                    if fault == Fault::Unreached {
                        self.clients.replace(generation);
                    }
                    if looked.is_none_or(|at| at.elapsed() >= LOOK_PAUSE) {
                        looked = Some(Instant::now());
                        let look = Look {
                            fault,
                            is_expired,
                            limit,
                            generation,
                        };
                        self.look_for_peer(request, look, &attempts);
                    }
                }
                (_, Fault::Lasting | Fault::Passing) => {}
            }
            let left = request.deadline.saturating_duration_since(Instant::now());
            let next = attempts.lock().after(fault, &text, left);
            match next {
                Next::GiveUp(text) => return Err(Error::Unavailable(text)),
                Next::Withhold(text) => return Err(Error::Failed(text)),
                Next::AgainAfter(pause) => tokio::time::sleep(pause).await,
            }
        }
    }

    /// The time limit of a commit of `bytes` bytes, after which its outcome is looked up.
    pub(crate) fn transaction_limit(&self, bytes: usize) -> Duration {
        let for_bytes = (bytes / TRANSACTION_BYTES_PER_SECOND) as u64;
        TRANSACTION_LIMITS * self.clients.current().limit + Duration::from_secs(for_bytes)
    }

    /// After a commit that has failed because of the way to the cluster: the next one has a client that can reach it.
    pub(crate) fn note_failed_commit(self: &Arc<Reach>, fault: Fault, key: &[u8]) {
        let Current {
            generation, limit, ..
        } = self.clients.current();
        match fault {
            Fault::Unreached => self.clients.replace(generation),
            Fault::Slow => {
                let request = Request {
                    kind: Kind::Commit,
                    key: Some(key.to_vec()),
                    deadline: Instant::now(),
                };
                let look = Look {
                    fault,
                    is_expired: true,
                    limit,
                    generation,
                };
                let attempts = Attempts::new(request.kind.name());
                self.look_for_peer(&request, look, &Arc::new(Mutex::new(attempts)));
            }
            Fault::Lasting | Fault::Connection | Fault::Passing => {}
        }
    }

    /// Finds out, beside the next attempt, whether the peer of a failed one is there still.
    fn look_for_peer(
        self: &Arc<Reach>,
        request: &Request,
        failed: Look,
        attempts: &Arc<Mutex<Attempts>>,
    ) {
        let Some(key) = request.key.as_deref().map(encode_key) else {
            return;
        };
        let (reach, attempts) = (self.clone(), attempts.clone());
        tokio::spawn(async move {
            let Ok(region) = reach.pd.region(key, false).await else {
                return;
            };
            let Some((_, address)) = region.leader else {
                return;
            };
            match (reach.peers.probe(&address).await, failed.fault) {
                (Answer::Answers, Fault::Slow) => {
                    reach.clients.note_slow(failed.limit, failed.generation);
                }
                (Answer::Answers, _) => {}
                (answer, _) => {
                    attempts.lock().note_lost(&address);
                    if failed.is_expired && answer == Answer::Unreachable {
                        // The library may be waiting for a connection to it.
                        reach.clients.replace(failed.generation);
                    }
                }
            }
        });
    }
}
