//! Calls to the cluster that block their caller, and are tried again as long as that makes sense.
//!
//! The client is asynchronous and runs on threads of its own. A caller may be any thread, also one of another runtime: it
//! waits on a channel, and looks now and then whether its operation was interrupted.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use frond_kv::{Error, Interrupt, Result};
use parking_lot::Mutex;
use tikv::transaction::HeartbeatOption;
use tikv::{
    Backoff, CheckLevel, RetryOptions, Timestamp, TimestampExt, TransactionClient,
    TransactionOptions,
};
use tokio::runtime::{Builder, Runtime};

use crate::client::attempts::{Attempts, Next};
pub(crate) use crate::client::calls::{Calls, Kind};
use crate::client::clients::Clients;
use crate::client::failure::{Fault, of_read};
use crate::client::pd::{Failure, Pd};
use crate::client::reach::{Reach, Request};
use crate::options::ClusterOptions;

/// The interval at which a waiting caller checks for interruption.
const CHECK: Duration = Duration::from_millis(20);
/// The number of bits below the milliseconds of a timestamp.
pub(crate) const PHYSICAL_SHIFT: u32 = 18;
/// The garbage collector's requests are repeated for this time.
const COLLECTOR_PATIENCE: Duration = Duration::from_secs(180);
/// The time for which the shared clock follows this machine's clock before the next request to PD.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// A connection to the cluster.
pub(crate) struct Connection {
    reach: Arc<Reach>,
    pd: Arc<Pd>,
    runtime: Option<Runtime>,
    patience: Duration,
    request_timeout: Duration,
    pub(crate) calls: Arc<Calls>,
    /// The last time of PD in milliseconds, and when it came.
    clock: Mutex<Option<(Instant, u64)>>,
    last_timestamp: AtomicU64,
}

impl Connection {
    /// Connects to a cluster.
    pub(crate) fn open(options: &ClusterOptions) -> Result<Connection> {
        // The client's TLS has no provider of its own. It is not an error if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("tikv")
            .enable_all()
            .build()
            .map_err(|source| Error::Io {
                context: "starting the threads of the storage cluster's client".to_owned(),
                source,
            })?;
        let files = [
            &options.ca_file,
            &options.certificate_file,
            &options.key_file,
        ];
        if files.iter().any(|file| file.is_some()) && options.tls_files().is_none() {
            let text =
                "TLS to the storage cluster needs a CA file, a certificate file and a key file";
            return Err(Error::InvalidOption(text.to_owned()));
        }
        let pd = Arc::new(Pd::new(options));
        let connecting = connect(options.clone(), pd.clone());
        let clients = wait_for(&runtime, connecting, true)?;
        let reach = Arc::new(Reach::new(clients, pd.clone()));
        Ok(Connection {
            calls: reach.calls.clone(),
            reach,
            pd,
            runtime: Some(runtime),
            patience: options.patience,
            request_timeout: options.request_timeout,
            clock: Mutex::default(),
            last_timestamp: AtomicU64::new(0),
        })
    }

    /// The way of requests to the cluster, for work that goes on by itself.
    pub(crate) fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    fn runtime(&self) -> Result<&Runtime> {
        let closed = || Error::Closed("close was called".to_owned());
        self.runtime.as_ref().ok_or_else(closed)
    }

    /// Runs a task on the client's threads without waiting for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Until when the operation on this thread is tried again.
    pub(crate) fn deadline(&self) -> Instant {
        let patient = Instant::now() + self.patience;
        Interrupt::current_deadline().map_or(patient, |deadline| deadline.min(patient))
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Reads something, again and again if the cluster does not answer.
    pub(crate) fn read<T, F, W>(&self, kind: Kind, request: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(TransactionClient) -> W + Send + Sync + 'static,
        W: Future<Output = tikv::Result<T>> + Send + 'static,
    {
        self.read_at(kind, None, request)
    }

    /// Reads as [`Connection::read`] does. With a key of the request, an error names the node.
    pub(crate) fn read_at<T, F, W>(&self, kind: Kind, key: Option<Vec<u8>>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(TransactionClient) -> W + Send + Sync + 'static,
        W: Future<Output = tikv::Result<T>> + Send + 'static,
    {
        Calls::count(&self.calls.round_trips);
        let deadline = match kind {
            Kind::Collector => Instant::now() + self.patience.max(COLLECTOR_PATIENCE),
            _ => self.deadline(),
        };
        let (reach, began) = (self.reach.clone(), Instant::now());
        let request = Request {
            kind,
            key,
            deadline,
        };
        let work = async move { reach.patiently(&request, work).await };
        let done = wait_for(self.runtime()?, work, true);
        self.calls.note(kind, began);
        done
    }

    /// Asks PD or a node something once. The inner error is theirs.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        kind: Kind,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<Result<T, Failure>> {
        Calls::count(&self.calls.round_trips);
        let began = Instant::now();
        let done = wait_for(self.runtime()?, async move { Ok(work.await) }, true);
        self.calls.note(kind, began);
        done
    }

    /// Does something that must not be left half done.
    pub(crate) fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let began = Instant::now();
        let done = wait_for(self.runtime()?, async move { Ok(work.await) }, false);
        self.calls.note(Kind::Commit, began);
        done
    }

    /// A timestamp after all that were given out.
    pub(crate) fn timestamp(&self) -> Result<Timestamp> {
        let at = self.read(Kind::Timestamp, |client| async move {
            client.current_timestamp().await
        })?;
        self.note_clock(&at);
        Ok(at)
    }

    /// A transaction whose snapshot is the current state.
    pub(crate) fn begin(&self) -> Result<tikv::Transaction> {
        let begun = self.read(Kind::Timestamp, |client| async move {
            client.begin_with_options(options()).await
        })?;
        self.note_clock(&begun.start_timestamp());
        Ok(begun)
    }

    /// The greatest timestamp that this server has seen.
    pub(crate) fn last_timestamp(&self) -> u64 {
        self.last_timestamp.load(Ordering::SeqCst)
    }

    fn note_clock(&self, at: &Timestamp) {
        self.last_timestamp
            .fetch_max(at.version(), Ordering::SeqCst);
        let at = at.version() >> PHYSICAL_SHIFT;
        let mut clock = self.clock.lock();
        if clock.is_none_or(|(_, before)| before <= at) {
            *clock = Some((Instant::now(), at));
        }
    }

    /// The time of PD in milliseconds, which goes on while PD does not answer.
    pub(crate) fn now_ms(&self) -> u64 {
        let last = *self.clock.lock();
        match last {
            Some((since, at)) if since.elapsed() < CLOCK_AGE_MAX => {
                at + since.elapsed().as_millis() as u64
            }
            last => match (self.timestamp(), last) {
                (Ok(at), _) => at.version() >> PHYSICAL_SHIFT,
                (Err(_), Some((since, at))) => at + since.elapsed().as_millis() as u64,
                (Err(_), None) => 0,
            },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Connects to the cluster, again and again until the patience is over.
async fn connect(options: ClusterOptions, pd: Arc<Pd>) -> Result<Clients> {
    let deadline = Instant::now() + options.patience;
    let mut attempts = Attempts::new("connecting to the storage cluster");
    loop {
        let connecting = Clients::connect(&options, pd.clone());
        let (fault, text) = match tokio::time::timeout_at(deadline.into(), connecting).await {
            Ok(Ok(clients)) => return Ok(clients),
            Ok(Err(error)) => (of_read(&error), error.to_string()),
            Err(_) => (Fault::Slow, "PD did not answer in time".to_owned()),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        match attempts.after(fault, &text, left) {
            Next::AgainAfter(pause) => tokio::time::sleep(pause).await,
            Next::GiveUp(text) | Next::Withhold(text) => return Err(Error::Unavailable(text)),
        }
    }
}

/// The options of all transactions.
pub(crate) fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic()
        .drop_check(CheckLevel::None)
        .heartbeat_option(HeartbeatOption::NoHeartbeat)
}

/// The options of snapshots. The library gives up after some tenths of a second, because what to do then is decided in [`Reach`].
pub(crate) fn read_options() -> TransactionOptions {
    let mut retries = RetryOptions::default_optimistic();
    retries.region_backoff = Backoff::equal_jitter_backoff(2, 200, 7);
    options().retry_options(retries)
}

/// Waits for work on the client's threads.
fn wait_for<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T>> + Send + 'static,
    may_end: bool,
) -> Result<T> {
    let (send, receive) = sync_channel(1);
    let task = runtime.spawn(async move {
        let _ = send.send(work.await);
    });
    loop {
        match receive.recv_timeout(CHECK) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if may_end => {
                if let Err(interrupted) = Interrupt::check_current() {
                    task.abort();
                    return Err(interrupted);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Internal(
                    "a request to the storage cluster was given up",
                ));
            }
        }
    }
}
