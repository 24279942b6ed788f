//! The messages between the server and a worker.
//!
//! A message is the length of what follows as four bytes, a byte for its kind, and its body: documents of BSON one behind the
//! other, after the number of a function where the kind has one. A worker answers each request by one message, before which it may
//! send others: lines that a function prints, keys and values that it emits.

use std::ops::Range;

use frond_bson::Doc;

/// Bytes before the body of a message.
const HEADER_BYTES: usize = 5;

pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Memory for messages that is kept from one to the next.
const KEPT_BYTES: usize = 64 << 10;

/// Declares the kinds of messages with their numbers.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// The kind of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)+
        }

        impl Kind {
            fn from_number(number: u8) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A request of a client begins: `{heap: bytes}`.
    Begin = 1,
    /// Functions that are stored in the database, by their names.
    Store = 2,
    /// The number of a function, and `{code: text, scope: variables, stored: whether it sees stored functions}`.
    Compile = 3,
    /// A number and a document.
    Test = 4,
    /// A number and an array.
    Call = 5,
    /// A number, `{"": state}` and an array.
    Fold = 6,
    /// A number and documents.
    Map = 7,
    /// The request of the client ends.
    End = 8,
    /// A request without a result is done.
    Done = 64,
    /// The function has returned something that is true.
    True = 65,
    /// The function has returned something that is false.
    False = 66,
    /// `{"": value}`.
    Returned = 67,
    /// `{n: documents}`: the number of documents that were passed to the function.
    Mapped = 68,
    /// Documents `{k: key, v: value}`.
    Emitted = 69,
    /// `{text: line}`.
    Printed = 70,
    /// `{code: number, message: text}`.
    Failed = 71,
    /// `{resident: bytes}`: the engine is gone, and the process has this much resident memory.
    Ended = 72,
}

/// A message that cannot be one.
#[derive(Debug)]
pub struct Malformed;

/// The head of a message whose body has `len` bytes.
pub fn head(kind: Kind, len: usize) -> [u8; HEADER_BYTES] {
    let len = u32::try_from(len + 1).unwrap_or(u32::MAX);
    let [a, b, c, d] = len.to_le_bytes();
    [a, b, c, d, kind as u8]
}

/// Bytes that have arrived, and the messages in them.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn arrived(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// The bytes of the next message, if its head has arrived.
    fn next_len(&self) -> Result<Option<usize>, Malformed> {
        let Some(len) = self.arrived().first_chunk::<4>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Malformed)?;
        if (1..=MESSAGE_BYTES_MAX).contains(&len) {
            Ok(Some(4 + len))
        } else {
            Err(Malformed)
        }
    }

    /// The next message, if all of it has arrived: its kind, and where its body is.
    ///
    /// # Errors
    /// `Malformed` for a length or a kind that no message has.
    pub fn take(&mut self) -> Result<Option<(Kind, Range<usize>)>, Malformed> {
        let Some(len) = self.next_len()?.filter(|len| *len <= self.arrived().len()) else {
            return Ok(None);
        };
        let kind = self.arrived().get(4).copied().and_then(Kind::from_number);
        let body = self.start + HEADER_BYTES..self.start + len;
        self.start += len;
        Ok(Some((kind.ok_or(Malformed)?, body)))
    }

    /// The body of the message that was taken last.
    pub fn body(&self, body: Range<usize>) -> &[u8] {
        self.bytes.get(body).unwrap_or_default()
    }

    /// Room to read further bytes into.
    ///
    /// # Errors
    /// `Malformed` as [`Inbox::take`].
    pub fn room(&mut self) -> Result<&mut [u8], Malformed> {
        let needed = self.next_len()?.unwrap_or(HEADER_BYTES).max(KEPT_BYTES);
        if self.start == self.end && self.bytes.len() > KEPT_BYTES {
            *self = Inbox::default();
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if needed > self.bytes.len() {
            self.bytes.resize(needed, 0);
        }
        Ok(self.bytes.get_mut(self.end..).unwrap_or_default())
    }

    /// Counts bytes that were read into the room.
    pub fn add(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }
}

/// The number at the start of a body, and the rest.
pub fn numbered(body: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (number, rest) = body.split_first_chunk::<8>().ok_or(Malformed)?;
    Ok((u64::from_le_bytes(*number), rest))
}

/// The first document of a body that the server has written, and the rest.
pub fn first_doc(body: &[u8]) -> Result<(&Doc, &[u8]), Malformed> {
    let len = body.first_chunk::<4>().ok_or(Malformed)?;
    let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| Malformed)?;
    let (doc, rest) = body.split_at_checked(len.max(5)).ok_or(Malformed)?;
    Ok((Doc::from_trusted(doc), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The kinds and the lengths of the bodies of what arrives in pieces of `piece` bytes.
    fn arrives(bytes: &[u8], piece: usize) -> Result<Vec<(Kind, usize)>, Malformed> {
        let mut inbox = Inbox::default();
        let mut found = Vec::new();
        for mut piece in bytes.chunks(piece) {
            while !piece.is_empty() {
                let room = inbox.room()?;
                let (read, rest) = piece.split_at(piece.len().min(room.len()));
                room[..read.len()].copy_from_slice(read);
                inbox.add(read.len());
                piece = rest;
                while let Some((kind, body)) = inbox.take()? {
                    let body = inbox.body(body);
                    assert!(body.iter().all(|byte| *byte == 7));
                    found.push((kind, body.len()));
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_arrive_in_any_pieces() {
        let sent = [
            (Kind::Done, 0),
            (Kind::Printed, 5),
            (Kind::Emitted, 200_000),
            (Kind::True, 0),
            (Kind::Returned, 70_000),
        ];
        let mut bytes = Vec::new();
        for (kind, len) in sent {
            bytes.extend_from_slice(&head(kind, len));
            bytes.resize(bytes.len() + len, 7);
        }
        for piece in [1, 3, 4096, 65_536] {
            assert_eq!(arrives(&bytes, piece).unwrap(), sent, "{piece}");
        }
    }

    #[test]
    fn lengths_and_kinds_that_no_message_has_are_refused() {
        let longest = u32::try_from(MESSAGE_BYTES_MAX + 1).unwrap().to_le_bytes();
        let cases: [&[u8]; 4] = [
            &[0, 0, 0, 0, 64],
            &[255, 255, 255, 255, 64],
            &[&longest[..], &[64]].concat(),
            &[1, 0, 0, 0, 200],
        ];
        for bytes in cases {
            assert!(arrives(bytes, 5).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn bodies_are_numbers_and_documents() {
        let mut body = 3u64.to_le_bytes().to_vec();
        body.extend_from_slice(Doc::empty().as_bytes());
        body.extend_from_slice(frond_bson::doc! {"a": 1}.as_bytes());
        let (number, rest) = numbered(&body).unwrap();
        let (first, rest) = first_doc(rest).unwrap();
        let (second, rest) = first_doc(rest).unwrap();
        assert_eq!((number, first.is_empty(), rest.len()), (3, true, 0));
        assert_eq!(second.get_i32("a"), Some(1));
        for broken in [&b"1234567"[..], &b""[..]] {
            assert!(numbered(broken).is_err());
        }
        for broken in [&[9, 0, 0, 0, 0][..], &[0, 0, 0, 0][..], &[]] {
            assert!(first_doc(broken).is_err());
        }
    }
}
