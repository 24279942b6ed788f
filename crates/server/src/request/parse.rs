//! A command as a value, parsed once from its message.

use frond_bson::{Doc, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_wire::{DocIter, Flags, Header, Msg, OpCode, peek_flags};

use crate::commands::aggregate::{PipelineNeeds, reach};
use crate::commands::{Command, Spec, find};
use frond_runtime::AdmissionClass;

/// A command of the table.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its index in the table.
    pub index: usize,
    pub command: &'static dyn Command,
    /// The constant facts about it.
    pub spec: &'static Spec,
}

impl Known {
    pub fn name(&self) -> &'static str {
        self.spec.name()
    }
}

/// A command of a client, by whatever opcode it arrived.
pub struct Request<'a> {
    pub db: &'a str,
    /// The name of the command as the client wrote it.
    pub name: &'a str,
    /// The command; none if there is none of this name.
    pub known: Option<Known>,
    /// The command's document, validated.
    pub body: &'a Doc,
    /// Document sequences beside it.
    pub sequences: Vec<(&'a str, DocIter<'a>)>,
    /// The tickets that it needs one of.
    pub admission: Option<AdmissionClass>,
    /// It came by a legacy opcode: some commands then reply as the servers of that time did.
    pub legacy: bool,
    /// Whether the client waits for a reply.
    pub is_acknowledged: bool,
}

impl<'a> Request<'a> {
    /// The command with this document.
    pub fn new(db: &'a str, body: &'a Doc) -> Request<'a> {
        let name = body.first().map_or("", |(name, _)| name);
        let known = find(name).map(|(index, command)| Known {
            index,
            command,
            spec: command.spec(),
        });
        Request {
            db,
            name,
            known,
            body,
            sequences: Vec::new(),
            admission: known.and_then(|known| admission(&known, body)),
            legacy: false,
            is_acknowledged: true,
        }
    }

    /// The command that an OP_MSG has.
    ///
    /// # Errors
    /// If its document is not valid, or names no database.
    pub fn parse(message: Msg<'a>) -> Result<Request<'a>> {
        let body = Doc::validate(message.body)?;
        match body.get("$db") {
            Some(Value::String(db)) => Ok(Request {
                sequences: message.sequences,
                is_acknowledged: !message.flags.has(Flags::MORE_TO_COME),
                ..Request::new(db, body)
            }),
            Some(_) => Err(Error::new(
                ErrorCode::TypeMismatch,
                "the field '$db' must be a string",
            )),
            None => Err(Error::location(
                40571,
                "OP_MSG requests require a $db argument",
            )),
        }
    }

    pub fn writes(&self) -> bool {
        self.known.is_some_and(|known| known.spec.writes)
            || self.admission == Some(AdmissionClass::Write)
    }

    /// Whether it is a statement of a transaction, which does not wait for tickets that others hold.
    pub fn is_statement(&self) -> bool {
        self.body.contains_key("autocommit")
    }

    /// Whether it is a `find` of one document by its `_id`, which does not take long.
    pub fn finds_by_id(&self) -> bool {
        let is_plain = |id: Value<'_>| match id {
            Value::Document(operators) => operators.first().is_none_or(|(name, _)| {
                !name.starts_with('$') || (name == "$eq" && operators.iter().count() == 1)
            }),
            Value::Regex { .. } => false,
            _ => true,
        };
        // Another collation, or another index than that on `_id`, can need a scan.
        let others = ["collation", "hint", "min", "max"];
        self.known.is_some_and(|known| known.name() == "find")
            && (self
                .body
                .get_doc("filter")
                .and_then(|filter| filter.get("_id")))
            .is_some_and(is_plain)
            && others.iter().all(|field| !self.body.contains_key(field))
    }

    /// The collection that it names: its first field, or that of a getMore.
    pub fn collection(&self) -> Option<&'a str> {
        let known = self.known?;
        match self.body.first() {
            Some((_, Value::String(collection))) if known.spec.on_collection => Some(collection),
            _ if known.name() == "getMore" => self.body.get_str("collection"),
            _ => None,
        }
    }
}

/// The tickets that a command needs one of.
fn admission(known: &Known, body: &Doc) -> Option<AdmissionClass> {
    let admission = known.spec.admission;
    match known.name() {
        "mapReduce" => {
            // One that answers inline writes nothing.
            let out = body.get_doc("out");
            if out.is_some_and(|out| out.contains_key("inline")) {
                admission
            } else {
                Some(AdmissionClass::Write)
            }
        }
        "aggregate" => match body.get_array("pipeline").map(reach) {
            Some(PipelineNeeds::Written) => Some(AdmissionClass::Write),
            Some(PipelineNeeds::Memory) => None,
            Some(PipelineNeeds::Read) | None => admission,
        },
        _ => admission,
    }
}

/// Whether the client waits for a reply to a message, of which only the beginning need have arrived.
pub fn wants_reply(message: &[u8]) -> bool {
    let Ok(header) = Header::parse(message) else {
        return true;
    };
    match header.op() {
        Ok(OpCode::Insert | OpCode::Update | OpCode::Delete | OpCode::KillCursors) => false,
        _ => !peek_flags(&header, message).is_some_and(|flags| flags.has(Flags::MORE_TO_COME)),
    }
}
