//! One connection: messages in, messages out.

use std::io::Write;
use std::os::unix::net::UnixStream;

use frond_bson::{Doc, Value};
use frond_wire::{
    Compressor, Delete, Flags, Frames, HEADER_BYTES, Header, Insert, MAX_MESSAGE_BYTES, Msg,
    MsgBuilder, OpCode, OpReply, Query, Request, Update,
};

use super::answer::{Answers, Command, LastWrite};
use super::counts::Counts;

/// Answers wait for each other until the client has nothing more to say, or they are this many bytes.
const FLUSH_BYTES: usize = 64 << 10;

/// Bytes that one read requests, unless the rest of a large message is pending.
const READ_BYTES: usize = 16 << 10;

/// Buffers larger than this are freed when they are empty and messages are far smaller.
const KEPT_BYTES: usize = 1 << 20;

/// The bytes of a message cannot be used: the connection ends.
#[derive(Debug)]
struct Bad;

impl From<frond_wire::Error> for Bad {
    fn from(_: frond_wire::Error) -> Self {
        Bad
    }
}

impl From<frond_bson::Error> for Bad {
    fn from(_: frond_bson::Error) -> Self {
        Bad
    }
}

/// A connection and its state.
pub struct Connection<'s> {
    answers: Answers<'s>,
    next_id: i32,
    /// Answers that are not sent yet.
    out: Vec<u8>,
}

impl<'s> Connection<'s> {
    pub fn new(counts: &'s Counts, id: i32) -> Self {
        Connection {
            answers: Answers::new(counts, id),
            next_id: 0,
            out: Vec::new(),
        }
    }

    /// Answers until the client disconnects, or sends bytes that are not a message.
    pub fn serve(&mut self, mut socket: &UnixStream) {
        let mut frames = Frames::new(MAX_MESSAGE_BYTES);
        let mut largest = 0;
        while let Ok(true) = frames.read_from(&mut socket, READ_BYTES) {
            loop {
                let handled = match frames.take() {
                    Ok(Some(message)) => {
                        largest = largest.max(message.bytes().len());
                        let handled = self.message(message.bytes());
                        frames.recycle(message);
                        handled
                    }
                    Ok(None) => break,
                    Err(error) => Err(error.into()),
                };
                if self.out.len() > FLUSH_BYTES && !self.flush(socket) {
                    return;
                }
                if handled.is_err() {
                    // Earlier requests are answered first.
                    self.flush(socket);
                    return;
                }
            }
            if !self.flush(socket) {
                return;
            }
            if frames.capacity() > KEPT_BYTES && frames.is_empty() {
                // Not where messages of that size follow one another.
                if std::mem::take(&mut largest) < frames.capacity() / 4 {
                    frames.free();
                }
            }
        }
    }

    fn flush(&mut self, mut socket: &UnixStream) -> bool {
        let sent = self.out.is_empty() || socket.write_all(&self.out).is_ok();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        self.out.clear();
        sent
    }

    fn message(&mut self, message: &[u8]) -> Result<(), Bad> {
        if Header::parse(message)?.op()? != OpCode::Compressed {
            return self.request(message, None);
        }
        let (message, compressor) = frond_wire::decompress(message, MAX_MESSAGE_BYTES)?;
        if !self.answers.compressors.contains(&compressor) {
            return Err(Bad);
        }
        self.request(&message, Some(compressor))
    }

    fn request(&mut self, message: &[u8], compressor: Option<Compressor>) -> Result<(), Bad> {
        let at = self.out.len();
        let (header, request) = Request::parse(message)?;
        match request {
            Request::Msg(msg) => self.msg(header.request_id, &msg)?,
            Request::Query(query) => self.query(header.request_id, &query)?,
            Request::GetMore(_) => {
                let flags = OpReply::CURSOR_NOT_FOUND;
                self.op_reply(header.request_id, flags, 0);
                self.finish(at);
            }
            Request::KillCursors(_) => {}
            Request::Insert(insert) => self.insert(&insert)?,
            Request::Update(update) => self.update(&update)?,
            Request::Delete(delete) => self.delete(&delete)?,
        }
        if let Some(compressor) = compressor
            && self.out.len() > at
        {
            let whole = frond_wire::compress(self.out.get(at..).unwrap_or_default(), compressor)?;
            self.out.truncate(at);
            self.out.extend_from_slice(&whole);
        }
        Ok(())
    }

    fn msg(&mut self, request_id: i32, msg: &Msg<'_>) -> Result<(), Bad> {
        let body = Doc::validate(msg.body)?;
        for (_, documents) in &msg.sequences {
            for document in *documents {
                Doc::validate(document)?;
            }
        }
        let at = self.out.len();
        let id = self.next_id();
        // An empty body, to which the answer is appended.
        MsgBuilder::new(&mut self.out, id, request_id, Flags::NONE)
            .body(&[])
            .finish();
        let command = Command {
            database: body.get_str("$db"),
            body,
            sequences: &msg.sequences,
        };
        self.answers.answer(command, &mut self.out);
        if msg.flags.has(Flags::MORE_TO_COME) {
            self.out.truncate(at);
        } else {
            self.finish(at);
        }
        Ok(())
    }

    fn query(&mut self, request_id: i32, query: &Query<'_>) -> Result<(), Bad> {
        let document = Doc::validate(query.query)?;
        let projection = query.projection.map_or(Ok(Doc::empty()), Doc::validate)?;
        let (database, collection) = split(query.namespace)?;
        let at = self.out.len();
        if collection == "$cmd" {
            self.op_reply(request_id, OpReply::AWAIT_CAPABLE, 1);
            let wrapped = document.get_doc("$query");
            let command = Command {
                database: Some(database),
                body: wrapped.unwrap_or(document),
                sequences: &[],
            };
            self.answers.answer(command, &mut self.out);
        } else {
            let found = self
                .answers
                .find_legacy(document, query.skip, query.count, projection);
            let count = found.count() as u32;
            self.op_reply(request_id, OpReply::AWAIT_CAPABLE, count);
            for value in found.values() {
                if let Value::Document(document) = value {
                    self.out.extend_from_slice(document.as_bytes());
                }
            }
        }
        self.finish(at);
        Ok(())
    }

    fn insert(&mut self, insert: &Insert<'_>) -> Result<(), Bad> {
        for document in insert.documents {
            Doc::validate(document)?;
        }
        let (database, collection) = split(insert.namespace)?;
        self.answers.last = LastWrite::default();
        if collection == "system.indexes" {
            return Ok(());
        }
        let count = insert.documents.len();
        // Nothing can be answered here. A client that counts will see that documents are missing.
        self.answers
            .inserted(database, collection, count)
            .map_err(|_| Bad)
    }

    fn update(&mut self, update: &Update<'_>) -> Result<(), Bad> {
        Doc::validate(update.filter)?;
        Doc::validate(update.update)?;
        split(update.namespace)?;
        self.answers.last = LastWrite { n: 1, update: true };
        Ok(())
    }

    fn delete(&mut self, delete: &Delete<'_>) -> Result<(), Bad> {
        let filter = Doc::validate(delete.filter)?;
        let (database, collection) = split(delete.namespace)?;
        let one = delete.flags & Delete::SINGLE_REMOVE != 0;
        self.answers.last = LastWrite {
            n: self.answers.deleted(database, collection, filter, one),
            update: false,
        };
        Ok(())
    }

    /// Begins an OP_REPLY whose documents follow.
    fn op_reply(&mut self, response_to: i32, flags: u32, documents: u32) {
        let header = Header {
            length: 0,
            request_id: self.next_id(),
            response_to,
            opcode: OpCode::Reply as i32,
        };
        self.out.extend_from_slice(&header.to_bytes());
        self.out.extend_from_slice(&flags.to_le_bytes());
        // No cursor, which starts at 0.
        self.out.extend_from_slice(&[0; 8 + 4]);
        self.out.extend_from_slice(&documents.to_le_bytes());
    }

    /// Ends the message that began at `at`: its length.
    fn finish(&mut self, at: usize) {
        debug_assert!(self.out.len() >= at + HEADER_BYTES);
        let length = (self.out.len() - at) as u32;
        if let Some(place) = self.out.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    fn next_id(&mut self) -> i32 {
        self.next_id = self.next_id.wrapping_add(1) & i32::MAX;
        self.next_id
    }
}

fn split(namespace: &str) -> Result<(&str, &str), Bad> {
    match namespace.split_once('.') {
        Some((database, collection)) if !database.is_empty() && !collection.is_empty() => {
            Ok((database, collection))
        }
        _ => Err(Bad),
    }
}
