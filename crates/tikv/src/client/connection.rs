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
use tikv::{CheckLevel, Config, Timestamp, TimestampExt, TransactionClient, TransactionOptions};
use tokio::runtime::{Builder, Runtime};

use crate::client::failure::may_pass;
use crate::client::pd::{Failure, Pd};
use crate::options::ClusterOptions;

/// The interval at which a waiting caller checks for interruption.
const CHECK: Duration = Duration::from_millis(20);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The milliseconds of a timestamp are above so many bits.
pub(crate) const PHYSICAL_SHIFT: u32 = 18;
/// The largest message that the client takes: a page of rows, each just small enough to be whole.
const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// The time for which the shared clock follows this machine's clock before PD is asked again.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Timestamp,
    Get,
    Scan,
    Commit,
    Region,
    Collector,
}

const KINDS: usize = 6;

/// A number of operations, and their total duration.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    pub(crate) count: AtomicU64,
    pub(crate) micros: AtomicU64,
}

/// Requests since the cluster was opened.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    timed: [Timed; KINDS],
    pub(crate) conflicts: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Steps that follow each other: a step may be several requests at once.
    pub(crate) round_trips: AtomicU64,
}

impl Calls {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn timed(&self, kind: Kind) -> &Timed {
        &self.timed[kind as usize]
    }

    fn note(&self, kind: Kind, began: Instant) {
        let timed = self.timed(kind);
        Calls::count(&timed.count);
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        timed.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// A connection to the cluster.
pub(crate) struct Connection {
    client: TransactionClient,
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
        let mut config = Config::default()
            .with_timeout(options.request_timeout)
            .with_grpc_max_decoding_message_size(MESSAGE_BYTES_MAX)
            .with_grpc_max_encoding_message_size(MESSAGE_BYTES_MAX);
        match (
            &options.ca_file,
            &options.certificate_file,
            &options.key_file,
        ) {
            (Some(ca), Some(certificate), Some(key)) => {
                config = config.with_security(ca, certificate, key);
            }
            (None, None, None) => {}
            _ => {
                let text =
                    "TLS to the storage cluster needs a CA file, a certificate file and a key file";
                return Err(Error::InvalidOption(text.to_owned()));
            }
        }
        let pd = options.pd.clone();
        let deadline = Instant::now() + options.patience;
        let connected = {
            let connecting = async move {
                patiently(deadline, None, || {
                    TransactionClient::new_with_config(pd.clone(), config.clone())
                })
                .await
            };
            wait_for(&runtime, connecting, true)
        };
        Ok(Connection {
            client: connected?,
            pd: Arc::new(Pd::new(options)),
            runtime: Some(runtime),
            patience: options.patience,
            request_timeout: options.request_timeout,
            calls: Arc::default(),
            clock: Mutex::default(),
            last_timestamp: AtomicU64::new(0),
        })
    }

    pub(crate) fn client(&self) -> &TransactionClient {
        &self.client
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
        Calls::count(&self.calls.round_trips);
        let (client, deadline) = (self.client.clone(), self.deadline());
        let (calls, began) = (self.calls.clone(), Instant::now());
        let work =
            async move { patiently(deadline, Some(&calls), || request(client.clone())).await };
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

/// The options of all transactions.
pub(crate) fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic()
        .drop_check(CheckLevel::None)
        .heartbeat_option(HeartbeatOption::NoHeartbeat)
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

/// Repeats a request until it succeeds, fails for good, or the deadline has passed.
pub(crate) async fn patiently<T, F, W>(
    deadline: Instant,
    calls: Option<&Calls>,
    mut request: F,
) -> Result<T>
where
    F: FnMut() -> W,
    W: Future<Output = tikv::Result<T>>,
{
    let mut pause = PAUSE_MIN;
    loop {
        let text = match tokio::time::timeout_at(deadline.into(), request()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) if may_pass(&error) => error.to_string(),
            Ok(Err(error)) => return Err(Error::Unavailable(error.to_string())),
            Err(_) => "it did not answer in time".to_owned(),
        };
        if let Some(calls) = calls {
            Calls::count(&calls.retries);
        }
        if Instant::now() + pause >= deadline {
            return Err(Error::Unavailable(text));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
