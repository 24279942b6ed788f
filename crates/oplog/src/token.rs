//! Resume tokens: where a change stream continues.
//!
//! A token is `{_data: "<hexadecimal>"}`, and these strings sort as the events do. The bytes are those of MongoDB's
//! key strings, with the fields of its version 2: the cluster time, the version, the type (0 a high-water mark, 128 an event),
//! the position of the event in its transaction, whether it is an `invalidate`, the collection's UUID or null, the event
//! `{operationType, documentKey}` or `{operationType, operationDescription}`, and the number of a fragment. Numbers that are
//! not integers, and rare types, are binary data in it: nothing reads them back, they are only compared.

use frond_bson::{Doc, DocBuf, Value, doc, hex, key, unhex};
use frond_error::{Error, ErrorCode};

use crate::error::Result;

/// The version of the tokens that are made.
const VERSION: u8 = 2;

/// Deepest nesting of the event in a token that is read.
const DEPTH_MAX: usize = frond_bson::MAX_DEPTH;

/// The first byte of a value in a key string.
mod tag {
    pub const END: u8 = 4;
    pub const MIN_KEY: u8 = 10;
    pub const UNDEFINED: u8 = 15;
    pub const NULL: u8 = 20;
    pub const NUMBER: u8 = 30;
    pub const NEGATIVE_8: u8 = 32;
    pub const NEGATIVE_1: u8 = 39;
    pub const ZERO: u8 = 41;
    pub const POSITIVE_1: u8 = 43;
    pub const POSITIVE_8: u8 = 50;
    pub const STRING: u8 = 60;
    pub const OBJECT: u8 = 70;
    pub const ARRAY: u8 = 80;
    pub const BINARY: u8 = 90;
    pub const OBJECT_ID: u8 = 100;
    pub const FALSE: u8 = 110;
    pub const TRUE: u8 = 111;
    pub const DATE: u8 = 120;
    pub const TIMESTAMP: u8 = 130;
    pub const MAX_KEY: u8 = 240;
}

/// The subtype of binary data that holds the key of a value which has no form of its own here.
const OTHER_VALUE: u8 = 0x80;

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The time of the event; of a high-water mark, the first time whose events are still to come.
    pub cluster_time: u64,
    /// The version of the format.
    pub version: u8,
    /// Whether it names an event. A high-water mark does not.
    pub is_event: bool,
    /// The position of the event in its transaction.
    pub position: u32,
    /// Whether the event is an `invalidate`.
    pub from_invalidate: bool,
    pub uuid: Option<[u8; 16]>,
    /// The event, as it is encoded; empty if there is none.
    pub event: Vec<u8>,
    /// The fragment of a split event, counted from 0.
    pub fragment: Option<u32>,
}

impl Token {
    /// A high-water mark: a stream that resumes here returns the events from this time on.
    pub fn high_water_mark(cluster_time: u64) -> Token {
        Token {
            cluster_time,
            version: VERSION,
            is_event: false,
            position: 0,
            from_invalidate: false,
            uuid: None,
            event: Vec::new(),
            fragment: None,
        }
    }

    /// The token of an event: `identity` is its `documentKey` or its `operationDescription`.
    pub fn of_event(
        cluster_time: u64,
        position: u32,
        uuid: Option<[u8; 16]>,
        operation_type: &str,
        identity: Option<(&'static str, &Doc)>,
    ) -> Token {
        let mut event = vec![tag::OBJECT];
        push_field("operationType", &Value::String(operation_type), &mut event);
        if let Some((name, identity)) = identity {
            push_field(name, &Value::Document(identity), &mut event);
        }
        event.push(0);
        Token {
            is_event: true,
            position,
            uuid,
            event,
            ..Token::high_water_mark(cluster_time)
        }
    }

    /// The token of the `invalidate` that follows this event.
    pub fn of_invalidate(&self) -> Token {
        Token {
            from_invalidate: true,
            ..self.clone()
        }
    }

    /// The token of one fragment of the event.
    pub fn of_fragment(&self, fragment: u32) -> Token {
        Token {
            fragment: Some(fragment),
            ..self.clone()
        }
    }

    /// Whether both name the same event, in whole or in part.
    pub fn is_same_event(&self, other: &Token) -> bool {
        let has_event = self.version >= 2 && other.version >= 2;
        self.is_event
            && other.is_event
            && (self.cluster_time, self.position) == (other.cluster_time, other.position)
            && (self.from_invalidate, self.uuid) == (other.from_invalidate, other.uuid)
            && (!has_event || self.event == other.event)
    }

    /// The bytes; they sort as events do.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.event.len());
        out.push(tag::TIMESTAMP);
        out.extend_from_slice(&self.cluster_time.to_be_bytes());
        push_integer(i64::from(self.version), &mut out);
        if self.version >= 1 {
            push_integer(if self.is_event { 128 } else { 0 }, &mut out);
        }
        push_integer(i64::from(self.position), &mut out);
        if self.version >= 1 {
            out.push(if self.from_invalidate {
                tag::TRUE
            } else {
                tag::FALSE
            });
        }
        match &self.uuid {
            Some(uuid) => push_binary(4, uuid, &mut out),
            None if self.version >= 2 => out.push(tag::NULL),
            None => {}
        }
        out.extend_from_slice(&self.event);
        if let Some(fragment) = self.fragment {
            push_integer(i64::from(fragment), &mut out);
        }
        out.push(tag::END);
        out
    }

    /// The document that clients get.
    pub fn to_doc(&self) -> DocBuf {
        let mut text = hex(&self.to_bytes());
        text.make_ascii_uppercase();
        doc! {"_data": text.as_str()}
    }

    /// Reads a document of a client.
    ///
    /// # Errors
    /// 40647 and 40648 for a document that is no token, `FailedToParse` (9) if the data is not hexadecimal,
    /// `InvalidResumeToken` (260) if it is not that of a token.
    pub fn parse(doc: &Doc) -> Result<Token> {
        let Some(Value::String(data)) = doc.get("_data") else {
            return Err(Error::new(
                ErrorCode::Location(40647),
                format!(
                    "Bad resume token: _data of missing or of wrong type. Expected string, got {}",
                    frond_bson::extjson::to_relaxed(doc)
                ),
            ));
        };
        match doc.get("_typeBits") {
            None | Some(Value::Binary { subtype: 0, .. }) => {}
            Some(_) => {
                return Err(Error::new(
                    ErrorCode::Location(40648),
                    format!(
                        "Bad resume token: _typeBits of wrong type {}",
                        frond_bson::extjson::to_relaxed(doc)
                    ),
                ));
            }
        }
        let Some(bytes) = unhex(data) else {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "resume token string was not a valid hex string",
            ));
        };
        if bytes.is_empty() {
            return Err(Error::new(
                ErrorCode::Location(40649),
                "invalid empty resume token",
            ));
        }
        Reader(&bytes).token().ok_or_else(|| invalid(data))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&frond_bson::extjson::to_relaxed(&self.to_doc()))
    }
}

fn invalid(data: &str) -> Error {
    Error::new(
        ErrorCode::InvalidResumeToken,
        format!(
            "'{data}' is not the data of a resume token. Pass the token as the change stream returned it"
        ),
    )
}

fn push_integer(number: i64, out: &mut Vec<u8>) {
    // The lowest bit says that a fraction follows.
    let shifted = number.unsigned_abs() << 1;
    let bytes = shifted.to_be_bytes();
    let zeros = shifted.leading_zeros() as usize / 8;
    let bytes = bytes.get(zeros..).unwrap_or_default();
    let more = u8::try_from(bytes.len()).unwrap_or(8).saturating_sub(1);
    match number {
        0 => out.push(tag::ZERO),
        1.. => {
            out.push(tag::POSITIVE_1 + more);
            out.extend_from_slice(bytes);
        }
        _ => {
            out.push(tag::NEGATIVE_1 - more);
            out.extend(bytes.iter().map(|byte| !byte));
        }
    }
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
    out.push(0);
}

fn push_binary(subtype: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag::BINARY);
    match u8::try_from(bytes.len()) {
        Ok(short) if short < 0xFF => out.push(short),
        _ => {
            out.push(0xFF);
            let long = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&long.to_be_bytes());
        }
    }
    out.push(subtype);
    out.extend_from_slice(bytes);
}

/// The integer that a number is, unless that has no short form.
fn integer(value: &Value<'_>) -> Option<i64> {
    let number = value.as_i64_lossless()?;
    (number != i64::MIN).then_some(number)
}

fn push_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::MinKey => out.push(tag::MIN_KEY),
        Value::MaxKey => out.push(tag::MAX_KEY),
        Value::Undefined => out.push(tag::UNDEFINED),
        Value::Null => out.push(tag::NULL),
        Value::Bool(false) => out.push(tag::FALSE),
        Value::Bool(true) => out.push(tag::TRUE),
        Value::String(text) => {
            out.push(tag::STRING);
            push_text(text.as_bytes(), out);
        }
        Value::ObjectId(id) => {
            out.push(tag::OBJECT_ID);
            out.extend_from_slice(&id.bytes());
        }
        Value::DateTime(millis) => {
            out.push(tag::DATE);
            let ordered = millis.cast_unsigned() ^ (1 << 63);
            out.extend_from_slice(&ordered.to_be_bytes());
        }
        Value::Timestamp(time) => {
            out.push(tag::TIMESTAMP);
            out.extend_from_slice(&time.to_u64().to_be_bytes());
        }
        Value::Binary { subtype, bytes } => push_binary(*subtype, bytes, out),
        Value::Document(doc) => {
            out.push(tag::OBJECT);
            doc.iter()
                .for_each(|(name, value)| push_field(name, &value, out));
            out.push(0);
        }
        Value::Array(doc) => {
            out.push(tag::ARRAY);
            doc.values().for_each(|value| push_value(&value, out));
            out.push(0);
        }
        number if integer(number).is_some() => {
            integer(number)
                .into_iter()
                .for_each(|number| push_integer(number, out));
        }
        other => {
            let mut encoded = Vec::new();
            key::encode(other, &mut encoded);
            push_binary(OTHER_VALUE, &encoded, out);
        }
    }
}

/// A field of a document: the class of its value, its name, its value.
fn push_field(name: &str, value: &Value<'_>, out: &mut Vec<u8>) {
    out.push(match value {
        Value::MinKey => tag::MIN_KEY,
        Value::MaxKey => tag::MAX_KEY,
        Value::Undefined => tag::UNDEFINED,
        Value::Null => tag::NULL,
        Value::Bool(_) => tag::FALSE,
        Value::String(_) => tag::STRING,
        Value::ObjectId(_) => tag::OBJECT_ID,
        Value::DateTime(_) => tag::DATE,
        Value::Timestamp(_) => tag::TIMESTAMP,
        Value::Document(_) => tag::OBJECT,
        Value::Array(_) => tag::ARRAY,
        number if number.is_number() => tag::NUMBER,
        _ => tag::BINARY,
    });
    push_text(name.as_bytes(), out);
    push_value(value, out);
}

/// Reads the bytes of a token.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn token(mut self) -> Option<Token> {
        if self.byte()? != tag::TIMESTAMP {
            return None;
        }
        let mut token = Token::high_water_mark(u64::from_be_bytes(self.array()?));
        token.version = u8::try_from(self.number()?)
            .ok()
            .filter(|version| *version <= VERSION)?;
        if token.version >= 1 {
            token.is_event = match self.number()? {
                0 => false,
                128 => true,
                _ => return None,
            };
        }
        token.position = u32::try_from(self.number()?).ok()?;
        if token.version >= 1 {
            token.from_invalidate = match self.byte()? {
                tag::FALSE => false,
                tag::TRUE => true,
                _ => return None,
            };
        }
        match self.peek()? {
            tag::BINARY => {
                self.0 = self.0.strip_prefix(&[tag::BINARY, 16, 4])?;
                token.uuid = Some(self.array()?);
            }
            tag::NULL if token.version >= 2 => self.0 = self.0.get(1..)?,
            _ if token.version >= 2 => return None,
            _ => {}
        }
        if token.version == 0 {
            token.is_event = token.uuid.is_some();
        }
        if self.peek()? == tag::OBJECT {
            let whole = self.0;
            self.skip_value(0)?;
            let length = whole.len() - self.0.len();
            token.event = whole.get(..length)?.to_vec();
            if self.peek()? != tag::END {
                token.fragment = Some(u32::try_from(self.number()?).ok()?);
            }
        }
        let is_whole = self.0 == [tag::END];
        let has_event = token.version < 2 || token.is_event != token.event.is_empty();
        let is_mark = token.is_event
            || (token.position == 0 && !token.from_invalidate && token.event.is_empty());
        (is_whole && has_event && is_mark).then_some(token)
    }

    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A number that is not negative.
    fn number(&mut self) -> Option<u64> {
        match self.byte()? {
            tag::ZERO => Some(0),
            byte @ tag::POSITIVE_1..=tag::POSITIVE_8 => {
                let bytes = self.take(usize::from(byte - tag::POSITIVE_1) + 1)?;
                let shifted = bytes
                    .iter()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte));
                (shifted & 1 == 0).then_some(shifted >> 1)
            }
            _ => None,
        }
    }

    fn skip_text(&mut self) -> Option<()> {
        loop {
            let end = self.0.iter().position(|byte| *byte == 0)?;
            self.take(end + 1)?;
            if self.peek() != Some(0xFF) {
                return Some(());
            }
            self.byte()?;
        }
    }

    fn skip_value(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.byte()? {
            tag::MIN_KEY
            | tag::MAX_KEY
            | tag::UNDEFINED
            | tag::NULL
            | tag::FALSE
            | tag::TRUE
            | tag::ZERO => {}
            byte @ tag::NEGATIVE_8..=tag::NEGATIVE_1 => {
                self.take(usize::from(tag::NEGATIVE_1 - byte) + 1)?;
            }
            byte @ tag::POSITIVE_1..=tag::POSITIVE_8 => {
                self.take(usize::from(byte - tag::POSITIVE_1) + 1)?;
            }
            tag::STRING => self.skip_text()?,
            tag::OBJECT_ID => drop(self.take(12)?),
            tag::DATE | tag::TIMESTAMP => drop(self.take(8)?),
            tag::BINARY => {
                let length = match self.byte()? {
                    0xFF => u32::from_be_bytes(self.array()?) as usize,
                    short => usize::from(short),
                };
                self.take(length.checked_add(1)?)?;
            }
            tag::OBJECT => {
                while self.byte()? != 0 {
                    self.skip_text()?;
                    self.skip_value(depth + 1)?;
                }
            }
            tag::ARRAY => {
                while self.peek()? != 0 {
                    self.skip_value(depth + 1)?;
                }
                self.byte()?;
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::{ObjectId, Timestamp};

    use super::*;

    const UUID: [u8; 16] = [0xA5; 16];

    fn time(seconds: u64, counter: u64) -> u64 {
        seconds << 32 | counter
    }

    fn data(token: &Token) -> String {
        token.to_doc().get_str("_data").unwrap().to_owned()
    }

    #[test]
    fn the_bytes_are_those_of_mongodb() {
        // Tokens as MongoDB 7 writes them.
        let mark = Token::high_water_mark(time(0x6299_BFD9, 1));
        assert_eq!(data(&mark), "826299BFD9000000012B0429296E1404");
        let id: ObjectId = "5fe38e000000000000000001".parse().unwrap();
        let key = doc! {"_id": id};
        let insert = Token::of_event(
            time(0x612E_8513, 1),
            0,
            Some(UUID),
            "insert",
            Some(("documentKey", &key)),
        );
        assert_eq!(
            data(&insert),
            format!(
                "82612E8513000000012B042C0100296E5A1004{}463C6F7065726174696F6E54797065003C696E7365727400\
                 46646F63756D656E744B65790046645F696400645FE38E000000000000000001000004",
                "A5".repeat(16)
            )
        );
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let keys = [
            doc! {"_id": 0},
            doc! {"_id": -1},
            doc! {"_id": i64::MIN},
            doc! {"_id": i64::MAX},
            doc! {"_id": 1.5},
            doc! {"_id": "a\0b"},
            doc! {"_id": {"a": [1, Value::Null, {"b": true}]}},
            doc! {"_id": Value::DateTime(-1), "b": Value::Timestamp(Timestamp::from_u64(7))},
            doc! {"_id": Value::Binary { subtype: 0, bytes: &[1; 300] }},
            doc! {"_id": Value::Regex { pattern: "a", options: "i" }},
            doc! {"_id": Value::MinKey, "b": Value::MaxKey},
        ];
        for key in &keys {
            for fragment in [None, Some(0), Some(1), Some(200)] {
                for uuid in [None, Some(UUID)] {
                    let identity = Some(("documentKey", &**key));
                    let token = Token {
                        fragment,
                        ..Token::of_event(time(5, 6), 77, uuid, "update", identity)
                    };
                    assert_eq!(Token::parse(&token.to_doc()).unwrap(), token, "{key:?}");
                    let invalidate = token.of_invalidate();
                    assert_eq!(Token::parse(&invalidate.to_doc()).unwrap(), invalidate);
                    assert!(!token.is_same_event(&invalidate));
                    assert!(token.is_same_event(&token.of_fragment(9)));
                }
            }
        }
        let mark = Token::high_water_mark(time(1, 2));
        assert_eq!(Token::parse(&mark.to_doc()).unwrap(), mark);
    }

    #[test]
    fn tokens_sort_by_time_kind_and_position() {
        let event = |time, position| Token::of_event(time, position, Some(UUID), "insert", None);
        let ordered = [
            Token::high_water_mark(time(1, 1)),
            event(time(1, 1), 0),
            event(time(1, 1), 0).of_fragment(0),
            event(time(1, 1), 0).of_fragment(1),
            event(time(1, 1), 0).of_invalidate(),
            event(time(1, 1), 1),
            event(time(1, 1), 127),
            event(time(1, 1), 128),
            event(time(1, 1), 70_000),
            Token::high_water_mark(time(1, 2)),
            event(time(1, 2), 0),
            Token::high_water_mark(time(2, 1)),
        ];
        for pair in ordered.windows(2) {
            assert!(data(&pair[0]) < data(&pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let code = |doc: DocBuf| Token::parse(&doc).unwrap_err().code();
        assert_eq!(code(doc! {}), ErrorCode::Location(40647));
        assert_eq!(code(doc! {"_data": 1}), ErrorCode::Location(40647));
        let typed = doc! {"_data": "00", "_typeBits": 1};
        assert_eq!(code(typed), ErrorCode::Location(40648));
        assert_eq!(code(doc! {"_data": "0"}), ErrorCode::FailedToParse);
        assert_eq!(code(doc! {"_data": "xy"}), ErrorCode::FailedToParse);
        assert_eq!(code(doc! {"_data": ""}), ErrorCode::Location(40649));
        let key = doc! {"_id": {"a": [1, "b"]}};
        let identity = Some(("documentKey", &*key));
        let whole = Token::of_event(time(5, 6), 3, Some(UUID), "update", identity).to_bytes();
        for length in 1..whole.len() {
            let part = hex(&whole[..length]);
            assert_eq!(
                code(doc! {"_data": part.as_str()}),
                ErrorCode::InvalidResumeToken
            );
        }
        let longer = hex(&[&whole[..], &[0]].concat());
        assert_eq!(
            code(doc! {"_data": longer.as_str()}),
            ErrorCode::InvalidResumeToken
        );
        let mark_with_event = Token {
            is_event: false,
            ..Token::of_event(time(5, 6), 0, None, "insert", None)
        };
        assert_eq!(
            code(mark_with_event.to_doc()),
            ErrorCode::InvalidResumeToken
        );
    }
}
