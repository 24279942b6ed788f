//! `getDiagnosticData`: the sample that mongod records each second, for exporters of metrics.

use frond_bson::{DocBuf, Value, doc};
use frond_error::Result;

use super::server_status;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::host::clock::now_ms;
use frond_runtime::Work;

pub struct GetDiagnosticData;

const SPEC: Spec = Spec {
    names: &["getDiagnosticData"],
    doc: "Reports the counters of the server as a sample of diagnostic data, taken now.",
    work: Work::Long,
    admin_only: true,
    ..Spec::CHEAP
};

impl Command for GetDiagnosticData {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        let server = [Action::ReplSetGetStatus, Action::ServerStatus];
        let oplog = Needs::on(Place::collection("local", "oplog.rs"), Action::CollStats);
        Ok(Needs::cluster(server).and(oplog))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let start = Value::DateTime(now_ms());
        let mut status = doc! {"start": start};
        status.push_all(&server_status::report(cx.server, |_| true));
        status.push("end", Value::DateTime(now_ms()));
        let end = Value::DateTime(now_ms());
        Ok(doc! {"data": {"start": start, "serverStatus": &status, "end": end}})
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sample_holds_the_status() {
        let mut server = TestServer::new();
        // As exporters of metrics send it.
        let reply = server.run("admin", doc! {"getDiagnosticData": "1"});
        let data = reply.get_doc("data").unwrap();
        let status = data.get_doc("serverStatus").unwrap();
        for name in ["opcounters", "wiredTiger", "locks", "mem"] {
            assert!(status.get_doc(name).is_some(), "{name}");
        }
        assert!(data.contains_key("start") && data.contains_key("end"));
        assert_eq!(server.code("test", doc! {"getDiagnosticData": 1}), 13);
    }
}
