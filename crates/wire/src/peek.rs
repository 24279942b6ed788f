//! What a message asks for, without parsing all of it.

use crate::header::{OpCode, split};
use crate::legacy;
use crate::reader::Reader;

/// What a message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek<'a> {
    /// A command: its name and its document, of which only the length prefix and the first name are checked.
    Command(&'a str, &'a [u8]),
    /// OP_QUERY for documents, or OP_GET_MORE.
    Read,
    /// OP_INSERT, OP_UPDATE or OP_DELETE.
    Write,
    /// OP_KILL_CURSORS, an old form of `currentOp`, `killOp` or `fsyncUnlock`, or something that will be refused.
    Other,
}

/// What a message asks for that is not compressed. A malformed one is told apart only when it is parsed.
#[must_use]
pub fn peek(message: &[u8]) -> Peek<'_> {
    let parsed = split(message).and_then(|(header, payload)| Ok((header.op()?, payload)));
    let Ok((op, payload)) = parsed else {
        return Peek::Other;
    };
    match op {
        OpCode::Msg => msg_body(payload).map_or(Peek::Other, command),
        OpCode::Query => match legacy::parse_query(payload) {
            Ok(query) if query.namespace.ends_with(".$cmd") => command(unwrapped(query.query)),
            // `inprog`, `killop` and `unlock`, which shells before 3.2 use.
            Ok(query) if is_old_admin(query.namespace) => Peek::Other,
            Ok(_) => Peek::Read,
            Err(_) => Peek::Other,
        },
        OpCode::GetMore => Peek::Read,
        OpCode::Insert | OpCode::Update | OpCode::Delete => Peek::Write,
        OpCode::KillCursors | OpCode::Reply | OpCode::Compressed => Peek::Other,
    }
}

/// Whether this is a pseudo-collection of such a command.
fn is_old_admin(namespace: &str) -> bool {
    let collection = namespace.split_once('.').map(|(_, collection)| collection);
    matches!(
        collection,
        Some("$cmd.sys.inprog" | "$cmd.sys.killop" | "$cmd.sys.unlock")
    )
}

fn msg_body(payload: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(payload);
    reader.u32("flags").ok()?;
    loop {
        match reader.u8("section kind").ok()? {
            0 => return reader.document("body").ok(),
            1 => {
                let bytes = reader.i32("document sequence").ok()?;
                let rest = usize::try_from(bytes).ok()?.checked_sub(4)?;
                reader.bytes(rest, "document sequence").ok()?;
            }
            _ => return None,
        }
    }
}

fn command(body: &[u8]) -> Peek<'_> {
    first_name(body).map_or(Peek::Other, |(name, _)| Peek::Command(name, body))
}

/// The name of the first field of a document, and the bytes after it.
fn first_name(body: &[u8]) -> Option<(&str, Reader<'_>)> {
    let mut reader = Reader::new(body.get(4..)?);
    if reader.u8("type").ok()? == 0 {
        return None;
    }
    Some((reader.cstring("name").ok()?, reader))
}

/// The command inside a wrapper `{$query: {…}}`.
fn unwrapped(body: &[u8]) -> &[u8] {
    match first_name(body) {
        Some(("$query" | "query", mut rest)) => rest.document("query").unwrap_or(body),
        _ => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, MsgBuilder, Query, compress, msg, op_get_more, op_kill_cursors, op_query};

    /// `{name: 1}`
    fn body(name: &str) -> Vec<u8> {
        let bytes = [&[16], name.as_bytes(), &[0, 1, 0, 0, 0, 0]].concat();
        [&(bytes.len() as i32 + 4).to_le_bytes(), &bytes[..]].concat()
    }

    fn query<'a>(namespace: &'a str, query: &'a [u8]) -> Query<'a> {
        Query {
            flags: 0,
            namespace,
            skip: 0,
            count: -1,
            query,
            projection: None,
        }
    }

    #[test]
    fn a_message_shows_what_it_asks_for() {
        let ping = body("ping");
        let plain = msg(1, 0, Flags::NONE, &ping);
        assert_eq!(peek(&plain), Peek::Command("ping", &ping));
        let mut behind = Vec::new();
        MsgBuilder::new(&mut behind, 1, 0, Flags::CHECKSUM_PRESENT)
            .sequence("documents", [&ping[..], &ping[..]])
            .body(&ping)
            .finish();
        assert_eq!(peek(&behind), Peek::Command("ping", &ping));
        let wrapped = [&[3][..], b"$query\0", &ping, &[0]].concat();
        let wrapped = [&(wrapped.len() as i32 + 4).to_le_bytes(), &wrapped[..]].concat();
        for document in [&ping, &wrapped] {
            let query = op_query(1, &query("db.$cmd", document));
            assert_eq!(peek(&query), Peek::Command("ping", &ping));
        }
        assert_eq!(peek(&op_query(1, &query("db.c", &ping))), Peek::Read);
        for name in ["inprog", "killop", "unlock"] {
            let namespace = format!("admin.$cmd.sys.{name}");
            assert_eq!(peek(&op_query(1, &query(&namespace, &ping))), Peek::Other);
        }
        assert_eq!(peek(&op_get_more(1, "db.c", 0, 7)), Peek::Read);
        assert_eq!(peek(&op_kill_cursors(1, &[7])), Peek::Other);
        assert_eq!(peek(&msg(1, 0, Flags::NONE, &[5, 0, 0, 0, 0])), Peek::Other);
        if let Ok(packed) = compress(&plain, crate::Compressor::Snappy) {
            assert_eq!(peek(&packed), Peek::Other);
        }
        for cut in 0..16 {
            assert_eq!(peek(&behind[..cut]), Peek::Other, "{cut}");
        }
    }
}
