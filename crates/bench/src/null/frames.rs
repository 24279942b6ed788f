//! Cutting a stream of bytes into messages, in one buffer that is used again and again.

use std::io::{self, Read};

use frond_wire::{Error, HEADER_BYTES, Header, MAX_MESSAGE_BYTES};

/// What a read asks for while no large message is under way.
const READ_BYTES: usize = 16 << 10;

/// The buffer grows by what has arrived, and at least by this much, so that a client that announces a
/// large message and sends nothing holds little.
const GROWTH_BYTES: usize = 1 << 20;

/// A buffer larger than this is given back when a message comes that needs far less.
const KEPT_BYTES: usize = 1 << 20;

/// Bytes that have arrived and are not used yet.
#[derive(Default)]
pub struct Frames {
    /// All of it is initialised; `start..filled` are bytes that arrived.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Frames {
    fn arrived(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    /// The length of the message that arrives, once its header is there.
    fn length(&self) -> Result<Option<usize>, Error> {
        let arrived = self.arrived();
        if arrived.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::parse(arrived)?;
        header.op()?;
        header.checked_length(MAX_MESSAGE_BYTES).map(Some)
    }

    /// The next message, if all of it has arrived.
    pub fn take(&mut self) -> Result<Option<&[u8]>, Error> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let from = self.start;
        if self.filled - from < length {
            return Ok(None);
        }
        self.start += length;
        Ok(self.buffer.get(from..from + length))
    }

    /// Reads what there is; false at the end of the stream. A large message is read to its end and no
    /// further, so that what follows need not be moved.
    pub fn read(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let length = self.length().ok().flatten().unwrap_or(0);
        let have = self.filled - self.start;
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            (self.start, self.filled) = (0, have);
        }
        let wanted = length.max(READ_BYTES).min(have + have.max(GROWTH_BYTES));
        if self.buffer.len() > KEPT_BYTES && wanted < self.buffer.len() / 4 && have < wanted {
            self.buffer.truncate(wanted);
            self.buffer.shrink_to_fit();
        } else if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        loop {
            let room = self.buffer.get_mut(have..wanted).unwrap_or_default();
            match from.read(room) {
                Ok(n) => {
                    self.filled += n;
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use frond_bson::doc;
    use frond_wire::Flags;

    /// Gives its bytes in pieces of at most so many.
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
        let body = doc! {"x": "y".repeat(bytes)};
        frond_wire::msg(bytes as i32, 0, Flags::NONE, body.as_bytes())
    }

    #[test]
    fn messages_of_every_size_come_out_as_they_went_in() {
        let sizes = [0, 10, 20_000, 0, 3_000_000, 1, 2, 40_000, 1_100_000, 3];
        let messages: Vec<Vec<u8>> = sizes.into_iter().map(message).collect();
        let stream = messages.concat();
        for piece in [1000, 7919, 100_000, 10_000_000] {
            let mut frames = Frames::default();
            let mut from = Pieces(&stream, piece);
            let mut found: Vec<Vec<u8>> = Vec::new();
            while frames.read(&mut from).unwrap() {
                while let Some(message) = frames.take().unwrap() {
                    found.push(message.to_vec());
                }
            }
            assert_eq!(found.len(), messages.len(), "{piece}");
            assert!(found == messages, "{piece}");
            assert!(frames.buffer.len() <= KEPT_BYTES, "{}", frames.buffer.len());
        }
    }

    #[test]
    fn a_large_message_that_is_announced_only_holds_little() {
        let mut header = message(10);
        header[..4].copy_from_slice(&(MAX_MESSAGE_BYTES as i32).to_le_bytes());
        let mut frames = Frames::default();
        let mut from = Pieces(&header, 100);
        while frames.read(&mut from).unwrap() {
            assert_eq!(frames.take().unwrap(), None);
        }
        assert!(frames.buffer.len() <= 2 * GROWTH_BYTES);
    }

    #[test]
    fn headers_that_cannot_be_are_refused() {
        for (length, opcode) in [(15, 2013), (-1, 2013), (48_000_001, 2013), (100, 7)] {
            let mut bytes = message(10);
            bytes[..4].copy_from_slice(&i32::to_le_bytes(length));
            bytes[12..16].copy_from_slice(&i32::to_le_bytes(opcode));
            let mut frames = Frames::default();
            assert!(frames.read(&mut Pieces(&bytes, 1000)).unwrap());
            assert!(frames.take().is_err(), "{length} {opcode}");
        }
    }
}
