//! Cutting a stream of bytes into messages.

use std::io::{self, Read};

use zeroize::Zeroize;

use crate::{Error, HEADER_BYTES, Header, OpCode};

/// A large message gets room for as many bytes as have arrived, and at least for this many, so that a
/// peer that announces a large message and sends nothing takes little memory.
const GROWTH_BYTES: usize = 1 << 20;

/// When so much of a message has arrived, it gets room for all of it: what it had before is freed only when it is copied.
const WHOLE_BYTES: usize = 8 << 20;

/// A smaller buffer is overwritten when its bytes move to a larger one. Messages with passwords are small; larger buffers grow
/// in place if they can, which is faster.
const WIPED_BYTES: usize = 64 << 10;

/// The bytes of a connection that have arrived and are not used yet. One read of the socket may bring
/// several messages, or a part of one.
///
/// Whoever owns the socket reads into [`Frames::room`] and reports how many bytes came with
/// [`Frames::add`], blocking or not; [`Frames::read_from`] does both for a blocking reader.
#[derive(Debug)]
pub struct Frames {
    /// All of it is initialised; `start..end` are bytes that arrived.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    limit: usize,
}

/// A message that was taken out of [`Frames`].
#[derive(Debug)]
pub struct Message {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Message {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Overwrites it, because it holds a secret.
    pub fn wipe(&mut self) {
        let bytes = self.buffer.get_mut(self.start..self.end);
        bytes.unwrap_or_default().zeroize();
    }
}

impl Frames {
    /// Messages of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Frames {
        Frames {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            limit,
        }
    }

    /// Changes the limit for messages that are not read yet. A longer one that has begun to arrive becomes an error.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The bytes that have arrived and are not consumed.
    #[must_use]
    pub fn arrived(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Bytes that have arrived and are not consumed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that the buffer takes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The length of the first message, once its header has arrived. An operation code or a length
    /// that no message has is an error before the rest arrives.
    pub fn length(&self) -> Result<Option<usize>, Error> {
        let arrived = self.arrived();
        if arrived.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::parse(arrived)?;
        header.op()?;
        header.checked_length(self.limit).map(Some)
    }

    /// The memory that the first message takes, decompressed too if it is compressed, once that is known.
    #[must_use]
    pub fn memory(&self) -> Option<usize> {
        let length = self.length().ok()??;
        let arrived = self.arrived();
        if Header::parse(arrived).is_ok_and(|header| header.op() == Ok(OpCode::Compressed)) {
            let claimed = arrived.get(HEADER_BYTES + 4..)?.first_chunk()?;
            let claimed = usize::try_from(i32::from_le_bytes(*claimed)).unwrap_or(0);
            return Some(length + claimed.min(self.limit));
        }
        Some(length)
    }

    /// The first message, if all of it has arrived.
    pub fn message(&self) -> Result<Option<&[u8]>, Error> {
        Ok(self
            .length()?
            .and_then(|length| self.arrived().get(..length)))
    }

    /// Removes that many bytes, usually those of the first message.
    pub fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Removes the first message, if all of it has arrived. The bytes behind it stay.
    pub fn take(&mut self) -> Result<Option<Message>, Error> {
        let Some(length) = self.message()?.map(<[u8]>::len) else {
            return Ok(None);
        };
        let behind = self.len() - length;
        if behind < length {
            // Usually nothing follows.
            let (start, end) = (self.start, self.start + length);
            let mut buffer = std::mem::take(&mut self.buffer);
            let rest = buffer.get_mut(end..self.end).unwrap_or_default();
            self.buffer = rest.to_vec();
            // They may hold a secret, and are wiped only where they are used.
            rest.fill(0);
            (self.start, self.end) = (0, behind);
            return Ok(Some(Message { buffer, start, end }));
        }
        let first = self.start..self.start + length;
        let first = self.buffer.get_mut(first).unwrap_or_default();
        let buffer = first.to_vec();
        first.fill(0);
        self.consume(length);
        Ok(Some(Message {
            buffer,
            start: 0,
            end: length,
        }))
    }

    /// Uses the buffer of a message again, unless bytes have arrived meanwhile.
    pub fn recycle(&mut self, message: Message) {
        if self.is_empty() && self.buffer.capacity() < message.buffer.capacity() {
            self.buffer = message.buffer;
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room for what arrives next: for the rest of the first message and no further, so that what
    /// follows need not be moved, or for `read_bytes` if that is more. Never empty.
    pub fn room(&mut self, read_bytes: usize) -> &mut [u8] {
        let length = self.length().ok().flatten().unwrap_or(0);
        self.room_up_to(length.max(read_bytes))
    }

    /// Room for bytes up to this length of all that have arrived.
    pub fn room_up_to(&mut self, wanted: usize) -> &mut [u8] {
        let have = self.len();
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            // It may hold a secret, and the wipe of the message would not reach it.
            let left = self.buffer.get_mut(have..self.end);
            left.unwrap_or_default().fill(0);
            (self.start, self.end) = (0, have);
        }
        // Growing with what has arrived keeps the copying linear. In the end it takes no more than the message.
        let step = if have < WHOLE_BYTES {
            have.max(GROWTH_BYTES)
        } else {
            wanted
        };
        let wanted = wanted.min(have + step).max(have + 1);
        if self.buffer.len() < wanted {
            if self.buffer.capacity() < wanted && self.buffer.capacity() <= WIPED_BYTES {
                let mut larger = Vec::with_capacity(wanted);
                larger.extend_from_slice(self.buffer.get(..have).unwrap_or_default());
                self.buffer.zeroize();
                self.buffer = larger;
            }
            self.buffer.reserve_exact(wanted - self.buffer.len());
            self.buffer.resize(wanted, 0);
        }
        self.buffer.get_mut(have..wanted).unwrap_or_default()
    }

    /// Counts bytes that were read into the room.
    pub fn add(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
    }

    /// Frees the buffer if nothing in it is left to use.
    pub fn free(&mut self) {
        if self.is_empty() {
            *self = Frames::new(self.limit);
        }
    }

    /// Reads once from a blocking reader; false at the end of the stream.
    pub fn read_from(&mut self, from: &mut impl Read, read_bytes: usize) -> io::Result<bool> {
        loop {
            match from.read(self.room(read_bytes)) {
                Ok(bytes) => {
                    self.add(bytes);
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads one whole message from a blocking reader; `None` at the end of the stream. For callers that
/// read a message now and then: each call allocates.
pub fn read_message(from: &mut impl Read, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut message = vec![0; HEADER_BYTES];
    match from.read_exact(&mut message) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = Header::parse(&message).and_then(|header| header.checked_length(limit));
    let length = length.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    from.take((length - HEADER_BYTES) as u64)
        .read_to_end(&mut message)?;
    if message.len() == length {
        Ok(Some(message))
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Flags, MAX_MESSAGE_BYTES, msg};

    const READ_BYTES: usize = 16 << 10;

    /// Returns its bytes in pieces of at most this size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            assert!(!out.is_empty(), "a read without room");
            let n = out.len().min(self.1).min(self.0.len());
            let (head, rest) = self.0.split_at(n);
            out[..n].copy_from_slice(head);
            self.0 = rest;
            Ok(n)
        }
    }

    fn message(bytes: usize) -> Vec<u8> {
        let body = [&[5, 0, 0, 0, 0], &vec![7; bytes][..]].concat();
        msg(bytes as i32, 0, Flags::NONE, &body)
    }

    #[test]
    fn a_message_can_be_wiped_and_the_limit_changed() {
        let mut frames = Frames::new(MAX_MESSAGE_BYTES);
        let (one, two) = (message(100), message(5000));
        let both = [&one[..], &two[..]].concat();
        let mut arriving = &both[..];
        while frames.read_from(&mut arriving, READ_BYTES).unwrap() {}
        let mut first = frames.take().unwrap().unwrap();
        assert_eq!(first.bytes(), one);
        first.wipe();
        assert!(first.bytes().iter().all(|byte| *byte == 0));
        frames.recycle(first);
        frames.set_limit(1000);
        let length = i32::try_from(two.len()).unwrap();
        assert_eq!(frames.message(), Err(Error::BadMessageLength(length)));
        frames.set_limit(MAX_MESSAGE_BYTES);
        assert_eq!(frames.message().unwrap(), Some(&two[..]));
    }

    /// The buffer of a message is wiped with the message, and that of the bytes behind it with theirs.
    #[test]
    fn no_copy_of_a_message_is_left_in_another_buffer() {
        for (first, second) in [(100, 5000), (5000, 100), (100, 0)] {
            let (one, two) = (message(first), message(second));
            let both = [&one[..], &two[..]].concat();
            let mut frames = Frames::new(MAX_MESSAGE_BYTES);
            frames.read_from(&mut &both[..], READ_BYTES).unwrap();
            let mut taken = frames.take().unwrap().unwrap();
            assert_eq!(taken.bytes(), one);
            assert_eq!(frames.arrived(), two);
            taken.wipe();
            assert!(taken.buffer.iter().all(|byte| *byte == 0));
            let around = [&frames.buffer[..frames.start], &frames.buffer[frames.end..]];
            assert!(around.concat().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn messages_of_every_size_come_out_as_they_went_in() {
        let sizes = [0, 10, 20_000, 0, 3_000_000, 1, 2, 40_000, 1_100_000, 3];
        let messages: Vec<Vec<u8>> = sizes.into_iter().map(message).collect();
        let stream = messages.concat();
        for piece in [1, 1000, 7919, 100_000, 10_000_000] {
            let mut frames = Frames::new(MAX_MESSAGE_BYTES);
            let mut from = Pieces(&stream, piece);
            let mut found: Vec<Vec<u8>> = Vec::new();
            while frames.read_from(&mut from, READ_BYTES).unwrap() {
                while let Some(message) = frames.take().unwrap() {
                    found.push(message.bytes().to_vec());
                    frames.recycle(message);
                }
            }
            assert!(found == messages, "{piece}");
            assert!(frames.is_empty());
            frames.free();
            assert_eq!(frames.capacity(), 0);
        }
        let mut from = &stream[..];
        for message in &messages {
            let read = read_message(&mut from, MAX_MESSAGE_BYTES).unwrap();
            assert_eq!(read.as_ref(), Some(message));
        }
        assert_eq!(read_message(&mut from, MAX_MESSAGE_BYTES).unwrap(), None);
        let cut = &messages[2][..100];
        assert!(read_message(&mut &cut[..], MAX_MESSAGE_BYTES).is_err());
        assert!(read_message(&mut &messages[2][..], 1000).is_err());
    }

    #[test]
    fn bytes_arrive_while_a_message_is_in_use() {
        let (first, second) = (message(10), message(50_000));
        let mut frames = Frames::new(MAX_MESSAGE_BYTES);
        assert!(frames.read_from(&mut &first[..], READ_BYTES).unwrap());
        let taken = frames.take().unwrap().unwrap();
        let mut more = Pieces(&second, 1000);
        while frames.read_from(&mut more, READ_BYTES).unwrap() {}
        assert_eq!(taken.bytes(), first);
        frames.recycle(taken);
        assert_eq!(frames.message().unwrap(), Some(&second[..]));
    }

    #[test]
    fn a_large_message_that_is_announced_only_takes_little() {
        let mut header = message(10);
        header[..4].copy_from_slice(&(MAX_MESSAGE_BYTES as i32).to_le_bytes());
        let mut frames = Frames::new(MAX_MESSAGE_BYTES);
        assert!(frames.read_from(&mut &header[..], READ_BYTES).unwrap());
        assert!(!frames.read_from(&mut &[][..], READ_BYTES).unwrap());
        assert!(frames.take().unwrap().is_none());
        assert!(frames.capacity() <= 2 * GROWTH_BYTES);
    }

    #[test]
    fn bytes_that_begin_no_message_are_an_error_as_soon_as_the_header_is_there() {
        for (at, value) in [(0, 15), (0, MAX_MESSAGE_BYTES as i32 + 1), (0, -1), (12, 7)] {
            let mut bytes = message(10);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let mut frames = Frames::new(MAX_MESSAGE_BYTES);
            frames.read_from(&mut &bytes[..15], READ_BYTES).unwrap();
            assert_eq!(frames.message().unwrap(), None);
            frames.read_from(&mut &bytes[15..16], READ_BYTES).unwrap();
            assert!(frames.message().is_err() && frames.take().is_err());
        }
    }
}
