//! The built server with few file handles.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpStream;
use std::process::Command;

use frond_bson::{DocBuf, doc};
use support::{Client, Running, wait_until};

/// A server whose process may have this many open files.
fn serve(directory: &std::path::Path, handles: u32) -> Running {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -n {handles}; exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_frond"))
        .args(["serve", "--port", "0", "--cacheSizeGB", "0.1"])
        // All connections come from one address.
        .args(["--setParameter", "maxIncomingConnectionsPerAddress=0"])
        .arg("--dbpath")
        .arg(directory);
    Running::spawn(command)
}

/// Whether the server serves this connection; otherwise it has closed it.
fn is_served(client: &mut Client<TcpStream>) -> bool {
    let message = client.build(frond_wire::Flags::NONE, "admin", &doc! {"ping": 1}, &[]);
    std::io::Write::write_all(&mut client.stream, &message).is_ok() && client.receive().is_some()
}

fn connections(client: &mut Client<TcpStream>) -> DocBuf {
    let status = client.run("admin", &doc! {"serverStatus": 1});
    status.get_doc("connections").unwrap().to_owned()
}

fn number(doc: &DocBuf, name: &str) -> i64 {
    let value = doc.get(name).and_then(|value| value.as_i64_lossless());
    value.expect("a number")
}

#[test]
fn few_file_handles_limit_connections_and_not_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 64);
    let mut first = server.connect();
    assert!(is_served(&mut first));
    let most = number(&connections(&mut first), "available") + 1;
    assert!((10..50).contains(&most), "{most} connections of 64 handles");

    // Every connection beyond the limit is closed at once.
    let mut others: Vec<Client<TcpStream>> = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        let mut client = server.connect();
        if is_served(&mut client) {
            others.push(client)
        } else {
            refused += 1
        }
    }
    assert_eq!(others.len() as i64 + 1, most);
    assert_eq!(refused, 100 - others.len());
    server.line_with("Connection refused because there are too many open connections");
    let now = connections(&mut first);
    assert_eq!(number(&now, "available"), 0);
    assert_eq!(number(&now, "rejected"), refused as i64);

    // The engine works: enough data for several segments of the log and for flushes.
    let pad = "x".repeat(100_000);
    for round in 0..60 {
        let documents: Vec<DocBuf> = (0..20)
            .map(|n| doc! {"_id": round * 20 + n, "pad": format!("{round} {n} {pad}").as_str()})
            .collect();
        let command = doc! {"insert": "c"};
        let sequences = [("documents", documents.as_slice())];
        let message = first.build(frond_wire::Flags::NONE, "test", &command, &sequences);
        first.send(&message);
        let reply = first.receive_msg().2;
        assert_eq!(reply.get_i32("n"), Some(20), "{reply:?}");
    }
    first.run("admin", &doc! {"fsync": 1});
    assert_eq!(first.count("c"), 1200);

    // Room for connections comes back.
    others.clear();
    wait_until("a connection", || is_served(&mut server.connect()));
    server.stop();
}

/// Handles that are needed for other things than connections: accepting fails, and the clients are refused.
#[test]
fn clients_are_refused_when_no_handle_is_left_to_accept_them() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(directory.path(), 256);
    let mut first = server.connect();
    assert!(is_served(&mut first));
    // Lowered while it runs: the limit on connections is above it now.
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let limit = open.count() + 3;
    let lowered = Command::new("prlimit")
        .arg(format!("--pid={}", server.pid()))
        .arg(format!("--nofile={limit}:"))
        .status();
    if !lowered.is_ok_and(|status| status.success()) {
        println!("skipped: the limit of a running process cannot be changed here");
        return;
    }
    let mut others: Vec<Client<TcpStream>> = Vec::new();
    let mut refused = 0;
    for _ in 0..20 {
        let mut client = server.connect();
        if is_served(&mut client) {
            others.push(client)
        } else {
            refused += 1
        }
    }
    assert!(refused >= 10 && !others.is_empty(), "{refused} refused");
    server.line_with("Error accepting new connection");
    first.run(
        "test",
        &doc! {"insert": "c", "documents": [{"_id": 1}], "writeConcern": {"j": true}},
    );
    let rejected = number(&connections(&mut first), "rejected");
    assert!(rejected >= refused, "{rejected} of {refused}");

    // It does not spin while it waits.
    server.wait_until_idle();

    others.clear();
    wait_until("a connection", || is_served(&mut server.connect()));
    server.stop();
}
