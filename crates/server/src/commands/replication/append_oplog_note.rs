use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::AdmissionClass;

pub struct AppendOplogNote;

const SPEC: Spec = Spec {
    names: &["appendOplogNote"],
    doc: "Writes a document into the oplog that describes no change.",
    fields: &["data", "maxClusterTime"],
    admission: Some(AdmissionClass::Write),
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for AppendOplogNote {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::AppendOplogNote))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let data = args
            .doc_field("data")?
            .ok_or_else(|| args.missing("data"))?;
        let oplog = cx.server.store.oplog();
        if !oplog.is_on() {
            return Err(Error::new(
                ErrorCode::NoReplicationEnabled,
                "Must have replication set up to run \"appendOplogNote\": there is no oplog, start the server with \
                 --replSet or --oplog",
            ));
        }
        match args.get("maxClusterTime") {
            None => {}
            Some(Value::Timestamp(limit)) if limit > oplog.last() => {}
            Some(Value::Timestamp(_)) => {
                return Err(Error::location(
                    STALE_CLUSTER_TIME,
                    "Requested maxClusterTime is less or equal to the last primary OpTime",
                ));
            }
            Some(other) => {
                return Err(args.wrong_type("maxClusterTime", &other, "type 'timestamp'"));
            }
        }
        cx.operation.entry_at = Some(oplog.append_noop(data)?);
        Ok(DocBuf::new())
    }
}

const STALE_CLUSTER_TIME: i32 = 209;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{Timestamp, Value, doc};

    use crate::settings::OplogMode;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_note_is_an_entry() {
        let mut server = TestServer::with(|settings| settings.oplog = OplogMode::On);
        let before = server.server.store.oplog().last();
        // Readers see only what is durable.
        let concern = doc! {"w": 1, "j": true};
        let note = doc! {
            "appendOplogNote": 1, "data": {"msg": "hello"}, "writeConcern": &concern,
        };
        server.run("admin", note);
        assert!(server.server.store.oplog().last() > before);
        let find = doc! {"find": "oplog.rs", "filter": {"op": "n", "o.msg": "hello"}};
        let reply = server.run("local", find);
        assert_eq!(server.batch(&reply, "firstBatch").len(), 1);
        let old = Value::Timestamp(Timestamp::default());
        let note = doc! {"appendOplogNote": 1, "data": {}, "maxClusterTime": old};
        assert_eq!(server.code("admin", note), 209);
        assert_eq!(server.code("admin", doc! {"appendOplogNote": 1}), 40414);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn there_has_to_be_an_oplog() {
        let mut server = TestServer::new();
        let note = doc! {"appendOplogNote": 1, "data": {}};
        assert_eq!(server.code("admin", note), 76);
    }
}
