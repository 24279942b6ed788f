//! Writes that wait for a journal that cannot be written for a while.

#![allow(clippy::unwrap_used)]

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use frond_bson::{DocBuf, doc};

use crate::sessions::SessionId;
use crate::testing::{HookedDisk, TestServer, wait_for, wait_until};

/// A disk whose segments of the log cannot be written while it fails. The log's buffer is mapped, so it still takes
/// what is committed.
fn failing_log_disk(directory: PathBuf, is_failing: &Arc<AtomicBool>) -> Arc<HookedDisk> {
    let is_failing = Arc::clone(is_failing);
    let write = move |name: &str| {
        if name.starts_with("log-") && is_failing.load(Relaxed) {
            Err(io::Error::other("a broken cable"))
        } else {
            Ok(())
        }
    };
    HookedDisk::new(directory, write, |_| Ok(()))
}

/// A write that is applied, but not durable yet, must not be reported as refused: a driver would apply it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_applied_write_whose_journal_wait_fails_has_a_write_concern_error() {
    let synced = doc! {"writeConcern": {"j": true}};
    let lsid = SessionId::random().to_doc();
    let cases: Vec<DocBuf> = vec![
        doc! {"insert": "c", "documents": [{"_id": 2}, {"_id": 3}], "txnNumber": 1i64, "lsid": &lsid},
        doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}],
        "txnNumber": 1i64, "lsid": &lsid},
        doc! {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}},
        "txnNumber": 1i64, "lsid": &lsid},
        doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}],
        "txnNumber": 1i64, "lsid": &lsid},
        doc! {"create": "d"},
    ];
    for mut command in cases {
        let name = command.first().unwrap().0.to_owned();
        let is_failing = Arc::new(AtomicBool::new(false));
        let mut server = TestServer::on(
            |directory| Some(failing_log_disk(directory, &is_failing)),
            |_| {},
        );
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]},
        );
        server.run(
            "test",
            doc! {"create": "other", "writeConcern": {"j": true}},
        );
        command.push_all(&synced);
        is_failing.store(true, Relaxed);
        let first = server.run("test", command.clone());
        let error = first.get_doc("writeConcernError").unwrap();
        assert_eq!(error.get_i32("code"), Some(64), "{name}: {first:?}");
        assert!(error.get_str("errmsg").unwrap().contains("is applied"));
        assert!(first.get("errorLabels").is_none());
        let expected = match name.as_str() {
            "insert" => 3,
            "delete" => 0,
            _ => 1,
        };
        let counted = server.run("test", doc! {"count": "c"});
        assert_eq!(counted.get_i32("n"), Some(expected), "{name}");
        if name == "create" {
            let reply = server.run("test", doc! {"listCollections": 1});
            assert_eq!(server.batch(&reply, "firstBatch").len(), 3);
            continue;
        }
        assert!(first.get_i32("n").is_none_or(|n| n > 0), "{first:?}");
        // A retry reports what the first try did, and waits as that did.
        let second = server.run("test", command.clone());
        assert_eq!(second, first, "{name}");
        is_failing.store(false, Relaxed);
        wait_until("a synced log", || {
            let again = server.run("test", command.clone());
            again.get("writeConcernError").is_none()
        });
        if matches!(name.as_str(), "update" | "findAndModify") {
            let reply = server.run("test", doc! {"find": "c", "filter": {"_id": 1}});
            let found = server.batch(&reply, "firstBatch").remove(0);
            assert_eq!(found.get_i32("n"), Some(1), "{name}");
        }
    }
}

/// The statements before the error are recorded. Without that a retry got duplicate key errors for its own documents.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_an_insert_that_stalled_half_way_inserts_the_rest() {
    for ordered in [true, false] {
        let is_failing = Arc::new(AtomicBool::new(false));
        let mut server = TestServer::on(
            |directory| Some(failing_log_disk(directory, &is_failing)),
            |_| {},
        );
        server.run("test", doc! {"create": "c", "writeConcern": {"j": true}});
        let lsid = SessionId::random().to_doc();
        let mut command =
            doc! {"insert": "c", "ordered": ordered, "lsid": &lsid, "txnNumber": 1i64};
        let filler = "x".repeat(1000);
        // Several times what the buffers of the log hold, in commits that each fit into one.
        command.push_array("documents", |list| {
            for n in 0..40_000 {
                list.push(&doc! {"_id": n, "filler": &filler});
            }
        });
        is_failing.store(true, Relaxed);
        let reply = server.reply("test", command.clone());
        assert_eq!(reply.get_i32("code"), Some(262), "{reply:?}");
        let counted = server.run("test", doc! {"count": "c"});
        assert!(counted.get_i32("n") > Some(0), "{counted:?}");
        is_failing.store(false, Relaxed);
        let reply = wait_for("a log that is written", || {
            let reply = server.reply("test", command.clone());
            (reply.get_i32("code") != Some(262)).then_some(reply)
        });
        assert!(reply.get("writeErrors").is_none(), "{ordered}: {reply:?}");
        assert_eq!(reply.get_i32("n"), Some(40_000), "{reply:?}");
        let counted = server.run("test", doc! {"count": "c"});
        assert_eq!(counted.get_i32("n"), Some(40_000));
    }
}
