//! Messages, as the server and a client cut, inflate and parse them.

use std::io::Cursor;

use frond_bson::{Doc, doc};
use frond_wire::{
    Compressor, Flags, Frames, Header, MAX_MESSAGE_BYTES, MsgBuilder, Query, Reply, Request,
    Update, compress, decompress, msg, op_delete, op_get_more, op_insert, op_kill_cursors,
    op_query, op_reply, op_update, peek_flags,
};

/// Messages of every opcode.
pub fn seeds() -> Vec<Vec<u8>> {
    let ping = doc! {"ping": 1, "$db": "admin"};
    let documents = [doc! {"_id": 1, "a": "x"}, doc! {"_id": 2}];
    let documents: Vec<&[u8]> = documents.iter().map(|doc| doc.as_bytes()).collect();
    let mut inserted = Vec::new();
    MsgBuilder::new(&mut inserted, 1, 0, Flags::NONE)
        .body(doc! {"insert": "c", "$db": "fuzz"}.as_bytes())
        .sequence("documents", documents.iter().copied())
        .finish();
    let mut seeds = vec![
        msg(1, 0, Flags::NONE, ping.as_bytes()),
        inserted,
        op_get_more(3, "fuzz.c", 10, 1),
        op_insert(4, 0, "fuzz.c", documents.iter().copied()),
        op_kill_cursors(5, &[1, -1]),
    ];
    let filter = doc! {"_id": 1};
    let change = doc! {"$set": {"a": 2}};
    seeds.push(op_query(
        6,
        &Query {
            flags: 0,
            namespace: "admin.$cmd",
            skip: 0,
            count: -1,
            query: ping.as_bytes(),
            projection: Some(filter.as_bytes()),
        },
    ));
    seeds.push(op_update(
        7,
        &Update {
            namespace: "fuzz.c",
            flags: 1,
            filter: filter.as_bytes(),
            update: change.as_bytes(),
        },
    ));
    seeds.push(op_delete(
        8,
        &frond_wire::Delete {
            namespace: "fuzz.c",
            flags: 0,
            filter: filter.as_bytes(),
        },
    ));
    let all = Compressor::ALL.into_iter().chain([Compressor::Noop]);
    let packed: Vec<Vec<u8>> = all
        .filter_map(|how| compress(&seeds[1], how).ok())
        .collect();
    seeds.extend(packed);
    seeds.push(op_reply(9, 6, 0, 0, 0, documents.iter().copied()));
    let two = [&seeds[0][..], &seeds[1][..]].concat();
    seeds.push(two);
    seeds
}

/// Cuts the bytes into messages and parses each, as a request and as a reply.
pub fn run(input: &[u8]) {
    let mut frames = Frames::new(MAX_MESSAGE_BYTES);
    let mut stream = Cursor::new(input);
    while let Ok(true) = frames.read_from(&mut stream, 4096) {
        while let Ok(Some(message)) = frames.take() {
            parse(message.bytes());
            frames.recycle(message);
        }
    }
    parse(input);
}

fn parse(message: &[u8]) {
    if let Ok(header) = Header::parse(message) {
        let _ = peek_flags(&header, message);
    }
    if let Ok((plain, _)) = decompress(message, MAX_MESSAGE_BYTES) {
        assert!(plain.len() <= MAX_MESSAGE_BYTES);
        parse_plain(&plain);
    }
    parse_plain(message);
}

fn parse_plain(message: &[u8]) {
    if let Ok((_, reply)) = Reply::parse(message) {
        let _ = reply.first_document().map(Doc::validate);
    }
    let Ok((_, request)) = Request::parse(message) else {
        return;
    };
    match request {
        Request::Msg(msg) => {
            let _ = Doc::validate(msg.body);
            for (_, documents) in msg.sequences {
                documents.for_each(|doc| {
                    let _ = Doc::validate(doc);
                });
            }
        }
        Request::Insert(insert) => insert.documents.for_each(|doc| {
            let _ = Doc::validate(doc);
        }),
        Request::Query(query) => {
            let again = op_query(1, &query);
            assert!(Request::parse(&again).is_ok());
        }
        Request::KillCursors(kill) => {
            kill.ids().count();
        }
        Request::Update(_) | Request::Delete(_) | Request::GetMore(_) => {}
    }
}
