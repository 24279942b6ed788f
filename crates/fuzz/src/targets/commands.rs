//! A server in this process, on a Unix socket: messages, and lists of commands.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use frond_bson::{Doc, DocBuf, OwnedValue, Value, doc, extjson};
use frond_wire::{
    Flags, Header, MAX_MESSAGE_BYTES, OpCode, Reply, Request, decompress, msg, read_message,
};

use super::wire;

/// Longest time that a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(120);
/// The database that an input uses, and that is dropped after it.
const DATABASE: &str = "fuzz";
/// Commands that stop the server or its writes, or wait for a time of the client's choice, and those that change what the next inputs
/// meet. They are tested elsewhere.
const LEFT_OUT: [&str; 9] = [
    "shutdown",
    "fsync",
    "fsyncUnlock",
    "setParameter",
    "configureFailPoint",
    "logRotate",
    "sleep",
    "replSetStepDown",
    "setFeatureCompatibilityVersion",
];

/// Starts the server once. It ends with the process.
fn socket() -> &'static Path {
    static SOCKET: OnceLock<PathBuf> = OnceLock::new();
    SOCKET.get_or_init(|| {
        // The folder stays until the system cleans up: the server has no end before the process.
        let folder = tempfile::tempdir().expect("a temporary directory").keep();
        let socket = folder.join("s");
        let at = |name: &str| folder.join(name).display().to_string();
        let data = at("data");
        std::fs::create_dir(&data).expect("the data directory");
        let ours = socket.display().to_string();
        let log = at("log");
        let words = [
            "serve",
            "--dbpath",
            &data,
            "--port",
            "0",
            "--bind_ip",
            &format!("127.0.0.1,{ours}"),
            "--logpath",
            &log,
            "--cacheSizeGB",
            "0.0625",
            "--oplog=on",
            "--oplogSize=4",
            "--quiet",
        ];
        let arguments = frond_server::command_line()
            .try_get_matches_from(words)
            .expect("a sound command line");
        std::thread::spawn(move || frond_server::run(&arguments, None));
        let began = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(began.elapsed() < PATIENCE, "the server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The server sets a hook of its own for panics.
        crate::panics::watch();
        socket
    })
}

fn connect() -> UnixStream {
    let stream = UnixStream::connect(socket()).expect("the server listens");
    let limit = Some(PATIENCE);
    stream.set_read_timeout(limit).expect("a time limit");
    stream.set_write_timeout(limit).expect("a time limit");
    stream
}

/// The reply of a command, which must come.
fn reply_to(stream: &mut UnixStream, command: &Doc) -> DocBuf {
    let sent = stream.write_all(&msg(1, 0, Flags::NONE, command.as_bytes()));
    assert!(sent.is_ok(), "{command:?}: {sent:?}");
    let answer = read_message(stream, MAX_MESSAGE_BYTES);
    let Ok(Some(answer)) = answer else {
        panic!("no answer to {command:?}: {answer:?}");
    };
    let Ok((_, reply)) = Reply::parse(&answer) else {
        panic!("an answer that is none to {command:?}");
    };
    let body = reply
        .first_document()
        .and_then(|body| Doc::validate(body).ok());
    let Some(body) = body else {
        panic!("no sound document in the answer to {command:?}");
    };
    body.to_owned()
}

fn run_command(stream: &mut UnixStream, command: &Doc) {
    let reply = reply_to(stream, command);
    assert!(reply.contains_key("ok"), "{command:?}: {reply:?}");
    assert_ne!(
        reply.get_i32("code"),
        Some(1),
        "an internal error: {command:?}: {reply:?}"
    );
}

/// Drops what an input wrote, and checks that the server works.
fn clean_up() {
    let mut stream = connect();
    let dropped = reply_to(&mut stream, &doc! {"dropDatabase": 1, "$db": DATABASE});
    assert_eq!(dropped.get_f64("ok"), Some(1.0), "{dropped:?}");
    // An input may have renamed collections, or written to other databases.
    let listed = reply_to(
        &mut stream,
        &doc! {"listDatabases": 1, "nameOnly": true, "$db": "admin"},
    );
    let databases = listed
        .get_array("databases")
        .map(|list| list.values().collect::<Vec<_>>());
    for database in databases.into_iter().flatten() {
        let name = database
            .as_doc()
            .and_then(|database| database.get_str("name"));
        if let Some(name) = name.filter(|name| !["admin", "config", "local"].contains(name)) {
            reply_to(&mut stream, &doc! {"dropDatabase": 1, "$db": name});
        }
    }
}

/// Messages that the parser knows.
pub fn message_seeds() -> Vec<Vec<u8>> {
    let hello = doc! {"hello": 1, "$db": "admin"};
    let find = doc! {"find": "c", "filter": {"a": {"$gt": 1}}, "batchSize": 1, "$db": DATABASE};
    let mut seeds = wire::seeds();
    seeds.push(msg(1, 0, Flags::NONE, hello.as_bytes()));
    seeds.push(msg(1, 0, Flags::EXHAUST_ALLOWED, find.as_bytes()));
    seeds
}

/// Whether a message has one of the commands that are left out, or may have.
fn is_left_out(bytes: &[u8]) -> bool {
    let plain = decompress(bytes, MAX_MESSAGE_BYTES).map(|(plain, _)| plain);
    let texts = [bytes, plain.as_deref().unwrap_or_default()];
    LEFT_OUT.iter().any(|name| {
        texts.iter().any(|text| {
            text.windows(name.len())
                .any(|part| part.eq_ignore_ascii_case(name.as_bytes()))
        })
    })
}

/// The number of replies to a message.
fn replies(message: &[u8]) -> usize {
    let plain = decompress(message, MAX_MESSAGE_BYTES).map(|(plain, _)| plain);
    let message = plain.as_deref().unwrap_or(message);
    match Request::parse(message) {
        Ok((_, Request::Msg(msg))) => usize::from(!msg.flags.has(Flags::MORE_TO_COME)),
        Ok((header, _)) => usize::from(matches!(header.op(), Ok(OpCode::Query | OpCode::GetMore))),
        Err(_) => 0,
    }
}

/// Sends bytes as a client would, then ends the connection. The server may answer or close it, and goes on.
pub fn run_messages(input: &[u8]) {
    if is_left_out(input) {
        return;
    }
    let mut stream = connect();
    let _ = stream.write_all(input);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut messages = input;
    let mut expected = 0;
    while let Ok(header) = Header::parse(messages)
        && let Ok(len) = header.checked_length(MAX_MESSAGE_BYTES)
        && let Some((message, rest)) = messages.split_at_checked(len)
    {
        expected += replies(message);
        messages = rest;
    }
    // A message that waits for news of the server would hold the client up for as long as it asks.
    stream
        .set_read_timeout(Some(Duration::from_millis(if expected > 0 {
            300
        } else {
            20
        })))
        .expect("a time limit");
    let mut answer = Vec::new();
    let _ = (&mut stream).take(4 << 20).read_to_end(&mut answer);
    drop(stream);
    clean_up();
}

/// The input is a list of commands, which run on the same connection.
pub fn run_commands(input: &[u8]) {
    let parsed = std::str::from_utf8(input).ok().map(extjson::parse_value);
    let Some(Ok(OwnedValue::Array(commands))) = parsed else {
        return;
    };
    let mut stream = connect();
    for command in commands
        .values()
        .take(12)
        .filter_map(|value| value.as_doc())
    {
        let mut whole = DocBuf::new();
        for (name, value) in command.iter() {
            // Waiting for news, and replies that do not come.
            if !["$db", "maxAwaitTimeMS", "maxTimeMS", "topologyVersion"].contains(&name) {
                whole.push_value(name, &value);
            }
        }
        let name = whole.first().map(|(name, _)| name.to_ascii_lowercase());
        let name = name.unwrap_or_default();
        let left_out = |other: &&str| other.to_ascii_lowercase() == name;
        if LEFT_OUT.iter().any(left_out) {
            continue;
        }
        let is_admin = command.get_str("$db") == Some("admin");
        whole.push(
            "$db",
            Value::String(if is_admin { "admin" } else { DATABASE }),
        );
        whole.push("maxTimeMS", 3000);
        run_command(&mut stream, &whole);
    }
    drop(stream);
    clean_up();
}
