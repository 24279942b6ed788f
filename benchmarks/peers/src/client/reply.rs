//! Messages from the server, taken from a buffer that is filled by large reads.

use std::str;

use frond_bench::{Error, Result, Stream};

/// Bytes that a read asks for at least.
const READ_BYTES: usize = 64 << 10;

/// A message longer than this is no message: nothing that is asked for here has such an answer.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Bytes of a message's kind and length.
const HEAD: usize = 5;

/// Bytes from the server that were not looked at yet.
#[derive(Default)]
pub struct Input {
    buffer: Vec<u8>,
    /// The unread bytes.
    from: usize,
    to: usize,
}

/// A message: its kind and what follows its length.
pub struct Message<'a> {
    /// The letter.
    pub kind: u8,
    /// The rest.
    pub body: &'a [u8],
}

impl Input {
    /// The next message. Waits for it.
    pub fn next(&mut self, stream: &mut Stream) -> Result<Message<'_>> {
        self.want(HEAD, stream)?;
        let head = self.buffer.get(self.from..self.from + HEAD).unwrap_or(&[]);
        let [kind, length @ ..] = head else {
            return Err(Error::Protocol("a message without a head".to_owned()));
        };
        let kind = *kind;
        let length = length.try_into().map_or(0, u32::from_be_bytes) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(Error::Protocol(format!("a message of {length} bytes")));
        }
        self.want(1 + length, stream)?;
        let body = self.from + HEAD..self.from + 1 + length;
        self.from = body.end;
        Ok(Message {
            kind,
            body: self.buffer.get(body).unwrap_or_default(),
        })
    }

    /// Reads until there are so many unread bytes.
    fn want(&mut self, bytes: usize, stream: &mut Stream) -> Result<()> {
        if self.to - self.from >= bytes {
            return Ok(());
        }
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        let room = bytes.max(READ_BYTES);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        while self.to < bytes {
            let room = self.buffer.get_mut(self.to..).unwrap_or_default();
            self.to += stream.receive_some(room)?;
        }
        Ok(())
    }
}

/// A row of an answer.
pub struct Row<'a>(pub &'a [u8]);

impl<'a> Row<'a> {
    /// The values of its columns; `None` is null.
    pub fn columns(&self) -> Columns<'a> {
        Columns(self.0.get(2..).unwrap_or_default())
    }

    /// The first column as a text.
    pub fn text(&self) -> Option<&'a str> {
        str::from_utf8(self.columns().next()??).ok()
    }

    /// The first column as a number of eight or four bytes.
    pub fn int(&self) -> Option<i64> {
        let bytes = self.columns().next()??;
        let wide = bytes.try_into().map(i64::from_be_bytes);
        let narrow = bytes.try_into().map(i32::from_be_bytes).map(i64::from);
        wide.or(narrow).ok()
    }
}

/// The columns of a row from left to right.
pub struct Columns<'a>(&'a [u8]);

impl<'a> Iterator for Columns<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.0.split_at_checked(4)?;
        let length = length.try_into().map_or(-1, i32::from_be_bytes);
        let Ok(length) = usize::try_from(length) else {
            self.0 = rest;
            return Some(None);
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Some(value))
    }
}

/// The error that an ErrorResponse tells of.
pub fn refusal(doing: &str, body: &[u8]) -> Error {
    let field = |kind: u8| {
        body.split(|byte| *byte == 0)
            .find(|field| field.first() == Some(&kind))
            .map(|field| String::from_utf8_lossy(field.get(1..).unwrap_or_default()).into_owned())
            .unwrap_or_default()
    };
    Error::Server {
        command: doing.to_owned(),
        code: 0,
        message: format!("{} (SQLSTATE {})", field(b'M'), field(b'C')),
    }
}

/// Rows that a command worked on, by the last word of its tag: `INSERT 0 1000` or `COPY 7`.
pub fn affected(body: &[u8]) -> u64 {
    let tag = body.strip_suffix(&[0]).unwrap_or(body);
    str::from_utf8(tag)
        .ok()
        .and_then(|tag| tag.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tags_and_errors_are_read() {
        for (tag, rows) in [
            (&b"INSERT 0 1000\0"[..], 1000),
            (b"COPY 7\0", 7),
            (b"UPDATE 0\0", 0),
            (b"CREATE TABLE\0", 0),
            (b"", 0),
        ] {
            assert_eq!(affected(tag), rows);
        }
        let body = b"SERROR\0C23505\0Mduplicate key\0\0";
        assert_eq!(
            refusal("COPY", body).to_string(),
            "the server refused `COPY`: duplicate key (SQLSTATE 23505) (code 0)"
        );
        assert!(refusal("COPY", b"").to_string().contains("SQLSTATE"));
    }

    #[test]
    fn columns_of_a_row() {
        let row = Row(b"\0\x03\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0");
        let columns: Vec<_> = row.columns().collect();
        assert_eq!(columns, [Some(&b"ab"[..]), None, Some(b"")]);
        assert_eq!(row.text(), Some("ab"));
        assert_eq!(row.int(), None);
        assert_eq!(Row(b"\0\x01\0\0\0\x04\0\0\x01\0").int(), Some(256));
        assert_eq!(
            Row(b"\0\x01\0\0\0\x08\xff\xff\xff\xff\xff\xff\xff\xff").int(),
            Some(-1)
        );
        // Cut short: no value rather than a wrong one.
        assert_eq!(Row(b"\0\x01\0\0\0\x09ab").columns().count(), 0);
        assert_eq!(Row(b"").int(), None);
    }
}
