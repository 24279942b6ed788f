//! `lockInfo`: the holders of the locks of the server.
//!
//! Operations take tickets, not locks of databases and collections. A ticket is shown as an intent lock of the one resource that
//! there is, and the lock of `fsync` as its exclusive lock.

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

fn request(mode: &str, client: &DocBuf) -> DocBuf {
    doc! {
        "mode": mode,
        "convertMode": "NONE",
        "enqueueAtFront": false,
        "compatibleFirst": false,
        "debugInfo": "",
        "clientInfo": client,
    }
}

pub struct LockInfo;

const SPEC: Spec = Spec {
    names: &["lockInfo"],
    doc: "Shows which operations hold or await the lock of `fsync`, and with which mode.",
    // No lock has details that are left out.
    fields: &["includeStorageEngineInfo"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for LockInfo {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ServerStatus))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let (mut granted, mut pending) = (Vec::new(), Vec::new());
        if cx.server.maintenance.fsync_lock.count() > 0 {
            granted.push(request("S", &doc! {"desc": "fsyncLockWorker"}));
        }
        for connection in cx.server.clients.connections.list() {
            let running = connection.running.lock();
            // This command takes no lock.
            if !running.active || connection.id == cx.connection.id {
                continue;
            }
            let client = doc! {
                "desc": &connection.name, "connectionId": connection.id, "opid": running.id,
            };
            let mode = if running.writes { "IX" } else { "IS" };
            let list = match running.waits_for {
                Some(crate::fsync_lock::WAIT) => &mut pending,
                // It has released its ticket meanwhile.
                Some(_) => continue,
                None => &mut granted,
            };
            list.push(request(mode, &client));
        }
        let mut reply = DocBuf::new();
        reply.push_array("lockInfo", |list| {
            if granted.is_empty() && pending.is_empty() {
                return;
            }
            let mut lock = doc! {"resourceId": "{1: Global, 1}"};
            for (name, requests) in [("granted", granted), ("pending", pending)] {
                lock.push_array(name, |list| requests.iter().for_each(|one| list.push(one)));
            }
            list.push(&lock);
        });
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::fsync_lock::WAIT;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn writers_wait_for_the_lock_of_fsync() {
        let mut server = TestServer::new();
        let info = doc! {"lockInfo": 1};
        assert_eq!(
            server.run("admin", info.clone()),
            doc! {"lockInfo": [], "ok": 1.0}
        );
        server.run("admin", doc! {"fsync": 1, "lock": true});
        let other = (server.server.clients.connections)
            .open(crate::connection::Peer::Unix, 10, Default::default())
            .unwrap();
        {
            let mut running = other.running.lock();
            (running.active, running.writes) = (true, true);
            running.waits_for = Some(WAIT);
        }
        let reply = server.run("admin", info);
        let lock = reply.get_array("lockInfo").unwrap().get_doc("0").unwrap();
        let of = |name: &str| {
            let list = lock.get_array(name).unwrap();
            assert_eq!(list.count(), 1, "{lock:?}");
            let request = list.get_doc("0").unwrap();
            request.get_str("mode").unwrap().to_owned()
        };
        assert_eq!((of("granted"), of("pending")), ("S".into(), "IX".into()));
        server.run("admin", doc! {"fsyncUnlock": 1});
    }
}
