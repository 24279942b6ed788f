//! Messages to the server, as chapter 55 of PostgreSQL's manual lays them out.

/// Messages on their way into a buffer.
pub struct Frames<'a>(pub &'a mut Vec<u8>);

/// Version 3.0 of the protocol.
const PROTOCOL: i32 = 3 << 16;

/// The format of values as their type stores them, not as text.
const BINARY: i16 = 1;

impl Frames<'_> {
    /// Who connects, and to which database.
    pub fn startup(&mut self, user: &str, database: &str, application: &str) {
        let at = self.0.len();
        self.int32(0);
        self.int32(PROTOCOL);
        for (name, value) in [
            ("user", user),
            ("database", database),
            ("application_name", application),
            ("client_encoding", "UTF8"),
        ] {
            self.text(name);
            self.text(value);
        }
        self.0.push(0);
        self.close(at);
    }

    /// Statements as text, each a transaction of its own unless they are one by `BEGIN`.
    pub fn query(&mut self, sql: &str) {
        let at = self.open(b'Q');
        self.text(sql);
        self.close(at);
    }

    /// Names a statement with parameters.
    pub fn parse(&mut self, name: &str, sql: &str) {
        let at = self.open(b'P');
        self.text(name);
        self.text(sql);
        self.int16(0);
        self.close(at);
    }

    /// Runs a named statement. Values come and go in their binary form.
    pub fn execute(&mut self, name: &str, values: &[Param<'_>]) {
        let at = self.open(b'B');
        self.text("");
        self.text(name);
        self.int16(1);
        self.int16(BINARY);
        self.int16(values.len() as i16);
        for value in values {
            self.param(value);
        }
        self.int16(1);
        self.int16(BINARY);
        self.close(at);

        let at = self.open(b'E');
        self.text("");
        self.int32(0);
        self.close(at);
    }

    /// Ends the transaction of what was executed, and asks for the answers.
    pub fn sync(&mut self) {
        let at = self.open(b'S');
        self.close(at);
    }

    /// Says that no more comes.
    pub fn terminate(&mut self) {
        let at = self.open(b'X');
        self.close(at);
    }

    /// Begins a message. Give what this returns to [`Frames::close`].
    pub fn open(&mut self, kind: u8) -> usize {
        self.0.push(kind);
        let at = self.0.len();
        self.int32(0);
        at
    }

    /// Ends a message: writes its length.
    pub fn close(&mut self, at: usize) {
        let length = (self.0.len() - at) as i32;
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// A value with its length.
    pub fn param(&mut self, value: &Param<'_>) {
        match value {
            Param::Int4(number) => {
                self.int32(4);
                self.int32(*number);
            }
            Param::Int8(number) => {
                self.int32(8);
                self.0.extend_from_slice(&number.to_be_bytes());
            }
            Param::Bytes(bytes) => {
                self.int32(bytes.len() as i32);
                self.0.extend_from_slice(bytes);
            }
            Param::Jsonb(text) => {
                self.int32(text.len() as i32 + 1);
                self.0.push(JSONB);
                self.0.extend_from_slice(text);
            }
        }
    }

    /// A number of two bytes.
    pub fn int16(&mut self, number: i16) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    /// A number of four bytes.
    pub fn int32(&mut self, number: i32) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }
}

/// The version that the binary form of a jsonb begins with; its text follows.
const JSONB: u8 = 1;

/// A value of a statement's parameter.
#[derive(Clone, Copy, Debug)]
pub enum Param<'a> {
    /// An `int4`.
    Int4(i32),
    /// An `int8`.
    Int8(i64),
    /// A `text` or a `bytea`.
    Bytes(&'a [u8]),
    /// A `jsonb`, as text.
    Jsonb(&'a [u8]),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn framed(fill: impl FnOnce(&mut Frames<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        fill(&mut Frames(&mut out));
        out
    }

    #[test]
    fn messages_have_their_length_and_no_other_bytes() {
        assert_eq!(
            framed(|frames| frames.query("SELECT 1")),
            b"Q\0\0\0\x0dSELECT 1\0"
        );
        assert_eq!(framed(|frames| frames.sync()), b"S\0\0\0\x04");
        assert_eq!(
            framed(|frames| frames.parse("s1", "SELECT $1")),
            b"P\0\0\0\x13s1\0SELECT $1\0\0\0"
        );
        let values = [
            Param::Int4(-2),
            Param::Int8(3),
            Param::Bytes(b"ab"),
            Param::Jsonb(b"{}"),
        ];
        assert_eq!(
            framed(|frames| frames.execute("s", &values)),
            [
                &b"B\0\0\0\x32\0s\0\0\x01\0\x01\0\x04"[..],
                b"\0\0\0\x04\xff\xff\xff\xfe",
                b"\0\0\0\x08\0\0\0\0\0\0\0\x03",
                b"\0\0\0\x02ab",
                b"\0\0\0\x03\x01{}",
                b"\0\x01\0\x01",
                b"E\0\0\0\x09\0\0\0\0\0",
            ]
            .concat()
        );
    }

    #[test]
    fn the_first_message_has_no_kind() {
        let bytes = framed(|frames| frames.startup("u", "d", "a"));
        assert_eq!(bytes[..4], (bytes.len() as i32).to_be_bytes());
        assert_eq!(bytes[4..8], [0, 3, 0, 0]);
        assert!(bytes.ends_with(b"client_encoding\0UTF8\0\0"));
    }
}
