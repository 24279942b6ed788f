//! `captrunc` and `emptycapped`: documents of a collection are removed from its end, or all. For tests, as in MongoDB.

use frond_bson::{ArrayBuf, Doc, DocBuf, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{DeleteRequest, Durability, FindRequest, Namespace};

use crate::authorization::{Action, Needs, Requested};
use crate::commands::administration::configure_fail_point::check_test_commands;
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::AdmissionClass;

const TRUNCATES: Spec = Spec {
    admission: Some(AdmissionClass::Write),
    stable_api: false,
    ..Spec::CATALOG_WRITE
};

/// Refuses collections of the server.
fn check_not_system(namespace: &Namespace) -> Result<()> {
    let coll = namespace.coll();
    let is_of_server = coll.starts_with("system.") && coll != "system.profile";
    if is_of_server || (namespace.db() == "local" && coll == "oplog.rs") {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            format!("Cannot truncate a system collection: {namespace}"),
        ));
    }
    Ok(())
}

fn remove(cx: &Context<'_>, namespace: &Namespace, filter: &Doc) -> Result<()> {
    let request = DeleteRequest {
        filter,
        limit_one: false,
        hint: None,
        variables: None,
        collation: None,
    };
    let durability = Durability::Logged;
    cx.store()
        .delete(namespace, &request, durability, &cx.limits)?;
    Ok(())
}

fn existing(cx: &Context<'_>, namespace: &Namespace) -> Result<()> {
    // Statistics of a view are an error of their own.
    cx.server.store.collection_stats(namespace)?;
    if cx.server.store.collection_exists(namespace) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::NamespaceNotFound,
        format!(
            "{} not supported on nonexistent collection: {namespace}",
            cx.name
        ),
    ))
}

pub struct Captrunc;

const CAPTRUNC: Spec = Spec {
    names: &["captrunc"],
    doc: "Removes the newest documents of a capped collection; only with `enableTestCommands`.",
    fields: &["n", "inc"],
    ..TRUNCATES
};

impl Command for Captrunc {
    fn spec(&self) -> &'static Spec {
        &CAPTRUNC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Remove)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check_test_commands(cx)?;
        let namespace = cx.namespace()?;
        let args = cx.args();
        let n = args.i64("n")?.ok_or_else(|| args.missing("n"))?;
        let n = u64::try_from(n).ok().filter(|n| *n > 0);
        let n = n.ok_or_else(|| Error::bad_value("'n' must be a positive integer"))?;
        let inclusive = args.flag("inc")?.unwrap_or(false);
        existing(cx, &namespace)?;
        let stats = cx.server.store.collection_stats(&namespace)?;
        if stats.capped.is_none() {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "captrunc not supported on a non-capped collection",
            ));
        }
        if stats.count <= n {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                format!("invalid n, collection contains fewer than {n} documents"),
            ));
        }
        let (newest_first, ids) = (doc! {"$natural": -1}, doc! {"_id": 1});
        let request = FindRequest {
            sort: Some(&newest_first),
            projection: Some(&ids),
            limit: Some(n + u64::from(inclusive)),
            ..FindRequest::default()
        };
        let mut found = cx.store().find(&namespace, &request, &cx.limits)?;
        let mut removed = ArrayBuf::new();
        while let Some(document) = found.next()? {
            if let Some(id) = document.get("_id") {
                removed.push(id);
            }
        }
        drop(found);
        remove(cx, &namespace, &doc! {"_id": {"$in": &removed}})?;
        Ok(DocBuf::new())
    }
}

pub struct EmptyCapped;

const EMPTY_CAPPED: Spec = Spec {
    names: &["emptycapped"],
    doc: "Removes all documents of a collection, capped or not; only with `enableTestCommands`.",
    ..TRUNCATES
};

impl Command for EmptyCapped {
    fn spec(&self) -> &'static Spec {
        &EMPTY_CAPPED
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        Needs::on_collection(request, Action::Emptycapped)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check_test_commands(cx)?;
        let namespace = cx.namespace()?;
        existing(cx, &namespace)?;
        check_not_system(&namespace)?;
        remove(cx, &namespace, Doc::empty())?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn they_are_there_for_tests_only() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        for command in [doc! {"captrunc": "c", "n": 1}, doc! {"emptycapped": "c"}] {
            assert_eq!(server.code("test", command), 59);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_newest_documents_are_removed() {
        let mut server = TestServer::with(|settings| settings.test_commands = true);
        server.run(
            "test",
            doc! {"create": "c", "capped": true, "size": 100_000},
        );
        server.fill("c", 10);
        let left = |server: &mut TestServer| -> Vec<i32> {
            let reply = server.run("test", doc! {"find": "c"});
            let found = server.batch(&reply, "firstBatch");
            found
                .iter()
                .map(|one| one.get_i32("_id").unwrap())
                .collect()
        };
        let all = left(&mut server);
        server.run("test", doc! {"captrunc": "c", "n": 3, "inc": false});
        assert_eq!(left(&mut server), all[..7]);
        server.run("test", doc! {"captrunc": "c", "n": 3, "inc": true});
        assert_eq!(left(&mut server), all[..3]);
        server.run("test", doc! {"create": "v", "viewOn": "c", "pipeline": []});
        server.fill("d", 3);
        for (command, code) in [
            (doc! {"captrunc": "c", "n": 3}, 20),
            (doc! {"captrunc": "c", "n": 0}, 2),
            (doc! {"captrunc": "c", "n": -1}, 2),
            (doc! {"captrunc": "c"}, 40414),
            (doc! {"captrunc": "d", "n": 1}, 20),
            (doc! {"captrunc": "none", "n": 1}, 26),
            (doc! {"captrunc": "v", "n": 1}, 166),
            (doc! {"emptycapped": "none"}, 26),
            (doc! {"emptycapped": "v"}, 166),
            (doc! {"emptycapped": "system.views"}, 20),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        server.run("test", doc! {"emptycapped": "c"});
        assert!(left(&mut server).is_empty());
        server.run("test", doc! {"emptycapped": "d"});
        assert_eq!(
            server.run("test", doc! {"count": "d"}).get_i32("n"),
            Some(0)
        );
    }
}
