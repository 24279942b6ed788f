use std::time::Instant;

use frond_bson::{DocBuf, Value};
use frond_error::Result;

use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::AdmissionClass;

pub struct DbHash;

const SPEC: Spec = Spec {
    names: &["dbHash", "dbhash"],
    doc: "Hashes the collections of a database, to compare servers.",
    fields: &["collections"],
    admission: Some(AdmissionClass::Maintenance),
    stable_api: false,
    ..Spec::CATALOG
};

impl Command for DbHash {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::on_database(request, Action::DbHash))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let began = Instant::now();
        let args = cx.args();
        let mut names = Vec::new();
        for (at, name) in args
            .array("collections")?
            .into_iter()
            .flat_map(|n| n.iter())
        {
            match name {
                Value::String(name) => names.push(name),
                other => {
                    let field = format!("collections.{at}");
                    return Err(args.wrong_type(&field, &other, "type 'string'"));
                }
            }
        }
        let chosen = (!names.is_empty()).then_some(names.as_slice());
        let hashes = cx.server.store.hash_database(cx.db, chosen, &cx.limits)?;
        let mut reply = DocBuf::new();
        reply.push("host", &cx.server.host_and_port());
        reply.push_doc("collections", |list| {
            for collection in &hashes.collections {
                list.push(&collection.name, &collection.md5);
            }
        });
        reply.push_array("capped", |list| {
            for collection in hashes.collections.iter().filter(|one| one.capped) {
                list.push(&collection.name);
            }
        });
        reply.push_doc("uuids", |list| {
            for collection in &hashes.collections {
                let (subtype, bytes) = (4, collection.uuid.as_slice());
                list.push(&collection.name, Value::Binary { subtype, bytes });
            }
        });
        reply.push("md5", &hashes.md5);
        let took = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        reply.push("timeMillis", took);
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn equal_databases_have_equal_hashes() {
        let mut server = TestServer::new();
        for db in ["a", "b"] {
            server.run(
                db,
                doc! {"insert": "c", "documents": [{"_id": 1, "x": 1}, {"_id": 2}]},
            );
        }
        let hash = |server: &mut TestServer, db: &str| {
            let reply = server.run(db, doc! {"dbHash": 1});
            let of_c = reply
                .get_doc("collections")
                .and_then(|all| all.get_str("c"));
            (
                of_c.map(str::to_owned),
                reply.get_str("md5").map(str::to_owned),
            )
        };
        let (a, b) = (hash(&mut server, "a"), hash(&mut server, "b"));
        assert!(a == b && a.0.is_some_and(|md5| md5.len() == 32));
        server.run("b", doc! {"insert": "c", "documents": [{"_id": 3}]});
        assert_ne!(hash(&mut server, "b"), b);
        let none = server.run("b", doc! {"dbHash": 1, "collections": ["d"]});
        assert_eq!(none.get_doc("collections"), Some(&*doc! {}));
    }
}
