//! Connection limits and file permissions.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use support::{Client, PATIENCE, Running, wait_until};

/// A client with this address.
fn connect_from(server: &Running, address: &str) -> Client<TcpStream> {
    let at = |text: String| text.parse::<SocketAddr>().unwrap();
    let handle = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&handle, &at(format!("{address}:0"))).unwrap();
    connect(&handle, &at(format!("127.0.0.1:{}", server.port))).unwrap();
    let stream = TcpStream::from(handle);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client {
        stream,
        request_id: 0,
    }
}

fn is_served(client: &mut Client<TcpStream>) -> bool {
    use std::io::Write;
    let message = client.build(Default::default(), "admin", &doc! {"ping": 1}, &[]);
    client.stream.write_all(&message).is_ok() && client.receive().is_some()
}

#[test]
fn connections_of_one_address_are_limited() {
    let data = tempfile::tempdir().unwrap();
    let limit = "maxIncomingConnectionsPerAddress=3";
    let server = Running::start(data.path(), &["--setParameter", limit]);
    let mut clients: Vec<_> = (0..3).map(|_| connect_from(&server, "127.0.0.1")).collect();
    assert!(clients.iter_mut().all(is_served));
    assert!(!is_served(&mut connect_from(&server, "127.0.0.1")));
    server.line_with("too many open connections of its address");
    assert!(is_served(&mut connect_from(&server, "127.0.0.2")));
    drop(clients);
    wait_until("free places", || {
        is_served(&mut connect_from(&server, "127.0.0.1"))
    });
}

#[test]
fn some_addresses_are_exempt_from_the_limits() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("mongod.conf");
    let text = "net:\n  maxIncomingConnections: 5\n  maxIncomingConnectionsOverride: [\"127.0.0.16/28\", \"127.9.9.9\"]\n\
                setParameter:\n  maxIncomingConnectionsPerAddress: 1\n";
    std::fs::write(&config, text).unwrap();
    let server = Running::start(data.path(), &["--config", config.to_str().unwrap()]);
    let mut all: Vec<_> = (1..6)
        .map(|n| connect_from(&server, &format!("127.0.0.{n}")))
        .collect();
    assert!(all.iter_mut().all(is_served));
    assert!(!is_served(&mut connect_from(&server, "127.0.0.9")));
    for address in ["127.0.0.17", "127.0.0.17", "127.0.0.31", "127.9.9.9"] {
        all.push(connect_from(&server, address));
        assert!(all.last_mut().is_some_and(is_served), "{address}");
    }
    assert!(!is_served(&mut connect_from(&server, "127.0.0.32")));
    let options = all[0].run("admin", &doc! {"getCmdLineOpts": 1});
    let net = options.get_doc("parsed").unwrap().get_doc("net").unwrap();
    let shown = net.get_array("maxIncomingConnectionsOverride").unwrap();
    assert_eq!(shown.values().count(), 2);
}

/// The permission bits of a file.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// All files and directories below a directory.
fn everything(below: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn files_are_for_the_owner_only() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir(&data).unwrap();
    let (socket, pid, log) = (at("frond.sock"), at("pid"), at("log"));
    let server = Running::start(
        &data,
        &[
            "--unixSocket",
            socket.to_str().unwrap(),
            "--filePermissions",
            "0770",
            "--pidfilepath",
            pid.to_str().unwrap(),
            "--logpath",
            log.to_str().unwrap(),
        ],
    );
    server
        .connect()
        .run("test", &doc! {"insert": "c", "documents": [{"x": 1}]});
    let files = everything(&data);
    assert!(files.len() > 3, "{files:?}");
    for path in files.iter().chain([&log]) {
        assert_eq!(mode(path) & 0o077, 0, "{}", path.display());
    }
    assert_eq!((mode(&socket), mode(&pid)), (0o770, 0o644));
    UnixStream::connect(&socket).unwrap();
    server.stop();

    // The umask of the tests lets others read.
    let honored = at("honored");
    std::fs::create_dir(&honored).unwrap();
    let server = Running::start(&honored, &["--setParameter", "honorSystemUmask=true"]);
    let open = |path: &std::path::PathBuf| mode(path) & 0o077 != 0;
    assert!(everything(&honored).iter().any(open));
    server.stop();
}

fn startup_warnings(more: &[&str]) -> Vec<String> {
    let data = tempfile::tempdir().unwrap();
    let server = Running::start(data.path(), more);
    let reply: DocBuf = server
        .connect()
        .run("admin", &doc! {"getLog": "startupWarnings"});
    let lines = reply.get_array("log").unwrap();
    lines
        .values()
        .map(|line| line.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_operator_is_warned_of_an_open_server() {
    let open = "Access control is not enabled for the database. Read and write access to data and configuration is \
                unrestricted";
    let says = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    let local = startup_warnings(&[]);
    let bound = "This server is bound to localhost";
    assert!(says(&local, open) && says(&local, bound));
    let chosen = startup_warnings(&["--bind_ip", "0.0.0.0"]);
    assert!(says(&chosen, open) && !says(&chosen, bound));
    // With authorization no client may ask, so the test reads the log.
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let path = log.to_str().unwrap();
    Running::start(
        data.path(),
        &["--bind_ip", "0.0.0.0", "--auth", "--logpath", path],
    )
    .stop();
    let closed = std::fs::read_to_string(&log).unwrap();
    assert!(closed.contains("aiting for connections") && !closed.contains(open));
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(
        says(&local, "as the root user, which is not recommended"),
        is_root
    );
}

#[test]
fn a_client_without_a_login_must_send_something() {
    let data = tempfile::tempdir().unwrap();
    let server = Running::start(data.path(), &["--auth"]);
    let began = Instant::now();
    let mut silent = server.connect();
    let mut greeted = server.connect();
    greeted.run("admin", &doc! {"hello": 1});
    assert!(silent.receive().is_none());
    let took = began.elapsed();
    assert!(took > Duration::from_secs(8), "{took:?}");
    server.line_with("has sent no message in time");
    // One that has greeted may stay.
    greeted.run("admin", &doc! {"ping": 1});
}
