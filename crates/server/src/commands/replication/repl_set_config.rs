//! `replSetInitiate`, `replSetGetConfig` and `replSetReconfig`: the configuration of the replica set.

use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_replset::SetConfig;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::background;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::feature_version;
use crate::oplog;
use crate::replication::Replication;
use crate::state::Server;
use frond_runtime::{AdmissionClass, Work};

/// The wait for new members before the reply. Those that have to copy data join later.
const JOIN_WAIT: Duration = Duration::from_secs(10);

/// Reads and writes the stored configuration.
const CHANGES: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    admin_only: true,
    ..Spec::CHEAP
};

/// The replica set, or the error of a standalone server.
pub fn replica_set(server: &Server) -> Result<&Replication> {
    let set = server
        .set
        .replication
        .as_ref()
        .filter(|set| !set.is_router());
    set.ok_or_else(|| {
        Error::new(
            ErrorCode::NoReplicationEnabled,
            "not running with --replSet",
        )
    })
}

/// The configuration in the command's first field.
fn given<'a>(cx: &Context<'a>) -> Option<&'a Doc> {
    match cx.body.first() {
        Some((_, Value::Document(config))) => Some(config),
        _ => None,
    }
}

pub struct ReplSetInitiate;

const REPL_SET_INITIATE: Spec = Spec {
    names: &["replSetInitiate"],
    audits: Audited::ReplSetReconfig,
    doc: "Begins a replica set, of which the server is the first primary.",
    ..CHANGES
};

impl Command for ReplSetInitiate {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_INITIATE
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetConfigure))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        let (server, mut reply) = (cx.server, DocBuf::new());
        let default = SetConfig::default_doc(&set.name, &set.default_host);
        let config = given(cx).filter(|config| !config.is_empty());
        let prepare = || {
            oplog::initiate(&server.store, &server.settings)?;
            feature_version::ensure(&server.store)
        };
        let find_own = |config: &SetConfig| background::find_own(server, config);
        set.initiate(config.unwrap_or(&default), find_own, prepare)?;
        background::await_complete(server, JOIN_WAIT);
        if config.is_none() {
            reply.push(
                "info2",
                "no configuration specified. Using a default configuration for the set",
            );
            reply.push("me", &*set.default_host);
        }
        Ok(reply)
    }
}

pub struct ReplSetGetConfig;

const REPL_SET_GET_CONFIG: Spec = Spec {
    names: &["replSetGetConfig"],
    doc: "Returns the configuration of the replica set.",
    fields: &["commitmentStatus"],
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for ReplSetGetConfig {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_GET_CONFIG
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetGetConfig))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let member = replica_set(cx.server)?.initiated()?;
        let wants_status = cx.args().flag("commitmentStatus")?.unwrap_or(false);
        let set = replica_set(cx.server)?;
        let is_committed = || set.durable() >= set.last_write();
        let status = wants_status.then(is_committed);
        Ok(frond_replset::config_reply(&member.config, status))
    }
}

pub struct ReplSetReconfig;

const REPL_SET_RECONFIG: Spec = Spec {
    names: &["replSetReconfig"],
    audits: Audited::ReplSetReconfig,
    doc: "Changes the configuration of the replica set.",
    fields: &["force"],
    ..CHANGES
};

impl Command for ReplSetReconfig {
    fn spec(&self) -> &'static Spec {
        &REPL_SET_RECONFIG
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::ReplSetConfigure))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let set = replica_set(cx.server)?;
        let force = cx.args().flag("force")?.unwrap_or(false);
        set.initiated()?;
        let config = given(cx).ok_or_else(|| {
            Error::bad_value("no configuration specified: replSetReconfig needs a document")
        })?;
        let server = cx.server;
        let check = |config: &SetConfig| {
            if force {
                Ok(())
            } else {
                background::check_quorum(server, config)
            }
        };
        set.reconfigure(config, force, check)?;
        background::await_complete(cx.server, JOIN_WAIT);
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_standalone_server_has_no_replica_set() {
        let mut server = TestServer::new();
        for command in [
            doc! {"replSetInitiate": 1},
            doc! {"replSetGetConfig": 1},
            doc! {"replSetReconfig": {}},
        ] {
            assert_eq!(server.code("admin", command), 76);
        }
        assert_eq!(server.code("test", doc! {"replSetGetConfig": 1}), 13);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_set_is_initiated_once() {
        let mut server = TestServer::member("rs0");
        for command in [
            doc! {"replSetGetConfig": 1},
            doc! {"replSetReconfig": {"_id": "rs0"}},
        ] {
            assert_eq!(server.code("admin", command), 94);
        }
        let wrong = doc! {"_id": "rs1", "version": 1, "members": [{"_id": 0, "host": "a:1"}]};
        assert_eq!(server.code("admin", doc! {"replSetInitiate": &wrong}), 93);
        let reply = server.run("admin", doc! {"replSetInitiate": {}});
        assert_eq!(reply.get_str("me"), Some("127.0.0.1:27017"));
        assert_eq!(server.code("admin", doc! {"replSetInitiate": {}}), 23);

        let config = server.run(
            "admin",
            doc! {"replSetGetConfig": 1, "commitmentStatus": true},
        );
        assert_eq!(config.get_bool("commitmentStatus"), Some(true));
        let config = config.get_doc("config").unwrap().to_owned();
        assert_eq!(config.get_str("_id"), Some("rs0"));
        // It is a document, as in MongoDB.
        let reply = server.run("local", doc! {"find": "system.replset"});
        assert_eq!(server.batch(&reply, "firstBatch"), [config]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_is_seen_by_hello() {
        let mut server = TestServer::member("rs0");
        let given = doc! {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "a:1"}]};
        server.run("admin", doc! {"replSetInitiate": &given});
        let before = server.server.topology_counter();
        assert_eq!(server.code("admin", doc! {"replSetReconfig": &given}), 103);
        assert_eq!(server.code("admin", doc! {"replSetReconfig": 1}), 2);
        assert_eq!(server.server.topology_counter(), before);
        let next = doc! {
            "_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "b:2", "tags": {"dc": "x"}}],
        };
        server.run("admin", doc! {"replSetReconfig": &next});
        assert_eq!(server.server.topology_counter(), before + 1);
        let hello = server.run("admin", doc! {"hello": 1});
        assert_eq!(hello.get_str("me"), Some("b:2"));
        assert_eq!(hello.get_i32("setVersion"), Some(2));
        assert_eq!(hello.get_doc("tags"), Some(&*doc! {"dc": "x"}));
        server.run("admin", doc! {"replSetReconfig": &given, "force": true});
        let hello = server.run("admin", doc! {"hello": 1});
        assert!(hello.get_i32("setVersion").unwrap() > 10_000);
    }
}
