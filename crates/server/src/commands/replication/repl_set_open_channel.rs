//! `replSetOpenChannel`: makes the connection a channel for the messages of another member.

use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::peers::{OPEN_CHANNEL, PROTOCOL};

pub struct ReplSetOpenChannel;

const SPEC: Spec = Spec {
    names: &[OPEN_CHANNEL],
    doc: "Makes the connection a channel for messages of another member of the replica set; internal.",
    fields: &["set", "id", "protocol"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetOpenChannel {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::Internal))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let server = cx.server;
        let args = cx.args();
        if server.settings.replica_set.is_none() {
            return Err(Error::new(
                ErrorCode::NoReplicationEnabled,
                "This server was not started with --replSet (replication.replSetName)",
            ));
        }
        let protocol = args.i64("protocol")?;
        if protocol.ok_or_else(|| args.missing("protocol"))? != i64::from(PROTOCOL) {
            return Err(Error::bad_value(format!(
                "this member speaks protocol {PROTOCOL} with other members"
            )));
        }
        let set = args.str("set")?.ok_or_else(|| args.missing("set"))?;
        let id = args.i64("id")?.ok_or_else(|| args.missing("id"))?;
        let Some(own) = server.set.peers.identity() else {
            return Err(Error::new(
                ErrorCode::NotYetInitialized,
                "This member is still starting",
            ));
        };
        if set != own.set {
            return Err(Error::new(
                ErrorCode::InconsistentReplicaSetNames,
                format!(
                    "This is a member of the replica set '{}', not of '{set}'",
                    own.set
                ),
            ));
        }
        cx.state.channel_of = Some(u64::from_le_bytes(id.to_le_bytes()));
        let mut reply = DocBuf::new();
        reply.push("id", i64::from_le_bytes(own.id.to_le_bytes()));
        reply.push("set", own.set.as_str());
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::peers::PeerIdentity;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn only_members_of_the_set_open_channels() {
        let open =
            |set: &str| doc! {"replSetOpenChannel": 1, "set": set, "id": -7i64, "protocol": 1};
        let mut server = TestServer::new();
        assert_eq!(server.code("admin", open("rs")), 76);
        let mut server = TestServer::member("rs");
        server.server.set.peers.identify(PeerIdentity {
            id: u64::MAX,
            set: "rs".to_owned(),
        });
        assert_eq!(server.code("admin", open("other")), 108);
        assert_eq!(server.code("test", open("rs")), 13);
        let other = doc! {"replSetOpenChannel": 1, "set": "rs", "id": 1i64, "protocol": 2};
        assert_eq!(server.code("admin", other), 2);
        for missing in ["set", "id", "protocol"] {
            let mut command = doc! {"replSetOpenChannel": 1};
            for (name, value) in open("rs")
                .iter()
                .skip(1)
                .filter(|(name, _)| *name != missing)
            {
                command.push(name, value);
            }
            assert_eq!(server.code("admin", command), 40414, "{missing}");
        }
        assert_eq!(server.state.channel_of, None);
        let reply = server.run("admin", open("rs"));
        assert_eq!(
            (reply.get_i64("id"), reply.get_str("set")),
            (Some(-1), Some("rs"))
        );
        assert_eq!(
            server.state.channel_of,
            Some(u64::from_le_bytes((-7i64).to_le_bytes()))
        );
    }
}
