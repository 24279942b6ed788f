use frond_bson::{DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::cursors;
use crate::sharding;

pub struct DropDatabase;

const SPEC: Spec = Spec {
    names: &["dropDatabase"],
    audits: Audited::DropDatabase,
    doc: "Drops a database and all its collections.",
    on_collection: false,
    ..Spec::CATALOG_WRITE
};

impl Command for DropDatabase {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DropDatabase))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        match cx.body.get("dropDatabase") {
            Some(value) if value.is_number() && value.as_f64() == Some(1.0) => {}
            // Old shells send true.
            Some(Value::Bool(true)) => {}
            _ => {
                return Err(Error::new(
                    ErrorCode::IllegalOperation,
                    "have to pass 1 as db parameter",
                ));
            }
        }
        cx.server.records.profiler.forget(cx.db);
        let gone = cx.store().collections_of(cx.db);
        let existed = cx.store().drop_database(cx.db)?;
        if cx.server.settings.tikv.is_on {
            sharding::forget_database(&cx.server.store, cx.db)?;
        }
        for (namespace, uuid) in gone {
            let why = cursors::dropped(&uuid);
            cx.server.clients.cursors.end(namespace.as_str(), &why);
        }
        cx.server.metrics.forget(&format!("{}.", cx.db));
        Ok(if existed {
            doc! {"dropped": cx.db}
        } else {
            DocBuf::new()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_database_goes() {
        let mut server = TestServer::new();
        server.run("test", doc! {"insert": "c", "documents": [{"_id": 1}]});
        server.run("test2", doc! {"insert": "c", "documents": [{"_id": 1}]});
        assert_eq!(
            server.run("test", doc! {"dropDatabase": 1}),
            doc! {"dropped": "test", "ok": 1.0}
        );
        assert_eq!(
            server.run("test", doc! {"dropDatabase": 1}),
            doc! {"ok": 1.0}
        );
        assert_eq!(server.code("test", doc! {"dropDatabase": 2}), 20);
        // Users and roles are there.
        assert_eq!(server.code("admin", doc! {"dropDatabase": 1}), 20);
        let filter = doc! {"name": {"$regex": "^test"}};
        let left = server.run("admin", doc! {"listDatabases": 1, "filter": filter});
        assert_eq!(left.get_array("databases").unwrap().count(), 1);
    }
}
