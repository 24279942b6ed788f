//! Tools: the MongoDB Database Tools 100.18, mongosh 2.12, Compass.

use frond_bson::{Value, doc};

use super::{Sent, empty_timestamp, fails, lsid, takes};

pub(super) fn all() -> Vec<(&'static str, Vec<Sent>)> {
    vec![
        ("mongodump and mongoexport", dump()),
        ("mongorestore and mongoimport", restore()),
        ("mongostat and mongotop", stat()),
        ("mongosh", mongosh()),
        ("Compass", compass()),
    ]
}

fn dump() -> Vec<Sent> {
    vec![
        takes("admin", doc! {"ismaster": 1}),
        takes("admin", doc! {"buildInfo": 1}),
        fails("admin", doc! {"atlasVersion": 1}, 59),
        takes(
            "admin",
            doc! {"listDatabases": 1, "nameOnly": true, "filter": {}},
        ),
        takes(
            "test",
            doc! {"listCollections": 1, "filter": {"name": "c"}, "cursor": {}},
        ),
        takes("test", doc! {"listIndexes": "c", "cursor": {}}),
        takes(
            "test",
            doc! {"find": "c", "filter": {}, "hint": {"_id": 1}, "noCursorTimeout": true, "batchSize": 100},
        ),
        takes(
            "test",
            doc! {"find": "c", "filter": {"a": 1}, "projection": {"a": 1}, "sort": {"_id": 1}, "skip": 1i64, "limit": 5i64},
        ),
        takes("test", doc! {"find": "system.buckets.series", "filter": {}}),
        takes("test", doc! {"count": "c", "query": {}}),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$match": {}}, {"$group": {"_id": 1, "n": {"$sum": 1}}}], "cursor": {}, "hint": {"_id": 1}},
        ),
        takes("admin", doc! {"usersInfo": 1, "showCredentials": true}),
        // With --dumpDbUsersAndRoles.
        takes("admin", doc! {"getParameter": 1, "authSchemaVersion": 1}),
        takes(
            "admin",
            doc! {"find": "system.users", "filter": {"db": "test"}},
        ),
        // With --oplog.
        takes(
            "local",
            doc! {"find": "oplog.rs", "filter": {}, "sort": {"$natural": -1}, "limit": 1i64, "singleBatch": true},
        ),
        takes(
            "local",
            doc! {
                "find": "oplog.rs", "filter": {"ts": {"$gte": empty_timestamp()}}, "oplogReplay": true,
                "noCursorTimeout": true,
            },
        ),
    ]
}

fn restore() -> Vec<Sent> {
    let entry = doc! {
        "ts": empty_timestamp(), "t": 1i64, "h": 0i64, "v": 2, "op": "i", "ns": "test.c", "o": {"_id": 1},
        "wall": Value::DateTime(0),
    };
    vec![
        // With --oplogReplay.
        takes(
            "admin",
            doc! {"applyOps": [&entry], "bypassDocumentValidation": false, "writeConcern": {"w": "majority"}},
        ),
        // With this empty update the tools detect whether the server accepts the field.
        takes(
            "_mongorestore_dummy",
            doc! {
                "update": "_mongorestore_dummy.dummy", "ordered": true, "bypassEmptyTsReplacement": true,
                "updates": [{"q": {"____dummy": 1}, "u": {"$rename": {}}}],
            },
        ),
        takes(
            "test",
            doc! {
                "insert": "c", "ordered": false, "bypassDocumentValidation": true, "bypassEmptyTsReplacement": true,
                "writeConcern": {"w": "majority"}, "documents": [{"_id": 100, "t": empty_timestamp()}],
            },
        ),
        takes(
            "test",
            doc! {
                "update": "c", "ordered": false, "bypassDocumentValidation": false, "bypassEmptyTsReplacement": true,
                "updates": [
                    {"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": true},
                    {"q": {"_id": 2}, "u": {"_id": 2, "t": empty_timestamp()}, "upsert": true},
                ],
            },
        ),
        takes(
            "test",
            doc! {
                "delete": "c", "ordered": false, "bypassDocumentValidation": false, "bypassEmptyTsReplacement": true,
                "deletes": [{"q": {"_id": 1}, "limit": 1}],
            },
        ),
        takes(
            "test",
            doc! {"create": "n", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}, "autoIndexId": true, "capped": true, "size": 4096},
        ),
        takes(
            "test",
            doc! {
                "createIndexes": "c", "ignoreUnknownIndexOptions": true,
                "indexes": [{"key": {"b": 1}, "name": "b_1", "ns": "test.c", "v": 2, "safe": true, "unknown": 1}],
            },
        ),
        takes(
            "test",
            doc! {"collMod": "c", "index": {"keyPattern": {"a": 1}, "expireAfterSeconds": 60}},
        ),
        takes("test", doc! {"drop": "c"}),
        takes("test", doc! {"dropIndexes": "c", "index": "*"}),
        fails(
            "admin",
            doc! {"applyOps": [{"op": "c", "ns": "test.$cmd", "o": {"create": "n"}, "ui": Value::Binary { subtype: 4, bytes: &[7; 16] }}]},
            238,
        ),
        takes("admin", doc! {"getParameter": 1, "authSchemaVersion": 1}),
        takes(
            "admin",
            doc! {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers", "tempRolesCollection": "admin.temproles", "drop": false, "db": "", "writeConcern": {"w": "majority"}},
        ),
    ]
}

fn stat() -> Vec<Sent> {
    vec![
        takes("admin", doc! {"serverStatus": 1, "recordStats": 0}),
        takes("admin", doc! {"serverStatus": 1, "locks": true}),
        takes("admin", doc! {"top": 1}),
    ]
}

fn mongosh() -> Vec<Sent> {
    let admin = |command| takes("admin", command);
    let expiry = doc! {"preAndPostImages": {"expireAfterSeconds": 100}};
    vec![
        takes("local", doc! {"collStats": "oplog.rs"}),
        admin(doc! {"replSetResizeOplog": 1, "size": 2000.0, "minRetentionHours": 1.5}),
        admin(doc! {"setClusterParameter": {"changeStreamOptions": &expiry}}),
        admin(doc! {"getClusterParameter": "changeStreamOptions"}),
        fails("admin", doc! {"atlasVersion": 1}, 59),
        admin(doc! {"getParameter": 1, "featureCompatibilityVersion": 1}),
        admin(doc! {"getParameter": 1, "logComponentVerbosity": 1}),
        admin(doc! {"setParameter": 1, "logComponentVerbosity": {"verbosity": 1}}),
        admin(doc! {"getLog": "startupWarnings"}),
        admin(doc! {"getCmdLineOpts": 1}),
        admin(doc! {"hostInfo": 1}),
        admin(doc! {"connectionStatus": 1, "showPrivileges": true}),
        admin(doc! {"killOp": 1, "op": 12345, "lsid": lsid()}),
        admin(doc! {"serverStatus": 1, "sharding": 0, "tcmalloc": 1}),
        admin(
            doc! {"listDatabases": 1, "nameOnly": false, "$readPreference": {"mode": "primaryPreferred"}},
        ),
        takes(
            "admin",
            doc! {"aggregate": 1, "cursor": {}, "$readPreference": {"mode": "primaryPreferred"}, "pipeline": [
                {"$currentOp": {"allUsers": true, "idleConnections": false, "truncateOps": false}}, {"$match": {"active": true}},
            ]},
        ),
        takes("test", doc! {"dbStats": 1, "scale": 1, "freeStorage": 0}),
        takes("test", doc! {"collStats": "c", "scale": 1}),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$collStats": {"storageStats": {"scale": 1}}}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$collStats": {"count": {}}}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$planCacheStats": {}}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"validate": "c", "full": true, "checkBSONConformance": true},
        ),
        takes(
            "test",
            doc! {"validate": "c", "full": false, "repair": false},
        ),
        takes("test", doc! {"convertToCapped": "c", "size": 4096}),
        takes("test", doc! {"reIndex": "c"}),
        takes(
            "test",
            doc! {"planCacheClear": "c", "query": {"a": 1}, "projection": {"a": 1}, "sort": {"a": 1}},
        ),
        takes("test", doc! {"profile": -1}),
        takes("test", doc! {"profile": 0, "slowms": 50, "sampleRate": 1}),
        takes("test", doc! {"find": 1, "help": true}),
        takes("test", doc! {"listCommands": 1}),
        takes(
            "test",
            doc! {"usersInfo": {"user": "u", "db": "test"}, "showCredentials": false, "showCustomData": true, "filter": {}},
        ),
        takes(
            "test",
            doc! {"rolesInfo": 1, "showPrivileges": true, "showBuiltinRoles": true},
        ),
        takes(
            "test",
            doc! {"collMod": "c", "index": {"name": "a_1", "hidden": false}},
        ),
        takes("test", doc! {"hello": 1}),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$collStats": {"latencyStats": {"histograms": true}, "queryExecStats": {}}}], "cursor": {}},
        ),
        takes(
            "admin",
            doc! {"serverStatus": 1, "opLatencies": {"histograms": true}},
        ),
        // There are no users, no locks and no cluster.
        takes(
            "test",
            doc! {"createUser": "u", "pwd": "p", "roles": [], "digestPassword": true, "writeConcern": {"w": "majority"}},
        ),
        fails(
            "test",
            doc! {"updateUser": "nobody", "customData": {"a": 1}, "writeConcern": {"w": "majority"}},
            11,
        ),
        fails(
            "test",
            doc! {"grantRolesToUser": "nobody", "roles": ["read"], "writeConcern": {"w": "majority"}},
            11,
        ),
        fails(
            "test",
            doc! {"dropUser": "nobody", "writeConcern": {"w": "majority"}},
            11,
        ),
        takes("admin", doc! {"fsync": 1, "lock": true}),
        fails("admin", doc! {"fsyncUnlock": 1}, 20),
        takes("test", doc! {"profile": 1, "filter": {"op": "query"}}),
        takes("test", doc! {"profile": 0, "filter": "unset"}),
        fails("test", doc! {"validate": "c", "repair": true}, 238),
        fails("admin", doc! {"replSetGetStatus": 1}, 76),
        fails(
            "test",
            doc! {"checkMetadataConsistency": 1, "checkIndexes": true},
            59,
        ),
        fails(
            "admin",
            doc! {"analyzeShardKey": "test.c", "key": {"a": 1}, "sampleRate": 1.0},
            59,
        ),
        fails("admin", doc! {"rotateCertificates": 1, "message": "x"}, 140),
        fails("admin", doc! {"getShardVersion": "test.c"}, 59),
    ]
}

fn compass() -> Vec<Sent> {
    let totals = doc! {
        "_id": null, "capped": {"$first": "$storageStats.capped"}, "count": {"$sum": "$storageStats.count"},
        "size": {"$sum": {"$toDouble": "$storageStats.size"}}, "storageSizeType": {"$first": {"$type": "$storageStats.storageSize"}},
        "freeStorageSize": {"$sum": {"$toDouble": "$storageStats.freeStorageSize"}},
    };
    vec![
        takes(
            "admin",
            doc! {"connectionStatus": 1, "showPrivileges": true},
        ),
        takes("admin", doc! {"getCmdLineOpts": 1}),
        takes("admin", doc! {"hostInfo": 1}),
        takes("admin", doc! {"buildInfo": 1}),
        fails("admin", doc! {"atlasVersion": 1}, 59),
        takes("admin", doc! {"listDatabases": 1, "nameOnly": true}),
        takes(
            "admin",
            doc! {"getParameter": 1, "featureCompatibilityVersion": 1},
        ),
        takes("admin", doc! {"top": 1}),
        takes("admin", doc! {"serverStatus": 1}),
        takes("test", doc! {"dbStats": 1}),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$collStats": {"storageStats": {}}}, {"$group": &totals}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"aggregate": "series", "pipeline": [{"$collStats": {"storageStats": {}}}, {"$group": &totals}], "cursor": {}},
        ),
        takes(
            "admin",
            doc! {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": true, "localOps": false}}, {"$match": {"ns": "test.c", "active": true, "command.createIndexes": {"$exists": true}}}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$sample": {"size": 1000}}, {"$project": {"a": 1}}], "cursor": {}, "allowDiskUse": true, "maxTimeMS": 1000},
        ),
        takes(
            "test",
            doc! {"explain": {"find": "c", "filter": {}, "sort": {"a": 1}, "collation": {"locale": "en"}}, "verbosity": "executionStats", "maxTimeMS": 1000},
        ),
        takes(
            "test",
            doc! {"count": "c", "query": {}, "hint": "_id_", "maxTimeMS": 1000, "comment": "x"},
        ),
        takes(
            "test",
            doc! {"create": "n", "viewOn": "c", "pipeline": [], "collation": {"locale": "en"}},
        ),
        takes(
            "test",
            doc! {"collMod": "c", "validator": {"$jsonSchema": {}}, "validationAction": "warn", "validationLevel": "moderate"},
        ),
        takes("test", doc! {"listIndexes": "c", "cursor": {}}),
        takes(
            "admin",
            doc! {"killSessions": [{"id": Value::Binary { subtype: 4, bytes: &[7; 16] }}]},
        ),
        // It names the operation by `id`, an unknown field: MongoDB's error is the one for the missing `op`.
        fails("admin", doc! {"killOp": 1, "id": 12345, "comment": "x"}, 4),
    ]
}
