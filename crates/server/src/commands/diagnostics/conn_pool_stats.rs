//! `connPoolStats`: the connections from this server to others, of which only a standby has any.

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct ConnPoolStats;

const SPEC: Spec = Spec {
    names: &["connPoolStats"],
    doc: "Shows the connections to other servers: a standby has one to its primary, others have none.",
    ..Spec::CHEAP
};

impl Command for ConnPoolStats {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ConnPoolStats))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = cx.server.set.replication.as_ref();
        let follows = set.is_some_and(|set| set.is_standby());
        let source = (cx.server.set.standby.as_ref()).filter(|_| follows);
        let in_use = i32::from(source.is_some());
        let counts = doc! {
            "inUse": in_use, "available": 0, "leased": 0, "created": in_use, "refreshing": 0, "refreshed": 0,
            "wasNeverUsed": 0,
        };
        let mut hosts = DocBuf::new();
        if let Some(standby) = source {
            hosts.push(&standby.source, &counts);
        }
        let mut pools = DocBuf::new();
        if source.is_some() {
            pools.push("replication", &counts);
        }
        Ok(doc! {
            "numClientConnections": in_use,
            "numAScopedConnections": 0,
            "totalInUse": in_use,
            "totalAvailable": 0,
            "totalLeased": 0,
            "totalCreated": in_use,
            "totalRefreshing": 0,
            "totalRefreshed": 0,
            "totalWasNeverUsed": 0,
            "pools": &pools,
            "hosts": &hosts,
            "replicaSets": {},
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_alone_has_no_connections_to_others() {
        let mut server = TestServer::new();
        for db in ["admin", "test"] {
            let reply = server.run(db, doc! {"connPoolStats": 1});
            assert_eq!(reply.get_i32("totalInUse"), Some(0));
            assert_eq!(reply.get_doc("hosts"), Some(&*doc! {}));
        }
        assert_eq!(
            server.code("test", doc! {"connPoolStats": 1, "x": 1}),
            40415
        );
    }
}
