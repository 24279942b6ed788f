//! The value of an entry from MongoDB's document of it, as a standby reads it from its primary: the inverse of [`super::document`].

use frond_bson::{Doc, Value};

use super::{Entry, Kind, Operations, RawEntry, Session, encode_head, flag};
use crate::error::{Result, corrupt};

/// Reads documents of entries in their order. It remembers how far a transaction in several entries has come.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The entries of the transaction before the next one, and their operations.
    chain: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    pub ts: u64,
    /// The operation of the entry.
    pub kind: Kind,
}

impl Decoder {
    /// Appends the value of the entry to `out`.
    ///
    /// # Errors
    /// `DataCorruptionDetected` (301) for a document that is no entry of this server's kind.
    pub fn decode(&mut self, doc: &Doc, out: &mut Vec<u8>) -> Result<Decoded> {
        self.read(doc, out).ok_or_else(|| {
            corrupt(
                "an entry of the primary's oplog, which has a form that this version does not know",
            )
        })
    }

    fn read(&mut self, doc: &Doc, out: &mut Vec<u8>) -> Option<Decoded> {
        let fields = Fields::read(doc)?;
        let Some(Value::Timestamp(ts)) = fields.ts else {
            return None;
        };
        let Some(Value::DateTime(wall_ms)) = fields.wall else {
            return None;
        };
        let session = fields.session()?;
        let kind = fields.kind()?;
        if kind == Kind::Transaction {
            self.transaction(&fields, wall_ms, session, out)?;
        } else {
            if self.chain != (0, 0) {
                return None;
            }
            fields.entry(kind, Some(wall_ms), session)?.encode(out);
        }
        Some(Decoded {
            ts: ts.to_u64(),
            kind,
        })
    }

    fn transaction(
        &mut self,
        fields: &Fields<'_>,
        wall_ms: i64,
        session: Option<Session>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let o = fields.o?;
        if o.get("prepare").is_some_and(|value| value.truthy()) {
            return None;
        }
        let mut operations = Operations::default();
        let Some(Value::Array(all)) = o.get("applyOps") else {
            return None;
        };
        for one in all.values() {
            let one = Fields::read(one.as_doc()?)?;
            let kind = one.kind().filter(|kind| *kind != Kind::Transaction)?;
            operations.push(&one.entry(kind, None, None)?);
        }
        let is_partial = o.get("partialTxn").is_some_and(|value| value.truthy());
        let flags = if is_partial { flag::PARTIAL } else { 0 };
        let (kind, wall) = (Kind::Transaction, Some(wall_ms));
        encode_head(kind, flags, fields.ns?, None, wall, session, out);
        let (before, operations_before) = self.chain;
        let so_far = operations_before.checked_add(operations.count())?;
        out.extend_from_slice(&before.to_le_bytes());
        out.extend_from_slice(&so_far.to_le_bytes());
        out.extend_from_slice(&operations.bytes);
        self.chain = if is_partial {
            (before + 1, so_far)
        } else {
            (0, 0)
        };
        Some(())
    }
}

/// The fields of an entry, found in one pass.
#[derive(Clone, Copy, Default)]
struct Fields<'a> {
    op: Option<&'a str>,
    ns: Option<&'a str>,
    uuid: Option<&'a [u8; 16]>,
    o: Option<&'a Doc>,
    o2: Option<&'a Doc>,
    ts: Option<Value<'a>>,
    wall: Option<Value<'a>>,
    lsid: Option<&'a Doc>,
    number: Option<i64>,
    statement: Option<i32>,
}

impl<'a> Fields<'a> {
    /// `None` if one of them has a wrong type, or is not known.
    fn read(doc: &'a Doc) -> Option<Fields<'a>> {
        let mut fields = Fields::default();
        for (name, value) in doc.iter() {
            match (name, value) {
                ("op", Value::String(op)) => fields.op = Some(op),
                ("ns", Value::String(ns)) => fields.ns = Some(ns),
                ("ui", Value::Binary { bytes, .. }) => fields.uuid = Some(bytes.try_into().ok()?),
                ("o", Value::Document(o)) => fields.o = Some(o),
                ("o2", Value::Document(o2)) => fields.o2 = Some(o2),
                ("ts", value) => fields.ts = Some(value),
                ("wall", value) => fields.wall = Some(value),
                ("lsid", Value::Document(lsid)) => fields.lsid = Some(lsid),
                ("txnNumber", Value::Int64(number)) => fields.number = Some(number),
                ("stmtId", Value::Int32(statement)) => fields.statement = Some(statement),
                ("t" | "v" | "prevOpTime", _) => {}
                _ => return None,
            }
        }
        Some(fields)
    }

    fn kind(&self) -> Option<Kind> {
        Some(match self.op? {
            "i" => Kind::Insert,
            "u" => match self.difference() {
                Some(_) => Kind::Update,
                None if self.o?.contains_key("_id") => Kind::Replace,
                None => return None,
            },
            "d" => Kind::Delete,
            "n" => Kind::Noop,
            "c" => match self.o?.first()? {
                ("applyOps", _) => Kind::Transaction,
                _ => Kind::Command,
            },
            _ => return None,
        })
    }

    /// The difference that an update has. A replacement has an `_id`.
    fn difference(&self) -> Option<&'a Doc> {
        let o = self.o?;
        let is_update = !o.contains_key("_id") && o.get("$v")?.as_f64() == Some(2.0);
        o.get_doc("diff").filter(|_| is_update)
    }

    fn session(&self) -> Option<Option<Session>> {
        let Some(lsid) = self.lsid else {
            return Some(None);
        };
        let Some(Value::Binary { bytes, .. }) = lsid.get("id") else {
            return None;
        };
        Some(Some(Session {
            id: bytes.try_into().ok()?,
            number: self.number?,
            statement: self.statement,
        }))
    }

    fn entry(
        &self,
        kind: Kind,
        wall_ms: Option<i64>,
        session: Option<Session>,
    ) -> Option<Entry<'a>> {
        Some(Entry {
            kind,
            ns: self.ns?,
            uuid: self.uuid,
            wall_ms,
            session,
            has_pre_image: false,
            o2: match kind {
                // It follows from `o`.
                Kind::Insert | Kind::Replace => None,
                _ => self.o2,
            },
            o: match kind {
                Kind::Update => self.difference()?,
                _ => self.o?,
            },
        })
    }
}

/// Notes in a value that the document before the change is stored.
pub fn set_pre_image(value: &mut [u8]) {
    if let Some(flags) = value.get_mut(1) {
        *flags |= flag::PRE_IMAGE;
    }
}

/// Notes that in those operations of a transaction for which `has` says so.
pub fn set_pre_images(value: &mut [u8], has: impl Fn(&RawEntry<'_>) -> bool) -> Result<()> {
    let mut places = Vec::new();
    let raw = RawEntry::read(value)?;
    let start = value.len() - raw.rest.len();
    let mut at = 0;
    while let Some((operation, end)) = raw.operation_at(at)? {
        if has(&operation) {
            places.push(start + at + 4);
        }
        at = end;
    }
    for place in places {
        if let Some(operation) = value.get_mut(place..) {
            set_pre_image(operation);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use frond_bson::{DocBuf, doc};

    use super::*;
    use crate::entry::document;

    const UUID: [u8; 16] = [7; 16];

    fn entry<'a>(kind: Kind, ns: &'a str, o: &'a Doc, o2: Option<&'a Doc>) -> Entry<'a> {
        Entry {
            kind,
            ns,
            uuid: (kind != Kind::Noop).then_some(&UUID),
            wall_ms: Some(1_700_000_000_123),
            session: None,
            has_pre_image: false,
            o2,
            o,
        }
    }

    #[test]
    fn an_entry_that_was_shown_is_read_as_it_was() {
        let id = doc! {"_id": 5};
        let whole = doc! {"_id": 5, "a": [1, 2], "diff": {"u": 1}, "$v": 2};
        let diff = doc! {"u": {"a": 3}, "i": {"b": "x"}};
        let create = doc! {"create": "c", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}};
        let old = doc! {"numRecords": 7i64};
        let message = doc! {"msg": "hello"};
        let session = Session {
            id: [9; 16],
            number: 12,
            statement: Some(3),
        };
        let cases = [
            entry(Kind::Insert, "test.c", &whole, None),
            Entry {
                session: Some(session),
                ..entry(Kind::Insert, "test.c", &id, None)
            },
            entry(Kind::Replace, "test.c", &whole, None),
            entry(Kind::Update, "test.c", &diff, Some(&id)),
            entry(Kind::Delete, "test.c", &id, None),
            entry(Kind::Command, "test.$cmd", &create, None),
            entry(Kind::Command, "test.$cmd", &create, Some(&old)),
            entry(Kind::Noop, "", &message, None),
        ];
        let mut decoder = Decoder::default();
        for case in cases {
            let mut value = Vec::new();
            case.encode(&mut value);
            let shown = document(77, &RawEntry::read(&value).unwrap(), 1).unwrap();
            let mut again = Vec::new();
            let decoded = decoder.decode(&shown, &mut again).unwrap();
            assert_eq!((decoded.ts, decoded.kind), (77, case.kind), "{shown:?}");
            assert_eq!(again, value, "{shown:?}");
        }
    }

    #[test]
    fn a_transaction_in_several_entries_is_read_as_it_was() {
        let mut operations = Operations::default();
        let docs: Vec<DocBuf> = (0..5)
            .map(|id| doc! {"_id": id, "text": "x".repeat(200).as_str()})
            .collect();
        for doc in &docs {
            operations.push(&entry(Kind::Insert, "test.c", doc, None));
        }
        let session = Some(Session {
            id: [9; 16],
            number: 12,
            statement: None,
        });
        let mut values: Vec<Vec<u8>> = Vec::new();
        operations.entries(800, 5, session, |_, _, value| values.push(value.to_vec()));
        assert!(values.len() > 2, "several entries");
        let mut decoder = Decoder::default();
        for (at, value) in values.iter().enumerate() {
            let shown = document(100 + at as u64, &RawEntry::read(value).unwrap(), 1).unwrap();
            let mut again = Vec::new();
            decoder.decode(&shown, &mut again).unwrap();
            assert_eq!(&again, value);
        }
        let last = values.last_mut().unwrap();
        set_pre_images(last, |operation| operation.kind() == Kind::Insert).unwrap();
        let raw = RawEntry::read(last).unwrap();
        let mut marked = raw.operations().map(|one| one.unwrap().has_pre_image());
        assert!(marked.all(|marked| marked));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let at = frond_bson::Timestamp::from_u64(5);
        let wall = Value::DateTime(1);
        let cases = [
            doc! {},
            doc! {"op": "i", "ns": "a.b", "o": {"_id": 1}, "wall": wall},
            doc! {"op": "i", "ns": "a.b", "o": {"_id": 1}, "ts": at},
            doc! {"op": "x", "ns": "a.b", "o": {"_id": 1}, "ts": at, "wall": wall},
            doc! {"op": "u", "ns": "a.b", "o": {"$set": {"a": 1}}, "ts": at, "wall": wall},
            doc! {"op": "i", "ns": "a.b", "ui": 5, "o": {"_id": 1}, "ts": at, "wall": wall},
            doc! {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [{"op": "i"}]}, "ts": at, "wall": wall},
            doc! {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [], "prepare": true}, "ts": at, "wall": wall},
        ];
        for case in cases {
            assert!(
                Decoder::default().decode(&case, &mut Vec::new()).is_err(),
                "{case:?}"
            );
        }
    }
}
