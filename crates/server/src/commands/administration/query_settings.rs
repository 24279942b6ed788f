use frond_bson::{DocBuf, Value};
use frond_error::Result;

use crate::audit::Audited;
use crate::authorization::{Action, Needs, Requested};
use crate::commands::spec::{Command, Spec};
use crate::context::Context;
use frond_runtime::{AdmissionClass, Work};

const CHANGES: Spec = Spec {
    work: Work::Long,
    admission: Some(AdmissionClass::Maintenance),
    writes: true,
    admin_only: true,
    ..Spec::CHEAP
};

pub struct SetQuerySettings;

const SET_QUERY_SETTINGS: Spec = Spec {
    names: &["setQuerySettings"],
    audits: Audited::Itself,
    doc: "Says which indexes the queries of a shape may use (`indexHints`), or refuses them (`reject`).",
    fields: &["settings"],
    ..CHANGES
};

impl Command for SetQuerySettings {
    fn spec(&self) -> &'static Spec {
        &SET_QUERY_SETTINGS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::QuerySettings))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let args = cx.args();
        let target = cx.body.get(cx.name).unwrap_or(Value::Null);
        let settings = args
            .doc_field("settings")?
            .ok_or_else(|| args.missing("settings"))?;
        cx.server
            .execution
            .query_settings
            .set(&cx.server.store, &target, settings)
    }
}

pub struct RemoveQuerySettings;

const REMOVE_QUERY_SETTINGS: Spec = Spec {
    names: &["removeQuerySettings"],
    audits: Audited::Itself,
    doc: "Removes the query settings of a shape.",
    ..CHANGES
};

impl Command for RemoveQuerySettings {
    fn spec(&self) -> &'static Spec {
        &REMOVE_QUERY_SETTINGS
    }

    fn needs<'a>(&self, _: &Requested<'a>) -> Result<Needs<'a>> {
        Ok(Needs::cluster(Action::QuerySettings))
    }

    fn run(&self, cx: &mut Context<'_>) -> Result<DocBuf> {
        let target = cx.body.get(cx.name).unwrap_or(Value::Null);
        cx.server
            .execution
            .query_settings
            .remove(&cx.server.store, &target)?;
        Ok(DocBuf::new())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use frond_bson::{ArrayBuf, DocBuf, array, doc};

    use crate::query_settings::AllQuerySettings;
    use crate::testing::TestServer;

    fn server() -> TestServer {
        let mut server = TestServer::new();
        server.fill("c", 50);
        server.run(
            "test",
            doc! {"createIndexes": "c", "indexes": [
                {"key": {"a": 1}, "name": "a_1"}, {"key": {"a": 1, "b": 1}, "name": "a_1_b_1"},
            ]},
        );
        server
    }

    fn stage_of(server: &mut TestServer, command: &DocBuf) -> DocBuf {
        let reply = server.run(
            "test",
            doc! {"explain": command, "verbosity": "queryPlanner"},
        );
        reply.get_doc("queryPlanner").unwrap().to_owned()
    }

    fn plan_text(planner: &DocBuf) -> String {
        format!("{:?}", planner.get_doc("winningPlan").unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn queries_of_the_shape_use_the_indexes_that_are_allowed() {
        let mut server = server();
        let query = doc! {"find": "c", "filter": {"a": 5}, "$db": "test"};
        let hints = |allowed: &ArrayBuf| {
            doc! {"indexHints": {"ns": {"db": "test", "coll": "c"}, "allowedIndexes": allowed}}
        };
        let find = |a: i32| doc! {"find": "c", "filter": {"a": a}, "hint": "a_1"};
        let set = |settings: &DocBuf| doc! {"setQuerySettings": &query, "settings": settings};
        let reply = server.run("admin", set(&hints(&array!["a_1_b_1"])));
        let hash = reply.get_str("queryShapeHash").unwrap().to_owned();
        assert_eq!(reply.get_doc("representativeQuery"), Some(&*query));
        let planner = stage_of(&mut server, &find(70));
        assert!(plan_text(&planner).contains("a_1_b_1"), "{planner:?}");
        assert!(planner.get_doc("querySettings").is_some());
        let aggregate = doc! {"aggregate": "c", "pipeline": [{"$match": {"a": 70}}], "cursor": {}};
        let reply = server.run(
            "test",
            doc! {"explain": &aggregate, "verbosity": "queryPlanner"},
        );
        assert!(
            !format!("{reply:?}").contains("querySettings"),
            "another shape"
        );

        // Without an index that may be used the collection is scanned.
        server.run("admin", set(&hints(&array![{"$natural": 1}])));
        let planner = stage_of(&mut server, &find(70));
        assert!(plan_text(&planner).contains("COLLSCAN"), "{planner:?}");
        let found = server.run("test", find(70));
        assert_eq!(server.batch(&found, "firstBatch").len(), 1);

        // They are stored, and shown by a stage.
        let loaded = AllQuerySettings::load(&server.server.store).unwrap();
        assert_eq!(loaded.to_docs(false).len(), 1);
        let shown = doc! {"aggregate": 1, "pipeline": [{"$querySettings": {"showDebugQueryShape": true}}], "cursor": {}};
        let shown = server.run("admin", shown);
        let shown = server.batch(&shown, "firstBatch");
        assert_eq!(shown[0].get_str("queryShapeHash"), Some(hash.as_str()));
        let shape = shown[0].get_doc("debugQueryShape").unwrap();
        assert_eq!(shape.get_str("command"), Some("find"));

        // By the hash, and merged with what is there.
        let reject = doc! {"setQuerySettings": &hash, "settings": {"reject": true}};
        let reply = server.run("admin", reject);
        assert!(
            reply
                .get_doc("settings")
                .unwrap()
                .contains_key("indexHints")
        );
        assert_eq!(server.code("test", find(70)), 438);
        server.run("test", doc! {"find": "c", "filter": {"b": 7}});
        assert!(plan_text(&stage_of(&mut server, &find(70))).contains("COLLSCAN"));
        server.run("admin", doc! {"removeQuerySettings": &query});
        server.run("test", find(70));
        assert_eq!(
            server.code("admin", doc! {"removeQuerySettings": &hash}),
            7_746_701
        );
        assert!(plan_text(&stage_of(&mut server, &find(70))).contains("a_1"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_settings_are_refused() {
        let mut server = server();
        let query = doc! {"find": "c", "filter": {"a": 5}, "$db": "test"};
        let reject = doc! {"reject": true};
        let twice = doc! {"indexHints": [
            {"ns": {"db": "test", "coll": "c"}, "allowedIndexes": ["a_1"]},
            {"ns": {"db": "test", "coll": "c"}, "allowedIndexes": ["a_1"]},
        ]};
        let no_db = doc! {"indexHints": {"ns": {"coll": "c"}, "allowedIndexes": ["a_1"]}};
        let stats = doc! {"aggregate": "c", "pipeline": [{"$collStats": {}}], "$db": "test"};
        let cases = [
            (doc! {"setQuerySettings": &query}, 40414),
            (doc! {"setQuerySettings": &query, "settings": {}}, 7_746_604),
            (
                doc! {"setQuerySettings": &query, "settings": {"reject": false}},
                7_746_604,
            ),
            (
                doc! {"setQuerySettings": &query, "settings": {"x": 1}},
                40415,
            ),
            (
                doc! {"setQuerySettings": &query, "settings": &twice},
                7_746_608,
            ),
            (
                doc! {"setQuerySettings": &query, "settings": &no_db},
                8_727_500,
            ),
            (
                doc! {"setQuerySettings": &stats, "settings": &reject},
                8_705_200,
            ),
            (doc! {"setQuerySettings": 5, "settings": &reject}, 14),
            (doc! {"setQuerySettings": "zz", "settings": &reject}, 2),
            (
                doc! {"setQuerySettings": "0".repeat(64), "settings": &reject},
                7_746_401,
            ),
            (
                doc! {"setQuerySettings": {"insert": "c"}, "settings": &reject},
                7_746_402,
            ),
            (
                doc! {"setQuerySettings": {"find": "c"}, "settings": &reject},
                40414,
            ),
            (
                doc! {"setQuerySettings": {"find": "c", "$db": "local"}, "settings": &reject},
                8_584_900,
            ),
            (
                doc! {"setQuerySettings": {"find": "c", "filter": {"_id": 1}, "$db": "test"}, "settings": &reject},
                7_746_606,
            ),
        ];
        for (command, code) in cases {
            assert_eq!(server.code("admin", command.clone()), code, "{command:?}");
        }
        let framework = doc! {"queryFramework": "other"};
        let command = doc! {"setQuerySettings": &query, "settings": &framework};
        assert_eq!(server.code("admin", command), 2);
        let stage = doc! {"aggregate": "c", "pipeline": [{"$querySettings": {}}], "cursor": {}};
        assert_eq!(server.code("test", stage), 73);
    }
}
