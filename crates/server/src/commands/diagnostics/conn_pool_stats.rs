//! `connPoolStats`: the pools of connections to other servers, of which there are none. A member of a replica set keeps one channel to
//! each other member.

use frond_bson::{DocBuf, doc};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;

pub struct ConnPoolStats;

const SPEC: Spec = Spec {
    names: &["connPoolStats"],
    doc: "Shows the pools of connections to other servers: there are none.",
    ..Spec::CHEAP
};

impl Command for ConnPoolStats {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ConnPoolStats))
    }

    fn run(&self, _: &mut Context<'_>) -> Result<DocBuf> {
        Ok(doc! {
            "numClientConnections": 0,
            "numAScopedConnections": 0,
            "totalInUse": 0,
            "totalAvailable": 0,
            "totalLeased": 0,
            "totalCreated": 0,
            "totalRefreshing": 0,
            "totalRefreshed": 0,
            "totalWasNeverUsed": 0,
            "pools": {},
            "hosts": {},
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
