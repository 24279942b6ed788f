//! Round trips, tables of broken messages, and random mutations.

#![allow(clippy::unwrap_used)]

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// `{}`
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];
/// `{a: 1}`
const ONE: &[u8] = &[12, 0, 0, 0, 0x10, b'a', 0, 1, 0, 0, 0, 0];

fn sequence_msg(flags: Flags) -> Vec<u8> {
    let mut out = Vec::new();
    MsgBuilder::new(&mut out, 7, 0, flags)
        .body(ONE)
        .sequence("documents", [EMPTY, ONE, EMPTY])
        .sequence("none", [])
        .finish();
    out
}

fn update() -> Update<'static> {
    Update {
        namespace: "db.c",
        flags: Update::MULTI | Update::UPSERT,
        filter: EMPTY,
        update: ONE,
    }
}

fn query() -> Query<'static> {
    Query {
        flags: Query::SECONDARY_OK,
        namespace: "db.$cmd",
        skip: 3,
        count: -1,
        query: ONE,
        projection: Some(EMPTY),
    }
}

/// One message of every kind that a client sends.
fn all_requests() -> Vec<Vec<u8>> {
    let mut all = vec![
        msg(1, 0, Flags::NONE, ONE),
        msg(1, 0, Flags::CHECKSUM_PRESENT, ONE),
        sequence_msg(Flags::NONE),
        sequence_msg(Flags::CHECKSUM_PRESENT.with(Flags::MORE_TO_COME)),
        op_query(2, &query()),
        op_query(
            2,
            &Query {
                projection: None,
                ..query()
            },
        ),
        op_get_more(3, "db.c", 10, 1 << 40),
        op_insert(4, Insert::CONTINUE_ON_ERROR, "db.c", [ONE, EMPTY]),
        op_update(5, &update()),
        op_delete(
            6,
            &Delete {
                namespace: "db.c",
                flags: Delete::SINGLE_REMOVE,
                filter: ONE,
            },
        ),
        op_kill_cursors(7, &[1, -2, i64::MAX]),
    ];
    for compressor in every_compressor() {
        all.push(compress(&sequence_msg(Flags::NONE), compressor).unwrap());
    }
    all
}

fn every_compressor() -> [Compressor; 4] {
    [
        Compressor::Noop,
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
    ]
}

#[test]
fn a_message_around_a_body_is_the_same() {
    for body in [EMPTY, ONE] {
        let around = msg_around(7, 5, Flags::MORE_TO_COME, body.to_vec());
        assert_eq!(around, msg(7, 5, Flags::MORE_TO_COME, body));
    }
}

#[test]
fn msg_round_trip() {
    for flags in [
        Flags::NONE,
        Flags::CHECKSUM_PRESENT,
        Flags::MORE_TO_COME,
        Flags::EXHAUST_ALLOWED.with(Flags::CHECKSUM_PRESENT),
        Flags(1 << 31), // optional and unknown: ignored
    ] {
        let bytes = sequence_msg(flags);
        let (header, request) = Request::parse(&bytes).unwrap();
        assert_eq!((header.request_id, header.response_to), (7, 0));
        assert_eq!(header.length as usize, bytes.len());
        let Request::Msg(msg) = request else {
            panic!("{request:?}")
        };
        assert_eq!(msg.flags, flags);
        assert_eq!(msg.body, ONE);
        assert_eq!(msg.sequences.len(), 2);
        let (name, documents) = msg.sequences[0];
        assert_eq!((name, documents.len()), ("documents", 3));
        assert_eq!(documents.collect::<Vec<_>>(), [EMPTY, ONE, EMPTY]);
        assert_eq!(msg.sequences[1].1.len(), 0);
        assert_eq!(peek_flags(&header, &bytes), Some(flags));
    }
}

#[test]
fn several_messages_share_a_buffer() {
    let mut out = Vec::new();
    let mut ends = vec![0];
    for id in 0..3 {
        let flags = if id == 1 {
            Flags::CHECKSUM_PRESENT
        } else {
            Flags::NONE
        };
        MsgBuilder::new(&mut out, id, 9, flags)
            .sequence("s", [ONE])
            .body(EMPTY)
            .finish();
        ends.push(out.len());
    }
    for id in 0..3 {
        let (header, reply) = Reply::parse(&out[ends[id]..ends[id + 1]]).unwrap();
        assert_eq!((header.request_id, header.response_to), (id as i32, 9));
        assert_eq!(reply.first_document(), Some(EMPTY));
    }
}

#[test]
fn legacy_round_trips() {
    let bytes = op_query(2, &query());
    let (header, Request::Query(q)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!(header.request_id, 2);
    assert_eq!(
        (q.flags, q.namespace, q.skip, q.count),
        (4, "db.$cmd", 3, -1)
    );
    assert_eq!((q.query, q.projection), (ONE, Some(EMPTY)));

    let bytes = op_get_more(3, "db.c", 10, -5);
    let (_, Request::GetMore(g)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!((g.namespace, g.count, g.cursor_id), ("db.c", 10, -5));

    let bytes = op_insert(4, 1, "db.c", [ONE, EMPTY]);
    let (_, Request::Insert(i)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!(
        (i.flags, i.namespace, i.documents.collect::<Vec<_>>()),
        (1, "db.c", vec![ONE, EMPTY])
    );

    let bytes = op_update(5, &update());
    let (_, Request::Update(u)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!(
        (u.namespace, u.flags, u.filter, u.update),
        ("db.c", 3, EMPTY, ONE)
    );

    let bytes = op_delete(
        6,
        &Delete {
            namespace: "db.c",
            flags: 1,
            filter: ONE,
        },
    );
    let (_, Request::Delete(d)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!((d.namespace, d.flags, d.filter), ("db.c", 1, ONE));

    let bytes = op_kill_cursors(7, &[1, -2, i64::MAX]);
    let (_, Request::KillCursors(k)) = Request::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!(k.ids().collect::<Vec<_>>(), [1, -2, i64::MAX]);
}

#[test]
fn reply_round_trip() {
    let bytes = op_reply(1, 2, OpReply::AWAIT_CAPABLE, 99, 101, [ONE, EMPTY]);
    let (header, Reply::Reply(reply)) = Reply::parse(&bytes).unwrap() else {
        panic!()
    };
    assert_eq!((header.request_id, header.response_to), (1, 2));
    assert_eq!(
        (reply.flags, reply.cursor_id, reply.starting_from),
        (8, 99, 101)
    );
    assert_eq!(reply.documents.collect::<Vec<_>>(), [ONE, EMPTY]);

    let mut lying = bytes.clone();
    lying[32..36].copy_from_slice(&3i32.to_le_bytes());
    assert_eq!(
        Reply::parse(&lying).unwrap_err(),
        Error::BadCount("number returned", 3)
    );
    assert!(matches!(
        Request::parse(&bytes),
        Err(Error::UnknownOpcode(1))
    ));
}

#[test]
fn compression_round_trips() {
    let mut big = Vec::new();
    let documents = vec![ONE; 5000];
    MsgBuilder::new(&mut big, 7, 5, Flags::NONE)
        .body(ONE)
        .sequence("documents", documents)
        .finish();
    for compressor in every_compressor() {
        for message in [&big, &msg(7, 5, Flags::NONE, EMPTY)] {
            let packed = compress(message, compressor).unwrap();
            assert!(
                compressor == Compressor::Noop || packed.len() < 10_000,
                "{compressor:?}"
            );
            let (header, _) = header::split(&packed).unwrap();
            assert_eq!(header.op(), Ok(OpCode::Compressed));
            assert_eq!((header.request_id, header.response_to), (7, 5));
            let (unpacked, with) = decompress(&packed, MAX_MESSAGE_BYTES).unwrap();
            assert_eq!((&unpacked, with), (message, compressor));
            assert!(decompress(&packed, message.len()).is_ok());
            assert_eq!(
                decompress(&packed, message.len() - 1).unwrap_err(),
                Error::TooLarge {
                    bytes: message.len(),
                    limit: message.len() - 1
                }
            );
        }
        assert_eq!(Compressor::from_id(compressor.id()), Some(compressor));
    }
    for compressor in Compressor::ALL {
        assert_eq!(Compressor::from_name(compressor.name()), Some(compressor));
    }
    assert_eq!(Compressor::from_name("noop"), None);
}

#[test]
fn a_compressed_message_must_have_the_size_it_claims() {
    let message = msg(1, 0, Flags::NONE, &[ONE; 50].concat());
    for compressor in every_compressor() {
        let packed = compress(&message, compressor).unwrap();
        for wrong in [-1i32, 0, 1, 620, 622, 100_000, 48_000_000, i32::MAX] {
            let mut lying = packed.clone();
            if i32::from_le_bytes(lying[20..24].try_into().unwrap()) == wrong {
                continue;
            }
            lying[20..24].copy_from_slice(&wrong.to_le_bytes());
            let error = decompress(&lying, MAX_MESSAGE_BYTES).unwrap_err();
            assert!(error.closes_connection(), "{compressor:?} {wrong} {error}");
        }
        let mut nested = packed.clone();
        nested[16..20].copy_from_slice(&2012i32.to_le_bytes());
        assert_eq!(
            decompress(&nested, MAX_MESSAGE_BYTES),
            Err(Error::UnknownOpcode(2012))
        );
        let mut unknown = packed.clone();
        unknown[24] = 9;
        assert_eq!(
            decompress(&unknown, MAX_MESSAGE_BYTES),
            Err(Error::UnknownCompressor(9))
        );
    }
}

/// Changes some bytes of a message and says what parsing must answer.
type Break = (&'static str, fn() -> Vec<u8>, Error);

#[test]
fn broken_messages() {
    fn patched(mut bytes: Vec<u8>, at: usize, patch: &[u8]) -> Vec<u8> {
        bytes[at..at + patch.len()].copy_from_slice(patch);
        bytes
    }
    /// Puts bytes after the flags of an OP_MSG.
    fn sections(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let at = header::start(&mut out, 1, 0, OpCode::Msg);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(bytes);
        header::finish(&mut out, at);
        out
    }
    let cases: &[Break] = &[
        ("nothing", Vec::new, Error::Truncated("header")),
        (
            "half a header",
            || vec![16, 0, 0, 0, 1],
            Error::Truncated("header"),
        ),
        (
            "length 0",
            || patched(msg(1, 0, Flags::NONE, ONE), 0, &[0; 4]),
            Error::BadMessageLength(0),
        ),
        (
            "negative length",
            || patched(msg(1, 0, Flags::NONE, ONE), 0, &[0xff; 4]),
            Error::BadMessageLength(-1),
        ),
        (
            "length above the limit",
            || patched(msg(1, 0, Flags::NONE, ONE), 0, &48_000_001i32.to_le_bytes()),
            Error::BadMessageLength(48_000_001),
        ),
        (
            "length beside the truth",
            || patched(msg(1, 0, Flags::NONE, ONE), 0, &[34]),
            Error::BadMessageLength(34),
        ),
        (
            "opcode",
            || patched(msg(1, 0, Flags::NONE, ONE), 12, &[0; 4]),
            Error::UnknownOpcode(0),
        ),
        (
            "compressed, not inflated",
            || compress(&msg(1, 0, Flags::NONE, ONE), Compressor::Noop).unwrap(),
            Error::UnknownOpcode(2012),
        ),
        (
            "flag 2",
            || patched(msg(1, 0, Flags::NONE, ONE), 16, &[4]),
            Error::IllegalFlags(4),
        ),
        (
            "flag 15",
            || patched(msg(1, 0, Flags::NONE, ONE), 17, &[128]),
            Error::IllegalFlags(0x8000),
        ),
        (
            "checksum",
            || patched(msg(1, 0, Flags::CHECKSUM_PRESENT, ONE), 4, &[9]),
            Error::ChecksumMismatch,
        ),
        ("no sections", || sections(&[]), Error::MissingBody),
        (
            "kind 2",
            || sections(&[2, 5, 0, 0, 0, 0]),
            Error::UnknownSectionKind(2),
        ),
        (
            "two bodies",
            || sections(&[0, 5, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0]),
            Error::SecondBody,
        ),
        (
            "body of 4 bytes",
            || sections(&[0, 4, 0, 0, 0]),
            Error::BadDocumentLength(4),
        ),
        (
            "body past the end",
            || sections(&[0, 6, 0, 0, 0, 0]),
            Error::BadDocumentLength(6),
        ),
        (
            "negative body",
            || sections(&[0, 0xff, 0xff, 0xff, 0xff, 0]),
            Error::BadDocumentLength(-1),
        ),
        (
            "sequence of 3 bytes",
            || sections(&[1, 3, 0, 0, 0]),
            Error::BadCount("document sequence size", 3),
        ),
        (
            "sequence past the end",
            || sections(&[1, 90, 0, 0, 0, b's', 0]),
            Error::Truncated("document sequence"),
        ),
        (
            "sequence name without end",
            || sections(&[1, 5, 0, 0, 0, b's']),
            Error::Truncated("document sequence name"),
        ),
        (
            "sequence name not UTF-8",
            || sections(&[1, 6, 0, 0, 0, 0xff, 0]),
            Error::NotUtf8("document sequence name"),
        ),
        (
            "sequence twice",
            || sections(&[1, 6, 0, 0, 0, b's', 0, 1, 6, 0, 0, 0, b's', 0]),
            Error::DuplicateSequence,
        ),
        (
            "bytes after a query",
            || {
                let both = [EMPTY, EMPTY].concat();
                op_query(
                    1,
                    &Query {
                        projection: Some(&both),
                        ..query()
                    },
                )
            },
            Error::TrailingBytes(5),
        ),
        (
            "insert of nothing",
            || op_insert(1, 0, "db.c", []),
            Error::Truncated("documents"),
        ),
        (
            "negative count of cursors",
            || patched(op_kill_cursors(1, &[]), 20, &[0xff; 4]),
            Error::BadCount("number of cursors", -1),
        ),
        (
            "more cursors than bytes",
            || patched(op_kill_cursors(1, &[1]), 20, &i32::MAX.to_le_bytes()),
            Error::Truncated("cursor ids"),
        ),
    ];
    for (name, make, expected) in cases {
        assert_eq!(&Request::parse(&make()).unwrap_err(), expected, "{name}");
    }
}

/// Reads everything that a parsed message gives access to.
fn exhaust(message: &[u8]) {
    if let Ok((header, request)) = Request::parse(message) {
        let _ = (header.op(), peek_flags(&header, message));
        match request {
            Request::Msg(msg) => {
                assert!(msg.body.len() >= 5);
                for (_, documents) in msg.sequences {
                    assert_eq!(documents.len(), documents.count());
                }
            }
            Request::Insert(insert) => {
                assert_eq!(insert.documents.len(), insert.documents.count());
            }
            Request::KillCursors(kill) => drop(kill.ids().collect::<Vec<_>>()),
            Request::Query(_) | Request::GetMore(_) | Request::Update(_) | Request::Delete(_) => {}
        }
    }
    if let Ok((_, reply)) = Reply::parse(message) {
        let _ = reply.first_document();
    }
    if let Ok((inner, _)) = decompress(message, 1 << 20) {
        assert!(inner.len() <= 1 << 20);
        exhaust(&inner);
    }
}

#[test]
fn no_bytes_panic() {
    let mut random = SmallRng::seed_from_u64(20_110_613);
    let mut seeds = all_requests();
    seeds.push(op_reply(1, 2, 0, 99, 101, [ONE, EMPTY]));
    for seed in &seeds {
        for cut in 0..seed.len() {
            exhaust(&seed[..cut]);
            // With a length that fits, so that parsing gets past the header.
            let mut fitting = seed[..cut].to_vec();
            if cut >= 16 {
                header::finish(&mut fitting, 0);
                exhaust(&fitting);
            }
        }
    }
    for _ in 0..40_000 {
        let mut bytes = seeds[random.random_range(0..seeds.len())].clone();
        for _ in 0..1 + random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => bytes[at] ^= 1 << random.random_range(0..8),
                2 => bytes.truncate(at.max(17)),
                _ => bytes.insert(at, random.random()),
            }
        }
        if random.random_range(0..4) > 0 {
            header::finish(&mut bytes, 0);
        }
        exhaust(&bytes);
    }
    for _ in 0..5_000 {
        let n = random.random_range(0..64);
        let bytes: Vec<u8> = (0..n).map(|_| random.random()).collect();
        exhaust(&bytes);
    }
}

#[test]
fn other_protocols_are_told_from_rubbish() {
    let tls = |version: u8, kind: u8| {
        [
            0x16, 3, version, 2, 0, kind, 0, 1, 0xfc, 3, 3, 7, 7, 7, 7, 7,
        ]
    };
    let cases: [(&[u8], Error); 8] = [
        (&tls(1, 1), Error::Tls),
        (&tls(4, 1), Error::Tls),
        // The same bytes in a request that answers nothing, as the first of every client.
        (
            &[0x16, 3, 1, 2, 0, 1, 0, 1, 0, 0, 0, 0, 7, 7, 7, 7],
            Error::UnknownOpcode(0x0707_0707),
        ),
        // Not a ClientHello, and no version that there is.
        (&tls(1, 2), Error::UnknownOpcode(0x0707_0707)),
        (&tls(9, 1), Error::UnknownOpcode(0x0707_0707)),
        (b"GET / HTTP/1.1\r\n", Error::Http),
        (b"OPTIONS * HTTP/1", Error::Http),
        (
            b"GETTING SOMEWHE!",
            Error::UnknownOpcode(i32::from_le_bytes(*b"WHE!")),
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(Header::parse(bytes).unwrap().op(), Err(error), "{bytes:?}");
    }
}
