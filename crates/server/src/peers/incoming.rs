//! The side of a channel that answers.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};

use super::frame::{ANSWER, BODY_BYTES_MAX, FAILURE, Frame, HEAD_BYTES, Reader, Writer, malformed};
use super::{Kind, PeerIdentity, PeerService, Traffic};

/// Requests of consensus that a channel handles at once. Further ones stay in the socket.
const CONSENSUS_MAX: usize = 64;

/// Other requests that a channel handles at once. Further ones fail: they must not keep messages of consensus from being read.
const OTHERS_MAX: usize = 64;

/// The bytes of the requests that a channel handles at once. Further ones stay in the socket.
const HANDLED_BYTES_MAX: usize = 64 << 20;

/// Bytes of answers that the other side has not read, from which on no more requests are read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Requests that are begun before other tasks of the thread have their turn.
const TURN: usize = 64;

/// The answering side of a server. It is filled while the server starts.
#[derive(Default)]
pub struct PeerSide {
    identity: RwLock<Option<PeerIdentity>>,
    service: RwLock<Option<Arc<dyn PeerService>>>,
    traffic: Traffic,
}

impl PeerSide {
    /// Opens the server for channels.
    pub fn identify(&self, identity: PeerIdentity) {
        *self.identity.write() = Some(identity);
    }

    /// Answers requests by this service from here on. They fail before the first call.
    pub fn serve(&self, service: Arc<dyn PeerService>) {
        *self.service.write() = Some(service);
    }

    /// Counts of the messages since the start.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// None until the member is known.
    pub fn identity(&self) -> Option<PeerIdentity> {
        self.identity.read().clone()
    }
}

/// A request that was handled.
struct Done {
    request: u64,
    is_consensus: bool,
    bytes: usize,
    answer: Vec<u8>,
}

/// Answers the requests of the member `from` until it closes the channel.
///
/// # Errors
/// If the connection breaks, or the other side breaks the protocol.
pub async fn serve_channel<S>(stream: &mut S, from: u64, side: &PeerSide) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut reader = Reader::default();
    let mut writer = Writer::default();
    let mut running = FuturesUnordered::<Pin<Box<dyn Future<Output = Done> + Send + '_>>>::new();
    let (mut consensus, mut others, mut bytes) = (0, 0, 0);
    poll_fn(|cx| {
        for _ in 0..TURN {
            while let Poll::Ready(Some(done)) = running.poll_next_unpin(cx) {
                let count = if done.is_consensus {
                    &mut consensus
                } else {
                    &mut others
                };
                *count -= 1;
                bytes -= done.bytes;
                let answered = done.answer.len() + HEAD_BYTES;
                side.traffic.bytes_out.add(answered as u64);
                answer(&mut writer, done.request, done.answer);
            }
            if let Poll::Ready(Err(error)) = writer.poll(stream, cx) {
                return Poll::Ready(Err(error));
            }
            let is_full = consensus >= CONSENSUS_MAX
                || bytes >= HANDLED_BYTES_MAX
                || writer.bytes() >= ANSWER_BYTES_MAX;
            if is_full {
                return Poll::Pending;
            }
            let frame = match reader.poll(stream, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(frame))) => frame,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            };
            let Frame {
                request,
                kind,
                body,
            } = frame;
            if kind >= ANSWER {
                return Poll::Ready(Err(malformed("an answer to no request")));
            }
            let Some(kind) = Kind::from_byte(kind) else {
                fail(
                    &mut writer,
                    request,
                    "this member does not know the kind of the request",
                );
                continue;
            };
            let Some(service) = side.service.read().clone() else {
                fail(&mut writer, request, "this member is still starting");
                continue;
            };
            let is_consensus = matches!(kind, Kind::Consensus | Kind::Entries);
            if is_consensus {
                consensus += 1;
            } else if others < OTHERS_MAX {
                others += 1;
            } else {
                fail(
                    &mut writer,
                    request,
                    "this member has too many requests at once",
                );
                continue;
            }
            let length = body.len();
            bytes += length;
            side.traffic.requests.add(1);
            side.traffic.bytes_in.add((length + HEAD_BYTES) as u64);
            running.push(Box::pin(async move {
                Done {
                    request,
                    is_consensus,
                    bytes: length,
                    answer: service.handle(from, kind, body).await,
                }
            }));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

fn answer(writer: &mut Writer, request: u64, answer: Vec<u8>) {
    if answer.len() > BODY_BYTES_MAX {
        fail(writer, request, "the answer is too long");
    } else {
        writer.push(request, ANSWER, answer);
    }
}

fn fail(writer: &mut Writer, request: u64, why: &str) {
    writer.push(request, FAILURE, why.as_bytes().to_vec());
}
