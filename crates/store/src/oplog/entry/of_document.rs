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

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The timestamp.
    pub ts: u64,
    /// What the entry tells of.
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
        let Some(Value::Timestamp(ts)) = doc.get("ts") else {
            return None;
        };
        let Some(Value::DateTime(wall_ms)) = doc.get("wall") else {
            return None;
        };
        let session = session(doc)?;
        let o = doc.get_doc("o")?;
        let kind = kind(doc, o)?;
        if kind == Kind::Transaction {
            self.transaction(doc, o, wall_ms, session, out)?;
        } else {
            if self.chain != (0, 0) {
                return None;
            }
            let uuid = uuid(doc)?;
            operation(doc, o, kind, uuid.as_ref(), Some(wall_ms), session)?.encode(out);
        }
        Some(Decoded {
            ts: ts.to_u64(),
            kind,
        })
    }

    fn transaction(
        &mut self,
        doc: &Doc,
        o: &Doc,
        wall_ms: i64,
        session: Option<Session>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        if o.get("prepare").is_some_and(|value| value.truthy()) {
            return None;
        }
        let mut operations = Operations::default();
        let Some(Value::Array(all)) = o.get("applyOps") else {
            return None;
        };
        for one in all.values() {
            let one = one.as_doc()?;
            let o = one.get_doc("o")?;
            let kind = kind(one, o).filter(|kind| *kind != Kind::Transaction)?;
            let uuid = uuid(one)?;
            operations.push(&operation(one, o, kind, uuid.as_ref(), None, None)?);
        }
        let is_partial = o.get("partialTxn").is_some_and(|value| value.truthy());
        let ns = doc.get_str("ns")?;
        let flags = if is_partial { flag::PARTIAL } else { 0 };
        let (kind, wall) = (Kind::Transaction, Some(wall_ms));
        encode_head(kind, flags, ns, None, wall, session, out);
        let (before, operations_before) = self.chain;
        let so_far = operations_before.checked_add(operations.count())?;
        out.extend_from_slice(&before.to_le_bytes());
        out.extend_from_slice(&so_far.to_le_bytes());
        out.extend_from_slice(&operations.bytes);
        self.chain = match is_partial {
            true => (before + 1, so_far),
            false => (0, 0),
        };
        Some(())
    }
}

fn kind(doc: &Doc, o: &Doc) -> Option<Kind> {
    Some(match doc.get_str("op")? {
        "i" => Kind::Insert,
        "u" => match difference(o) {
            Some(_) => Kind::Update,
            None if o.contains_key("_id") => Kind::Replace,
            None => return None,
        },
        "d" => Kind::Delete,
        "n" => Kind::Noop,
        "c" => match o.first()? {
            ("applyOps", _) => Kind::Transaction,
            _ => Kind::Command,
        },
        _ => return None,
    })
}

/// The difference that an update has. A replacement has an `_id`.
fn difference(o: &Doc) -> Option<&Doc> {
    let is_update = !o.contains_key("_id") && o.get("$v")?.as_f64() == Some(2.0);
    o.get_doc("diff").filter(|_| is_update)
}

fn uuid(doc: &Doc) -> Option<Option<[u8; 16]>> {
    match doc.get("ui") {
        None => Some(None),
        Some(Value::Binary { bytes, .. }) => Some(Some(bytes.try_into().ok()?)),
        Some(_) => None,
    }
}

fn session(doc: &Doc) -> Option<Option<Session>> {
    let Some(lsid) = doc.get("lsid") else {
        return Some(None);
    };
    let Some(Value::Binary { bytes, .. }) = lsid.as_doc()?.get("id") else {
        return None;
    };
    Some(Some(Session {
        id: bytes.try_into().ok()?,
        number: doc.get_i64("txnNumber")?,
        statement: doc.get_i32("stmtId"),
    }))
}

fn operation<'a>(
    doc: &'a Doc,
    o: &'a Doc,
    kind: Kind,
    uuid: Option<&'a [u8; 16]>,
    wall_ms: Option<i64>,
    session: Option<Session>,
) -> Option<Entry<'a>> {
    Some(Entry {
        kind,
        ns: doc.get_str("ns")?,
        uuid,
        wall_ms,
        session,
        has_pre_image: false,
        o2: match kind {
            // It follows from `o`.
            Kind::Insert | Kind::Replace => None,
            _ => doc.get_doc("o2"),
        },
        o: match kind {
            Kind::Update => difference(o)?,
            _ => o,
        },
    })
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
    use crate::oplog::entry::document;

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
