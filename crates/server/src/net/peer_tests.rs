//! Tests of the messages between members, over sockets of this machine.

#![allow(clippy::unwrap_used)]

#[path = "../../../tls/src/testing/authority.rs"]
mod authority;

use std::future::Future;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use frond_bson::doc;
use frond_client::Client;
use parking_lot::Mutex;
use rcgen::DnType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::listen::{accept_all, bind_all};
use crate::peers::{Kind, PeerIdentity, PeerService, Peers, login_uris};
use crate::settings::{ClusterAuthMode, Secret, Settings, TlsMode};
use crate::testing::{PATIENCE, TestServer, wait_until};
use authority::Authority;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers with the body of the request. A request of the kind `Ask` waits for a permit first.
struct Echo {
    arrived: Mutex<Vec<(u64, Vec<u8>)>>,
    permits: Semaphore,
}

impl PeerService for Echo {
    fn handle<'a>(
        &'a self,
        from: u64,
        kind: Kind,
        body: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Vec<u8>> + Send + 'a>> {
        Box::pin(async move {
            if kind == Kind::Consensus {
                let begin = body.get(..8).unwrap_or(&body).to_vec();
                self.arrived.lock().push((from, begin));
            }
            if kind == Kind::Ask {
                self.permits.acquire().await.unwrap().forget();
            }
            body
        })
    }
}

/// A member that listens.
struct Member {
    server: TestServer,
    echo: Arc<Echo>,
    host: String,
}

impl Member {
    fn start(id: u64, change: impl FnOnce(&mut Settings)) -> Member {
        let server = TestServer::with(|settings| {
            settings.replica_set = Some("rs".to_owned());
            settings.logins.sha256_iterations = 5000;
            settings.logins.failed_delay = Duration::ZERO;
            change(settings);
        });
        let addresses = bind_all(&[LOOPBACK], 0).unwrap();
        let host = format!("127.0.0.1:{}", addresses.port);
        accept_all(&server.server, addresses, None).unwrap();
        let echo = Arc::new(Echo {
            arrived: Mutex::default(),
            permits: Semaphore::new(0),
        });
        server.server.set.peers.identify(identity(id));
        server.server.set.peers.serve(echo.clone());
        Member { server, echo, host }
    }

    fn peers(&self, id: u64) -> Peers {
        self.peers_with(identity(id), |_| {})
    }

    fn peers_with(&self, identity: PeerIdentity, change: impl FnOnce(&mut Settings)) -> Peers {
        let mut settings = self.server.server.settings.clone();
        change(&mut settings);
        let log = self.server.server.log.clone();
        Peers::new(identity, &settings, log, Handle::current())
    }
}

fn identity(id: u64) -> PeerIdentity {
    PeerIdentity {
        id,
        set: "rs".to_owned(),
    }
}

fn with_keys(keys: &[&str]) -> impl FnOnce(&mut Settings) {
    let keys = keys.iter().map(|key| Secret::new(key)).collect();
    move |settings| {
        settings.security.keys = keys;
        settings.security.authorization = true;
    }
}

async fn ask(peers: &Peers, host: &str, kind: Kind, body: &[u8]) -> std::io::Result<Vec<u8>> {
    peers.request(host, kind, body.to_vec(), PATIENCE).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_in_both_directions_and_begun_in_order() {
    let (one, two) = (Member::start(1, |_| {}), Member::start(2, |_| {}));
    let (from_one, from_two) = (one.peers(1), two.peers(2));
    let mut waiting = Vec::new();
    for n in 0..200u64 {
        let mut body = n.to_le_bytes().to_vec();
        body.resize(if n % 20 == 0 { 1 << 20 } else { 8 }, 7);
        waiting.push((
            body.clone(),
            from_one.request(&two.host, Kind::Consensus, body, PATIENCE),
        ));
    }
    for (body, answer) in waiting {
        assert!(answer.await.unwrap() == body);
    }
    let arrived: Vec<_> = (0..200u64).map(|n| (1, n.to_le_bytes().to_vec())).collect();
    assert!(*two.echo.arrived.lock() == arrived);
    assert_eq!(
        ask(&from_two, &one.host, Kind::Consensus, b"x")
            .await
            .unwrap(),
        b"x"
    );
    assert_eq!(*one.echo.arrived.lock(), [(2, b"x".to_vec())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_be_as_long_as_a_large_commit() {
    let (one, two) = (Member::start(1, |_| {}), Member::start(2, |_| {}));
    let peers = one.peers(1);
    // A commit is longer than what a channel handles at once.
    let commit = vec![7; 100 << 20];
    let answer = peers.request(&two.host, Kind::Entries, commit, PATIENCE);
    assert_eq!(answer.await.unwrap().len(), 100 << 20);
    let endless = vec![0; frond_replica::REQUEST_BYTES_MAX + 1];
    let refused = peers.request(&two.host, Kind::Entries, endless, PATIENCE);
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Copies what two sockets send each other, but no more than `limit` bytes from the first one before there is a permit.
async fn relay_slowly(near: TcpStream, far: TcpStream, limit: u64, permit: Arc<Semaphore>) {
    let ((near_in, mut near_out), (mut far_in, mut far_out)) =
        (near.into_split(), far.into_split());
    let there = async {
        let mut first = near_in.take(limit);
        tokio::io::copy(&mut first, &mut far_out).await?;
        permit.acquire().await.unwrap().forget();
        tokio::io::copy(&mut first.into_inner(), &mut far_out).await
    };
    let _ = tokio::join!(there, tokio::io::copy(&mut far_in, &mut near_out));
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_and_votes_do_not_wait_for_a_large_commit() {
    let member = Member::start(1, |_| {});
    let relay = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let host = relay.local_addr().unwrap().to_string();
    let (target, permit) = (member.host.clone(), Arc::new(Semaphore::new(0)));
    let permits = permit.clone();
    tokio::spawn(async move {
        loop {
            let (near, _) = relay.accept().await.unwrap();
            let far = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(relay_slowly(near, far, 1 << 20, permits.clone()));
        }
    });
    let peers = member.peers(2);
    let commit = vec![7; 64 << 20];
    let entries = peers.request(&host, Kind::Entries, commit, PATIENCE);
    for kind in [Kind::Consensus, Kind::Heartbeat] {
        assert_eq!(ask(&peers, &host, kind, b"1").await.unwrap(), b"1");
    }
    permit.add_permits(1);
    assert_eq!(entries.await.unwrap().len(), 64 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_request_delays_no_other_and_one_that_is_dropped_breaks_nothing() {
    let member = Member::start(1, |_| {});
    let peers = member.peers(2);
    let slow = peers.request(&member.host, Kind::Ask, b"slow".to_vec(), PATIENCE);
    let dropped = peers.request(&member.host, Kind::Ask, b"dropped".to_vec(), PATIENCE);
    assert_eq!(
        ask(&peers, &member.host, Kind::Heartbeat, b"1")
            .await
            .unwrap(),
        b"1"
    );
    drop(dropped);
    assert_eq!(
        ask(&peers, &member.host, Kind::Consensus, b"2")
            .await
            .unwrap(),
        b"2"
    );
    let late = peers.request(
        &member.host,
        Kind::Ask,
        b"late".to_vec(),
        Duration::from_millis(10),
    );
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
    member.echo.permits.add_permits(3);
    assert_eq!(slow.await.unwrap(), b"slow");
    let created = member.server.server.metrics.connections_created.get();
    assert_eq!(created, 1, "one connection for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_fails_its_requests_and_is_opened_again() {
    let member = Member::start(1, |_| {});
    // A relay, which can be cut.
    let relay = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let host = relay.local_addr().unwrap().to_string();
    let (target, cut) = (member.host.clone(), Arc::new(Semaphore::new(0)));
    let cutting = cut.clone();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = relay.accept().await.unwrap();
            let mut far = TcpStream::connect(&target).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                permit = cutting.acquire() => permit.unwrap().forget(),
            }
        }
    });
    let peers = member.peers(2);
    assert_eq!(
        ask(&peers, &host, Kind::Heartbeat, b"1").await.unwrap(),
        b"1"
    );
    let pending = peers.request(&host, Kind::Ask, b"2".to_vec(), PATIENCE);
    assert_eq!(
        ask(&peers, &host, Kind::Heartbeat, b"3").await.unwrap(),
        b"3"
    );
    cut.add_permits(1);
    let error = pending.await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
    let opened_again = async {
        while ask(&peers, &host, Kind::Heartbeat, b"4").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, opened_again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_cannot_be_reached_fail_at_once_for_a_while() {
    let member = Member::start(1, |_| {});
    let closed = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let host = closed.local_addr().unwrap().to_string();
    drop(closed);
    let peers = member.peers(2);
    for _ in 0..20 {
        let error = ask(&peers, &host, Kind::Heartbeat, b"1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        assert!(error.to_string().contains(&host), "{error}");
    }
    assert!(ask(&peers, "no host", Kind::Ask, b"").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_refuses_what_is_no_member_of_its_set() {
    let member = Member::start(1, |_| {});
    let other = PeerIdentity {
        id: 2,
        set: "other".to_owned(),
    };
    let peers = member.peers_with(other, |_| {});
    let error = ask(&peers, &member.host, Kind::Ask, b"").await.unwrap_err();
    assert!(error.to_string().contains("error 108"), "{error}");
    let member = Member::start(1, with_keys(&["abcdef"]));
    let peers = member.peers_with(identity(2), |settings| settings.security.keys.clear());
    let error = ask(&peers, &member.host, Kind::Ask, b"").await.unwrap_err();
    assert!(error.to_string().contains("error 13"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_log_in_by_any_key_of_the_file() {
    let member = Member::start(1, with_keys(&["newkey", "oldkey"]));
    for (keys, is_allowed) in [
        (&["newkey"][..], true),
        (&["oldkey"], true),
        (&["wrongkey", "oldkey"], true),
        (&["wrongkey"], false),
    ] {
        let peers = member.peers_with(identity(2), with_keys(keys));
        let answer = ask(&peers, &member.host, Kind::Heartbeat, b"1").await;
        match &answer {
            Ok(_) => {}
            Err(error) => assert!(error.to_string().contains("error 18"), "{error}"),
        }
        assert_eq!(answer.is_ok(), is_allowed, "{keys:?}");
        let mut settings = member.server.server.settings.clone();
        with_keys(keys)(&mut settings);
        let host = member.host.clone();
        let client = tokio::task::spawn_blocking(move || {
            let stop = Arc::new(AtomicBool::new(false));
            // One for each key.
            let mut uris = login_uris(&host, &settings).unwrap().into_iter();
            let mut status = Client::connect(&uris.next().unwrap(), stop.clone());
            for uri in uris {
                status = status.or_else(|_| Client::connect(&uri, stop.clone()));
            }
            status?.command("admin", &doc! {"connectionStatus": 1})
        });
        let status = client.await.unwrap();
        assert_eq!(status.is_ok(), is_allowed, "{keys:?}");
        if let Ok(status) = status {
            let users = format!("{:?}", status.get_doc("authInfo").unwrap());
            assert!(
                users.contains("__system") && users.contains("local"),
                "{users}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_log_in_by_certificates_of_one_organisation() {
    let authority = Authority::new();
    let other = authority.issue(3, |params| {
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Other");
    });
    let (own, theirs) = (authority.issue(1, |_| {}), authority.issue(2, |_| {}));
    for (accepting, shown, file, is_allowed) in [
        (ClusterAuthMode::X509, ClusterAuthMode::X509, &theirs, true),
        (ClusterAuthMode::X509, ClusterAuthMode::X509, &other, false),
        (
            ClusterAuthMode::X509,
            ClusterAuthMode::KeyFile,
            &theirs,
            false,
        ),
        (
            ClusterAuthMode::KeyFile,
            ClusterAuthMode::X509,
            &theirs,
            false,
        ),
        (
            ClusterAuthMode::KeyFile,
            ClusterAuthMode::KeyFile,
            &other,
            true,
        ),
        (
            ClusterAuthMode::SendKeyFile,
            ClusterAuthMode::SendX509,
            &theirs,
            true,
        ),
        (
            ClusterAuthMode::SendX509,
            ClusterAuthMode::SendKeyFile,
            &other,
            true,
        ),
    ] {
        let member = Member::start(1, |settings| {
            with_keys(&["abcdef"])(settings);
            settings.security.cluster_auth = accepting;
            settings.tls.mode = TlsMode::Require;
            settings.tls.certificate_key_file = Some(own.clone());
            settings.tls.ca_file = Some(authority.ca_file.clone());
        });
        let peers = member.peers_with(identity(2), |settings| {
            settings.security.cluster_auth = shown;
            settings.tls.cluster_file = Some(file.clone());
        });
        let answer = ask(&peers, &member.host, Kind::Consensus, &[7; 100_000]).await;
        assert_eq!(
            answer.is_ok(),
            is_allowed,
            "{accepting:?} {shown:?} {answer:?}"
        );
    }
}

/// Opens a channel by hand.
async fn channel(member: &Member) -> TcpStream {
    let mut stream = TcpStream::connect(&member.host).await.unwrap();
    let command = doc! {
        "replSetOpenChannel": 1, "set": "rs", "id": 9i64, "protocol": 1, "$db": "admin",
    };
    let message = frond_wire::msg(1, 0, frond_wire::Flags::NONE, command.as_bytes());
    stream.write_all(&message).await.unwrap();
    let length = stream.read_u32_le().await.unwrap();
    let mut rest = vec![0; length as usize - 4];
    stream.read_exact(&mut rest).await.unwrap();
    stream
}

fn frame(length: u32, request: u64, kind: u8) -> Vec<u8> {
    let mut head = length.to_le_bytes().to_vec();
    head.extend_from_slice(&request.to_le_bytes());
    head.push(kind);
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_frames_close_the_channel_and_unknown_kinds_are_refused() {
    let member = Member::start(1, |_| {});
    for wrong in [
        frame(frond_replica::REQUEST_BYTES_MAX as u32 + 1, 1, 1),
        frame(u32::MAX, 1, 1),
        frame(0, 1, 0),
        frame(0, 1, 128),
    ] {
        let mut stream = channel(&member).await;
        stream.write_all(&wrong).await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
    }
    let mut stream = channel(&member).await;
    stream.write_all(&frame(0, 5, 77)).await.unwrap();
    stream
        .write_all(&[frame(2, 6, 2), b"ab".to_vec()].concat())
        .await
        .unwrap();
    for (request, kind) in [(5, 129), (6, 128)] {
        let length = stream.read_u32_le().await.unwrap();
        assert_eq!(stream.read_u64_le().await.unwrap(), request);
        assert_eq!(stream.read_u8().await.unwrap(), kind);
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).await.unwrap();
    }
    member.server.server.stop();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"", "the channel ends with the server");
    let connections = &member.server.server.clients.connections;
    wait_until("the channels are closed", || connections.len() == 1);
}
