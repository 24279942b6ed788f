//! Parameters of plans, checkpoints and limits that tools set or read.

use std::sync::atomic::Ordering::Relaxed;

use super::{Parameter, boolean, number, owned};
use frond_runtime::AdmissionClass;

/// The tickets of an admission class.
macro_rules! tickets {
    ($name:literal, $admission:expr) => {
        Parameter {
            name: $name,
            get: |_| owned(i32::try_from($admission.tickets()).unwrap_or(i32::MAX)),
            set: None,
        }
    };
}

pub static TOOLING: &[Parameter] = &[
    Parameter {
        name: "diagnosticDataCollectionEnabled",
        get: |_| owned(true),
        set: None,
    },
    Parameter {
        name: "notablescan",
        get: |server| owned(server.execution.no_collection_scans.load(Relaxed)),
        set: Some(|server, value| {
            let on = match value {
                value if value.is_number() => value.truthy(),
                value => boolean("notablescan", value)?,
            };
            server.execution.no_collection_scans.store(on, Relaxed);
            Ok(())
        }),
    },
    tickets!(
        "storageEngineConcurrentReadTransactions",
        AdmissionClass::Read
    ),
    tickets!(
        "storageEngineConcurrentWriteTransactions",
        AdmissionClass::Write
    ),
    Parameter {
        name: "syncdelay",
        get: |server| owned(server.upkeep.checkpoint_secs.load(Relaxed) as f64),
        set: Some(|server, value| {
            let seconds = number("syncdelay", value, 0, 9_000_000)?;
            server
                .upkeep
                .checkpoint_secs
                .store(seconds.unsigned_abs(), Relaxed);
            Ok(())
        }),
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use crate::testing::TestServer;

    /// Queries that would read a whole collection are refused, those of the server itself are not.
    #[tokio::test(flavor = "multi_thread")]
    async fn collection_scans_can_be_forbidden() {
        let mut server = TestServer::new();
        server.fill("c", 20);
        let index = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]};
        server.run("test", index);
        let was = server.run("admin", doc! {"setParameter": 1, "notablescan": true});
        assert_eq!(was.get_bool("was"), Some(false));
        let refused = [
            doc! {"find": "c", "filter": {"b": 1}},
            doc! {"find": "c", "filter": {"b": 1}, "hint": {"$natural": 1}},
            doc! {"find": "c", "filter": {"b": 1}, "sort": {"$natural": -1}},
            doc! {"count": "c", "query": {"b": 1}},
            doc! {"distinct": "c", "key": "a", "query": {"b": 1}},
            doc! {"aggregate": "c", "pipeline": [{"$match": {"b": 1}}], "cursor": {}},
            doc! {"findAndModify": "c", "query": {"b": 1}, "remove": true},
            doc! {"explain": {"find": "c", "filter": {"b": 1}}},
        ];
        for command in refused {
            assert_eq!(server.code("test", command.clone()), 291, "{command:?}");
        }
        let delete = doc! {"delete": "c", "deletes": [{"q": {"b": 1}, "limit": 0}]};
        let reply = server.run("test", delete);
        let error = reply.get_array("writeErrors").unwrap().get_doc("0");
        assert_eq!(error.unwrap().get_i32("code"), Some(291));
        let taken = [
            doc! {"find": "c"},
            doc! {"find": "c", "filter": {"a": 1}},
            doc! {"find": "c", "filter": {"_id": 1}},
            doc! {"find": "c", "filter": {"_id": {"$gt": 1}}},
            doc! {"find": "c", "filter": {"b": 1, "a": {"$gt": 3}}},
            doc! {"find": "none", "filter": {"b": 1}},
            doc! {"find": "system.views", "filter": {"b": 1}},
            doc! {"count": "c"},
        ];
        for command in taken {
            server.run("test", command);
        }
        server.run("admin", doc! {"find": "d", "filter": {"b": 1}});
        server.run("admin", doc! {"setParameter": 1, "notablescan": 0});
        server.run("test", doc! {"find": "c", "filter": {"b": 1}});
        let wrong = doc! {"setParameter": 1, "notablescan": "x"};
        assert_eq!(server.code("admin", wrong), 14);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn checkpoints_have_an_interval() {
        let mut server = TestServer::new();
        let get = doc! {"getParameter": 1, "syncdelay": 1};
        assert_eq!(
            server.run("admin", get.clone()).get_f64("syncdelay"),
            Some(0.0)
        );
        server.run("admin", doc! {"setParameter": 1, "syncdelay": 30});
        assert_eq!(server.run("admin", get).get_f64("syncdelay"), Some(30.0));
        for (wrong, code) in [
            (doc! {"setParameter": 1, "syncdelay": -1}, 2),
            (doc! {"setParameter": 1, "syncdelay": "x"}, 14),
        ] {
            assert_eq!(server.code("admin", wrong), code);
        }
    }
}
