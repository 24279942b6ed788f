//! The life of the server process: start, settings, locks, stop, crash.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::Output;

use frond_bson::{doc, extjson};
use support::{Client, PATIENCE, Running, frond, wait_until};

/// Runs a server that must fail to start.
fn fails(arguments: &[&str]) -> Output {
    let output = frond(arguments).output().unwrap();
    assert!(!output.status.success());
    output
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn wrong_settings_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mongod.conf");
    std::fs::write(&file, "net:\n  prot: 1\n").unwrap();
    let cases: &[(&[&str], &str)] = &[
        (
            &["--config", file.to_str().unwrap()],
            "unknown option 'net.prot'",
        ),
        (&["--port", "many"], "--port must be a whole number"),
        (&["--nonsense"], "--nonsense"),
        (&["--config", "/nonexistent/file"], "/nonexistent/file"),
    ];
    for (arguments, text) in cases {
        let output = fails(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(said(&output).contains(text), "{}", said(&output));
    }
}

#[test]
fn a_configuration_file_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let log = directory.path().join("frond.log");
    let pid = directory.path().join("frond.pid");
    let socket = directory.path().join("frond.sock");
    let config = directory.path().join("mongod.conf");
    let text = format!(
        "storage:\n  dbPath: {}\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 0.1\n\
         net:\n  port: 0\n  bindIp: localhost\n  unixDomainSocket:\n    path: {}\n\
         systemLog:\n  destination: file\n  path: {}\n  format: text\n\
         processManagement:\n  pidFilePath: {}\n",
        data.display(),
        socket.display(),
        log.display(),
        pid.display()
    );
    std::fs::write(&config, text).unwrap();
    let server = Running::spawn(frond(&["-f", config.to_str().unwrap()]));
    assert_eq!(
        std::fs::read_to_string(&pid).unwrap().trim(),
        server.pid().to_string()
    );
    let stream = UnixStream::connect(&socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = Client {
        stream,
        request_id: 0,
    };
    let options = client.run("admin", &doc! {"getCmdLineOpts": 1});
    let net = options
        .get_doc("parsed")
        .and_then(|parsed| parsed.get_doc("net"))
        .unwrap();
    assert_eq!(net.get_str("bindIp"), Some("localhost"));
    let status = client.run("admin", &doc! {"serverStatus": 1});
    let cache = status
        .get_doc("frond")
        .and_then(|frond| frond.get_doc("cache"))
        .unwrap();
    let bytes = cache.get_i64("maximum bytes configured").unwrap();
    assert_eq!(bytes, (0.1 * f64::from(1 << 30)) as i64);
    server.stop();
    assert!(!pid.exists() && !socket.exists());
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(
        log.lines()
            .any(|line| line.contains("Z I  NETWORK  [listener] Waiting for connections"))
    );
}

#[test]
fn a_directory_belongs_to_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let server = Running::start(directory.path(), &[]);
    let output = fails(&["--dbpath", path, "--port", "0"]);
    assert_eq!(output.status.code(), Some(100));
    let text = said(&output);
    assert!(
        text.contains("in use") && text.contains(&server.pid().to_string()),
        "{text}"
    );
    server.connect().run("admin", &doc! {"ping": 1});
    server.stop();
    let lock = directory.path().join("mongod.lock");
    assert_eq!(std::fs::metadata(lock).unwrap().len(), 0);

    let output = fails(&["--dbpath", "/nonexistent/data", "--port", "0"]);
    assert_eq!(output.status.code(), Some(100));
    assert!(said(&output).contains("/nonexistent/data does not exist"));
}

#[test]
fn a_port_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = fails(&[
        "--dbpath",
        directory.path().to_str().unwrap(),
        "--port",
        &port,
    ]);
    assert_eq!(output.status.code(), Some(48));
    let text = said(&output);
    assert!(
        text.contains(&format!("127.0.0.1:{port} is already in use")),
        "{text}"
    );
}

#[test]
fn every_way_to_stop_shuts_down_cleanly() {
    let directory = tempfile::tempdir().unwrap();
    for (round, how) in ["TERM", "INT", "command"].into_iter().enumerate() {
        let server = Running::start(directory.path(), &[]);
        let mut client = server.connect();
        assert_eq!(client.count("c"), round as i64);
        client.run(
            "test",
            &doc! {"insert": "c", "documents": [{"round": round as i32}]},
        );
        // Idle connections do not delay the shutdown.
        let _idle = server.connect();
        if how == "command" {
            client.run("admin", &doc! {"shutdown": 1});
        } else {
            server.signal(how);
        }
        assert_eq!(server.wait().code(), Some(0), "{how}");
        assert!(client.receive().is_none());
    }
}

#[test]
fn a_crash_loses_nothing_that_was_acknowledged_with_j() {
    let directory = tempfile::tempdir().unwrap();
    let mut written = 0;
    for _ in 0..3 {
        let server = Running::start(directory.path(), &[]);
        let mut client = server.connect();
        assert_eq!(client.count("c"), written);
        client.run(
            "test",
            &doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
        );
        for _ in 0..20 {
            let insert = doc! {
                "insert": "c", "documents": [{"_id": written, "a": written}],
                "writeConcern": {"w": 1, "j": true},
            };
            client.run("test", &insert);
            written += 1;
        }
        let report = client.run("test", &doc! {"validate": "c"});
        assert_eq!(report.get_bool("valid"), Some(true), "{report:?}");
        server.signal("KILL");
        assert_eq!(server.wait().code(), None);
    }
    let server = Running::start(directory.path(), &[]);
    assert_eq!(server.connect().count("c"), written);
    let log = server.connect().run("admin", &doc! {"getLog": "global"});
    let lines = log.get_array("log").unwrap();
    assert!(
        lines
            .values()
            .any(|line| line.as_str().unwrap().contains("unclean shutdown"))
    );
    server.stop();
}

#[test]
fn log_lines_are_json_documents() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--slowms", "0"]);
    let mut client = server.connect();
    client.run(
        "admin",
        &doc! {"hello": 1, "client": {"application": {"name": "the \"app\""}}},
    );
    client.run("test", &doc! {"insert": "c", "documents": [{"_id": 1}]});
    for text in ["Connection accepted", "client metadata", "Slow query"] {
        let line = server.line_with(text);
        let document = extjson::parse(&line).unwrap();
        for field in ["t", "s", "c", "id", "ctx", "msg", "attr"] {
            assert!(document.contains_key(field), "{line}");
        }
    }
    server.stop();
}

#[test]
fn connections_are_limited() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--maxConns", "5", "--quiet"]);
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.run("admin", &doc! {"ping": 1});
    }
    assert!(server.connect().receive().is_none());
    clients.pop();
    // The server notices a moment after the client has disconnected.
    wait_until("a free place", || {
        let mut client = server.connect();
        let message = client.build(frond_wire::Flags::NONE, "admin", &doc! {"ping": 1}, &[]);
        use std::io::Write;
        let sent = client.stream.write_all(&message);
        sent.is_ok() && client.receive().is_some()
    });
    server.stop();
}

#[test]
fn without_a_journal_j_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--nojournal"]);
    let mut client = server.connect();
    let insert = |j: bool| doc! {"insert": "c", "documents": [{}], "writeConcern": {"j": j}};
    assert_eq!(client.reply("test", &insert(true)).get_i32("code"), Some(2));
    client.run("test", &insert(false));
    server.stop();
    // A clean shutdown still keeps the document.
    let server = Running::start(directory.path(), &["--nojournal"]);
    assert_eq!(server.connect().count("c"), 1);
    server.stop();
}
