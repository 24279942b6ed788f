//! Tests of connections before a login, with authorization on.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use frond_auth::scram::{ClientPassword, Mechanism};
use frond_bson::{DocBuf, Value, doc};
use frond_wire::{Flags, Header, Query, Reply, msg, op_query};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::serve::serve;
use crate::connection::Peer;
use crate::testing::TestServer;

/// A client of a server, over a stream in memory.
struct Dialled {
    stream: DuplexStream,
    served: JoinHandle<()>,
}

impl Dialled {
    fn to(server: &TestServer) -> Dialled {
        let (stream, far) = tokio::io::duplex(1 << 20);
        let served = serve(server.server.clone(), far, Peer::Unix, Arc::default());
        Dialled {
            stream,
            served: tokio::spawn(served),
        }
    }

    async fn send(&mut self, message: &[u8]) {
        self.stream.write_all(message).await.unwrap();
    }

    /// The next reply; none if the server closes the connection.
    async fn reply(&mut self) -> Option<DocBuf> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header).await.ok()?;
        let length = Header::parse(&header).unwrap().length;
        let mut reply = header.to_vec();
        reply.resize(length as usize, 0);
        self.stream.read_exact(&mut reply[16..]).await.unwrap();
        Some(match Reply::parse(&reply).unwrap() {
            (_, Reply::Msg(reply)) => DocBuf::from_vec(reply.body.to_vec()).unwrap(),
            (_, Reply::Reply(mut reply)) => {
                DocBuf::from_vec(reply.documents.next().unwrap().to_vec()).unwrap()
            }
        })
    }

    async fn run(&mut self, db: &str, command: DocBuf) -> Option<DocBuf> {
        let mut body = command;
        body.push("$db", db);
        self.send(&msg(1, 0, Flags::NONE, body.as_bytes())).await;
        self.reply().await
    }

    async fn run_by_op_query(&mut self, db: &str, command: DocBuf) -> Option<DocBuf> {
        let query = Query {
            flags: 0,
            namespace: &format!("{db}.$cmd"),
            skip: 0,
            count: -1,
            query: command.as_bytes(),
            projection: None,
        };
        self.send(&op_query(1, &query)).await;
        self.reply().await
    }

    /// Logs in by SCRAM-SHA-1. Returns the last reply.
    async fn log_in(&mut self, user: &str, password: &str, by_op_query: bool) -> Option<DocBuf> {
        let password = ClientPassword::new(Mechanism::Sha1, user, password).unwrap();
        let (mut client, first) = password.start().unwrap();
        let mut send = async |command: DocBuf| {
            if by_op_query {
                self.run_by_op_query("admin", command).await
            } else {
                self.run("admin", command).await
            }
        };
        let start = doc! {
            "saslStart": 1, "mechanism": "SCRAM-SHA-1", "payload": binary(&first),
            "options": {"skipEmptyExchange": true},
        };
        let reply = send(start).await?;
        let Some(Value::Binary { bytes, .. }) = reply.get("payload") else {
            panic!("{reply:?}");
        };
        let last = client.answer(bytes).unwrap();
        send(doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last)}).await
    }

    /// Whether the server has closed the connection.
    async fn sees_the_end(mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.stream.read_to_end(&mut rest);
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        let closed = matches!(read, Ok(Ok(0)));
        if closed {
            self.served.await.unwrap();
        }
        closed
    }
}

fn binary(text: &str) -> Value<'_> {
    Value::Binary {
        subtype: 0,
        bytes: text.as_bytes(),
    }
}

/// A server that requires logins, with the user `ann@admin`.
fn server() -> TestServer {
    let mut server = TestServer::with(|settings| {
        settings.security.authorization = true;
        settings.logins.sha1_iterations = 5000;
        settings.logins.sha256_iterations = 5000;
    });
    let create = doc! {"createUser": "ann", "pwd": "pencil", "roles": ["root"]};
    server.run("admin", create);
    server
}

fn insert(bytes: usize) -> DocBuf {
    doc! {"insert": "c", "documents": [{"a": "x".repeat(bytes)}]}
}

/// The localhost exception is for the first user only.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_user_is_created_and_logs_in() {
    let mut server = server();
    let create = doc! {"createUser": "bob", "pwd": "pencil", "roles": ["root"]};
    assert_eq!(server.code("admin", create.clone()), 13);
    for by_op_query in [false, true] {
        let mut client = Dialled::to(&server);
        let reply = client.run("test", doc! {"find": "c"}).await.unwrap();
        assert_eq!(reply.get_i32("code"), Some(13));
        let message = "Command find requires authentication";
        assert_eq!(reply.get_str("errmsg"), Some(message));
        let reply = client.log_in("ann", "pencil", by_op_query).await.unwrap();
        assert_eq!(reply.get_bool("done"), Some(true), "{reply:?}");
        let reply = client.run("test", doc! {"find": "c"}).await.unwrap();
        assert_eq!(reply.get_f64("ok"), Some(1.0));
        // Only strangers have to be brief.
        let reply = client.run("test", insert(100_000)).await.unwrap();
        assert_eq!(reply.get_i32("n"), Some(1));
        client.run("admin", doc! {"logout": 1}).await.unwrap();
        let reply = client.run("test", doc! {"find": "c"}).await.unwrap();
        assert_eq!(reply.get_i32("code"), Some(13));
    }
    let mut client = Dialled::to(&server);
    client.log_in("ann", "pencil", false).await.unwrap();
    let reply = client.run("admin", create).await.unwrap();
    assert_eq!(reply.get_f64("ok"), Some(1.0));
    // A user who was dropped is refused at the next command.
    let mut other = Dialled::to(&server);
    other.log_in("bob", "pencil", false).await.unwrap();
    let reply = other.run("test", doc! {"find": "c"}).await.unwrap();
    assert_eq!(reply.get_f64("ok"), Some(1.0));
    client.run("admin", doc! {"dropUser": "bob"}).await.unwrap();
    let reply = other.run("test", doc! {"find": "c"}).await.unwrap();
    assert_eq!(reply.get_i32("code"), Some(13), "{reply:?}");
}

/// A command that is refused is quoted, but not its secrets.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_quotes_no_secret() {
    let server = server();
    let mut client = Dialled::to(&server);
    client.log_in("ann", "pencil", false).await.unwrap();
    let create = doc! {"createUser": "bob", "pwd": "crayon", "roles": []};
    client.run("admin", create).await.unwrap();
    let mut client = Dialled::to(&server);
    client.log_in("bob", "crayon", false).await.unwrap();
    let insert = doc! {
        "insert": "system.users", "documents": [{"credentials": {"SCRAM-SHA-1": {"storedKey": "marker"}}}],
    };
    for command in [
        doc! {"createUser": "eve", "pwd": "marker", "roles": []},
        doc! {"updateUser": "ann", "pwd": "marker"},
        insert,
    ] {
        let reply = client.run("admin", command).await.unwrap();
        assert_eq!(reply.get_i32("code"), Some(13), "{reply:?}");
        assert!(
            reply.get_str("errmsg").unwrap().contains("xxx"),
            "{reply:?}"
        );
        assert!(!format!("{reply:?}").contains("marker"), "{reply:?}");
    }
    let log = std::fs::read_to_string(server.server.settings.log_path.as_ref().unwrap()).unwrap();
    assert!(log.contains("not authorized on admin") && !log.contains("marker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_sends_short_messages_only() {
    let server = server();
    let mut client = Dialled::to(&server);
    let reply = client.run("test", insert(47 << 10)).await.unwrap();
    assert_eq!(reply.get_i32("code"), Some(13));
    assert_eq!(client.run("test", insert(48 << 10)).await, None);
    assert!(client.sees_the_end().await);
    // A compressed one is measured as it is inflated.
    let mut body = insert(1 << 20);
    body.push("$db", "test");
    let plain = msg(1, 0, Flags::NONE, body.as_bytes());
    let packed = frond_wire::compress(&plain, frond_wire::Compressor::Zlib).unwrap();
    assert!(packed.len() < 48 << 10);
    let mut client = Dialled::to(&server);
    client.send(&packed).await;
    let refused = client.reply().await;
    assert!(refused.is_none_or(|reply| reply.get_f64("ok") == Some(0.0)));
    let log = std::fs::read_to_string(server.server.settings.log_path.as_ref().unwrap()).unwrap();
    assert_eq!(log.matches("Malformed message from client").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_begun_has_to_end() {
    let server = server();
    let began = Instant::now();
    // A client that does not begin to log in may stay: drivers monitor the server in this way.
    let mut watcher = Dialled::to(&server);
    watcher.run("admin", doc! {"hello": 1}).await.unwrap();
    let mut client = Dialled::to(&server);
    let start = doc! {
        "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": binary("n,,n=ann,r=abcdefgh"),
        "db": "admin",
    };
    let hello = doc! {"hello": 1, "speculativeAuthenticate": &start};
    client.run("admin", hello).await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let hello = doc! {"hello": 1};
        assert!(client.run("admin", hello).await.is_some());
    }
    assert!(client.sees_the_end().await);
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(9) && took < Duration::from_secs(12),
        "{took:?}"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(watcher.run("admin", doc! {"ping": 1}).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn failed_logins_wait_and_then_close_the_connection() {
    let server = server();
    let mut client = Dialled::to(&server);
    let began = Instant::now();
    for _ in 0..5 {
        let reply = client.log_in("ann", "crayon", false).await.unwrap();
        assert_eq!(reply.get_i32("code"), Some(18));
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(3100), "{took:?}");
    assert!(client.sees_the_end().await);
    // Where no login is required, a client may guess on.
    let mut server = TestServer::new();
    server.run(
        "admin",
        doc! {"createUser": "ann", "pwd": "pencil", "roles": []},
    );
    let mut client = Dialled::to(&server);
    for _ in 0..7 {
        let reply = client.log_in("ann", "crayon", false).await.unwrap();
        assert_eq!(reply.get_i32("code"), Some(18));
    }
    let reply = client.log_in("ann", "pencil", false).await.unwrap();
    assert_eq!(reply.get_bool("done"), Some(true));
}
