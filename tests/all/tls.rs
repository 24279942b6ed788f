//! TLS: what a client gets in each mode, who it is, what is refused, and the rotation of certificates.

#![allow(clippy::unwrap_used)]

#[path = "../../crates/tls/src/testing/authority.rs"]
mod authority;
use crate::support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frond_bson::{DocBuf, doc};
use frond_tls::ClientOptions;
use frond_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use authority::{Authority, write_secret};
use support::{Client, Running, frond, wait_for};

type Secure = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A server, its authority and its data.
struct Setup {
    server: Running,
    authority: Authority,
    _data: tempfile::TempDir,
}

impl Setup {
    fn start(mode: &str, more: &[&str]) -> Setup {
        Setup::with(Authority::new(), mode, more)
    }

    fn with(authority: Authority, mode: &str, more: &[&str]) -> Setup {
        let data = tempfile::tempdir().unwrap();
        let own = authority.issue(1, |_| {});
        let mut arguments = vec![
            "--tlsMode",
            mode,
            "--tlsCertificateKeyFile",
            own.to_str().unwrap(),
            "--tlsCAFile",
            authority.ca_file.to_str().unwrap(),
        ];
        arguments.extend_from_slice(more);
        Setup {
            server: Running::start(data.path(), &arguments),
            authority,
            _data: data,
        }
    }

    /// The configuration of a client with this certificate.
    fn config(&self, own: Option<PathBuf>) -> Arc<ClientConfig> {
        let options = ClientOptions {
            ca_file: Some(self.authority.ca_file.clone()),
            certificate_key_file: own,
            ..ClientOptions::default()
        };
        options.load().unwrap()
    }

    /// A connection by TLS. It shakes hands when it is first used.
    fn connect(&self, config: &Arc<ClientConfig>) -> Secure {
        let stream = self.server.connect().stream;
        let name = ClientOptions::server_name("127.0.0.1").unwrap();
        let session = ClientConnection::new(config.clone(), name).unwrap();
        Client {
            stream: StreamOwned::new(session, stream),
            request_id: 0,
        }
    }
}

/// Sends a ping, and returns whether there is an answer.
fn is_served<S: Read + Write>(client: &mut Client<S>) -> bool {
    let message = client.build(Default::default(), "admin", &doc! {"ping": 1}, &[]);
    let sent = client
        .stream
        .write_all(&message)
        .and_then(|()| client.stream.flush());
    sent.is_ok() && client.receive().is_some()
}

fn security<S: Read + Write>(client: &mut Client<S>) -> DocBuf {
    let status = client.run("admin", &doc! {"serverStatus": 1});
    status.get_doc("security").unwrap().to_owned()
}

const WITHOUT: &str = "--tlsAllowConnectionsWithoutCertificates";

#[test]
fn each_mode_serves_the_clients_that_it_names() {
    for (mode, plain_is_served) in [
        ("allowTLS", true),
        ("preferTLS", true),
        ("requireTLS", false),
    ] {
        let setup = Setup::start(mode, &[WITHOUT]);
        let mut plain = setup.server.connect();
        assert_eq!(is_served(&mut plain), plain_is_served, "{mode}");
        if mode == "requireTLS" {
            setup
                .server
                .line_with("The server is configured to only allow SSL connections");
        }
        let mut secure = setup.connect(&setup.config(None));
        let reply = secure.run(
            "test",
            &doc! {"insert": "c", "documents": [{"_id": 1, "x": "y".repeat(3 << 20)}]},
        );
        assert_eq!(reply.get_i32("n"), Some(1));
        let found = secure.run("test", &doc! {"find": "c"});
        assert!(found.len_bytes() > 3 << 20);
        let facts = security(&mut secure);
        assert_eq!(
            facts.get_str("SSLServerSubjectName"),
            Some("CN=number 1,O=Frond")
        );
        assert_eq!(
            facts.get_bool("SSLServerHasCertificateAuthority"),
            Some(true)
        );
        assert!(facts.get("SSLServerCertificateExpirationDate").is_some());
        let reply = secure.run("admin", &doc! {"getParameter": 1, "tlsMode": 1});
        assert_eq!(reply.get_str("tlsMode"), Some(mode));
        let status = secure.run("admin", &doc! {"serverStatus": 1});
        let counts = status.get_doc("transportSecurity").unwrap();
        assert_eq!(
            (counts.get_i64("1.2"), counts.get_i64("1.3")),
            (Some(0), Some(1))
        );
        setup.server.stop();
    }
    // Without TLS the client gets an alert.
    let data = tempfile::tempdir().unwrap();
    let setup = Setup {
        server: Running::start(data.path(), &[]),
        authority: Authority::new(),
        _data: data,
    };
    assert!(!is_served(&mut setup.connect(&setup.config(None))));
    setup
        .server
        .line_with("SSL handshake received but server is started without SSL support");
}

/// A health check that connects and closes is not a broken message.
#[test]
fn a_client_that_sends_nothing_is_not_counted() {
    let setup = Setup::start("requireTLS", &[WITHOUT]);
    drop(setup.server.connect());
    let config = setup.config(None);
    let broken = |client: &mut Secure| {
        let status = client.run("admin", &doc! {"serverStatus": 1});
        let current = status.get_doc("connections").unwrap();
        let asserts = status.get_doc("asserts").unwrap();
        (current.get_i64("current"), asserts.get_i64("msg"))
    };
    let mut client = setup.connect(&config);
    let broken = wait_for("a single connection", || match broken(&mut client) {
        (Some(1), broken) => broken,
        _ => None,
    });
    assert_eq!(broken, 0);
}

/// Requests whose length begins with the byte that begins a TLS connection.
#[test]
fn a_message_is_not_taken_for_a_handshake() {
    let setup = Setup::start("allowTLS", &[WITHOUT]);
    for bytes in [0x116, 0x316, 0x10316] {
        let mut client = setup.server.connect();
        let empty = client.build(
            Default::default(),
            "admin",
            &doc! {"ping": 1, "comment": ""},
            &[],
        );
        let comment = "x".repeat(bytes - empty.len());
        // The second byte of the request's number is the one of a ClientHello.
        client.request_id = 0x0100;
        let command = doc! {"ping": 1, "comment": comment};
        let message = client.build(Default::default(), "admin", &command, &[]);
        assert_eq!(message.len(), bytes);
        // In pieces, so that the server has to wait for the rest.
        for piece in [&message[..1], &message[1..7], &message[7..]] {
            client.send(piece);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(client.receive_msg().2.get_f64("ok"), Some(1.0));
    }
}

#[test]
fn certificates_of_clients_are_checked() {
    let revoked = Authority::new();
    let list = revoked.revoke(&[4], 3000);
    let setup = Setup::with(
        revoked,
        "requireTLS",
        &["--tlsCRLFile", list.to_str().unwrap()],
    );
    let foreign = Authority::named("foreign");
    let cases = [
        (Some(setup.authority.issue(2, |_| {})), true),
        (None, false),
        (Some(foreign.issue(3, |_| {})), false),
        (Some(setup.authority.issue(4, |_| {})), false),
        (
            Some(
                setup
                    .authority
                    .issue(5, |own| own.not_after = rcgen::date_time_ymd(2020, 1, 1)),
            ),
            false,
        ),
    ];
    for (n, (own, served)) in cases.into_iter().enumerate() {
        let config = setup.config(own);
        assert_eq!(is_served(&mut setup.connect(&config)), served, "case {n}");
        if !served {
            setup.server.line_with("SSLHandshakeFailed");
        }
    }
}

#[test]
fn certificates_rotate_and_open_connections_stay() {
    let setup = Setup::start("requireTLS", &[WITHOUT]);
    let config = setup.config(None);
    let mut before = setup.connect(&config);
    let own = setup.authority.path("1.pem");
    let renewed = setup.authority.issue(7, |_| {});

    // A file that cannot be used changes nothing.
    std::fs::write(&own, "nothing").unwrap();
    let reply = before.reply("admin", &doc! {"rotateCertificates": 1});
    assert_eq!(reply.get_i32("code"), Some(140), "{reply:?}");
    assert!(
        reply
            .get_str("errmsg")
            .unwrap()
            .contains("1.pem: it holds no certificate")
    );
    assert!(is_served(&mut setup.connect(&config)));

    write_secret(&own, &std::fs::read_to_string(renewed).unwrap());
    before.run(
        "admin",
        &doc! {"rotateCertificates": 1, "message": "renewed"},
    );
    setup
        .server
        .line_with("Successfully rotated X509 certificates");
    setup.server.line_with("CN=number 7,O=Frond");
    assert!(is_served(&mut before), "the open connection stays");
    let facts = security(&mut setup.connect(&config));
    assert_eq!(
        facts.get_str("SSLServerSubjectName"),
        Some("CN=number 7,O=Frond")
    );
}

#[test]
fn a_handshake_has_a_time_limit() {
    let setup = Setup::start("allowTLS", &[WITHOUT]);
    let (began, mut slow) = wait_for("a client that is served beside a handshake", || {
        let began = Instant::now();
        let mut slow = setup.server.connect();
        // The beginning of a ClientHello.
        slow.send(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 7, 7, 7, 7, 7]);
        assert!(is_served(&mut setup.connect(&setup.config(None))));
        slow.stream.set_nonblocking(true).unwrap();
        let is_open = matches!(slow.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        slow.stream.set_nonblocking(false).unwrap();
        is_open.then_some((began, slow))
    });
    let mut rest = Vec::new();
    // Perhaps an alert, then the end of the stream.
    let _ = slow.stream.read_to_end(&mut rest);
    let took = began.elapsed();
    assert!(took > Duration::from_secs(9), "{took:?}");
    setup
        .server
        .line_with("did not finish the TLS handshake in time");
}

/// The error of a server that must not start.
fn refusal(arguments: &[&str]) -> String {
    let data = tempfile::tempdir().unwrap();
    let mut command = frond(&["--port", "0", "--dbpath"]);
    let output = command.arg(data.path()).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn wrong_settings_are_refused_at_the_start() {
    let authority = Authority::new();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (own, ca) = (text(&authority.issue(1, |_| {})), text(&authority.ca_file));
    let old = text(&authority.issue(2, |own| own.not_after = rcgen::date_time_ymd(2020, 1, 1)));
    let open = text(&authority.issue(3, |_| {}));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();
    let key = [
        "--tlsMode",
        "requireTLS",
        "--tlsCAFile",
        &ca,
        "--tlsCertificateKeyFile",
    ];
    let with = |more: &[&str]| refusal(&[&key[..], more].concat());
    for (error, part) in [
        (
            refusal(&["--tlsMode", "requireTLS"]),
            "need --tlsCertificateKeyFile",
        ),
        (
            refusal(&["--sslMode", "requireSSL", "--sslPEMKeyFile", &own]),
            "without specifying a chain of trust",
        ),
        (refusal(&["--tlsCAFile", &ca]), "needs TLS: set --tlsMode"),
        (with(&[&old]), "expired or not yet valid"),
        (with(&[&open]), "permissions on"),
        (with(&["/nowhere/x.pem"]), "cannot read /nowhere/x.pem"),
        (
            with(&[&own, "--tlsDisabledProtocols", "TLS1_2,TLS1_3"]),
            "all TLS protocols are disabled",
        ),
        (
            with(&[&own, "--tlsDisabledProtocols", "SSL3"]),
            "does not know the protocol 'SSL3'",
        ),
        (
            with(&[&own, "--sslMode", "requireSSL"]),
            "cannot be given together",
        ),
        (with(&[&own, "--tlsCRLFile", &ca]), "no revocation list"),
        (with(&[&own, "--tlsFIPSMode"]), "FIPS"),
        (
            with(&[&own, "--tlsCertificateSelector", "subject=x"]),
            "read from files",
        ),
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

/// Runs `frond bench logins`, which must not show the password.
fn bench_logins(uri: &str, password: &str) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frond"));
    let output = command
        .args([
            "bench",
            "logins",
            "--logins",
            "24",
            "--threads",
            "4",
            "--seconds",
            "1",
            "--uri",
            uri,
        ])
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (said, failed) = (text(output.stdout), text(output.stderr));
    assert!(!said.contains(password) && !failed.contains(password));
    if output.status.success() {
        said
    } else {
        failed
    }
}

#[test]
fn clients_of_ours_log_in_over_tls() {
    let setup = Setup::start("requireTLS", &[WITHOUT, "--auth"]);
    let own = setup.authority.issue(2, |_| {});
    let mut admin = setup.connect(&setup.config(None));
    let create = |user: &str| doc! {"createUser": user, "pwd": "pencil:/@", "roles": ["root"]};
    // The exception for this machine, until there is a user.
    admin.run("admin", &create("all"));
    let at = format!(
        "127.0.0.1:{}/?tls=true&tlsCAFile={}",
        setup.server.port,
        setup.authority.ca_file.display()
    );
    let uri = |mechanism: &str| format!("mongodb://all:pencil%3A%2F%40@{at}{mechanism}");
    for mechanism in [
        "",
        "&authMechanism=SCRAM-SHA-1",
        "&authMechanism=SCRAM-SHA-256&authSource=admin",
    ] {
        let said = bench_logins(&uri(mechanism), "pencil");
        assert!(said.contains("logins a second"), "{said}");
    }
    let wrong = uri("").replace("pencil", "wrong");
    let said = bench_logins(&wrong, "wrong");
    assert!(said.contains("Authentication failed"), "{said}");

    // By certificate, of a user whose name is its subject.
    let by_certificate = format!(
        "mongodb://{at}&authMechanism=MONGODB-X509&tlsCertificateKeyFile={}",
        own.display()
    );
    let said = bench_logins(&by_certificate, "pencil");
    assert!(said.contains("Authentication failed"), "{said}");
    assert!(!said.contains("Could not find user"), "{said}");
    drop(setup);

    let setup = Setup::start("requireTLS", &[]);
    let own = setup.authority.issue(2, |_| {});
    let user = doc! {
        "createUser": "CN=number 2,O=Frond", "roles": [{"role": "root", "db": "admin"}],
    };
    setup
        .connect(&setup.config(Some(own.clone())))
        .run("$external", &user);
    let by_certificate = format!(
        "mongodb://127.0.0.1:{}/?tls=true&tlsCAFile={}&authMechanism=MONGODB-X509&tlsCertificateKeyFile={}",
        setup.server.port,
        setup.authority.ca_file.display(),
        own.display()
    );
    let said = bench_logins(&by_certificate, "pencil");
    assert!(said.contains("logins a second"), "{said}");
}

#[test]
fn the_password_of_a_key_is_shown_nowhere() {
    let authority = Authority::new();
    let own = authority.path("encrypted.pem");
    // Its password is `secret`.
    write_secret(
        &own,
        include_str!("../../crates/tls/src/testdata/rsa-pkcs8-encrypted.pem"),
    );
    let (own, ca) = (own.to_str().unwrap(), authority.ca_file.to_str().unwrap());
    let config = authority.path("mongod.conf");
    let text = format!(
        "net:\n  ssl: {{mode: requireSSL, PEMKeyFile: {own}, PEMKeyPassword: secret, CAFile: {ca}}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let options = ClientOptions {
        allow_invalid_certificates: true,
        certificate_key_file: Some(authority.issue(2, |_| {})),
        ..ClientOptions::default()
    };
    let client = options.load().unwrap();
    let line = [
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        own,
        "--tlsCAFile",
        ca,
    ];
    for more in [
        &["--tlsCertificateKeyFilePassword", "secret"][..],
        &["--sslPEMKeyPassword=secret"],
        &["--config", config.to_str().unwrap()],
    ] {
        let data = tempfile::tempdir().unwrap();
        let log = data.path().join("log");
        let mut arguments = match more[0] {
            "--config" => Vec::new(),
            _ => line.to_vec(),
        };
        arguments.extend_from_slice(more);
        arguments.extend(["--verbosity", "5", "--logpath", log.to_str().unwrap()]);
        let server = Running::start(data.path(), &arguments);
        let session = ClientConnection::new(
            client.clone(),
            ClientOptions::server_name("localhost").unwrap(),
        );
        let mut secure = Client {
            stream: StreamOwned::new(session.unwrap(), server.connect().stream),
            request_id: 0,
        };
        let shown = secure.run("admin", &doc! {"getCmdLineOpts": 1});
        let tls = shown
            .get_doc("parsed")
            .unwrap()
            .get_doc("net")
            .unwrap()
            .get_doc("tls")
            .unwrap();
        assert_eq!(
            tls.get_str("certificateKeyFilePassword"),
            Some("<password>")
        );
        secure.run("admin", &doc! {"rotateCertificates": 1});
        server.stop();
        let logged = std::fs::read_to_string(&log).unwrap();
        assert!(!format!("{shown:?}{logged}").contains("secret"), "{more:?}");
    }
}

#[test]
fn a_certificate_that_expires_soon_is_warned_of() {
    let authority = Authority::new();
    let soon = std::time::SystemTime::now() + Duration::from_secs(10 * 24 * 60 * 60);
    let own = authority.issue(1, |own| own.not_after = soon.into());
    let data = tempfile::tempdir().unwrap();
    let ca = authority.ca_file.to_str().unwrap();
    let own = own.to_str().unwrap();
    let server = Running::start(
        data.path(),
        &[
            "--tlsMode",
            "allowTLS",
            "--tlsCertificateKeyFile",
            own,
            "--tlsCAFile",
            ca,
        ],
    );
    let warnings = server
        .connect()
        .run("admin", &doc! {"getLog": "startupWarnings"});
    assert!(format!("{warnings:?}").contains("Server certificate will expire soon"));
    let facts = security(&mut server.connect());
    let Some(frond_bson::Value::DateTime(end)) = facts.get("SSLServerCertificateExpirationDate")
    else {
        panic!("{facts:?}")
    };
    let since = soon.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(end / 1000, since.as_secs() as i64);
}

#[test]
fn versions_of_tls_are_disabled_and_logged() {
    let more = [
        WITHOUT,
        "--tlsDisabledProtocols",
        "TLS1_0,TLS1_3",
        "--tlsLogVersions",
        "TLS1_2",
    ];
    let setup = Setup::start("requireTLS", &more);
    let mut client = setup.connect(&setup.config(None));
    let status = client.run("admin", &doc! {"serverStatus": 1});
    assert_eq!(
        status.get_doc("transportSecurity").unwrap().get_i64("1.2"),
        Some(1)
    );
    let line = setup.server.line_with("Accepted connection with TLS");
    assert!(line.contains("\"tlsVersion\":\"1.2\""), "{line}");
}
