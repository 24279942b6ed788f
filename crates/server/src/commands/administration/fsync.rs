use std::time::Duration;

use frond_bson::{DocBuf, doc};
use frond_error::{Error, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::fsync_lock;
use frond_runtime::Work;

/// The default limit of the wait for writes that had begun before a lock.
const LOCK_WAIT_MS: i64 = 90_000;

pub struct Fsync;

const FSYNC: Spec = Spec {
    names: &["fsync"],
    doc: "Syncs the journal and writes a checkpoint; with `lock: true` writes wait until `fsyncUnlock`, and the data files can be \
          copied.",
    fields: &["lock", "async", "fsyncLockAcquisitionTimeoutMillis"],
    work: Work::Long,
    // Without a ticket: others may be held by writes that wait for the end of a lock.
    admission: None,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for Fsync {
    fn spec(&self) -> &'static Spec {
        &FSYNC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Fsync))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let timeout = args
            .i64("fsyncLockAcquisitionTimeoutMillis")?
            .unwrap_or(LOCK_WAIT_MS);
        let timeout = u64::try_from(timeout).map_err(|_| {
            Error::bad_value("fsyncLockAcquisitionTimeoutMillis must be a positive number")
        })?;
        let (server, store) = (cx.server, &cx.server.store);
        if args.flag("lock")?.unwrap_or(false) {
            let timeout = Duration::from_millis(timeout);
            let check = || {
                cx.connection.running.lock().waits_for = Some(fsync_lock::LOCK_WAIT);
                Ok(cx.limits.check()?)
            };
            let locked = server.maintenance.fsync_lock.lock(store, timeout, check);
            cx.connection.running.lock().waits_for = None;
            let count = locked?;
            return Ok(doc! {
                "info": "now locked against writes, use db.fsyncUnlock() to unlock",
                "lockCount": count,
                "seeAlso": "http://dochub.mongodb.org/core/fsynccommand",
            });
        }
        store.flush_log()?;
        // While it is locked, the last checkpoint has everything.
        if server.maintenance.fsync_lock.count() == 0 {
            store.checkpoint()?;
        }
        Ok(doc! {"numFiles": 1})
    }
}

pub struct FsyncUnlock;

const FSYNC_UNLOCK: Spec = Spec {
    names: &["fsyncUnlock"],
    doc: "Ends a lock of `fsync`: each lock needs one unlock.",
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for FsyncUnlock {
    fn spec(&self) -> &'static Spec {
        &FSYNC_UNLOCK
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Unlock))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let count = cx.server.maintenance.fsync_lock.unlock()?;
        Ok(doc! {"info": "fsyncUnlock completed", "lockCount": count})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::{TestServer, wait_until};

    #[tokio::test(flavor = "multi_thread")]
    async fn it_checkpoints() {
        let mut server = TestServer::new();
        assert_eq!(
            server.run("admin", doc! {"fsync": 1}),
            doc! {"numFiles": 1, "ok": 1.0}
        );
        assert_eq!(server.code("test", doc! {"fsync": 1}), 13);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn writes_wait_until_it_is_unlocked_as_often_as_it_was_locked() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        assert_eq!(server.code("admin", doc! {"fsyncUnlock": 1}), 20);
        let locked = server.run("admin", doc! {"fsync": 1, "lock": true});
        assert_eq!(locked.get_i64("lockCount"), Some(1));
        let again = server.run("admin", doc! {"fsync": 1, "lock": true});
        assert_eq!(again.get_i64("lockCount"), Some(2));
        // Reads go on; writes wait, here until their time is over.
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(3)
        );
        let writes = [
            doc! {"insert": "c", "documents": [{"a": 1}]},
            doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
            doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
            doc! {"findAndModify": "c", "remove": true},
            doc! {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}},
            doc! {"create": "d"},
            doc! {"drop": "c"},
            doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
            doc! {"compact": "c"},
            doc! {"reIndex": "c"},
        ];
        for mut write in writes {
            write.push("maxTimeMS", 30);
            assert_eq!(server.code("test", write.clone()), 50, "{write:?}");
        }
        let reply = server.run("admin", doc! {"currentOp": 1});
        assert_eq!(reply.get_bool("fsyncLock"), Some(true));
        assert!(reply.get_str("info").unwrap().contains("fsyncUnlock"));
        let target = doc! {"createBackup": 1, "backupDir": "/tmp/none"};
        assert_eq!(server.code("admin", target), 20);
        server.run("admin", doc! {"fsync": 1});
        let left = server.run("admin", doc! {"fsyncUnlock": 1});
        assert_eq!(left.get_i64("lockCount"), Some(1));
        let write = doc! {"insert": "c", "documents": [{"a": 1}], "maxTimeMS": 30};
        assert_eq!(server.code("test", write.clone()), 50);
        let left = server.run("admin", doc! {"fsyncUnlock": 1});
        assert_eq!(
            left,
            doc! {"info": "fsyncUnlock completed", "lockCount": 0i64, "ok": 1.0}
        );
        server.run("test", write);
        let reply = server.run("admin", doc! {"currentOp": 1});
        assert_eq!(reply.get_bool("fsyncLock"), None);
    }

    /// A write that runs already keeps the lock waiting, not for ever.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_lock_that_cannot_be_had_times_out() {
        let mut server = TestServer::new();
        let shared = server.server.clone();
        let write = shared.maintenance.fsync_lock.try_write().unwrap();
        let lock = doc! {"fsync": 1, "lock": true, "fsyncLockAcquisitionTimeoutMillis": 20};
        assert_eq!(server.code("admin", lock.clone()), 24);
        let timed = doc! {"fsync": 1, "lock": true, "maxTimeMS": 20};
        assert_eq!(server.code("admin", timed), 50);
        // Later writes do not wait for a lock that has been given up.
        wait_until("a write", || {
            shared.maintenance.fsync_lock.try_write().is_some()
        });
        drop(write);
        server.run("admin", lock);
        assert!(shared.maintenance.fsync_lock.try_write().is_none());
        shared.maintenance.fsync_lock.release();
        assert!(shared.maintenance.fsync_lock.try_write().is_some());
        let wrong = doc! {"fsync": 1, "lock": true, "fsyncLockAcquisitionTimeoutMillis": -1};
        assert_eq!(server.code("admin", wrong), 2);
    }
}
