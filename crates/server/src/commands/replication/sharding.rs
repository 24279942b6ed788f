//! The commands of sharded clusters. A server over a TiKV cluster has them, and divides nothing by them: TiKV does that by itself. A
//! server with data files of its own refuses them as a mongod without shards does.

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, ErrorCode, Result};
use frond_store::Namespace;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::sharding;
use crate::state::Server;
use frond_runtime::{AdmissionClass, Work};

/// One command of sharded clusters.
pub struct Sharding {
    spec: &'static Spec,
    needs: for<'a> fn(&Requested<'a>) -> Result<Needs<'a>>,
    run: fn(&mut Context<'_>) -> Result<DocBuf>,
}

/// Writes documents of `config`.
const WRITES: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

pub static IS_DB_GRID: Sharding = Sharding {
    spec: &Spec {
        names: &["isdbgrid"],
        doc: "Tells that the server is one of a cluster.",
        admin_only: true,
        ..Spec::CHEAP
    },
    needs: |_| Ok(Needs::LoggedIn),
    run: |cx| Ok(doc! {"isdbgrid": 1, "hostname": &*cx.server.instance.host}),
};

pub static LIST_SHARDS: Sharding = Sharding {
    spec: &Spec {
        names: &["listShards"],
        doc: "Lists the TiKV cluster as the only shard.",
        fields: &["filter"],
        admin_only: true,
        ..Spec::CHEAP
    },
    needs: |_| Ok(Needs::cluster(Action::ListShards)),
    run: |cx| {
        let mut reply = DocBuf::new();
        let shard = sharding::shard(&cx.server.settings.tikv.pd);
        reply.push_array("shards", |shards| shards.push(&shard));
        Ok(reply)
    },
};

pub static GET_SHARD_MAP: Sharding = Sharding {
    spec: &Spec {
        names: &["getShardMap"],
        doc: "Tells the addresses of PD as those of the only shard.",
        admin_only: true,
        ..Spec::CHEAP
    },
    needs: |_| Ok(Needs::cluster(Action::GetShardMap)),
    run: |cx| {
        let pd = &cx.server.settings.tikv.pd;
        let host = sharding::shard_host(pd);
        let (mut map, mut hosts, mut strings) = (DocBuf::new(), DocBuf::new(), DocBuf::new());
        map.push(sharding::SHARD, &*host);
        for address in pd {
            hosts.push(address, sharding::SHARD);
        }
        strings.push(&host, sharding::SHARD);
        Ok(doc! {"map": &map, "hosts": &hosts, "connStrings": &strings})
    },
};

pub static FLUSH_ROUTER_CONFIG: Sharding = Sharding {
    spec: &Spec {
        names: &["flushRouterConfig"],
        doc: "Does nothing: definitions are the same on all servers of the cluster at any time.",
        admin_only: true,
        ..Spec::CHEAP
    },
    needs: |_| Ok(Needs::cluster(Action::FlushRouterConfig)),
    run: |_| Ok(doc! {"flushed": true}),
};

pub static BALANCER_STATUS: Sharding = Sharding {
    spec: &Spec {
        names: &["balancerStatus"],
        doc: "Tells what balancerStart and balancerStop have recorded. PD balances the cluster whatever they say.",
        work: Work::Short,
        admission: Some(AdmissionClass::Read),
        admin_only: true,
        ..Spec::CHEAP
    },
    needs: |_| Needs::on_namespace("config.settings", Action::Find),
    run: |cx| {
        let stopped = sharding::is_balancer_stopped(&cx.server.store)?;
        Ok(doc! {
            "mode": if stopped { "off" } else { "full" }, "inBalancerRound": false, "numBalancerRounds": 0i64,
        })
    },
};

pub static BALANCER_START: Sharding = Sharding {
    spec: &Spec {
        names: &["balancerStart"],
        doc: "Records that the balancer is on. PD balances the cluster whatever is recorded.",
        ..WRITES
    },
    needs: |_| Needs::on_namespace("config.settings", Action::Update),
    run: |cx| {
        sharding::set_balancer_stopped(&cx.server.store, false)?;
        Ok(DocBuf::new())
    },
};

pub static BALANCER_STOP: Sharding = Sharding {
    spec: &Spec {
        names: &["balancerStop"],
        doc: "Records that the balancer is off. PD balances the cluster whatever is recorded, which clients do not notice.",
        ..WRITES
    },
    needs: |_| Needs::on_namespace("config.settings", Action::Update),
    run: |cx| {
        sharding::set_balancer_stopped(&cx.server.store, true)?;
        Ok(DocBuf::new())
    },
};

pub static ENABLE_SHARDING: Sharding = Sharding {
    spec: &Spec {
        names: &["enableSharding"],
        audits: Audited::EnableSharding,
        doc: "Records a database as one with sharded collections. Nothing else changes: TiKV divides all collections.",
        fields: &["primaryShard"],
        ..WRITES
    },
    needs: |request| {
        let db = request.args().str("enableSharding")?.unwrap_or_default();
        Ok(Needs::on(Place::database(db), Action::EnableSharding))
    },
    run: |cx| {
        let args = cx.args();
        let db = (args.str("enableSharding")?).ok_or_else(|| args.missing("enableSharding"))?;
        frond_store::check_database_name(db)?;
        if matches!(db, "admin" | "local" | "config") {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("can't shard {db} database"),
            ));
        }
        if let Some(primary) = args.str("primaryShard")?
            && primary != sharding::SHARD
        {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("there is one shard, {}, not {primary}", sharding::SHARD),
            ));
        }
        sharding::enable(&cx.server.store, db)?;
        Ok(DocBuf::new())
    },
};

pub static SHARD_COLLECTION: Sharding = Sharding {
    spec: &Spec {
        names: &["shardCollection"],
        audits: Audited::ShardCollection,
        doc: "Creates the index of the shard key if it is missing, and records the key. TiKV divides the collection by its size and load.",
        fields: &[
            "key",
            "unique",
            "numInitialChunks",
            "presplitHashedZones",
            "collation",
            "enforceUniquenessCheck",
            "implicitlyCreateIndex",
        ],
        ..WRITES
    },
    needs: |request| {
        let ns = request.args().str("shardCollection")?.unwrap_or_default();
        Needs::on_namespace(ns, Action::EnableSharding)
    },
    run: shard_collection,
};

fn shard_collection(cx: &mut Context<'_>) -> Result<DocBuf> {
    let args = cx.args();
    let ns = (args.str("shardCollection")?).ok_or_else(|| args.missing("shardCollection"))?;
    let ns = Namespace::parse(ns)?;
    let key = (args.doc_field("key")?).ok_or_else(|| args.missing("key"))?;
    let unique = args.flag("unique")?.unwrap_or(false);
    check_key(key, unique)?;
    if matches!(ns.db(), "admin" | "local" | "config") {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            format!("can't shard collections of the database {}", ns.db()),
        ));
    }
    let name = (key.iter())
        .map(|(field, value)| format!("{field}_{}", direction(&value)))
        .collect::<Vec<_>>()
        .join("_");
    let mut spec = doc! {"key": key, "name": name};
    if unique && !is_id(key) {
        spec.push("unique", true);
    }
    let store = cx.store();
    let known = match store.uuid_of(&ns) {
        Some(_) => store.list_indexes(&ns)?,
        None => Vec::new(),
    };
    let is_there = known.iter().any(|index| begins_with(index, key));
    if !is_there || store.uuid_of(&ns).is_none() {
        if is_id(key) {
            store.create_collection(&ns, &DocBuf::new())?;
        } else {
            store.build_indexes(&ns, &[&spec], &cx.limits)?;
        }
    }
    let uuid = store.uuid_of(&ns).ok_or_else(|| {
        Error::new(
            ErrorCode::NamespaceNotFound,
            format!("the collection {} was dropped meanwhile", ns.as_str()),
        )
    })?;
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &uuid,
    };
    sharding::record(&cx.server.store, &ns, &uuid, key, unique)?;
    Ok(doc! {"collectionsharded": ns.as_str()})
}

fn is_id(key: &Doc) -> bool {
    key.iter().count() == 1 && key.get("_id").is_some_and(|value| value.is_number())
}

/// The part of an index's name that stands for a field's direction.
fn direction(value: &Value<'_>) -> &'static str {
    match value {
        Value::String(_) => "hashed",
        _ => "1",
    }
}

/// Whether an index can find documents by the shard key: it begins with its fields.
fn begins_with(index: &Doc, key: &Doc) -> bool {
    let Some(fields) = index.get_doc("key") else {
        return false;
    };
    let same = |((name, value), (wanted, kind)): ((&str, Value<'_>), (&str, Value<'_>))| {
        name == wanted && matches!(value, Value::String(_)) == matches!(kind, Value::String(_))
    };
    fields.iter().count() >= key.iter().count() && fields.iter().zip(key.iter()).all(same)
}

/// Checks a shard key: fields with 1, at most one of them `hashed`.
fn check_key(key: &Doc, unique: bool) -> Result<()> {
    let wrong = |message: String| Err(Error::new(ErrorCode::InvalidOptions, message));
    if key.is_empty() {
        return wrong("The shard key must have at least one field".into());
    }
    let mut hashed = 0;
    for (field, value) in key.iter() {
        match value {
            Value::String("hashed") => hashed += 1,
            _ if value.is_number() && value.as_f64() == Some(1.0) => {}
            _ => {
                return Err(Error::bad_value(format!(
                    "Shard key {key:?} can contain either a single 'hashed' field or multiple numerical fields set to a value \
                     of 1. Failed to parse field {field}"
                )));
            }
        }
    }
    if hashed > 1 {
        return Err(Error::bad_value(
            "A shard key can have one hashed field only",
        ));
    }
    if hashed > 0 && unique {
        return wrong("hashed shard keys cannot be declared unique.".into());
    }
    Ok(())
}

/// Refuses the command where there is no cluster, as a command that is not there.
fn check_cluster(server: &Server, name: &str) -> Result<()> {
    let set = server.set.replication.as_ref();
    if set.is_some_and(|set| set.is_router()) {
        Ok(())
    } else {
        Err(Error::new(
            ErrorCode::CommandNotFound,
            format!(
                "no such command: '{name}'; this server is not sharded; collections are used without it"
            ),
        ))
    }
}

impl Command for Sharding {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        (self.needs)(request)
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        check_cluster(cx.server, self.spec.name())?;
        (self.run)(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    fn server_of_a_cluster() -> TestServer {
        TestServer::with(|settings| {
            settings.tikv.is_on = true;
            settings.tikv.pd = vec!["pd:2379".into()];
        })
    }

    fn found(server: &mut TestServer, collection: &str) -> Vec<DocBuf> {
        let reply = server.run("config", doc! {"find": collection});
        server.batch(&reply, "firstBatch")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_of_a_cluster_is_a_router() {
        let mut server = server_of_a_cluster();
        let hello = server.run("admin", doc! {"hello": 1});
        assert_eq!(hello.get_str("msg"), Some("isdbgrid"));
        assert!(!hello.contains_key("setName") && hello.contains_key("$clusterTime"));
        let shards = server.run("admin", doc! {"listShards": 1});
        let first = shards.get_array("shards").unwrap().values().next().unwrap();
        assert_eq!(
            first.as_doc().unwrap().get_str("host"),
            Some("tikv/pd:2379")
        );
        for command in [
            "isdbgrid",
            "getShardMap",
            "flushRouterConfig",
            "balancerStart",
        ] {
            server.run("admin", doc! {command: 1});
        }
        assert_eq!(server.code("admin", doc! {"replSetGetStatus": 1}), 76);
        let status = server.run("admin", doc! {"serverStatus": 1});
        assert!(status.contains_key("sharding") && !status.contains_key("repl"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_balancer_is_recorded() {
        let mut server = server_of_a_cluster();
        for (command, mode) in [("balancerStop", "off"), ("balancerStart", "full")] {
            server.run("admin", doc! {command: 1});
            let status = server.run("admin", doc! {"balancerStatus": 1});
            assert_eq!(status.get_str("mode"), Some(mode));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sharded_collection_is_listed_until_it_is_dropped() {
        let mut server = server_of_a_cluster();
        server.run("admin", doc! {"enableSharding": "shop"});
        let command = doc! {"shardCollection": "shop.c", "key": {"a": 1, "b": "hashed"}};
        let made = server.run("admin", command.clone());
        assert_eq!(made.get_str("collectionsharded"), Some("shop.c"));
        server.run("admin", command);
        let other = doc! {"shardCollection": "shop.c", "key": {"a": 1}};
        assert_eq!(server.code("admin", other), 23);
        server.run(
            "admin",
            doc! {"shardCollection": "shop.d", "key": {"_id": 1}},
        );
        let indexes = server.run("shop", doc! {"listIndexes": "c"});
        assert_eq!(server.batch(&indexes, "firstBatch").len(), 2);
        assert_eq!(found(&mut server, "collections").len(), 2);
        assert_eq!(found(&mut server, "chunks").len(), 2);
        server.run("shop", doc! {"drop": "c"});
        assert_eq!(found(&mut server, "collections").len(), 1);
        server.run("shop", doc! {"dropDatabase": 1});
        for collection in ["collections", "chunks", "databases"] {
            assert!(found(&mut server, collection).is_empty(), "{collection}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_keys_and_databases_are_refused() {
        let mut server = server_of_a_cluster();
        let cases = [
            (doc! {"shardCollection": "shop.c", "key": {}}, 72),
            (doc! {"shardCollection": "shop.c", "key": {"a": 2}}, 2),
            (
                doc! {"shardCollection": "shop.c", "key": {"a": "hashed"}, "unique": true},
                72,
            ),
            (doc! {"shardCollection": "shop.c"}, 40414),
            (doc! {"shardCollection": "config.c", "key": {"a": 1}}, 72),
            (doc! {"enableSharding": "admin"}, 72),
            (doc! {"enableSharding": "shop", "primaryShard": "other"}, 72),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_with_files_has_no_shards() {
        let mut server = TestServer::new();
        for command in [
            doc! {"listShards": 1},
            doc! {"shardCollection": "shop.c", "key": {"a": 1}},
            doc! {"enableSharding": "shop"},
        ] {
            assert_eq!(server.code("admin", command), 59);
        }
    }
}
