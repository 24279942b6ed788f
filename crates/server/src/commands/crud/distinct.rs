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
        // The values and the reply that has them.
        let bytes = 2 * values.as_doc().len_bytes();
        cx.operation.permits.values = Some(cx.server.execution.quotas.replies.count(bytes));
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
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, DocBuf, doc};
    use frond_store::MemoryUse;

    use crate::testing::TestServer;

    /// 30 of 16 MiB each at a time took 1.3 GiB of a server in 256 MiB.
    #[tokio::test(flavor = "multi_thread")]
    async fn values_come_from_the_memory_of_all_operations() {
        let mut server = TestServer::with(|settings| settings.cache_bytes = Some(16 << 20));
        let text = |number: i32| format!("{number} {}", "x".repeat(2000));
        let documents: Vec<DocBuf> = (0..500).map(|n| doc! {"a": text(n)}).collect();
        let documents: ArrayBuf = documents.iter().collect();
        server.run("test", doc! {"insert": "c", "documents": &documents});
        let distinct = doc! {"distinct": "c", "key": "a"};
        let store = server.server.store.clone();
        let free = usize::try_from(store.memory().free()).unwrap();
        let others = store.memory().reserve(MemoryUse::Replies, free - (1 << 20));
        assert_eq!(server.code("test", distinct.clone()), 146);
        drop(others);
        let reply = server.run("test", distinct);
        assert_eq!(reply.get_array("values").unwrap().values().count(), 500);
        assert_eq!(store.memory().used(MemoryUse::Queries), 0);
        assert_eq!(store.memory().used(MemoryUse::Replies), 0);
    }

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
