//! Events: what an entry of the oplog, or an operation of a transaction, is to a change stream.

use frond_bson::{Doc, DocBuf, Timestamp, Value, doc};

use super::description::update_description;
use super::spec::{Spec, WatchScope};
use crate::catalog::Uuid;
use frond_oplog::entry::{Kind, RawEntry, Session, session_id};
use frond_oplog::token::Token;
use frond_storage::error::{Result, corrupt};

/// The types of events that a stream shows without `showExpandedEvents`.
const CLASSIC: [&str; 8] = [
    "insert",
    "update",
    "replace",
    "delete",
    "drop",
    "rename",
    "dropDatabase",
    // Otherwise a stream would not show that documents are gone.
    "dropPartition",
];

/// The collection of the definitions of views.
const VIEWS: &str = "system.views";

/// An operation and its place: in an entry of its own, or in a transaction.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    pub entry: RawEntry<'a>,
    /// The time of the commit: that of the entry, or of the last entry of a transaction.
    pub time: u64,
    /// The position in the transaction; 0 outside of one.
    pub position: u32,
    /// The time of the entry that has the operation, and the operation's position in it.
    pub stored: (u64, u32),
    /// The wall-clock time of the commit.
    pub wall_ms: i64,
    /// Whether it is a part of a transaction, and the session of that.
    pub transaction: Option<Option<Session>>,
}

/// The classification of an operation, before an event is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The type of the event.
    pub operation_type: &'static str,
    pub db: &'a str,
    /// The collection; none for `dropDatabase`.
    pub coll: Option<&'a str>,
    /// The new name of a renamed collection, with its database.
    pub to: Option<(&'a str, &'a str)>,
    /// Whether it is about a view.
    pub is_view: bool,
}

fn split(ns: &str) -> (&str, &str) {
    ns.split_once('.').unwrap_or((ns, ""))
}

impl<'a> Subject<'a> {
    /// The change that an entry describes; `None` if no stream shows it.
    pub fn from_entry(entry: &RawEntry<'a>) -> Option<Subject<'a>> {
        let (db, coll) = split(entry.ns());
        let of_document = |operation_type| {
            Some(Subject {
                operation_type,
                db,
                coll: Some(coll),
                to: None,
                is_view: false,
            })
        };
        if coll == VIEWS && entry.kind() != Kind::Command {
            return Subject::of_view(entry);
        }
        match entry.kind() {
            Kind::Insert => of_document("insert"),
            Kind::Update => of_document("update"),
            Kind::Replace => of_document("replace"),
            Kind::Delete => of_document("delete"),
            Kind::Command => Subject::of_command(db, entry.o()),
            Kind::Noop | Kind::Transaction => None,
        }
    }

    fn of_view(entry: &RawEntry<'a>) -> Option<Subject<'a>> {
        let operation_type = match entry.kind() {
            Kind::Insert => "create",
            Kind::Update | Kind::Replace => "modify",
            Kind::Delete => "drop",
            Kind::Command | Kind::Noop | Kind::Transaction => return None,
        };
        let (db, coll) = split(entry.id()?.as_str()?);
        Some(Subject {
            operation_type,
            db,
            coll: Some(coll),
            to: None,
            is_view: true,
        })
    }

    fn of_command(db: &'a str, command: &'a Doc) -> Option<Subject<'a>> {
        let (name, value) = command.first()?;
        let (operation_type, to) = match name {
            "drop" => ("drop", None),
            "renameCollection" => ("rename", Some(split(command.get_str("to")?))),
            "dropDatabase" => ("dropDatabase", None),
            "create" => ("create", None),
            "createIndexes" | "commitIndexBuild" => ("createIndexes", None),
            "dropIndexes" => ("dropIndexes", None),
            "collMod" => ("modify", None),
            "addPartition" => ("addPartition", None),
            "dropPartition" => ("dropPartition", None),
            _ => return None,
        };
        let (db, coll) = match operation_type {
            "rename" => {
                let (db, coll) = split(value.as_str()?);
                (db, Some(coll))
            }
            "dropDatabase" => (db, None),
            _ => (db, Some(value.as_str()?)),
        };
        Some(Subject {
            operation_type,
            db,
            coll,
            to,
            is_view: false,
        })
    }

    /// Whether streams show the type without `showExpandedEvents`.
    pub fn is_classic(&self) -> bool {
        CLASSIC.contains(&self.operation_type) && !self.is_view
    }

    /// Whether a stream watches what this is about.
    pub fn is_in(&self, scope: &WatchScope, spec: &Spec) -> bool {
        let is_watched = |db: &str, coll: Option<&str>| match scope {
            WatchScope::Collection(ns) => ns.db() == db && coll == Some(ns.coll()),
            WatchScope::Database(watched) => {
                watched == db && coll.is_none_or(|coll| is_shown(coll, spec.show_system_events))
            }
            WatchScope::Cluster => {
                !matches!(db, "admin" | "config" | "local")
                    && coll.is_none_or(|coll| is_shown(coll, spec.show_system_events))
            }
        };
        if self.is_view
            && (matches!(scope, WatchScope::Collection(_)) || !spec.show_expanded_events)
        {
            // A stream that shows system events shows the document of the definition.
            return false;
        }
        is_watched(self.db, self.coll)
            || self.to.is_some_and(|(db, coll)| is_watched(db, Some(coll)))
    }

    /// Whether a stream ends with this event.
    pub fn invalidates(&self, scope: &WatchScope) -> bool {
        match scope {
            WatchScope::Collection(_) => matches!(self.operation_type, "drop" | "rename"),
            WatchScope::Database(_) => self.operation_type == "dropDatabase",
            WatchScope::Cluster => false,
        }
    }

    /// The fields that conditions can be tested on before the event is built: `operationType` and `ns`.
    pub fn fill_head(&self, head: &mut DocBuf) {
        head.clear();
        head.push("operationType", self.operation_type);
        push_ns("ns", self.db, self.coll, head);
    }
}

/// Whether streams on a database show events of a collection.
fn is_shown(coll: &str, show_system_events: bool) -> bool {
    if coll.starts_with('$') {
        return false;
    }
    let Some(system) = coll.strip_prefix("system.") else {
        return true;
    };
    show_system_events
        && (matches!(system, "js" | "views")
            || system.starts_with("resharding.")
            || system.starts_with("buckets."))
}

fn push_ns(name: &str, db: &str, coll: Option<&str>, out: &mut DocBuf) {
    out.push_doc(name, |ns| {
        ns.push("db", db);
        if let Some(coll) = coll {
            ns.push("coll", coll);
        }
    });
}

/// A value of another one's fields, without some.
fn without(doc: &Doc, names: &[&str]) -> DocBuf {
    let mut out = DocBuf::with_capacity(doc.len_bytes());
    for field in doc.iter_raw() {
        if !names.contains(&field.name()) {
            out.push_raw(&field);
        }
    }
    out
}

/// The indexes of an entry in an array.
fn indexes(specs: &Doc) -> DocBuf {
    let mut out = DocBuf::new();
    out.push_array("indexes", |indexes| indexes.push(specs));
    out
}

/// The details of a command: `operationDescription`.
fn description(subject: &Subject<'_>, entry: &RawEntry<'_>) -> Option<DocBuf> {
    let o = entry.o();
    if subject.is_view {
        return (subject.operation_type != "drop").then(|| without(o, &["_id"]));
    }
    Some(match o.first()?.0 {
        "create" => without(o, &["create"]),
        "renameCollection" => {
            let mut details = without(o, &["renameCollection", "stayTemp", "to"]);
            if let Some((db, coll)) = subject.to {
                push_ns("to", db, Some(coll), &mut details);
            }
            details
        }
        "createIndexes" => indexes(&without(o, &["createIndexes"])),
        "commitIndexBuild" => {
            let mut details = DocBuf::new();
            details.push("indexes", o.get("indexes"));
            details
        }
        "dropIndexes" => indexes(&without(entry.o2().unwrap_or(o), &["dropIndexes"])),
        "collMod" => without(o, &["collMod"]),
        "addPartition" => without(o, &["addPartition"]),
        "dropPartition" => without(o, &["dropPartition"]),
        _ => return None,
    })
}

/// An event that is built.
#[derive(Debug)]
pub struct Event {
    /// The document, without looked-up documents.
    pub doc: DocBuf,
    /// Its token, which is its `_id`.
    pub token: Token,
}

fn uuid_value(uuid: &Uuid) -> Value<'_> {
    Value::Binary {
        subtype: 4,
        bytes: uuid,
    }
}

/// Whether the event of an operation shows the document after it without a look-up.
fn shows_document(kind: Kind) -> bool {
    matches!(kind, Kind::Insert | Kind::Replace)
}

/// The token of an operation's event.
fn token_of(
    change: &Change<'_>,
    subject: &Subject<'_>,
    key: Option<&Doc>,
    description: Option<&Doc>,
) -> Token {
    let uuid = change.entry.uuid().copied();
    let uuid = uuid.filter(|_| subject.operation_type != "dropDatabase");
    let identity = match (key, description) {
        (Some(key), _) => Some(("documentKey", key)),
        (None, Some(description)) => Some(("operationDescription", description)),
        (None, None) => None,
    };
    let operation_type = subject.operation_type;
    Token::of_event(change.time, change.position, uuid, operation_type, identity)
}

/// Builds the event of an operation.
///
/// # Errors
/// `DataCorruptionDetected` (301).
pub fn build(change: &Change<'_>, subject: &Subject<'_>, spec: &Spec) -> Result<Event> {
    let entry = &change.entry;
    let is_document = entry.kind() != Kind::Command && !subject.is_view;
    let key = if is_document {
        let id = entry
            .id()
            .ok_or_else(|| corrupt("an entry of the oplog without an _id"))?;
        let mut key = DocBuf::new();
        key.push_value("_id", &id);
        Some(key)
    } else {
        None
    };
    let description = if is_document {
        None
    } else {
        description(subject, entry)
    };
    let token = token_of(change, subject, key.as_deref(), description.as_deref());
    let mut doc = DocBuf::with_capacity(entry.o().len_bytes() + 512);
    doc.push("_id", &*token.to_doc());
    doc.push("operationType", subject.operation_type);
    doc.push("clusterTime", Timestamp::from_u64(change.time));
    if spec.show_expanded_events
        && let Some(uuid) = &token.uuid
        && !subject.is_view
    {
        doc.push("collectionUUID", uuid_value(uuid));
    }
    doc.push("wallTime", Value::DateTime(change.wall_ms));
    if is_document && shows_document(entry.kind()) {
        doc.push("fullDocument", entry.o());
    }
    push_ns("ns", subject.db, subject.coll, &mut doc);
    if let Some((db, coll)) = subject.to {
        push_ns("to", db, Some(coll), &mut doc);
    }
    if let Some(key) = &key {
        doc.push("documentKey", &**key);
    }
    if spec.show_expanded_events {
        push_details(subject, entry, description.as_deref(), &mut doc);
    }
    if entry.kind() == Kind::Update && is_document {
        if spec.show_raw_update_description {
            let raw = doc! {"$v": 2, "diff": entry.o()};
            doc.push("rawUpdateDescription", &*raw);
        } else {
            let changes = update_description(entry.o(), spec.show_expanded_events)?;
            doc.push("updateDescription", &*changes);
        }
    }
    if let Some(Some(session)) = &change.transaction {
        doc.push("txnNumber", session.number);
        doc.push("lsid", &*session_id(&session.id));
    }
    Ok(Event { doc, token })
}

/// Adds what only `showExpandedEvents` shows.
fn push_details(
    subject: &Subject<'_>,
    entry: &RawEntry<'_>,
    description: Option<&Doc>,
    doc: &mut DocBuf,
) {
    if let Some(description) = description {
        doc.push("operationDescription", description);
    }
    if subject.operation_type == "modify"
        && !subject.is_view
        && let Some(before) = entry.o2()
    {
        let mut state = DocBuf::new();
        for (name, stored) in [
            ("collectionOptions", "collectionOptions_old"),
            ("indexOptions", "indexOptions_old"),
        ] {
            if let Some(value) = before.get(stored) {
                state.push_value(name, &value);
            }
        }
        doc.push("stateBeforeChange", &*state);
    }
    if subject.operation_type == "create" {
        let kind = match (subject.is_view, entry.o().contains_key("timeseries")) {
            (_, true) => "timeseries",
            (true, _) => "view",
            _ => "collection",
        };
        doc.push("nsType", kind);
    }
}

/// The `invalidate` that follows an event.
pub fn invalidate(event: &Event, change: &Change<'_>) -> Event {
    let token = event.token.of_invalidate();
    let doc = doc! {
        "_id": token.to_doc(),
        "operationType": "invalidate",
        "clusterTime": Timestamp::from_u64(change.time),
        "wallTime": Value::DateTime(change.wall_ms),
    };
    Event { doc, token }
}
