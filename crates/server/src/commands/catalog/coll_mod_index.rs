//! The part of `collMod` that changes an index.

use frond_bson::{DocBuf, Value};
use frond_error::{Error, ErrorCode, Result};
use frond_store::{IndexChange, IndexSelector, Namespace};

use crate::arguments::Arguments;
use crate::context::{Context, unsupported_option};

fn invalid(message: &str) -> Error {
    Error::new(ErrorCode::InvalidOptions, message)
}

/// `index: {name or keyPattern, expireAfterSeconds, hidden, prepareUnique, unique}`.
pub(super) fn change(cx: &Context<'_>, ns: &Namespace, reply: &mut DocBuf) -> Result<()> {
    let Some(index) = cx.args().doc_field("index")? else {
        return Ok(());
    };
    let args = Arguments::new("collMod.index", index);
    args.only(&[
        "name",
        "keyPattern",
        "expireAfterSeconds",
        "forceNonUnique",
        "hidden",
        "prepareUnique",
        "unique",
    ])?;
    if args.bool("forceNonUnique")? == Some(true) {
        return Err(unsupported_option("collMod", "index.forceNonUnique"));
    }
    let which = match (args.str("name")?, args.doc_field("keyPattern")?) {
        (None, None) => {
            return Err(invalid("Must specify either index name or key pattern."));
        }
        (Some(_), Some(_)) => return Err(invalid("Cannot specify both key pattern and name.")),
        (Some(name), None) => IndexSelector::Name(name.to_owned()),
        (None, Some(key)) => IndexSelector::Key(key.to_owned()),
    };
    let unique = args.flag("unique")?;
    let change = IndexChange {
        which,
        expire_after: args.i64("expireAfterSeconds")?,
        hidden: args.flag("hidden")?,
        prepare_unique: args.flag("prepareUnique")?,
        unique: unique == Some(true),
        dry_run: cx.args().flag("dryRun")? == Some(true),
    };
    if change.expire_after.is_none()
        && change.hidden.is_none()
        && change.prepare_unique.is_none()
        && unique.is_none()
    {
        return Err(invalid(
            "no expireAfterSeconds, hidden, unique, or prepareUnique field",
        ));
    }
    if unique == Some(false) {
        return Err(Error::bad_value(
            "collMod does not support converting an index to non-unique",
        ));
    }
    if change.dry_run && !change.unique {
        return Err(invalid(
            "Only the conversion of an index to unique can be tried with dryRun",
        ));
    }
    let changed = cx.store().modify_index(ns, &change, &cx.limits)?;
    if let Some((old, new)) = changed.expire_after {
        if let Some(old) = old {
            reply.push("expireAfterSeconds_old", Value::Int64(old));
        }
        reply.push("expireAfterSeconds_new", Value::Int64(new));
    }
    for (name, flags) in [
        ("hidden", changed.hidden),
        ("prepareUnique", changed.prepare_unique),
    ] {
        if let Some((old, new)) = flags {
            reply.push(&format!("{name}_old"), old);
            reply.push(&format!("{name}_new"), new);
        }
    }
    if changed.became_unique && !change.dry_run {
        reply.push("unique_new", true);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{DocBuf, doc};

    use crate::testing::TestServer;

    fn index(change: DocBuf) -> DocBuf {
        doc! {"collMod": "c", "index": &change}
    }

    fn listed(server: &mut TestServer) -> Vec<DocBuf> {
        let reply = server.run("test", doc! {"listIndexes": "c"});
        server.batch(&reply, "firstBatch")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn options_of_indexes_change() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"},
                {"key": {"a": 1, "b": 1}, "name": "ab"},
            ]},
        );
        for (change, reply) in [
            (
                doc! {"name": "a_1", "expireAfterSeconds": 60},
                doc! {"expireAfterSeconds_new": 60i64, "ok": 1.0},
            ),
            (
                doc! {"keyPattern": {"a": 1}, "expireAfterSeconds": 30, "hidden": true},
                doc! {
                    "expireAfterSeconds_old": 60i64, "expireAfterSeconds_new": 30i64,
                    "hidden_old": false, "hidden_new": true, "ok": 1.0,
                },
            ),
            (
                doc! {"name": "ab", "prepareUnique": true},
                doc! {"prepareUnique_old": false, "prepareUnique_new": true, "ok": 1.0},
            ),
            (
                doc! {"name": "ab", "unique": true},
                doc! {"unique_new": true, "ok": 1.0},
            ),
            (doc! {"name": "ab", "unique": true}, doc! {"ok": 1.0}),
        ] {
            assert_eq!(
                server.run("test", index(change.clone())),
                reply,
                "{change:?}"
            );
        }
        let expected = [
            doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"},
            doc! {"v": 2, "key": {"a": 1}, "name": "a_1", "hidden": true, "expireAfterSeconds": 30},
            doc! {"v": 2, "key": {"a": 1, "b": 1}, "name": "ab", "unique": true},
        ];
        assert_eq!(listed(&mut server), expected);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_cannot_change_is_refused() {
        let mut server = TestServer::new();
        server.run(
            "test",
            doc! {"insert": "c", "documents": [{"a": 1}, {"a": 1}, {"a": 2}]},
        );
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"}, {"key": {"a": 1, "b": 1}, "name": "ab"},
            ]},
        );
        for (change, code) in [
            (doc! {"hidden": true}, 72),
            (
                doc! {"name": "a_1", "keyPattern": {"a": 1}, "hidden": true},
                72,
            ),
            (doc! {"name": "a_1"}, 72),
            (doc! {"name": "none", "hidden": true}, 27),
            (doc! {"keyPattern": {"z": 1}, "hidden": true}, 27),
            (doc! {"name": "_id_", "hidden": true}, 2),
            (doc! {"name": "_id_", "expireAfterSeconds": 1}, 72),
            (doc! {"name": "a_1", "expireAfterSeconds": -1}, 72),
            (doc! {"name": "a_1", "expireAfterSeconds": "x"}, 14),
            (doc! {"name": "ab", "expireAfterSeconds": 1}, 72),
            (doc! {"name": "a_1", "unique": true}, 72),
            (doc! {"name": "a_1", "nonsense": true}, 40415),
            (doc! {"name": "a_1", "forceNonUnique": true}, 238),
            (doc! {"name": "a_1", "forceNonUnique": 1}, 14),
        ] {
            assert_eq!(
                server.code("test", index(change.clone())),
                code,
                "{change:?}"
            );
        }
        server.run("test", index(doc! {"name": "a_1", "prepareUnique": true}));
        assert_eq!(
            server.code("test", index(doc! {"name": "a_1", "unique": true})),
            359
        );
        // No further duplicates may be added.
        let insert = |a: i32| doc! {"insert": "c", "documents": [{"a": a}]};
        let reply = server.run("test", insert(1));
        assert_eq!(reply.get_array("writeErrors").unwrap().count(), 1);
        let reply = server.run("test", insert(3));
        assert_eq!(reply.get_i32("n"), Some(1));
        let delete = doc! {"delete": "c", "deletes": [{"q": {"a": 1}, "limit": 1}]};
        server.run("test", delete);
        let unique = doc! {"unique_new": true, "ok": 1.0};
        assert_eq!(
            server.run("test", index(doc! {"name": "a_1", "unique": true})),
            unique
        );
        assert_eq!(
            server.code("test", doc! {"collMod": "none", "index": {"name": "x"}}),
            26
        );
        assert_eq!(
            server.run("test", doc! {"validate": "c"}).get_bool("valid"),
            Some(true)
        );
    }
}
