//! Splitting a stream of bytes into messages.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use frond_wire::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, Message, OpCode};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, Sleep, sleep};

use crate::memory_quota::{MemoryQuota, Permit, STALLED};
use crate::request::wants_reply;
use crate::socket_memory::Full;
use frond_store::Reservation;

/// Capacity for a first read; most requests fit.
const READ_BYTES: usize = 8 << 10;

/// A larger buffer is freed as soon as its message is handled, if other connections keep many: clients that each send a
/// large message now and then must not keep one large buffer each.
const KEPT_BYTES: usize = 256 << 10;

/// Bytes of all large buffers that may be kept while their connections are busy.
const LARGE_BYTES_MAX: usize = 16 << 20;

/// Bytes of the large buffers that all connections keep now.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// After this time without a byte a connection counts as idle and frees its buffer.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Capacity for the first read of an idle connection.
const IDLE_BYTES: usize = 64;

/// While room is short, a message that has some must arrive at this rate, after the time in which a client counts as
/// stalled.
const BYTES_PER_SECOND: usize = 256 << 10;

/// Why there is no next message.
#[derive(Debug)]
pub enum Ended {
    /// The client closed the connection.
    Closed,
    /// Reading or writing failed.
    Io(io::Error),
    /// The bytes are not a message.
    Malformed(frond_wire::Error),
    /// The client has stalled while it held memory that others need.
    Stalled,
    /// Messages in its socket have to wait, and sockets hold too much already.
    Sockets,
    /// The client began a login and did not end it in time.
    LoginTime,
}

/// The messages of one connection.
pub struct Frames {
    arrived: frond_wire::Frames,
    /// The part of [`LARGE_BYTES`] that is this buffer.
    large: usize,
    quota: Arc<MemoryQuota>,
    /// Memory for the message that arrives or is handled, if it is not small.
    permit: Option<Permit>,
    /// When the rest of that message must have arrived, if others need the room.
    due: Option<Instant>,
    /// Set when the client has closed the connection.
    gone: Arc<AtomicBool>,
    idle: IdleTimer,
}

/// Reports when no message has come for a while. Its timer is set when it ends, not for each message.
#[derive(Default)]
struct IdleTimer {
    /// None while the connection is idle.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether something has arrived since the timer was set.
    has_arrived: bool,
}

impl IdleTimer {
    /// Ready if nothing has arrived between two ends of the timer: after [`IDLE_AFTER`] at least, and twice of it at most.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = (self.timer).get_or_insert_with(|| {
                self.has_arrived = false;
                Box::pin(sleep(IDLE_AFTER))
            });
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            if !self.has_arrived {
                return Poll::Ready(());
            }
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.uncount();
    }
}

impl Frames {
    /// Messages that take their memory from a room. `gone` is set when the client has closed the connection, by an event
    /// that polls the task.
    pub fn new(quota: Arc<MemoryQuota>, gone: Arc<AtomicBool>) -> Frames {
        Frames {
            arrived: frond_wire::Frames::new(MAX_MESSAGE_BYTES),
            large: 0,
            quota,
            permit: None,
            due: None,
            gone,
            idle: IdleTimer::default(),
        }
    }

    /// Waits for the next whole message. [`Frames::finish`] takes it back.
    pub async fn next<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<Message, Ended> {
        loop {
            let is_whole = self.arrived.message().map_err(Ended::Malformed)?.is_some();
            let memory = self.arrived.memory().unwrap_or(0);
            if memory > READ_BYTES && self.permit.is_none() {
                // The rest stays in the socket, and the client waits.
                self.permit = Some(match self.quota.try_acquire(memory) {
                    Some(permit) => permit,
                    None => {
                        let _held = self.in_socket(memory)?;
                        tokio::select! {
                            biased;
                            () = self.closed() => return Err(Ended::Closed),
                            permit = self.quota.wait(memory) => permit,
                        }
                    }
                });
                let length = self.arrived.length().ok().flatten().unwrap_or(0);
                let time = STALLED + Duration::from_secs((length / BYTES_PER_SECOND) as u64);
                self.due = Some(Instant::now() + time);
                continue;
            }
            if is_whole && let Some(message) = self.arrived.take().map_err(Ended::Malformed)? {
                return Ok(message);
            }
            self.read(stream).await?;
        }
    }

    /// Reads on while a message is in use. Returns only when the client disconnects, and stops reading when the client has sent
    /// too much without waiting for a reply.
    pub async fn watch<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Ended {
        loop {
            let arrived = self.arrived.len();
            if arrived >= READ_BYTES {
                // Enough arrived to go on with; do not read without bound.
                let _held = match self.in_socket(usize::MAX) {
                    Ok(held) => held,
                    Err(ended) => return ended,
                };
                std::future::pending::<()>().await;
            }
            // Usually nothing comes before the reply is sent.
            let bytes = if arrived == 0 { IDLE_BYTES } else { READ_BYTES };
            match stream.read(self.arrived.room_up_to(bytes)).await {
                Ok(0) => return Ended::Closed,
                Ok(bytes) => self.arrived.add(bytes),
                Err(error) => return Ended::Io(error),
            }
        }
    }

    /// Returns when the client has closed the connection, unless it waits for no reply to the message that arrives: it
    /// may do so at once and have the message handled.
    async fn closed(&self) {
        let arrived = self.arrived.arrived();
        let op = Header::parse(arrived).and_then(|header| header.op());
        let is_known =
            arrived.len() >= HEADER_BYTES + 4 && op.is_ok_and(|op| op != OpCode::Compressed);
        let wants_reply = is_known && wants_reply(arrived);
        std::future::poll_fn(|_| {
            if wants_reply && self.gone.load(Ordering::Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Counts what arrives and is not read meanwhile.
    fn in_socket(&self, bytes: usize) -> Result<Reservation, Ended> {
        let held = self.quota.in_socket(Full::Arrived(bytes));
        held.ok_or(Ended::Sockets)
    }

    /// As [`Frames::watch`], but without reading, while a message is in use whose client waits for no reply.
    ///
    /// # Errors
    /// `Sockets` if sockets hold too much already.
    pub fn leave(&self) -> Result<Option<Reservation>, Ended> {
        if self.arrived.is_empty() {
            return Ok(None);
        }
        self.in_socket(usize::MAX).map(Some)
    }

    /// Whether no byte has arrived that is not part of a message that was taken.
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Changes the limit for messages that are not read yet.
    pub fn set_limit(&mut self, bytes: usize) {
        self.arrived.set_limit(bytes);
    }

    /// Takes back a message that is handled.
    pub fn finish(&mut self, message: Message) {
        self.arrived.recycle(message);
        self.permit = None;
        if self.arrived.is_empty() && !self.may_keep() {
            self.arrived.free();
        }
    }

    /// Whether the buffer may be kept for the next message.
    fn may_keep(&mut self) -> bool {
        let bytes = self.arrived.capacity();
        if bytes <= KEPT_BYTES || bytes == self.large {
            return true;
        }
        self.uncount();
        let others = LARGE_BYTES.fetch_add(bytes, Ordering::Relaxed);
        self.large = bytes;
        if others + bytes > LARGE_BYTES_MAX {
            self.uncount();
            return false;
        }
        true
    }

    fn uncount(&mut self) {
        LARGE_BYTES.fetch_sub(std::mem::take(&mut self.large), Ordering::Relaxed);
    }

    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<(), Ended> {
        let read = if self.arrived.is_empty() {
            let idle = &mut self.idle;
            let mut read = pin!(stream.read(self.arrived.room(READ_BYTES)));
            let read = std::future::poll_fn(|cx| match read.as_mut().poll(cx) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => idle.poll(cx).map(|()| None),
            });
            match read.await {
                Some(read) => read,
                None => {
                    self.arrived.free();
                    self.uncount();
                    stream.read(self.arrived.room(IDLE_BYTES)).await
                }
            }
        } else if self.permit.is_none() {
            stream.read(self.arrived.room(READ_BYTES)).await
        } else {
            let read = stream.read(self.arrived.room(READ_BYTES));
            let read = tokio::time::timeout(STALLED, read).await;
            // A byte now and then is not enough.
            let is_late = read.is_err() || self.due.is_some_and(|due| Instant::now() > due);
            if is_late && self.quota.is_short() {
                return Err(Ended::Stalled);
            }
            match read {
                Ok(read) => read,
                Err(_) => return Ok(()),
            }
        };
        match read {
            Ok(0) => Err(Ended::Closed),
            Ok(bytes) => {
                self.idle.has_arrived = true;
                self.arrived.add(bytes);
                Ok(())
            }
            Err(error) => Err(Ended::Io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_store::{MemoryBudget, MemoryUse};
    use frond_wire::{Error, Flags, Header, msg};
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::socket_memory::SocketMemory;

    fn quota() -> Arc<MemoryQuota> {
        let memory = MemoryBudget::for_clients(100 << 20);
        MemoryQuota::new(&memory, MemoryUse::Requests, 64 << 20)
    }

    const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

    #[tokio::test]
    async fn messages_are_cut_however_they_arrive() {
        let messages: Vec<Vec<u8>> = (0..40)
            .map(|id| {
                msg(
                    id,
                    0,
                    Flags::NONE,
                    &[EMPTY, &vec![0; id as usize * 997]].concat(),
                )
            })
            .collect();
        let stream = messages.concat();
        for piece in [1, 7, 16, 1000, stream.len()] {
            let (mut near, mut far) = tokio::io::duplex(64 << 10);
            let sent = stream.clone();
            let writer = tokio::spawn(async move {
                for bytes in sent.chunks(piece) {
                    far.write_all(bytes).await.unwrap();
                }
            });
            let mut frames = Frames::new(quota(), Arc::default());
            for message in &messages {
                let next = frames.next(&mut near).await.unwrap();
                assert_eq!(next.bytes(), message);
                frames.finish(next);
            }
            assert!(matches!(frames.next(&mut near).await, Err(Ended::Closed)));
            writer.await.unwrap();
        }
    }

    #[tokio::test]
    async fn bad_headers_end_the_stream_before_anything_is_kept() {
        let cases = [
            (15i32, 2013i32, Error::BadMessageLength(15)),
            (-1, 2013, Error::BadMessageLength(-1)),
            (48_000_001, 2013, Error::BadMessageLength(48_000_001)),
            (100, 2003, Error::UnknownOpcode(2003)),
        ];
        for (length, opcode, expected) in cases {
            let header = Header {
                length,
                request_id: 1,
                response_to: 0,
                opcode,
            };
            let (mut near, mut far) = tokio::io::duplex(1024);
            far.write_all(&header.to_bytes()).await.unwrap();
            match Frames::new(quota(), Arc::default()).next(&mut near).await {
                Err(Ended::Malformed(error)) => assert_eq!(error, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    /// It used to wait for the room, with all that was in its socket.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_gone_waits_for_no_room() {
        let large = |flags| msg(1, 0, flags, &[EMPTY, &vec![0; 1 << 20]].concat());
        let quota = quota();
        let _all = quota.try_acquire(quota.bytes()).unwrap();
        for (flags, is_closed) in [(Flags::NONE, true), (Flags::MORE_TO_COME, false)] {
            let (mut near, mut far) = tokio::io::duplex(4 << 20);
            far.write_all(&large(flags)).await.unwrap();
            let mut frames = Frames::new(quota.clone(), Arc::new(AtomicBool::new(true)));
            let next = tokio::time::timeout(Duration::from_secs(9), frames.next(&mut near)).await;
            assert_eq!(
                matches!(next, Ok(Err(Ended::Closed))),
                is_closed,
                "{next:?}"
            );
        }
    }

    /// A byte every few seconds used to be enough to keep the room of the whole message.
    #[tokio::test(start_paused = true)]
    async fn a_slow_upload_does_not_keep_room_that_others_need() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Requests, 1 << 20);
        let (mut near, mut far) = tokio::io::duplex(4 << 20);
        let large = msg(1, 0, Flags::NONE, &[EMPTY, &vec![0; 800 << 10]].concat());
        let sender = tokio::spawn(async move {
            for byte in large.chunks(1) {
                if far.write_all(byte).await.is_err() {
                    break;
                }
                tokio::time::sleep(STALLED / 2).await;
            }
        });
        let mut frames = Frames::new(quota.clone(), Arc::default());
        let alone = tokio::time::timeout(Duration::from_secs(600), frames.next(&mut near)).await;
        assert!(alone.is_err(), "nobody else needs the room");
        let other = tokio::time::timeout(Duration::from_secs(60), quota.wait(800 << 10));
        let (ended, other) = tokio::join!(
            async {
                let ended = frames.next(&mut near).await;
                drop((frames, near));
                ended
            },
            other
        );
        assert!(matches!(ended, Err(Ended::Stalled)), "{ended:?}");
        assert!(other.is_ok());
        sender.await.unwrap();
    }

    /// 64 clients whose messages of 16 MiB waited for memory had 750 MiB in their sockets.
    #[tokio::test(start_paused = true)]
    async fn a_message_does_not_wait_in_a_socket_when_sockets_hold_too_much() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let sockets = SocketMemory::with(&memory, 16 << 20);
        let quota = MemoryQuota::beside(&sockets, &memory, MemoryUse::Requests, 1 << 20);
        let all = quota.try_acquire(1 << 20).unwrap();
        let large = msg(1, 0, Flags::NONE, &[EMPTY, &vec![0; 800 << 10]].concat());
        let mut waiting = Vec::new();
        loop {
            let (mut near, mut far) = tokio::io::duplex(1 << 20);
            far.write_all(&large).await.unwrap();
            let mut frames = Frames::new(quota.clone(), Arc::default());
            let mut next = Box::pin(async move { (frames.next(&mut near).await, far) });
            let first = tokio::time::timeout(Duration::from_millis(1), next.as_mut()).await;
            if let Ok((ended, _)) = first {
                assert!(matches!(ended, Err(Ended::Sockets)), "{ended:?}");
                break;
            }
            waiting.push(next);
        }
        assert_eq!(waiting.len(), 8, "256 KiB each, of an eighth of the memory");
        assert_eq!(memory.used(MemoryUse::Sockets), 2 << 20);
        drop(all);
        for next in waiting {
            assert!(next.await.0.is_ok(), "it was not closed");
        }
        assert_eq!(memory.used(MemoryUse::Sockets), 0);
    }

    /// Clients that sent on without reading had 1,150 MiB in their sockets.
    #[tokio::test(start_paused = true)]
    async fn what_arrives_while_a_message_is_in_use_is_counted() {
        let memory = MemoryBudget::for_clients(100 << 20);
        let quota = MemoryQuota::new(&memory, MemoryUse::Requests, 64 << 20);
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        far.write_all(&vec![0; 4 * READ_BYTES]).await.unwrap();
        let mut frames = Frames::new(quota, Arc::default());
        assert!(frames.leave().unwrap().is_none(), "nothing is known of it");
        let mut watched = Box::pin(frames.watch(&mut near));
        let ended = tokio::time::timeout(Duration::from_millis(1), watched.as_mut()).await;
        assert!(ended.is_err(), "it waits");
        assert!(memory.used(MemoryUse::Sockets) > 0);
        drop(watched);
        assert_eq!(memory.used(MemoryUse::Sockets), 0);
        let held = frames.leave().unwrap();
        assert!(memory.used(MemoryUse::Sockets) > 0);
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_follows_what_arrived() {
        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let header = Header {
            length: 48_000_000,
            request_id: 1,
            response_to: 0,
            opcode: 2013,
        };
        far.write_all(&header.to_bytes()).await.unwrap();
        let mut frames = Frames::new(quota(), Arc::default());
        let wait = tokio::time::timeout(Duration::from_secs(60), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(
            frames.arrived.capacity() <= 2 << 20,
            "{}",
            frames.arrived.capacity()
        );
        far.write_all(&vec![0; 4 << 20]).await.unwrap();
        let wait = tokio::time::timeout(Duration::from_secs(60), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(
            frames.arrived.capacity() <= 12 << 20,
            "{}",
            frames.arrived.capacity()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_gives_its_buffer_back() {
        let (mut near, mut far) = tokio::io::duplex(4 << 20);
        let mut frames = Frames::new(quota(), Arc::default());
        let large = msg(1, 0, Flags::NONE, &[EMPTY, &vec![0; 2 << 20]].concat());
        far.write_all(&large).await.unwrap();
        let message = frames.next(&mut near).await.unwrap();
        far.write_all(&large).await.unwrap();
        frames.finish(message);
        assert!(frames.arrived.capacity() > KEPT_BYTES, "while it is busy");
        let message = frames.next(&mut near).await.unwrap();
        frames.finish(message);
        let wait = tokio::time::timeout(Duration::from_secs(2), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(frames.arrived.capacity() <= READ_BYTES);
        far.write_all(&large).await.unwrap();
        let message = frames.next(&mut near).await.unwrap();
        assert_eq!(message.bytes(), large);
    }
}
