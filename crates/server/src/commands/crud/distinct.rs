use frond_bson::DocBuf;
use frond_error::Result;

use super::find::hint;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, InTransactions, Spec};
use crate::context::Context;

pub struct Distinct;

const SPEC: Spec = Spec {
    names: &["distinct"],
    doc: "Lists the distinct values of a field.",
    fields: &["collectionUUID", "key", "query", "hint", "collation"],
    counts_shapes: true,
    stable_api: false,
    in_transactions: InTransactions::Always,
    ..Spec::READ
};

impl Command for Distinct {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Find)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let args = cx.args();
        let key = args.str("key")?.ok_or_else(|| args.missing("key"))?;
        let filter = args.doc_field("query")?;
        let hint = hint(&args)?;
        let collation = args.collation()?;
        let values = cx.store().distinct(
            &namespace,
            key,
            filter,
            hint,
            collation.as_ref(),
            &cx.limits,
        )?;
        let mut reply = DocBuf::new();
        reply.push("values", &values);
        if let Some(point_in_time) = &cx.point_in_time {
            reply.push("atClusterTime", point_in_time.time);
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn values_are_listed_once() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [
                {"a": 2}, {"a": [1, 2]}, {"a": "x"}, {"b": 9}, {"a": 2.0},
            ]},
        );
        let reply = server.run("test", doc! {"distinct": "c", "key": "a"});
        assert_eq!(reply, doc! {"values": [1, 2, "x"], "ok": 1.0});
        let reply = server.run(
            "test",
            doc! {"distinct": "c", "key": "a", "query": {"a": "x"}},
        );
        assert_eq!(reply, doc! {"values": ["x"], "ok": 1.0});
        assert_eq!(
            server.run("test", doc! {"distinct": "none", "key": "a"}),
            doc! {"values": [], "ok": 1.0}
        );
        assert_eq!(server.code("test", doc! {"distinct": "c"}), 40414);
        assert_eq!(server.code("test", doc! {"distinct": "c", "key": 1}), 14);
    }
}
