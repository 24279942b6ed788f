//! A server is copied over a socket.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::channel;

use frond_store::{
    DocumentStore, FindRequest, LogRecovery, Namespace, NoListener, OpContext, StorageOptions,
    StoreOptions,
};

use super::*;
use crate::net::listen::{accept_all, bind_all};
use crate::settings::EncryptionSettings;
use crate::testing::{PATIENCE, TestServer, wait_until};

/// A server that listens, and its address.
fn listening() -> (TestServer, Uri) {
    let server = TestServer::new();
    let addresses = bind_all(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], 0).unwrap();
    let uri = format!("mongodb://127.0.0.1:{}", addresses.port);
    accept_all(&server.server, addresses, None).unwrap();
    (server, uri.parse().unwrap())
}

fn count(store: &DocumentStore) -> usize {
    let ns = Namespace::parse("test.c").unwrap();
    let mut cursor = (store.find(&ns, &FindRequest::default(), &OpContext::new())).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn open_as(path: &Path, options: StoreOptions) -> DocumentStore {
    let storage = StorageOptions {
        cache_bytes: 32 << 20,
        client_bytes: None,
        journal: true,
        journal_commit_interval: Duration::from_millis(100),
        listener: Arc::new(NoListener),
        disk_reserve_bytes: None,
        log_recovery: LogRecovery::default(),
        master_key: None,
    };
    DocumentStore::open_directory(path, &storage, options).unwrap()
}

fn open(path: &Path) -> DocumentStore {
    open_as(path, StoreOptions::default().of_member())
}

fn log() -> (tempfile::TempDir, Arc<Log>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = crate::settings::Settings {
        log_path: Some(folder.path().join("log")),
        quiet: true,
        ..crate::settings::Settings::default()
    };
    (folder, Arc::new(Log::open(&settings).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_becomes_a_copy_and_keeps_its_vote() {
    let (mut server, uri) = listening();
    server.fill("c", 2000);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // A member's store begins as that of a server alone.
    let alone = open_as(path, StoreOptions::default());
    alone.close().unwrap();
    drop(alone);
    let old = open(path);
    old.member_log().unwrap().save_vote(b"term 7").unwrap();
    let (_folder, log) = log();
    // The first attempts find no member, then one that does not answer.
    let unreachable: Uri = "mongodb://127.0.0.1:1".parse().unwrap();
    let attempts = Mutex::new(vec![Some(uri), Some(unreachable), None]);
    let sources: Sources = Box::new(move || {
        let mut attempts = attempts.lock();
        let last = attempts.len() == 1;
        if last {
            attempts[0].clone()
        } else {
            attempts.pop().flatten()
        }
    });
    let (done, wait) = channel();
    let complete = Box::new(move || done.send(()).unwrap());
    let resync = Resync::start(
        sources,
        None,
        path,
        EncryptionSettings::default(),
        log.clone(),
        complete,
    )
    .unwrap();
    tokio::task::block_in_place(|| wait.recv_timeout(PATIENCE)).unwrap();
    assert!(resync.progress().phase == Phase::Complete);
    let progress = resync.progress();
    assert_eq!(progress.failed_attempts, 1);
    assert!(progress.copied.total.unwrap() > 0 && progress.copied.bytes > 0);
    assert!(progress.last_error.is_some());
    resync.stop();
    assert!(resync.progress().phase == Phase::Complete);
    // The old server goes on voting until it ends.
    old.member_log().unwrap().save_vote(b"term 8").unwrap();
    old.close().unwrap();
    drop(old);
    assert_eq!(take_over(path, &log).unwrap(), Taken::Replaced);
    let copy = open(path);
    let vote = copy.member_log().unwrap().vote().unwrap();
    assert_eq!(vote.as_deref(), Some(&b"term 8"[..]));
    assert_eq!(count(&copy), 2000);
    assert_eq!(take_over(path, &log).unwrap(), Taken::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_without_what_the_member_has_acknowledged_is_not_taken() {
    let (mut server, uri) = listening();
    server.fill("c", 10);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (_folder, log) = log();
    let sources: Sources = Box::new(move || Some(uri.clone()));
    let acknowledged = Some(EntryId { term: 9, index: 1 });
    let complete = Box::new(|| panic!("the copy was taken"));
    let resync = Resync::start(
        sources,
        acknowledged,
        path,
        EncryptionSettings::default(),
        log.clone(),
        complete,
    )
    .unwrap();
    wait_until("an attempt fails", || resync.progress().failed_attempts > 0);
    let error = resync.progress().last_error.unwrap();
    assert!(error.contains("acknowledged"), "{error}");
    resync.stop();
    assert_eq!(take_over(path, &log).unwrap(), Taken::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_stopped_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (_folder, log) = log();
    let unreachable: Uri = "mongodb://127.0.0.1:1".parse().unwrap();
    let sources: Sources = Box::new(move || Some(unreachable.clone()));
    let resync = Resync::start(
        sources,
        None,
        path,
        EncryptionSettings::default(),
        log.clone(),
        Box::new(|| ()),
    )
    .unwrap();
    wait_until("an attempt fails", || resync.progress().failed_attempts > 0);
    resync.stop();
    assert_eq!(resync.progress().phase, Phase::Stopped);
    assert!(!directory::folder(path).exists());
    assert_eq!(take_over(path, &log).unwrap(), Taken::Nothing);
}
