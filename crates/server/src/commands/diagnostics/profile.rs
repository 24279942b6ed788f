use std::sync::Arc;
use std::time::Duration;

use frond_bson::{Doc, DocBuf, Value, doc};
use frond_error::{Error, Result};

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Place, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use crate::observability::log::Component;
use crate::observability::profiler::{ProfileFilter, ProfileLevel};
use frond_runtime::{AdmissionClass, Work};

pub struct Profile;

const SPEC: Spec = Spec {
    names: &["profile"],
    audits: Audited::Itself,
    doc: "Gets or sets the profiling level of a database, and which operations count as slow.",
    fields: &["slowms", "sampleRate", "filter"],
    // A level above 0 creates a collection.
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    ..Spec::CHEAP
};

impl Command for Profile {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn needs<'a>(&self, request: &Requested<'a>) -> Result<Needs<'a>> {
        let changing = Needs::on_database(request, Action::EnableProfiler);
        let profile = Place::collection(request.db, "system.profile");
        let level = request.body.first().and_then(|(_, level)| level.as_f64());
        let options = ["slowms", "sampleRate", "filter"];
        let changes = options.iter().any(|name| request.body.contains_key(name));
        if level == Some(-1.0) && !changes {
            Ok(changing.or(Needs::on(profile, Action::Find)))
        } else {
            Ok(changing)
        }
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let level = args
            .i64("profile")?
            .ok_or_else(|| args.missing("profile"))?;
        // As in MongoDB, a level outside of 0..=2 only reads.
        let asked = u8::try_from(level).ok().filter(|level| *level <= 2);
        let rate = args.f64("sampleRate")?;
        if rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
            return Err(Error::bad_value(
                "'sampleRate' must be between 0.0 and 1.0 inclusive",
            ));
        }
        let slow_ms = args.i64("slowms")?;
        let filter = match args.get("filter") {
            None => None,
            Some(Value::Document(spec)) => Some(Some(Arc::new(ProfileFilter::parse(spec)?))),
            Some(Value::String("unset")) => Some(None),
            Some(_) => {
                return Err(Error::bad_value(
                    "Expected an object, or the string 'unset'.",
                ));
            }
        };
        let server = cx.server;
        if asked.is_some_and(|level| level > 0) {
            server.store.create_profile(cx.db)?;
        }
        let changes = asked.is_some() || slow_ms.is_some() || rate.is_some() || filter.is_some();
        let was = Settings {
            level: server.records.profiler.level(cx.db),
            slow: server.slow_operation(),
            rate: server.records.profiler.sample_rate(),
        };
        if asked.is_some() || filter.is_some() {
            server.records.profiler.set_level(cx.db, |level| {
                level.level = asked.unwrap_or(level.level);
                if let Some(filter) = &filter {
                    level.filter = filter.clone();
                }
            })?;
        }
        if let Some(slow_ms) = slow_ms {
            // In MongoDB every operation exceeds a negative threshold.
            let ms = slow_ms.clamp(0, i64::from(i32::MAX)).unsigned_abs();
            server.set_slow_operation(Duration::from_millis(ms));
        }
        if let Some(rate) = rate {
            server.records.profiler.set_sample_rate(rate);
        }
        if changes {
            let now = Settings {
                level: server.records.profiler.level(cx.db),
                slow: server.slow_operation(),
                rate: server.records.profiler.sample_rate(),
            };
            server.log.info(
                Component::Command,
                48742,
                &cx.connection.name,
                "Profiler settings changed",
                &doc! {"from": &was.to_doc("level"), "to": &now.to_doc("level"), "db": cx.db},
            );
        }
        let mut reply = was.to_doc("was");
        if was.level.filter.is_some() || filter.is_some() {
            reply.push(
                "note",
                "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log \
                 lines.",
            );
        }
        Ok(reply)
    }
}

/// The settings as replies and the log show them.
struct Settings {
    level: ProfileLevel,
    slow: Duration,
    rate: f64,
}

impl Settings {
    fn to_doc(&self, level: &str) -> DocBuf {
        let mut out = doc! {
            level: i32::from(self.level.level),
            "slowms": i32::try_from(self.slow.as_millis()).unwrap_or(i32::MAX),
            "sampleRate": self.rate,
        };
        if let Some(filter) = &self.level.filter {
            let spec: &Doc = &filter.spec;
            out.push("filter", spec);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::doc;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_threshold_is_read_and_set() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"profile": -1}, 100),
            (doc! {"profile": 0, "slowms": 20}, 100),
            (doc! {"profile": 7, "slowms": 5, "sampleRate": 1.0}, 20),
            (doc! {"profile": 0.0, "slowms": -1}, 5),
            (doc! {"profile": -1}, 0),
        ];
        for (command, slow_ms) in cases {
            assert_eq!(
                server.run("test", command.clone()),
                doc! {"was": 0, "slowms": slow_ms, "sampleRate": 1.0, "ok": 1.0},
                "{command:?}"
            );
        }
        assert_eq!(server.server.slow_operation(), Duration::ZERO);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_settings_are_refused() {
        let mut server = TestServer::new();
        let cases = [
            (doc! {"profile": 0, "sampleRate": 2, "slowms": 1}, 2),
            (doc! {"profile": 1, "filter": {"op": {"$nonsense": 1}}}, 2),
            (doc! {"profile": 1, "filter": "x"}, 2),
            (doc! {"profile": "on"}, 14),
            (doc! {"profile": null}, 40414),
            (doc! {"profile": 0, "slowms": "x"}, 14),
            (doc! {"profile": 0, "level": 1}, 40415),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        assert_eq!(server.server.slow_operation(), Duration::from_millis(100));
        server.run("test", doc! {"create": "system.profile"});
        assert_eq!(server.code("test", doc! {"profile": 1}), 48);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn levels_are_those_of_a_database() {
        let mut server = TestServer::new();
        let reply = server.run("a", doc! {"profile": 2, "sampleRate": 0.5});
        assert_eq!(
            reply,
            doc! {"was": 0, "slowms": 100, "sampleRate": 1.0, "ok": 1.0}
        );
        let reply = server.run("a", doc! {"profile": 1, "filter": {"millis": {"$gt": 5}}});
        let note = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query \
                    log lines.";
        assert_eq!(
            reply,
            doc! {"was": 2, "slowms": 100, "sampleRate": 0.5, "note": note, "ok": 1.0}
        );
        let reply = server.run("a", doc! {"profile": -1});
        let filter = doc! {"millis": {"$gt": 5}};
        assert_eq!(
            reply,
            doc! {"was": 1, "slowms": 100, "sampleRate": 0.5, "filter": &filter, "note": note, "ok": 1.0}
        );
        let other = server.run("b", doc! {"profile": -1});
        assert_eq!(
            other,
            doc! {"was": 0, "slowms": 100, "sampleRate": 0.5, "ok": 1.0}
        );
        server.run("a", doc! {"profile": 0, "filter": "unset", "sampleRate": 1});
        assert!(server.server.records.profiler.recorded("a").is_none());
        // The collection stays.
        let listed = server.run("a", doc! {"listCollections": 1});
        let listed = server.batch(&listed, "firstBatch");
        let options = listed[0].get_doc("options").unwrap();
        assert_eq!(options.get_bool("capped"), Some(true));
        assert_eq!(
            options.get("size").unwrap().as_i64_lossless(),
            Some(1 << 20)
        );
    }

    /// The entries of a database, without the reads of them.
    fn entries(server: &mut TestServer) -> Vec<DocBuf> {
        let find =
            doc! {"find": "system.profile", "filter": {"ns": {"$ne": "test.system.profile"}}};
        let reply = server.run("test", find);
        server.batch(&reply, "firstBatch")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_operation_has_an_entry_before_the_next_one() {
        let mut server = TestServer::new();
        server.fill("c", 10);
        let index = doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]};
        server.run("test", index);
        server.run("test", doc! {"profile": 2});
        let update = |a: i32| doc! {"q": {"_id": a}, "u": {"$set": {"a": 100}}};
        let upsert = doc! {"q": {"_id": 77}, "u": {"$set": {"a": 1}}, "upsert": true};
        let filter = doc! {"a": {"$gte": 20, "$lt": 60}};
        // A command, and for each of its entries the kind, the plan, and some of its figures.
        type Expected = (&'static str, Option<&'static str>, DocBuf);
        let cases: Vec<(DocBuf, Vec<Expected>)> = vec![
            (
                doc! {"find": "c", "filter": {"_id": 3}},
                vec![(
                    "query",
                    Some("IDHACK"),
                    doc! {"keysExamined": 1, "docsExamined": 1, "nreturned": 1, "cursorExhausted": true},
                )],
            ),
            (
                doc! {"find": "c", "filter": &filter, "batchSize": 2},
                vec![(
                    "query",
                    Some("IXSCAN { a: 1 }"),
                    doc! {"docsExamined": 2, "nreturned": 2},
                )],
            ),
            (
                doc! {"find": "c", "filter": {"b": 1}, "sort": {"b": -1}},
                vec![(
                    "query",
                    Some("COLLSCAN"),
                    doc! {"keysExamined": 0, "docsExamined": 10, "hasSortStage": true, "nreturned": 0},
                )],
            ),
            (
                doc! {"aggregate": "c", "pipeline": [{"$match": &filter}, {"$group": {"_id": 1}}], "cursor": {}},
                vec![("command", Some("IXSCAN { a: 1 }"), doc! {"nreturned": 1})],
            ),
            (
                doc! {"count": "c", "query": &filter},
                vec![("command", Some("IXSCAN { a: 1 }"), doc! {"docsExamined": 0})],
            ),
            (
                doc! {"count": "c"},
                vec![("command", Some("RECORD_STORE_FAST_COUNT"), doc! {})],
            ),
            (
                doc! {"insert": "c", "documents": [{"_id": 50, "a": 1}, {"_id": 51, "a": 1}]},
                vec![("insert", None, doc! {"ninserted": 2, "keysInserted": 4})],
            ),
            (
                doc! {"update": "c", "updates": [update(1), update(2), upsert]},
                vec![
                    (
                        "update",
                        Some("IDHACK"),
                        doc! {"nMatched": 1, "nModified": 1, "keysInserted": 1, "keysDeleted": 1},
                    ),
                    (
                        "update",
                        Some("IDHACK"),
                        doc! {"nMatched": 1, "nModified": 1},
                    ),
                    (
                        "update",
                        Some("IDHACK"),
                        doc! {"nMatched": 0, "nModified": 0, "nUpserted": 1, "keysInserted": 2},
                    ),
                ],
            ),
            (
                doc! {"delete": "c", "deletes": [{"q": {"_id": {"$gte": 50}}, "limit": 0}]},
                vec![(
                    "remove",
                    Some("IXSCAN { _id: 1 }"),
                    doc! {"ndeleted": 3, "keysDeleted": 6},
                )],
            ),
            (
                doc! {"findAndModify": "c", "query": {"_id": 4}, "update": {"$set": {"z": 1}}},
                vec![(
                    "command",
                    Some("IDHACK"),
                    doc! {"nMatched": 1, "nModified": 1},
                )],
            ),
            (doc! {"ping": 1}, vec![("command", None, doc! {})]),
            (
                doc! {"find": "none", "filter": {"a": 1}},
                vec![(
                    "query",
                    Some("EOF"),
                    doc! {"docsExamined": 0, "nreturned": 0},
                )],
            ),
        ];
        let mut seen = entries(&mut server).len();
        for (command, expected) in cases {
            server.run("test", command.clone());
            let now = entries(&mut server);
            assert_eq!(now.len(), seen + expected.len(), "{command:?}");
            for (entry, (op, plan, expected_stats)) in now[seen..].iter().zip(&expected) {
                assert_eq!(entry.get_str("op"), Some(*op), "{entry:?}");
                assert_eq!(entry.get_str("planSummary"), *plan, "{entry:?}");
                for (name, figure) in expected_stats.iter() {
                    assert_eq!(entry.get(name), Some(figure), "{name} of {entry:?}");
                }
                for name in [
                    "ns", "command", "locks", "protocol", "millis", "cpuNanos", "ts", "client",
                    "allUsers", "user",
                ] {
                    assert!(entry.contains_key(name), "{name} of {entry:?}");
                }
                let is_planned = plan.is_some_and(|plan| plan.contains("SCAN"));
                // A look-up of an _id needs no plan.
                assert_eq!(entry.contains_key("queryHash"), is_planned, "{entry:?}");
            }
            seen = now.len();
        }
        let of_range = server.run(
            "test",
            doc! {"find": "system.profile", "filter": {"command.filter.a.$gte": 20, "op": "query"}},
        );
        let entry = server.batch(&of_range, "firstBatch").remove(0);
        let stats = entry.get_doc("execStats").unwrap();
        assert_eq!(stats.get_str("stage"), Some("FETCH"), "{stats:?}");
        let scan = stats.get_doc("inputStage").unwrap();
        assert_eq!(scan.get_str("indexName"), Some("a_1"));
        let cursor = entry.get_i64("cursorid").unwrap();
        server.run("test", doc! {"getMore": cursor, "collection": "c"});
        let now = entries(&mut server);
        let last = now.last().unwrap();
        assert_eq!(last.get_str("op"), Some("getmore"));
        let originating = last.get_doc("originatingCommand").unwrap();
        assert_eq!(originating.get_str("find"), Some("c"));
        // A failure.
        server.code(
            "test",
            doc! {"find": "c", "filter": {"a": {"$nonsense": 1}}},
        );
        let now = entries(&mut server);
        let last = now.last().unwrap();
        assert_eq!(
            (last.get_i32("errCode"), last.get_f64("ok")),
            (Some(2), Some(0.0))
        );
        assert_eq!(last.get_str("errName"), Some("BadValue"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn clients_do_not_write_entries_and_drop_them_only_while_it_is_off() {
        let mut server = TestServer::new();
        server.run("test", doc! {"profile": 2});
        for (command, code) in [
            (doc! {"findAndModify": "system.profile", "remove": true}, 73),
            (doc! {"drop": "system.profile"}, 20),
            (doc! {"create": "system.profile"}, 48),
        ] {
            assert_eq!(server.code("test", command.clone()), code, "{command:?}");
        }
        let rename = doc! {"renameCollection": "test.system.profile", "to": "test.x"};
        assert_eq!(server.code("admin", rename), 20);
        for command in [
            doc! {"insert": "system.profile", "documents": [{}]},
            doc! {"update": "system.profile", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
            doc! {"delete": "system.profile", "deletes": [{"q": {}, "limit": 0}]},
        ] {
            let reply = server.run("test", command);
            let errors = reply.get_array("writeErrors").unwrap();
            assert_eq!(errors.get_doc("0").unwrap().get_i32("code"), Some(73));
        }
        server.run("test", doc! {"profile": 0});
        server.run("test", doc! {"drop": "system.profile"});
        let created = doc! {"create": "system.profile", "capped": true, "size": 4096};
        server.run("test", created);
        server.run("test", doc! {"profile": 2});
        for n in 0..100 {
            server.run("test", doc! {"find": "c", "filter": {"_id": n}});
        }
        let reply = server.run(
            "test",
            doc! {"count": "system.profile", "query": {"op": "query"}},
        );
        let n = reply.get_i32("n").unwrap();
        assert!((1..20).contains(&n), "{n}");
        server.run("test", doc! {"dropDatabase": 1});
        assert_eq!(
            server.run("test", doc! {"profile": -1}).get_i32("was"),
            Some(0)
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_operations_and_those_of_the_filter_are_recorded_at_level_1() {
        let mut server = TestServer::new();
        server.fill("c", 3);
        let find = doc! {"find": "c", "filter": {"a": 10}};
        server.run("test", doc! {"profile": 1, "slowms": 10_000});
        server.run("test", find.clone());
        assert_eq!(entries(&mut server).len(), 0);
        server.run("test", doc! {"profile": 1, "slowms": -1});
        server.run("test", find.clone());
        server.run("test", doc! {"profile": 1, "sampleRate": 0, "slowms": -1});
        let recorded = entries(&mut server);
        let ops: Vec<_> = recorded
            .iter()
            .filter_map(|entry| entry.get_str("op"))
            .collect();
        assert_eq!(ops, ["command", "query"], "that of the profile before too");
        server.run("test", find.clone());
        assert_eq!(
            entries(&mut server).len(),
            2,
            "none of them is in the sample"
        );
        let filter = doc! {"op": "query", "nreturned": 1};
        server.run(
            "test",
            doc! {"profile": 1, "sampleRate": 1, "slowms": 10_000, "filter": &filter},
        );
        server.run("test", find);
        server.run("test", doc! {"find": "c", "filter": {"a": 11}});
        server.run("test", doc! {"ping": 1});
        assert_eq!(entries(&mut server).len(), 3);
        // The filter decides which lines are logged too.
        let log = server.run("admin", doc! {"getLog": "global"});
        let lines = log.get_array("log").unwrap().values();
        let slow = lines.filter(|line| {
            line.as_str()
                .is_some_and(|line| line.contains("nreturned\":1,"))
        });
        assert_eq!(slow.count(), 2, "{log:?}");
    }
}
