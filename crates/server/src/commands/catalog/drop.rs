use frond_bson::DocBuf;
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors;
use crate::sharding;

pub struct Drop;

const SPEC: Spec = Spec {
    names: &["drop"],
    audits: Audited::DropCollection,
    doc: "Drops a collection and its indexes.",
    fields: &["collectionUUID"],
    unsupported_fields: &["encryptedFields"],
    ..Spec::CATALOG_WRITE
};

impl Command for Drop {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::DropCollection)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let namespace = cx.namespace()?;
        let is_profile = namespace.coll() == "system.profile";
        if is_profile && cx.server.records.profiler.level(cx.db).level != 0 {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "turn off profiling before dropping system.profile collection",
            ));
        }
        if is_profile {
            cx.server.records.profiler.discard(cx.db);
        }
        let uuid = cx.store().uuid_of(&namespace);
        let dropped = match cx.store().drop_collection(&namespace) {
            Ok(dropped) => dropped,
            // Since MongoDB 7.0 dropping a missing collection succeeds.
            Err(error) if error.code() == ErrorCode::NamespaceNotFound => {
                return Ok(DocBuf::new());
            }
            Err(error) => return Err(error.into()),
        };
        if cx.server.settings.tikv.is_on {
            sharding::forget(&cx.server.store, &namespace)?;
        }
        if let Some(uuid) = uuid {
            let why = cursors::dropped(&uuid);
            cx.server.clients.cursors.end(namespace.as_str(), &why);
        }
        cx.server.metrics.forget(namespace.as_str());
        let mut reply = DocBuf::new();
        if let Some(indexes) = dropped.indexes_were {
            reply.push("nIndexesWas", indexes as i32);
        }
        reply.push("ns", namespace.as_str());
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_collection_goes() {
        let mut server = TestServer::new();
        server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
        let reply = server.run("test", doc! {"drop": "c"});
        assert_eq!(reply, doc! {"nIndexesWas": 1, "ns": "test.c", "ok": 1.0});
        assert_eq!(
            server.run("test", doc! {"count": "c"}).get_i32("n"),
            Some(0)
        );
        assert_eq!(server.run("test", doc! {"drop": "c"}), doc! {"ok": 1.0});
    }
}
