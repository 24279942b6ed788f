//! Cutting a stream of bytes into messages.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frond_wire::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Room for a first read; most requests fit.
const READ_BYTES: usize = 8 << 10;

/// While a message arrives the buffer grows by at most this much beyond what has arrived, so that
/// a client that announces a large message and sends nothing holds little.
const GROWTH_BYTES: usize = 1 << 20;

/// A buffer larger than this is given back as soon as its message is handled, if others keep many, so that clients
/// that each send a large message now and then do not keep as many large buffers.
const KEPT_BYTES: usize = 256 << 10;

/// What large buffers may take that are kept while their connections are busy.
const LARGE_BYTES_MAX: usize = 16 << 20;

/// What they take now, all connections together.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// After this time without a byte a connection counts as idle and gives its buffer back.
const IDLE_AFTER: Duration = Duration::from_millis(500);

/// Room for the first read of an idle connection.
const IDLE_BYTES: usize = 64;

/// Why there is no next message.
#[derive(Debug)]
pub enum Ended {
    /// The client closed the connection.
    Closed,
    /// It broke.
    Io(io::Error),
    /// The bytes are not a message.
    Malformed(frond_wire::Error),
}

/// The bytes that have arrived and are not used yet. One read of the socket may bring several
/// messages.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    /// Bytes of the message that [`Frames::next`] found.
    current: usize,
    /// What the buffer counts for in [`LARGE_BYTES`].
    large: usize,
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.uncount();
    }
}

impl Frames {
    /// Waits for the next whole message; the one before it is gone afterwards.
    pub async fn next<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<(), Ended> {
        self.consume();
        loop {
            let have = self.buffer.len() - self.start;
            let mut missing = 0;
            if have >= HEADER_BYTES {
                let length = self.length()?;
                if have >= length {
                    self.current = length;
                    return Ok(());
                }
                missing = length - have;
            }
            self.make_room(missing);
            self.read(stream).await?;
        }
    }

    /// The message that [`Frames::next`] found.
    pub fn message(&self) -> &[u8] {
        self.buffer
            .get(self.start..self.start + self.current)
            .unwrap_or_default()
    }

    /// Reads on while the current message is still in use; ends only when the client does, or has
    /// sent more than it may without an answer.
    pub async fn watch<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Ended {
        loop {
            if self.buffer.len() - self.start > self.current + READ_BYTES {
                // Enough arrived to go on with; do not read without bound.
                std::future::pending::<()>().await;
            }
            if self.buffer.capacity() == self.buffer.len() {
                self.buffer.reserve(READ_BYTES);
            }
            match stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Ended::Closed,
                Ok(_) => {}
                Err(error) => return Ended::Io(error),
            }
        }
    }

    fn consume(&mut self) {
        self.start += std::mem::take(&mut self.current);
        if self.start >= self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            if !self.may_keep() {
                self.buffer = Vec::new();
            }
        }
    }

    /// Whether the buffer may be kept for the next message.
    fn may_keep(&mut self) -> bool {
        let bytes = self.buffer.capacity();
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

    fn length(&self) -> Result<usize, Ended> {
        let header = self.buffer.get(self.start..).unwrap_or_default();
        Header::parse(header)
            .and_then(|header| {
                header.op()?;
                header.checked_length(MAX_MESSAGE_BYTES)
            })
            .map_err(Ended::Malformed)
    }

    /// Makes room to read at least one byte, and more if more is known to come.
    fn make_room(&mut self, missing: usize) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        // Grow with what has arrived, so that the copying stays linear.
        let most = GROWTH_BYTES.max(self.buffer.len());
        let room = missing.clamp(if missing == 0 { READ_BYTES } else { 1 }, most);
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer.reserve_exact(room);
        }
    }

    async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> Result<(), Ended> {
        let read = if self.buffer.is_empty() {
            match tokio::time::timeout(IDLE_AFTER, stream.read_buf(&mut self.buffer)).await {
                Ok(read) => read,
                Err(_) => {
                    self.buffer = Vec::with_capacity(IDLE_BYTES);
                    self.uncount();
                    stream.read_buf(&mut self.buffer).await
                }
            }
        } else {
            stream.read_buf(&mut self.buffer).await
        };
        match read {
            Ok(0) => Err(Ended::Closed),
            Ok(_) => Ok(()),
            Err(error) => Err(Ended::Io(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_wire::{Error, Flags, msg};
    use tokio::io::AsyncWriteExt;

    use super::*;

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
            let mut frames = Frames::default();
            for message in &messages {
                frames.next(&mut near).await.unwrap();
                assert_eq!(frames.message(), message);
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
            match Frames::default().next(&mut near).await {
                Err(Ended::Malformed(error)) => assert_eq!(error, expected),
                other => panic!("{other:?}"),
            }
        }
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
        let mut frames = Frames::default();
        let wait = tokio::time::timeout(Duration::from_secs(60), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(
            frames.buffer.capacity() <= 2 * GROWTH_BYTES,
            "{}",
            frames.buffer.capacity()
        );
        far.write_all(&vec![0; 4 << 20]).await.unwrap();
        let wait = tokio::time::timeout(Duration::from_secs(60), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(
            frames.buffer.capacity() <= 12 << 20,
            "{}",
            frames.buffer.capacity()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_gives_its_buffer_back() {
        let (mut near, mut far) = tokio::io::duplex(4 << 20);
        let mut frames = Frames::default();
        let large = msg(1, 0, Flags::NONE, &[EMPTY, &vec![0; 2 << 20]].concat());
        far.write_all(&large).await.unwrap();
        frames.next(&mut near).await.unwrap();
        far.write_all(&large).await.unwrap();
        frames.consume();
        assert!(frames.buffer.capacity() > KEPT_BYTES, "while it is busy");
        frames.next(&mut near).await.unwrap();
        let wait = tokio::time::timeout(Duration::from_secs(2), frames.next(&mut near));
        assert!(wait.await.is_err());
        assert!(frames.buffer.capacity() <= READ_BYTES);
        far.write_all(&large).await.unwrap();
        frames.next(&mut near).await.unwrap();
        assert_eq!(frames.message(), large);
    }
}
