//! The requesting side of a channel. It opens two connections to each host, one of them for entries of the log.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use frond_bson::doc;
use frond_replica::{Lane, Peer, Reply, Transport};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::frame::{ANSWER, BODY_BYTES_MAX, FAILURE, HEAD_BYTES, Reader, Writer, malformed};
use super::login::Credentials;
use super::{Kind, PeerIdentity, Traffic};
use crate::observability::log::{Component, Log};
use crate::settings::Settings;

/// The limit of connecting: longer than a lost packet in a network delays it, and shorter than ten heartbeats.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The limit of the handshake, the login and the command that opens the channel. The other side derives keys from a password.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// The time after a failure in which requests fail at once. It doubles with each further failure.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The time after which the system gives up a connection whose other side acknowledges nothing: as if it had been closed.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// Bytes of requests that wait for one host, if there is more than one request.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes that are taken out of the queue before the earlier ones are written. Requests that are given up meanwhile are not sent.
const WRITTEN_AHEAD: usize = 256 << 10;

/// Requests without an answer, from which on those that have been given up are forgotten.
const PENDING_MANY: usize = 1024;

/// The requests of this member to others.
pub struct Peers {
    opening: Arc<Opening>,
    runtime: Handle,
    /// The key is the name of the host, and whether the connection is for entries.
    hosts: Mutex<HashMap<(String, bool), Arc<Host>>>,
}

/// All that opens a channel.
struct Opening {
    identity: PeerIdentity,
    credentials: Credentials,
    log: Arc<Log>,
    traffic: Traffic,
}

/// A host and one of the connections to it.
struct Host {
    name: String,
    state: Mutex<State>,
    /// Bytes of the requests in the queue.
    queued: Arc<AtomicUsize>,
}

enum State {
    /// There is no connection.
    Closed {
        /// The last failure, which counts until `retry_at`.
        why: Option<(io::ErrorKind, String)>,
        retry_at: Instant,
        backoff: Duration,
    },
    Open {
        queue: mpsc::UnboundedSender<Request>,
        /// The wait after a failure, unless the connection is opened before.
        backoff: Duration,
    },
}

struct Request {
    kind: Kind,
    body: Vec<u8>,
    answer: oneshot::Sender<io::Result<Vec<u8>>>,
}

impl Request {
    fn bytes(&self) -> usize {
        self.body.len() + HEAD_BYTES
    }
}

impl Peers {
    /// The requests of a member. Its connections are tasks of `runtime`, and end when this is dropped.
    pub fn new(
        identity: PeerIdentity,
        settings: &Settings,
        log: Arc<Log>,
        runtime: Handle,
    ) -> Peers {
        Peers {
            opening: Arc::new(Opening {
                identity,
                credentials: Credentials::new(settings),
                log,
                traffic: Traffic::default(),
            }),
            runtime,
            hosts: Mutex::default(),
        }
    }

    /// Counts of the messages since the start.
    pub fn traffic(&self) -> &Traffic {
        &self.opening.traffic
    }

    /// Sends a request to a host (`name:port`), and waits for its answer for a limited time. It is in the queue when this returns, also
    /// if the future is not polled. The future has to be polled in a runtime of Tokio.
    ///
    /// # Errors
    /// If the host cannot be reached, the connection breaks, the host does not answer in time or refuses the request, or too much waits
    /// for the host already.
    pub fn request(
        &self,
        host: &str,
        kind: Kind,
        body: Vec<u8>,
        limit: Duration,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + Send + 'static {
        let answer = self.send(host, kind, body);
        let host = host.to_owned();
        async move {
            match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{host} does not answer"),
                )),
            }
        }
    }

    /// Sends a request as [`Peers::request`] does, and waits for the answer without a limit.
    pub fn send(
        &self,
        host: &str,
        kind: Kind,
        body: Vec<u8>,
    ) -> impl Future<Output = io::Result<Vec<u8>>> + Send + 'static {
        let queued = self.enqueue(host, kind, body);
        async move {
            match queued?.await {
                Ok(answer) => answer,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the connections to other members are closed",
                )),
            }
        }
    }

    fn enqueue(
        &self,
        name: &str,
        kind: Kind,
        body: Vec<u8>,
    ) -> io::Result<oneshot::Receiver<io::Result<Vec<u8>>>> {
        if body.len() > BODY_BYTES_MAX {
            let text = "a request to another member is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let host = {
            let mut hosts = self.hosts.lock();
            let key = (name.to_owned(), kind == Kind::Entries);
            match hosts.get(&key) {
                Some(host) => host.clone(),
                None => {
                    // Former members leave nothing behind for ever.
                    hosts.retain(|_, host| !host.is_forgotten());
                    let host = Arc::new(Host::new(name));
                    hosts.insert(key, host.clone());
                    host
                }
            }
        };
        let (answer, receiver) = oneshot::channel();
        let request = Request { kind, body, answer };
        let bytes = request.bytes();
        let before = host.queued.fetch_add(bytes, Ordering::Relaxed);
        let sent = if before > 0 && before + bytes > QUEUE_BYTES_MAX {
            let text = format!("too many requests wait for {name}");
            Err(io::Error::new(io::ErrorKind::WouldBlock, text))
        } else {
            self.push(&host, request)
        };
        if sent.is_err() {
            host.queued.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent.map(|()| receiver)
    }

    /// Puts a request into the queue of the connection, which is opened if there is none.
    fn push(&self, host: &Arc<Host>, request: Request) -> io::Result<()> {
        let mut state = host.state.lock();
        let (backoff, request) = match &*state {
            State::Open { queue, backoff } => match queue.send(request) {
                Ok(()) => return Ok(()),
                // The task has ended by a panic.
                Err(failed) => (*backoff, failed.0),
            },
            State::Closed {
                why,
                retry_at,
                backoff,
            } => {
                if let Some((kind, why)) = why
                    && Instant::now() < *retry_at
                {
                    return Err(io::Error::new(*kind, why.clone()));
                }
                (*backoff, request)
            }
        };
        let (queue, requests) = mpsc::unbounded_channel();
        // The other end of the queue lives.
        let _ = queue.send(request);
        *state = State::Open { queue, backoff };
        let waiting = Waiting {
            requests,
            queued: host.queued.clone(),
        };
        self.runtime
            .spawn(run(self.opening.clone(), host.clone(), waiting));
        Ok(())
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Without senders the tasks end.
        for host in self.hosts.lock().values() {
            *host.state.lock() = State::closed(None, BACKOFF_MIN);
        }
    }
}

/// The messages of consensus.
impl Transport for Peers {
    fn send(&self, _: u64, peer: &Peer, lane: Lane, request: Vec<u8>) -> Reply {
        let kind = match lane {
            Lane::Control => Kind::Consensus,
            Lane::Entries => Kind::Entries,
        };
        Box::pin(Peers::send(self, &peer.host, kind, request))
    }
}

impl Host {
    fn new(name: &str) -> Host {
        Host {
            name: name.to_owned(),
            state: Mutex::new(State::closed(None, BACKOFF_MIN)),
            queued: Arc::default(),
        }
    }

    /// Whether there is no connection, and its last failure is no matter any more.
    fn is_forgotten(&self) -> bool {
        match &*self.state.lock() {
            State::Closed { retry_at, .. } => Instant::now() >= *retry_at + BACKOFF_MAX,
            State::Open { .. } => false,
        }
    }

    /// The connection is open: its end is the first failure again.
    fn opened(&self) {
        if let State::Open { backoff, .. } = &mut *self.state.lock() {
            *backoff = BACKOFF_MIN;
        }
    }

    /// The connection has failed.
    fn failed(&self, error: &io::Error) {
        let mut state = self.state.lock();
        if let State::Open { backoff, .. } = &*state {
            let why = Some((error.kind(), error.to_string()));
            *state = State::closed(why, *backoff);
        }
    }
}

impl State {
    fn closed(why: Option<(io::ErrorKind, String)>, backoff: Duration) -> State {
        State::Closed {
            why,
            retry_at: Instant::now() + backoff,
            backoff: (backoff * 2).min(BACKOFF_MAX),
        }
    }
}

/// The requests that wait for a connection.
struct Waiting {
    requests: mpsc::UnboundedReceiver<Request>,
    queued: Arc<AtomicUsize>,
}

impl Waiting {
    /// The next request that its caller still waits for; none if there will be no more.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Request>> {
        loop {
            let Some(request) = ready!(self.requests.poll_recv(cx)) else {
                return Poll::Ready(None);
            };
            self.queued.fetch_sub(request.bytes(), Ordering::Relaxed);
            if !request.answer.is_closed() {
                return Poll::Ready(Some(request));
            }
        }
    }

    /// Ends all that wait.
    fn fail(&mut self, error: &io::Error) {
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            self.queued.fetch_sub(request.bytes(), Ordering::Relaxed);
            let _ = request.answer.send(Err(again(error)));
        }
    }
}

/// A copy of an error.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

/// Opens a channel and serves it until it breaks, or no more requests can come.
async fn run(opening: Arc<Opening>, host: Arc<Host>, mut waiting: Waiting) {
    let mut pending = HashMap::new();
    let ended = async {
        let socket = connect(&host.name).await?;
        let opened = opening
            .credentials
            .open(socket, &host.name, &opening.identity);
        let (mut stream, _) = limited(OPEN_MAX, &host.name, opened).await?;
        host.opened();
        exchange(&mut stream, &mut waiting, &mut pending, &opening.traffic).await
    };
    let Err(error) = ended.await else {
        return;
    };
    let error = io::Error::new(error.kind(), format!("{}: {error}", host.name));
    // First, so that a caller whose request fails finds the state of the failure.
    host.failed(&error);
    let context = format!("peer {}", host.name);
    let attributes = doc! {"host": &*host.name, "error": error.to_string()};
    let message = "The connection to another member has failed";
    (opening.log).info(
        Component::Network,
        9_937_001,
        &context,
        message,
        &attributes,
    );
    for (_, answer) in pending {
        let _ = oneshot::Sender::send(answer, Err(again(&error)));
    }
    waiting.fail(&error);
}

async fn limited<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::time::timeout(limit, future)
        .await
        .unwrap_or_else(|_| {
            let text = format!("no connection to {what} in time");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
}

async fn connect(host: &str) -> io::Result<TcpStream> {
    let socket = limited(CONNECT_MAX, host, TcpStream::connect(host)).await?;
    socket.set_nodelay(true)?;
    // A system that does not support these notices later that the other side is gone.
    let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&socket, UNACKNOWLEDGED_MAX);
    let millis = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&socket, millis);
    Ok(socket)
}

/// Writes requests and reads their answers. Ok when no more requests can come.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    waiting: &mut Waiting,
    pending: &mut HashMap<u64, oneshot::Sender<io::Result<Vec<u8>>>>,
    traffic: &Traffic,
) -> io::Result<()> {
    let mut reader = Reader::default();
    let mut writer = Writer::default();
    let mut next = 0u64;
    poll_fn(|cx| {
        loop {
            let mut is_waiting = true;
            while writer.bytes() < WRITTEN_AHEAD {
                match waiting.poll(cx) {
                    Poll::Ready(Some(request)) => {
                        next += 1;
                        if pending.len() >= PENDING_MANY && next.is_multiple_of(PENDING_MANY as u64)
                        {
                            pending.retain(|_, answer| !answer.is_closed());
                        }
                        traffic.requests.add(1);
                        traffic.bytes_out.add(request.bytes() as u64);
                        pending.insert(next, request.answer);
                        writer.push(next, request.kind.byte(), request.body);
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => break,
                }
            }
            let before = writer.bytes();
            if let Poll::Ready(Err(error)) = writer.poll(stream, cx) {
                return Poll::Ready(Err(error));
            }
            // There is room for more requests, whose queue has no waker of this task if it was full before.
            if before >= WRITTEN_AHEAD && writer.bytes() < WRITTEN_AHEAD {
                is_waiting = false;
            }
            match reader.poll(stream, cx) {
                Poll::Pending if is_waiting => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Poll::Ready(Ok(Some(frame))) => {
                    let bytes = frame.body.len() + HEAD_BYTES;
                    traffic.bytes_in.add(bytes as u64);
                    let answer = match frame.kind {
                        ANSWER => Ok(frame.body),
                        FAILURE => Err(io::Error::other(
                            String::from_utf8_lossy(&frame.body).into_owned(),
                        )),
                        _ => return Poll::Ready(Err(malformed("a request"))),
                    };
                    match pending.remove(&frame.request) {
                        // It may be given up.
                        Some(waiting) => drop(waiting.send(answer)),
                        None if frame.request <= next => {}
                        None => return Poll::Ready(Err(malformed("an answer to no request"))),
                    }
                }
            }
        }
    })
    .await
}
