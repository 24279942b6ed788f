//! Tables of the privileges that each command needs.

#![allow(clippy::unwrap_used)]

use frond_bson::{DocBuf, Value, array, doc};

use crate::authorization::{Action, ActionSet, Needs, Place, Requested, UserName};
use crate::commands::{COMMANDS, find, requires_login};
use crate::testing::TestServer;

/// Needs as text: `find@test.c`, joined by `&` and `|`.
fn text(needs: &Needs<'_>) -> String {
    let joined = |list: &[Needs<'_>], by| {
        let parts: Vec<String> = list.iter().map(text).collect();
        match parts.len() {
            1 => parts[0].clone(),
            _ => format!("({})", parts.join(by)),
        }
    };
    match needs {
        Needs::Anyone => "anyone".into(),
        Needs::LoggedIn => "login".into(),
        Needs::Same(needs) => text(needs),
        Needs::On(place, actions) => {
            let place = match place {
                Place::Cluster => "cluster".into(),
                Place::Database(db) => db.to_string(),
                Place::Collection(db, name) => format!("{db}.{name}"),
                Place::AnyNormal => "normal".into(),
                Place::AnyResource => "any".into(),
            };
            format!("{}@{place}", actions.names().join("+"))
        }
        Needs::SomethingIn(db) => format!("something@{db}"),
        Needs::All(all) => joined(all, " & "),
        Needs::AnyOf(any) => joined(any, " | "),
        Needs::If(both) => format!("({} => {})", text(&both.0), text(&both.1)),
    }
}

fn needs_in(server: &TestServer, db: &str, body: &DocBuf) -> String {
    let (name, _) = body.first().unwrap();
    let (_, command) = find(name).unwrap();
    let user = UserName::new("ann", "admin");
    let request = Requested {
        server: &server.server,
        name: command.spec().name(),
        db,
        body,
        sequences: &[],
        user: Some(&user),
    };
    match command.needs(&request) {
        Ok(needs) => text(&needs.into_owned()),
        Err(failure) => format!("error {}", failure.code().code()),
    }
}

#[track_caller]
fn check(db: &str, table: &[(DocBuf, &str)]) {
    let server = TestServer::new();
    for (body, expected) in table {
        assert_eq!(needs_in(&server, db, body), *expected, "{body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_are_open_to_anyone() {
    let server = TestServer::new();
    let open: Vec<&str> = COMMANDS
        .iter()
        .enumerate()
        .filter(|(index, _)| !requires_login(&server.server, *index))
        .map(|(_, command)| command.spec().name())
        .collect();
    assert_eq!(
        open,
        [
            "authenticate",
            "buildInfo",
            "connectionStatus",
            "getLastError",
            "getPrevError",
            "getnonce",
            "hello",
            "listCommands",
            "logout",
            "ping",
            "resetError",
            "saslContinue",
            "saslStart",
            "whatsmyuri",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_about_the_server() {
    check(
        "admin",
        &[
            (doc! {"appendOplogNote": 1}, "appendOplogNote@cluster"),
            (doc! {"configureFailPoint": "x"}, "setParameter@cluster"),
            (doc! {"currentOp": 1}, "inprog@cluster"),
            (doc! {"currentOp": 1, "$ownOps": true}, "login"),
            (doc! {"currentOp": 1, "$ownOps": false}, "inprog@cluster"),
            (doc! {"endSessions": []}, "login"),
            (doc! {"features": 1}, "login"),
            (doc! {"fsync": 1}, "fsync@cluster"),
            (
                doc! {"getClusterParameter": "*"},
                "getClusterParameter@cluster",
            ),
            (doc! {"getCmdLineOpts": 1}, "getCmdLineOpts@cluster"),
            (
                doc! {"getDefaultRWConcern": 1},
                "getDefaultRWConcern@cluster",
            ),
            (
                doc! {"getDiagnosticData": 1},
                "(replSetGetStatus+serverStatus@cluster & collStats@local.oplog.rs)",
            ),
            (doc! {"getDiagnosticHistory": 1}, "serverStatus@cluster"),
            (doc! {"getLog": "global"}, "getLog@cluster"),
            (doc! {"getParameter": "*"}, "getParameter@cluster"),
            (doc! {"hostInfo": 1}, "hostInfo@cluster"),
            (doc! {"killAllSessions": []}, "killAnySession@cluster"),
            (
                doc! {"killAllSessionsByPattern": []},
                "killAnySession@cluster",
            ),
            (
                doc! {"killAllSessionsByPattern": [{"uid": 1}, {"users": []}]},
                "impersonate+killAnySession@cluster",
            ),
            (doc! {"killSessions": []}, "login"),
            (doc! {"listDatabases": 1}, "login"),
            (doc! {"logRotate": 1}, "logRotate@cluster"),
            (doc! {"refreshSessions": []}, "login"),
            (doc! {"replSetFreeze": 0}, "replSetStateChange@cluster"),
            (doc! {"replSetGetConfig": 1}, "replSetGetConfig@cluster"),
            (doc! {"replSetGetStatus": 1}, "replSetGetStatus@cluster"),
            (doc! {"replSetInitiate": {}}, "replSetConfigure@cluster"),
            (doc! {"replSetMaintenance": 1}, "replSetStateChange@cluster"),
            (doc! {"replSetReconfig": {}}, "replSetConfigure@cluster"),
            (doc! {"replSetResizeOplog": 1}, "replSetResizeOplog@cluster"),
            (doc! {"replSetStepDown": 1}, "replSetStateChange@cluster"),
            (doc! {"replSetOpenChannel": 1}, "internal@cluster"),
            (doc! {"replSetStepUp": 1}, "replSetStateChange@cluster"),
            (doc! {"serverStatus": 1}, "serverStatus@cluster"),
            (
                doc! {"setClusterParameter": {}},
                "setClusterParameter@cluster",
            ),
            (
                doc! {"setDefaultRWConcern": 1},
                "setDefaultRWConcern@cluster",
            ),
            (
                doc! {"setFeatureCompatibilityVersion": "8.0"},
                "setFeatureCompatibilityVersion@cluster",
            ),
            (doc! {"setParameter": 1, "x": 1}, "setParameter@cluster"),
            (doc! {"shutdown": 1}, "shutdown@cluster"),
            (doc! {"startSession": 1}, "login"),
            (doc! {"top": 1}, "top@cluster"),
            (doc! {"commitTransaction": 1}, "login"),
            (doc! {"abortTransaction": 1}, "login"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_about_databases_and_the_catalog() {
    let create = "(createCollection@test.c | insert@test.c)";
    let view = |stages: &frond_bson::ArrayBuf| {
        let mut create = doc! {"create": "v", "viewOn": "c"};
        create.push_value("pipeline", &stages.as_value());
        create
    };
    let looked_up = array![{"$lookup": {"from": "d", "as": "x"}}];
    check(
        "test",
        &[
            (doc! {"collMod": "c"}, "collMod@test.c"),
            (
                doc! {"collMod": "v", "viewOn": "c", "pipeline": []},
                "(collMod@test.v & (find@test.v => find@test.c))",
            ),
            (doc! {"collMod": "v", "viewOn": "c"}, "error 72"),
            (doc! {"collMod": "v", "pipeline": []}, "error 72"),
            (doc! {"collStats": "c"}, "collStats@test.c"),
            (doc! {"convertToCapped": "c"}, "convertToCapped@test.c"),
            (doc! {"addPartition": "c"}, "collMod@test.c"),
            (
                doc! {"dropPartition": "c", "id": 0},
                "dropCollection@test.c",
            ),
            (doc! {"getPartitionInfo": "c"}, "collStats@test.c"),
            (
                doc! {"cloneCollectionAsCapped": "c", "toCollection": "d"},
                "(find@test.c & convertToCapped+createIndex+insert@test.d)",
            ),
            (doc! {"create": "c"}, create),
            (doc! {"create": Value::Symbol("c")}, create),
            (
                doc! {"create": "c", "capped": true},
                "((createCollection@test.c | insert@test.c) & convertToCapped@test.c)",
            ),
            (
                view(&looked_up),
                "(createCollection@test.v & (find@test.v => (find@test.c & find@test.d)))",
            ),
            (
                doc! {"create": Value::Symbol("v"), "viewOn": "c"},
                "(createCollection@test.v & (find@test.v => find@test.c))",
            ),
            (doc! {"createIndexes": "c"}, "createIndex@test.c"),
            (doc! {"dataSize": "x.c"}, "find@x.c"),
            (doc! {"dataSize": "x"}, "error 73"),
            (doc! {"dbHash": 1}, "dbHash@test"),
            (doc! {"dbStats": 1}, "dbStats@test"),
            (doc! {"drop": "c"}, "dropCollection@test.c"),
            (doc! {"dropDatabase": 1}, "dropDatabase@test"),
            (doc! {"dropIndexes": "c"}, "dropIndex@test.c"),
            (doc! {"filemd5": 1}, "find@test.fs.chunks"),
            (doc! {"filemd5": 1, "root": "g"}, "find@test.g.chunks"),
            (doc! {"listCollections": 1}, "listCollections@test"),
            (
                doc! {"listCollections": 1, "nameOnly": true},
                "listCollections@test",
            ),
            (
                doc! {"listCollections": 1, "nameOnly": true, "authorizedCollections": true},
                "(listCollections@test | something@test)",
            ),
            (doc! {"listIndexes": "c"}, "listIndexes@test.c"),
            (doc! {"planCacheClear": "c"}, "planCacheWrite@test.c"),
            (
                doc! {"planCacheListPlans": "c", "query": {}},
                "planCacheRead@test.c",
            ),
            (
                doc! {"planCacheListQueryShapes": "c"},
                "planCacheRead@test.c",
            ),
            (
                doc! {"planCacheListFilters": "c"},
                "planCacheIndexFilter@test.c",
            ),
            (doc! {"profile": 0}, "enableProfiler@test"),
            (
                doc! {"profile": -1},
                "(enableProfiler@test | find@test.system.profile)",
            ),
            (doc! {"profile": -1, "slowms": 1}, "enableProfiler@test"),
            (doc! {"reIndex": "c"}, "reIndex@test.c"),
            (doc! {"rolesInfo": 1}, "viewRole@test"),
            (doc! {"usersInfo": 1}, "viewUser@test"),
            (doc! {"validate": "c"}, "validate@test.c"),
            (doc! {"validate": 1}, "error 73"),
        ],
    );
    check(
        "admin",
        &[
            (
                doc! {"renameCollection": "a.c", "to": "a.d"},
                "((renameCollectionSameDB@a & (find@a.d => find@a.c)) | \
                 (dropCollection+find@a.c & createIndex+insert@a.d))",
            ),
            (
                doc! {"renameCollection": "a.c", "to": "a.d", "dropTarget": true},
                "((renameCollectionSameDB@a & (find@a.d => find@a.c) & dropCollection@a.d) | \
                 (dropCollection+find@a.c & createIndex+dropCollection+insert@a.d))",
            ),
            (
                doc! {"renameCollection": "a.c", "to": "b.c"},
                "(dropCollection+find@a.c & createIndex+insert@b.c)",
            ),
            (
                doc! {"renameCollection": "a.system.views", "to": "a.c"},
                "(dropCollection+find@a.system.views & createIndex+insert@a.c)",
            ),
            (doc! {"renameCollection": "a", "to": "a.c"}, "error 73"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_read_and_write_documents() {
    check(
        "test",
        &[
            (doc! {"find": "c"}, "find@test.c"),
            (doc! {"find": "system.js"}, "find@test.system.js"),
            (doc! {"find": 1}, "error 73"),
            (doc! {"count": "c"}, "find@test.c"),
            (doc! {"distinct": "c"}, "find@test.c"),
            (doc! {"getMore": 1i64, "collection": "c"}, "login"),
            (doc! {"mapReduce": "c"}, "find@test.c"),
            (doc! {"mapReduce": "c", "out": {"inline": 1}}, "find@test.c"),
            (
                doc! {"mapReduce": "c", "out": "d"},
                "(find@test.c & insert+remove@test.d)",
            ),
            (
                doc! {"mapReduce": "c", "out": {"merge": "d", "db": "e"}, "bypassDocumentValidation": true},
                "(find@test.c & bypassDocumentValidation+insert+update@e.d)",
            ),
            (doc! {"group": {"ns": "c"}}, "find@test.c"),
            (doc! {"group": 1}, "error 73"),
            (doc! {"eval": "1"}, "anyAction@any"),
            (doc! {"insert": "c", "documents": []}, "insert@test.c"),
            (
                doc! {"insert": "c", "bypassDocumentValidation": true},
                "bypassDocumentValidation+insert@test.c",
            ),
            (
                doc! {"insert": "c", "bypassDocumentValidation": 1},
                "bypassDocumentValidation+insert@test.c",
            ),
            (doc! {"delete": "c", "deletes": []}, "remove@test.c"),
            (
                doc! {"update": "c", "updates": [{"q": {}, "u": {}}, {"q": {}, "upsert": false}]},
                "update@test.c",
            ),
            (
                doc! {"update": "c", "updates": [{"q": {}, "u": {}}, {"q": {}, "upsert": 1}]},
                "insert+update@test.c",
            ),
            (
                doc! {
                    "update": "c", "bypassDocumentValidation": true,
                    "updates": [{"q": {}, "upsert": false, "upsert": true}],
                },
                "bypassDocumentValidation+insert+update@test.c",
            ),
            (
                doc! {"findAndModify": "c", "update": {}},
                "find+update@test.c",
            ),
            (
                doc! {"findAndModify": "c", "update": {}, "upsert": true},
                "find+insert+update@test.c",
            ),
            (
                doc! {"findAndModify": "c", "remove": true},
                "find+remove@test.c",
            ),
            (doc! {"explain": {"find": "c"}}, "find@test.c"),
            (
                doc! {"explain": {"update": "c", "updates": [{"upsert": true}]}},
                "insert+update@test.c",
            ),
            (
                doc! {"explain": {"aggregate": "c", "pipeline": [{"$out": "d"}]}},
                "(find@test.c & insert+remove@test.d)",
            ),
            (doc! {"explain": {"nonsense": 1}}, "error 59"),
            (doc! {"explain": {}}, "error 59"),
        ],
    );
    let bulk = |ops: frond_bson::ArrayBuf| {
        let mut bulk = doc! {"bulkWrite": 1, "nsInfo": [{"ns": "a.c"}, {"ns": "b.d"}]};
        bulk.push_value("ops", &ops.as_value());
        bulk
    };
    check(
        "admin",
        &[
            (
                bulk(array![{"insert": 0}, {"delete": 1}, {"update": 1.0}]),
                "(insert@a.c & remove+update@b.d)",
            ),
            (
                bulk(array![{"update": 0, "upsert": true}]),
                "insert+update@a.c",
            ),
            (bulk(array![]), "login"),
            (bulk(array![{"insert": 2}]), "error 2"),
            (bulk(array![{"insert": -1}]), "error 2"),
            (bulk(array![{"insert": "a"}]), "error 14"),
            (bulk(array![{"replace": 0}]), "error 2"),
            (bulk(array![{}]), "error 2"),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines() {
    let on = |target: Value<'_>, stages: frond_bson::ArrayBuf| {
        let mut command = doc! {"aggregate": target};
        command.push_value("pipeline", &stages.as_value());
        command
    };
    let c = |stages| on(Value::String("c"), stages);
    let none = |stages| on(Value::Int32(1), stages);
    check(
        "test",
        &[
            (c(array![]), "find@test.c"),
            (c(array![{"$match": {}}, {"$group": {}}]), "find@test.c"),
            (
                c(array![{"$lookup": {"from": "d", "as": "x"}}]),
                "(find@test.c & find@test.d)",
            ),
            (
                c(array![{"$lookup": {"from": {"db": "x", "coll": "d"}, "as": "x"}}]),
                "(find@test.c & find@x.d)",
            ),
            (
                c(array![{"$lookup": {"from": "d", "from": "e", "as": "x"}}]),
                "error 9",
            ),
            (
                c(array![{"$lookup": {"from": "d", "pipeline": [
                    {"$match": {}},
                    {"$facet": {"f": [{"$unionWith": {"coll": "e", "pipeline": [
                        {"$graphLookup": {"from": "g"}},
                    ]}}]}},
                ]}}]),
                "(find@test.c & find@test.d & find@test.e & find@test.g)",
            ),
            (
                c(array![{"$lookup": {"from": "d", "pipeline": [{"$collStats": {}}]}}]),
                "(find@test.c & collStats@test.d)",
            ),
            (
                c(array![{"$lookup": {"pipeline": [{"$documents": []}]}}]),
                "find@test.c",
            ),
            (
                c(array![{"$unionWith": "d"}]),
                "(find@test.c & find@test.d)",
            ),
            (
                c(array![{"$graphLookup": {"from": "d"}}]),
                "(find@test.c & find@test.d)",
            ),
            (c(array![{"$collStats": {}}]), "collStats@test.c"),
            (c(array![{"$indexStats": {}}]), "indexStats@test.c"),
            (c(array![{"$planCacheStats": {}}]), "planCacheRead@test.c"),
            (c(array![{"$changeStream": {}}]), "changeStream+find@test.c"),
            (
                none(array![{"$changeStream": {}}, {"$match": {}}]),
                "changeStream+find@test",
            ),
            (
                none(array![{"$changeStream": {"allChangesForCluster": true}}]),
                "(changeStream+find@test & changeStream+find@normal)",
            ),
            (none(array![{"$documents": []}]), "login"),
            (
                c(array![{"$out": "d"}]),
                "(find@test.c & insert+remove@test.d)",
            ),
            (
                c(array![{"$out": {"db": "x", "coll": "d"}}]),
                "(find@test.c & insert+remove@x.d)",
            ),
            (
                c(array![{"$merge": "d"}]),
                "(find@test.c & insert+update@test.d)",
            ),
            (
                c(array![{"$merge": {"into": {"db": "x", "coll": "d"}, "whenMatched": "fail"}}]),
                "(find@test.c & insert@x.d)",
            ),
            (
                c(array![{"$merge": {"into": "d", "whenNotMatched": "discard"}}]),
                "(find@test.c & update@test.d)",
            ),
            (
                c(array![{"$merge": {"into": "d", "whenMatched": [], "whenNotMatched": "fail"}}]),
                "(find@test.c & update@test.d)",
            ),
            (c(array![{"$merge": {"into": "d", "into": "e"}}]), "error 9"),
            (c(array![{"$nonsense": 1}]), "find@test.c"),
        ],
    );
    check(
        "admin",
        &[
            (
                none(array![{"$changeStream": {}}]),
                "changeStream+find@normal",
            ),
            (none(array![{"$currentOp": {}}]), "login"),
            (
                none(array![{"$currentOp": {"allUsers": true}}, {"$match": {}}]),
                "inprog@cluster",
            ),
            (none(array![{"$listLocalSessions": {}}]), "login"),
            (
                none(array![{"$listLocalSessions": {"allUsers": true}}]),
                "listSessions@cluster",
            ),
            (
                none(array![{"$listLocalSessions": {"users": [{"user": "ann", "db": "admin"}]}}]),
                "login",
            ),
            (
                none(array![{"$listLocalSessions": {"users": [
                    {"user": "ann", "db": "admin"}, {"user": "ann", "db": "test"},
                ]}}]),
                "listSessions@cluster",
            ),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_an_oplog() {
    let apply = |entry: DocBuf| doc! {"applyOps": [&entry]};
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &[1; 16],
    };
    check(
        "admin",
        &[
            (doc! {"applyOps": []}, "applyOps@cluster"),
            (
                apply(doc! {"op": "i", "ns": "a.c", "o": {"_id": 1}}),
                "(applyOps@cluster & insert+update@a.c)",
            ),
            (
                apply(doc! {"op": "u", "ns": "a.c", "o": {}, "o2": {}}),
                "(applyOps@cluster & insert+update@a.c)",
            ),
            (
                doc! {"applyOps": [{"op": "u", "ns": "a.c", "o": {}}], "alwaysUpsert": false},
                "(applyOps@cluster & update@a.c)",
            ),
            (
                doc! {
                    "applyOps": [{"op": "d", "ns": "a.c", "o": {}}],
                    "bypassDocumentValidation": true,
                },
                "(applyOps@cluster & bypassDocumentValidation+remove@a.c)",
            ),
            (
                apply(doc! {"op": "d", "ns": "a.c", "ui": uuid}),
                "(applyOps@cluster & remove@a.c & useUUID@cluster)",
            ),
            (
                apply(doc! {"op": "n", "ns": ""}),
                "(applyOps@cluster & appendOplogNote@cluster)",
            ),
            (
                apply(doc! {"op": "c", "ns": "a.$cmd", "o": {"drop": "c"}}),
                "(applyOps@cluster & dropCollection@a.c)",
            ),
            (
                apply(
                    doc! {"op": "c", "ns": "a.$cmd", "o": {"createIndexes": "c", "key": {"a": 1}}},
                ),
                "(applyOps@cluster & createIndex@a.c)",
            ),
            (
                apply(
                    doc! {"op": "c", "ns": "a.$cmd", "o": {"renameCollection": "a.c", "to": "b.c"}},
                ),
                "(applyOps@cluster & (dropCollection+find@a.c & createIndex+insert@b.c))",
            ),
            (
                apply(doc! {"op": "c", "ns": "a.$cmd", "o": {"applyOps": []}}),
                "(applyOps@cluster & anyAction@any)",
            ),
            (
                apply(doc! {"op": "c", "ns": "a.$cmd", "o": {"shutdown": 1}}),
                "error 238",
            ),
            (apply(doc! {"op": "x", "ns": "a.c"}), "error 9"),
        ],
    );
}

/// A name by UUID needs the privilege to name collections so, and those on the collection that it is.
#[tokio::test(flavor = "multi_thread")]
async fn collections_by_their_uuids() {
    let mut server = TestServer::new();
    server.fill("c", 1);
    let namespace = frond_store::Namespace::new("test", "c").unwrap();
    let uuid = server.server.store.uuid_of(&namespace).unwrap();
    let known = Value::Binary {
        subtype: 4,
        bytes: &uuid,
    };
    let unknown = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    for (body, expected) in [
        (doc! {"find": known}, "(find@test.c & useUUID@cluster)"),
        (doc! {"find": unknown}, "(find@test. & useUUID@cluster)"),
        (
            doc! {"aggregate": known, "pipeline": [{"$collStats": {}}]},
            "(collStats@test.c & useUUID@cluster)",
        ),
    ] {
        assert_eq!(needs_in(&server, "test", &body), expected);
    }
}

/// A stage that the table of pipelines lacks needs every privilege there is.
#[tokio::test(flavor = "multi_thread")]
async fn every_stage_is_described() {
    let server = TestServer::new();
    let families = frond_query::reference::families();
    let stages = families
        .iter()
        .find(|family| family.title == "Aggregation stages")
        .unwrap();
    assert!(stages.names.len() > 30);
    for name in &stages.names {
        let mut stage = DocBuf::new();
        stage.push(name, &doc! {});
        let needs = needs_in(
            &server,
            "test",
            &doc! {"aggregate": "c", "pipeline": [&stage]},
        );
        assert!(!needs.contains("anyAction"), "{name}: {needs}");
    }
    assert_eq!(
        text(&Needs::superuser()),
        text(&Needs::on(
            Place::AnyResource,
            ActionSet::from(Action::AnyAction)
        ))
    );
}
