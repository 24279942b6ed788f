//! The frames of a channel.
//!
//! A frame is a head of 13 bytes (little endian: `u32` length of the body, `u64` number of the request, `u8` kind) and a body. Kinds
//! below 128 are requests; an answer has the number of its request and one of the kinds [`ANSWER`] and [`FAILURE`].

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// The bytes of the head.
pub const HEAD_BYTES: usize = 13;

/// The longest body, which is checked before memory is reserved. A commit that could not be sent would stop the replication for ever.
pub const BODY_BYTES_MAX: usize = frond_replica::REQUEST_BYTES_MAX;

/// The answer to a request.
pub const ANSWER: u8 = 128;

/// The answer to a request that could not be handled: a text.
pub const FAILURE: u8 = 129;

/// Bytes that are read at once, unless the rest of a body is longer.
const READ_BYTES: usize = 64 << 10;

/// The memory for a body before any of it has arrived.
const RESERVED_MAX: usize = 1 << 20;

/// Bodies up to this size are copied behind their head, so that many small frames are one write.
const COPIED_MAX: usize = 8 << 10;

/// Small frames that are collected in one buffer.
const BATCH_BYTES: usize = 64 << 10;

/// Buffers that one call of the system writes.
const VECTORS: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    pub request: u64,
    pub kind: u8,
    pub body: Vec<u8>,
}

/// A body that has not arrived to its end.
struct Partial {
    frame: Frame,
    length: usize,
}

/// Cuts the bytes of a channel into frames.
#[derive(Default)]
pub struct Reader {
    buffer: Vec<u8>,
    /// The bytes of the buffer that are used already.
    used: usize,
    partial: Option<Partial>,
}

impl Reader {
    /// The next frame; none at the end of the stream.
    pub fn poll<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Frame>>> {
        loop {
            if let Some(frame) = self.take()? {
                return Poll::Ready(Ok(Some(frame)));
            }
            let missing = self
                .partial
                .as_ref()
                .map_or(0, |one| one.length - one.frame.body.len());
            let read = match &mut self.partial {
                // The buffer is empty: bytes of a large body go to their place at once.
                Some(partial) if missing >= READ_BYTES => {
                    let body = &mut partial.frame.body;
                    if body.len() == body.capacity() {
                        body.reserve(body.len().clamp(READ_BYTES, missing));
                    }
                    let room = (body.capacity() - body.len()).min(missing);
                    ready!(pin!(stream.read_buf(&mut body.limit(room))).poll(cx))?
                }
                _ => {
                    self.buffer.drain(..self.used);
                    self.used = 0;
                    self.buffer.reserve(READ_BYTES);
                    let room = &mut (&mut self.buffer).limit(READ_BYTES);
                    ready!(pin!(stream.read_buf(room)).poll(cx))?
                }
            };
            if read == 0 {
                return Poll::Ready(if self.partial.is_none() && self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                });
            }
        }
    }

    /// Takes a frame out of what has arrived.
    fn take(&mut self) -> io::Result<Option<Frame>> {
        if self.partial.is_none() {
            let Some((head, _)) = self.arrived().split_first_chunk::<HEAD_BYTES>() else {
                return Ok(None);
            };
            self.partial = Some(parse_head(head)?);
            self.used += HEAD_BYTES;
        }
        let arrived = self.buffer.get(self.used..).unwrap_or_default();
        let Some(partial) = &mut self.partial else {
            return Ok(None);
        };
        let missing = partial.length - partial.frame.body.len();
        let part = arrived.get(..missing).unwrap_or(arrived);
        partial.frame.body.extend_from_slice(part);
        self.used += part.len();
        let is_whole = part.len() == missing;
        if self.used == self.buffer.len() {
            self.buffer.clear();
            self.used = 0;
        }
        Ok(if is_whole {
            self.partial.take().map(|partial| partial.frame)
        } else {
            None
        })
    }

    fn arrived(&self) -> &[u8] {
        self.buffer.get(self.used..).unwrap_or_default()
    }
}

fn parse_head(head: &[u8; HEAD_BYTES]) -> io::Result<Partial> {
    let [a, b, c, d, number @ .., kind] = *head;
    let length = u32::from_le_bytes([a, b, c, d]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > BODY_BYTES_MAX {
        return Err(malformed(&format!("a body of {length} bytes")));
    }
    if kind == 0 {
        return Err(malformed("a frame without a kind"));
    }
    Ok(Partial {
        length,
        frame: Frame {
            request: u64::from_le_bytes(number),
            kind,
            body: Vec::with_capacity(length.min(RESERVED_MAX)),
        },
    })
}

pub fn malformed(what: &str) -> io::Error {
    let text = format!("the channel has broken its protocol: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The frames that are to be written.
#[derive(Default)]
pub struct Writer {
    chunks: VecDeque<Chunk>,
    /// The written bytes of the first chunk.
    written: usize,
    /// The bytes of all chunks that are not written.
    bytes: usize,
    /// Whether the stream may hold bytes that were written and not sent.
    needs_flush: bool,
}

struct Chunk {
    bytes: Vec<u8>,
    /// Whether small frames may be added.
    is_open: bool,
}

impl Writer {
    /// Adds a frame. Its body must not be longer than [`BODY_BYTES_MAX`].
    pub fn push(&mut self, request: u64, kind: u8, body: Vec<u8>) {
        let mut head = [0; HEAD_BYTES];
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut rest = &mut head[..];
        rest.put_u32_le(length);
        rest.put_u64_le(request);
        rest.put_u8(kind);
        self.bytes += HEAD_BYTES + body.len();
        let is_open = (self.chunks.back())
            .is_some_and(|chunk| chunk.is_open && chunk.bytes.len() < BATCH_BYTES);
        if !is_open {
            self.chunks.push_back(Chunk {
                bytes: Vec::with_capacity(HEAD_BYTES + body.len().min(COPIED_MAX)),
                is_open: true,
            });
        }
        let Some(Chunk { bytes: open, .. }) = self.chunks.back_mut() else {
            return;
        };
        open.extend_from_slice(&head);
        if body.len() <= COPIED_MAX {
            open.extend_from_slice(&body);
        } else {
            self.chunks.push_back(Chunk {
                bytes: body,
                is_open: false,
            });
        }
    }

    /// The bytes that are not written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes all frames, and flushes behind the last one. Ready when nothing is left.
    pub fn poll<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(first) = self.chunks.front() {
            let first = first.bytes.get(self.written..).unwrap_or_default();
            let wrote = if stream.is_write_vectored() && self.chunks.len() > 1 {
                let mut parts = [IoSlice::new(&[]); VECTORS];
                let rest = self.chunks.iter().skip(1).map(|chunk| &*chunk.bytes);
                let all = std::iter::once(first).chain(rest);
                let mut count = 0;
                for (part, bytes) in parts.iter_mut().zip(all) {
                    *part = IoSlice::new(bytes);
                    count += 1;
                }
                let parts = parts.get(..count).unwrap_or_default();
                ready!(Pin::new(&mut *stream).poll_write_vectored(cx, parts))?
            } else {
                ready!(Pin::new(&mut *stream).poll_write(cx, first))?
            };
            if wrote == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.needs_flush = true;
            self.advance(wrote);
        }
        if self.needs_flush {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, wrote: usize) {
        self.bytes = self.bytes.saturating_sub(wrote);
        self.written += wrote;
        while let Some(first) = self.chunks.front()
            && self.written >= first.bytes.len()
        {
            self.written -= first.bytes.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn next(
        reader: &mut Reader,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Frame>> {
        poll_fn(|cx| reader.poll(from, cx)).await
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in() {
        let sizes = [
            0,
            1,
            12,
            COPIED_MAX,
            COPIED_MAX + 1,
            READ_BYTES,
            3 << 20,
            5,
            70_000,
            0,
        ];
        for room in [1 << 10, 1 << 24] {
            let (mut near, mut far) = tokio::io::duplex(room);
            let writing = tokio::spawn(async move {
                let mut writer = Writer::default();
                for (at, size) in sizes.into_iter().enumerate() {
                    writer.push(at as u64 + 7, 1, vec![at as u8; size]);
                }
                poll_fn(|cx| writer.poll(&mut near, cx)).await.unwrap();
                assert_eq!(writer.bytes(), 0);
            });
            let mut reader = Reader::default();
            for (at, size) in sizes.into_iter().enumerate() {
                let frame = next(&mut reader, &mut far).await.unwrap().unwrap();
                assert_eq!((frame.request, frame.kind), (at as u64 + 7, 1));
                assert!(frame.body == vec![at as u8; size], "{at}");
            }
            writing.await.unwrap();
            assert_eq!(next(&mut reader, &mut far).await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn bytes_that_are_no_frames_are_errors() {
        let head = |length: u32, kind: u8| {
            let mut head = length.to_le_bytes().to_vec();
            head.extend_from_slice(&[0; 8]);
            head.push(kind);
            head
        };
        for (bytes, kind) in [
            (
                head(BODY_BYTES_MAX as u32 + 1, 1),
                io::ErrorKind::InvalidData,
            ),
            (head(u32::MAX, 1), io::ErrorKind::InvalidData),
            (head(0, 0), io::ErrorKind::InvalidData),
            (head(5, 1), io::ErrorKind::UnexpectedEof),
            (vec![1, 0, 0], io::ErrorKind::UnexpectedEof),
            (head(BODY_BYTES_MAX as u32, 1), io::ErrorKind::UnexpectedEof),
        ] {
            let mut reader = Reader::default();
            let error = next(&mut reader, &mut &*bytes).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn memory_follows_what_arrived() {
        let (mut near, mut far) = tokio::io::duplex(8 << 20);
        let mut head = (BODY_BYTES_MAX as u32).to_le_bytes().to_vec();
        head.extend_from_slice(&[0; 9]);
        head[12] = 1;
        far.write_all(&head).await.unwrap();
        far.write_all(&vec![0; 3 << 20]).await.unwrap();
        let mut reader = Reader::default();
        poll_fn(|cx| {
            assert!(reader.poll(&mut near, cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let body = &reader.partial.as_ref().unwrap().frame.body;
        assert_eq!(body.len(), 3 << 20);
        assert!(body.capacity() <= 8 << 20, "{}", body.capacity());
    }
}
