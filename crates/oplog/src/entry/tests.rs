use super::*;

const UUID: [u8; 16] = [7; 16];
const SESSION: Session = Session {
    id: [9; 16],
    number: 5,
    statement: Some(3),
};

fn entry<'a>(kind: Kind, o: &'a Doc, o2: Option<&'a Doc>) -> Entry<'a> {
    Entry {
        kind,
        ns: "db.c",
        uuid: Some(&UUID),
        wall_ms: Some(1_700_000_000_123),
        session: None,
        has_pre_image: false,
        o2,
        o,
    }
}

fn shown(entry: &Entry<'_>) -> DocBuf {
    let mut value = Vec::new();
    entry.encode(&mut value);
    document(17 << 32 | 4, &RawEntry::read(&value).unwrap(), 1).unwrap()
}

/// The fields of every entry behind `o` and `o2`.
fn with_end(mut head: DocBuf) -> DocBuf {
    head.push_all(&doc! {
        "ts": Timestamp { time: 17, increment: 4 },
        "t": 1_i64,
        "v": 2_i64,
        "wall": Value::DateTime(1_700_000_000_123),
    });
    head
}

#[test]
fn entries_have_the_fields_of_mongodb() {
    let ui = Value::Binary {
        subtype: 4,
        bytes: &UUID,
    };
    let document = doc! {"_id": 1, "a": "x"};
    let id = doc! {"_id": 1};
    let insert = entry(Kind::Insert, &document, None);
    assert_eq!(
        shown(&insert),
        with_end(doc! {"op": "i", "ns": "db.c", "ui": ui, "o": &document, "o2": &id})
    );
    let replace = entry(Kind::Replace, &document, None);
    assert_eq!(
        shown(&replace),
        with_end(doc! {"op": "u", "ns": "db.c", "ui": ui, "o": &document, "o2": &id})
    );
    let diff = doc! {"u": {"a": 5}};
    let update = entry(Kind::Update, &diff, Some(&id));
    assert_eq!(
        shown(&update),
        with_end(doc! {
            "op": "u", "ns": "db.c", "ui": ui, "o": {"$v": 2, "diff": &diff}, "o2": &id,
        })
    );
    let delete = entry(Kind::Delete, &id, None);
    assert_eq!(
        shown(&delete),
        with_end(doc! {"op": "d", "ns": "db.c", "ui": ui, "o": &id})
    );
    let (drop, count) = (doc! {"drop": "c"}, doc! {"numRecords": 4});
    let command = Entry {
        ns: "db.$cmd",
        ..entry(Kind::Command, &drop, Some(&count))
    };
    assert_eq!(
        shown(&command),
        with_end(doc! {"op": "c", "ns": "db.$cmd", "ui": ui, "o": &drop, "o2": &count})
    );
    let message = doc! {"msg": "initiating set"};
    let noop = Entry {
        ns: "",
        uuid: None,
        ..entry(Kind::Noop, &message, None)
    };
    assert_eq!(
        shown(&noop),
        with_end(doc! {"op": "n", "ns": "", "o": &message})
    );
}

#[test]
fn retryable_writes_name_their_statement() {
    let document = doc! {"_id": 1};
    let insert = Entry {
        session: Some(SESSION),
        ..entry(Kind::Insert, &document, None)
    };
    let shown = shown(&insert);
    let names: Vec<&str> = shown.iter().map(|(name, _)| name).collect();
    let expected = [
        "lsid",
        "txnNumber",
        "op",
        "ns",
        "ui",
        "o",
        "o2",
        "stmtId",
        "ts",
        "t",
        "v",
        "wall",
    ];
    assert_eq!(names, expected);
    assert_eq!(shown.get_i64("txnNumber"), Some(5));
    assert_eq!(shown.get_i32("stmtId"), Some(3));
    let lsid = shown.get_doc("lsid").unwrap();
    assert_eq!(lsid.get_binary("id"), Some(&[9; 16][..]));
    assert_eq!(lsid.get_binary("uid").map(<[u8]>::len), Some(32));
}

#[test]
fn a_raw_entry_tells_what_it_is_about_without_a_document() {
    let (diff, id) = (doc! {"d": {"a": false}}, doc! {"_id": "k"});
    let update = Entry {
        has_pre_image: true,
        ..entry(Kind::Update, &diff, Some(&id))
    };
    let mut value = Vec::new();
    update.encode(&mut value);
    let raw = RawEntry::read(&value).unwrap();
    assert_eq!(raw.kind(), Kind::Update);
    assert_eq!((raw.ns(), raw.uuid()), ("db.c", Some(&UUID)));
    assert_eq!(raw.o(), &diff);
    assert_eq!(raw.id(), Some(Value::String("k")));
    assert!(raw.has_pre_image() && !raw.is_transaction() && !raw.is_partial());
    assert_eq!(raw.wall_ms(), 1_700_000_000_123);
    for cut in 0..value.len() {
        assert!(RawEntry::read(&value[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn a_transaction_is_one_entry_or_a_chain() {
    let mut operations = Operations::default();
    let documents: Vec<DocBuf> = (0..10)
        .map(|n| doc! {"_id": n, "text": "x".repeat(100)})
        .collect();
    for document in &documents {
        operations.push(&Entry {
            session: Some(SESSION),
            ..entry(Kind::Insert, document, None)
        });
    }
    let session = Some(Session {
        statement: None,
        ..SESSION
    });
    let entries = |bytes_max| {
        let mut found = Vec::new();
        operations.entries(bytes_max, 1, session, |position, range, value| {
            found.push((position, range.start, value.to_vec()));
        });
        found
    };
    let one = entries(OPERATION_BYTES_MAX);
    assert_eq!(one.len(), 1);
    let raw = RawEntry::read(&one[0].2).unwrap();
    assert!(raw.is_transaction() && !raw.is_partial());
    assert_eq!(raw.operations().count(), 10);
    let shown = document(100, &raw, 2).unwrap();
    let o = shown.get_doc("o").unwrap();
    let first = o.get_array("applyOps").unwrap().values().next();
    let first = first.unwrap().as_doc().unwrap().to_owned();
    assert_eq!(
        first,
        doc! {
            "op": "i", "ns": "db.c", "ui": Value::Binary { subtype: 4, bytes: &UUID },
            "o": &documents[0], "o2": {"_id": 0},
        }
    );
    assert!(!o.contains_key("partialTxn") && !o.contains_key("count"));
    let before = shown.get_doc("prevOpTime").unwrap();
    assert_eq!(before.get_i64("t"), Some(-1));
    assert!(!shown.contains_key("stmtId"));

    let bytes = RawEntry::read(&one[0].2).unwrap();
    let each = bytes.operations().next().unwrap().unwrap();
    let chain = entries(each.document_bytes_max() * 4);
    assert_eq!(chain.len(), 3);
    let mut seen = Vec::new();
    for (at, (position, before, value)) in chain.iter().enumerate() {
        let raw = RawEntry::read(value).unwrap();
        assert_eq!(raw.chain_position() as usize, at);
        assert_eq!(*position as usize, at);
        assert_eq!(*before as usize, seen.len());
        assert_eq!(raw.is_partial(), at < 2);
        seen.extend(raw.operations().map(|one| one.unwrap().o().to_owned()));
        assert_eq!(raw.chain_operations() as usize, seen.len());
        let shown = document(100 + at as u64, &raw, 2).unwrap();
        let o = shown.get_doc("o").unwrap();
        assert_eq!(o.get_bool("partialTxn"), (at < 2).then_some(true));
        assert_eq!(o.get_i64("count"), (at == 2).then_some(10));
        let before = shown.get_doc("prevOpTime").unwrap().get("ts");
        let expected = match at {
            0 => 0,
            _ => 100 + at as u64 - 1,
        };
        assert_eq!(
            before,
            Some(Value::Timestamp(Timestamp::from_u64(expected)))
        );
        assert!(shown.len_bytes() < each.document_bytes_max() * 4 + 512);
    }
    assert_eq!(seen, documents);
    // An operation that is too large for its own entry is not divided.
    assert_eq!(entries(1).len(), 10);
}

#[test]
fn a_damaged_operation_is_an_error() {
    let mut operations = Operations::default();
    let document = doc! {"_id": 1};
    operations.push(&entry(Kind::Insert, &document, None));
    let mut value = Vec::new();
    operations.entries(OPERATION_BYTES_MAX, 1, None, |_, _, bytes| {
        value = bytes.to_vec();
    });
    value.pop();
    let raw = RawEntry::read(&value).unwrap();
    assert!(raw.operations().next().unwrap().is_err());
    assert!(super::document(1, &raw, 1).is_err());
}
