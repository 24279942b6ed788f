//! Clients and servers that shake hands in memory.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConnection};

use crate::testing::Authority;
use crate::{ClientOptions, Peer, Protocol, ServerOptions, ServerTls};

/// Shakes hands to the end, and sends a byte in each direction. The error is that of the side that found it.
fn shake(
    client: &Arc<ClientConfig>,
    server: &ServerTls,
    host: &str,
) -> Result<(Peer, HandshakeKind), String> {
    let name = ClientOptions::server_name(host).unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut server_side = ServerConnection::new(server.config()).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server_side.read_tls(&mut bytes.as_slice()).unwrap();
        server_side
            .process_new_packets()
            .map_err(|error| format!("server: {error}"))?;
        let mut bytes = Vec::new();
        while server_side.wants_write() {
            server_side.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client
            .process_new_packets()
            .map_err(|error| format!("client: {error}"))?;
    }
    assert!(!client.is_handshaking() && !server_side.is_handshaking());
    let peer = server.peer(&server_side)?;
    Ok((peer, server_side.handshake_kind().unwrap()))
}

fn subject(peer: &Peer) -> Option<&str> {
    peer.certificate.as_ref().map(|own| own.subject.as_str())
}

fn connect(client: &ClientOptions, server: &ServerOptions) -> Result<Peer, String> {
    let (client, server) = (client.load().unwrap(), server.load().unwrap());
    shake(&client, &server, "localhost").map(|(peer, _)| peer)
}

#[test]
fn a_client_is_known_by_its_certificate() {
    let authority = Authority::new();
    let server = authority.server(authority.issue(1, |_| {}));
    let client = authority.client(Some(authority.issue(2, |_| {})));
    let peer = connect(&client, &server).unwrap();
    assert_eq!(subject(&peer), Some("CN=number 2,O=Frond"));
    assert_eq!(peer.protocol, Some(Protocol::Tls13));
    let info = &server.load().unwrap().certificate;
    assert_eq!(info.issuer, "CN=authority,O=Frond");
    assert!(info.has_alternative_name && info.thumbprint.len() == 40);
}

#[test]
fn a_client_needs_a_certificate_unless_it_is_allowed_to_have_none() {
    let authority = Authority::new();
    let mut server = authority.server(authority.issue(1, |_| {}));
    let client = authority.client(None);
    let error = connect(&client, &server).unwrap_err();
    assert!(
        error.starts_with("server: peer sent no certificates"),
        "{error}"
    );
    server.allow_connections_without_certificates = true;
    let peer = connect(&client, &server).unwrap();
    assert_eq!((subject(&peer), &peer.invalid), (None, &None));
    // One that it has is checked all the same.
    let foreign = Authority::named("foreign");
    let mut client = foreign.client(Some(foreign.issue(2, |_| {})));
    client.ca_file = Some(authority.ca_file.clone());
    let error = connect(&client, &server).unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[test]
fn certificates_that_are_not_valid_are_refused() {
    let (authority, foreign) = (Authority::new(), Authority::named("foreign"));
    let server = authority.server(authority.issue(1, |_| {}));
    let cases = [
        (
            authority.issue(2, |own| own.not_after = date_time_ymd(2020, 1, 1)),
            "Expired",
        ),
        (
            authority.issue(3, |own| own.not_before = date_time_ymd(3000, 1, 1)),
            "not valid yet",
        ),
        (foreign.issue(4, |_| {}), "UnknownIssuer"),
        (
            authority.issue(5, |own| {
                own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            "extended key usage",
        ),
    ];
    for (file, part) in cases {
        let client = authority.client(Some(file));
        let error = connect(&client, &server).unwrap_err();
        let is_named = error.to_lowercase().contains(&part.to_lowercase());
        assert!(error.starts_with("server: ") && is_named, "{part}: {error}");
        // With the option it is served, but anonymous.
        let server = ServerOptions {
            allow_invalid_certificates: true,
            ..server.clone()
        };
        let peer = connect(&client, &server).unwrap();
        assert_eq!(subject(&peer), None);
        assert!(peer.invalid.is_some());
    }
    let valid = authority.client(Some(authority.issue(6, |_| {})));
    let server = ServerOptions {
        allow_invalid_certificates: true,
        ..server
    };
    let peer = connect(&valid, &server).unwrap();
    assert_eq!(subject(&peer), Some("CN=number 6,O=Frond"));
}

/// The certificate of an authority has dates too.
#[test]
fn authorities_that_are_not_valid_are_not_trusted() {
    let valid = Authority::new();
    let old = Authority::with("old", |own| own.not_after = date_time_ymd(2020, 1, 1));
    let early = Authority::with("early", |own| own.not_before = date_time_ymd(3000, 1, 1));
    let mut server = valid.server(valid.issue(1, |_| {}));
    for (authority, number) in [(&old, 2), (&early, 3)] {
        server.ca_file = authority.ca_file.clone();
        let error = server.load().unwrap_err().to_string();
        assert!(error.contains("expired or not yet valid"), "{error}");

        let both = [&valid, authority].map(|one| std::fs::read_to_string(&one.ca_file).unwrap());
        server.ca_file = authority.path("both.pem");
        std::fs::write(&server.ca_file, both.concat()).unwrap();
        assert_eq!(server.load().unwrap().authorities.len(), 2);
        let client = valid.client(Some(valid.issue(number, |_| {})));
        assert!(connect(&client, &server).is_ok());
        let mut client = authority.client(Some(authority.issue(number, |_| {})));
        client.ca_file = Some(valid.ca_file.clone());
        let error = connect(&client, &server).unwrap_err();
        assert!(error.contains("Expired"), "{error}");

        // As the bench's client.
        client.ca_file = Some(authority.ca_file.clone());
        assert!(client.load().is_err());
    }
}

#[test]
fn revoked_certificates_are_refused() {
    let authority = Authority::new();
    let mut server = authority.server(authority.issue(1, |_| {}));
    server.crl_file = Some(authority.revoke(&[2], 3000));
    let revoked = authority.client(Some(authority.issue(2, |_| {})));
    let other = authority.client(Some(authority.issue(3, |_| {})));
    let error = connect(&revoked, &server).unwrap_err();
    assert!(error.contains("Revoked"), "{error}");
    assert!(connect(&other, &server).is_ok());
    let facts = &server.load().unwrap().revocations;
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].issuer, "CN=authority,O=Frond");
    assert!(facts[0].next_update.is_some());

    // A list that is expired, or that another authority issued, does not apply to a certificate.
    server.crl_file = Some(authority.revoke(&[], 2021));
    let error = connect(&other, &server).unwrap_err();
    assert!(error.contains("revocation list expired"), "{error}");
    let foreign = Authority::named("foreign");
    server.crl_file = Some(foreign.revoke(&[], 3000));
    let error = connect(&other, &server).unwrap_err();
    assert!(error.contains("UnknownRevocationStatus"), "{error}");
    server.crl_file = Some(authority.ca_file.clone());
    let error = server.load().unwrap_err().to_string();
    assert!(error.contains("no revocation list"), "{error}");
}

#[test]
fn versions_can_be_disabled() {
    let authority = Authority::new();
    let mut server = authority.server(authority.issue(1, |_| {}));
    let client = authority.client(Some(authority.issue(2, |_| {})));
    server.disabled_protocols = vec![Protocol::Tls10, Protocol::Tls13];
    assert_eq!(
        connect(&client, &server).unwrap().protocol,
        Some(Protocol::Tls12)
    );
    server.disabled_protocols = vec![Protocol::Tls12];
    assert_eq!(
        connect(&client, &server).unwrap().protocol,
        Some(Protocol::Tls13)
    );
    // Neither version is older than 1.2, and every suite has forward secrecy and an AEAD.
    for suite in &server
        .load()
        .unwrap()
        .config()
        .crypto_provider()
        .cipher_suites
    {
        let name = format!("{:?}", suite.suite());
        let is_old = Protocol::from_version(suite.version().version).is_none();
        let is_strong = name.contains("GCM") || name.contains("CHACHA20");
        let is_forward = name.starts_with("TLS13") || name.starts_with("TLS_ECDHE");
        assert!(!is_old && is_strong && is_forward, "{name}");
    }
}

#[test]
fn a_client_checks_the_server() {
    let (authority, foreign) = (Authority::new(), Authority::named("foreign"));
    let mut server = authority.server(authority.issue(1, |_| {}));
    server.allow_connections_without_certificates = true;
    let server = server.load().unwrap();
    let with = |change: fn(&mut ClientOptions), host| {
        let mut client = authority.client(None);
        change(&mut client);
        shake(&client.load().unwrap(), &server, host).map(drop)
    };
    assert_eq!(with(|_| {}, "localhost"), Ok(()));
    assert_eq!(with(|_| {}, "127.0.0.1"), Ok(()));
    assert!(
        with(|_| {}, "other.example")
            .unwrap_err()
            .contains("client: invalid peer certificate")
    );
    assert_eq!(
        with(|c| c.allow_invalid_hostnames = true, "other.example"),
        Ok(())
    );
    assert_eq!(
        with(|c| c.allow_invalid_certificates = true, "other.example"),
        Ok(())
    );
    let wrong = ClientOptions {
        ca_file: Some(foreign.ca_file.clone()),
        allow_invalid_hostnames: true,
        ..ClientOptions::default()
    };
    let error = shake(&wrong.load().unwrap(), &server, "localhost").unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert!(
        ClientOptions::default().load().is_err(),
        "nothing to check with"
    );
    assert!(ClientOptions::server_name("a b").is_err());
}

#[test]
fn sessions_are_resumed_but_not_with_another_configuration() {
    let authority = Authority::new();
    let options = authority.server(authority.issue(1, |_| {}));
    let server = options.load().unwrap();
    let client = authority
        .client(Some(authority.issue(2, |_| {})))
        .load()
        .unwrap();
    let kind = |server: &ServerTls| shake(&client, server, "localhost").unwrap();
    assert_eq!(kind(&server).1, HandshakeKind::Full);
    let (peer, resumed) = kind(&server);
    assert_eq!(resumed, HandshakeKind::Resumed);
    assert_eq!(subject(&peer), Some("CN=number 2,O=Frond"));
    // A rotation makes new options. The revoked client cannot come back by its ticket.
    let rotated = ServerOptions {
        crl_file: Some(authority.revoke(&[2], 3000)),
        ..options
    };
    let error = shake(&client, &rotated.load().unwrap(), "localhost").unwrap_err();
    assert!(error.contains("Revoked"), "{error}");
}

#[test]
fn a_server_needs_a_certificate_that_is_valid_now() {
    let authority = Authority::new();
    for file in [
        authority.issue(1, |own| own.not_after = date_time_ymd(2020, 1, 1)),
        authority.issue(2, |own| own.not_before = date_time_ymd(3000, 1, 1)),
    ] {
        let error = authority.server(file).load().unwrap_err().to_string();
        assert!(error.contains("expired or not yet valid"), "{error}");
    }
    let mut server = authority.server(authority.issue(3, |_| {}));
    server.disabled_protocols = Protocol::ALL.to_vec();
    assert!(server.load().is_err());
    server.disabled_protocols = Vec::new();
    server.ca_file = authority.path("none.pem");
    let error = server.load().unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read ") && error.contains("none.pem"),
        "{error}"
    );
}
