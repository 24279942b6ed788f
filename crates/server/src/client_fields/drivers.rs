//! Drivers and libraries on top of them: the Node.js driver 7.9, Mongoose 8 and 9, PyMongo 4.20, the Java driver with Spring
//! Data MongoDB, Django's backend.

use frond_bson::{DocBuf, ObjectId, Timestamp, Value, doc};

use super::{Sent, empty_timestamp, fails, lsid, takes, with};

pub(super) fn all() -> Vec<(&'static str, Vec<Sent>)> {
    vec![
        ("handshakes", handshakes()),
        ("fields of every command", common()),
        ("reads", reads()),
        ("change streams", change_streams()),
        ("writes", writes()),
        ("bulkWrite", bulk_write()),
        ("catalog", catalog()),
        ("administration", administration()),
        ("Mongoose", mongoose()),
        ("Spring Data MongoDB", spring()),
        ("Django", django()),
        ("unsupported features", unsupported_features()),
    ]
}

fn topology_version() -> DocBuf {
    doc! {"processId": Value::ObjectId(ObjectId::new()), "counter": 0i64}
}

fn handshakes() -> Vec<Sent> {
    let client = doc! {
        "application": {"name": "shop"},
        "driver": {"name": "nodejs|Mongoose", "version": "7.9.0|9.0.0"},
        "platform": "Node.js v24, LE",
        "os": {"type": "Linux", "name": "linux", "architecture": "x64", "version": "6.1"},
        "env": {"name": "aws.lambda", "container": {"runtime": "docker", "orchestrator": "kubernetes"}, "memory_mb": 1024},
        "backend": {},
    };
    let payload: &[u8] = b"n,,n=user,r=abcdefgh";
    let payload = Value::Binary {
        subtype: 0,
        bytes: payload,
    };
    let first = doc! {
        "helloOk": true, "backpressure": true, "client": client, "compression": ["zstd", "snappy", "zlib"],
        "loadBalanced": false, "saslSupportedMechs": "admin.user",
        "speculativeAuthenticate": {
            "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "autoAuthorize": 1,
            "options": {"skipEmptyExchange": true}, "db": "admin",
        },
    };
    let poll =
        doc! {"maxAwaitTimeMS": 10i64, "topologyVersion": topology_version(), "$db": "admin"};
    vec![
        takes("admin", with(doc! {"hello": 1}, &first)),
        takes("admin", with(doc! {"ismaster": 1}, &first)),
        takes("admin", with(doc! {"isMaster": 1}, &first)),
        takes(
            "admin",
            with(
                doc! {"hello": 1, "apiVersion": "1", "apiStrict": true, "apiDeprecationErrors": true},
                &first,
            ),
        ),
        // A client polls with the version of the last reply; a version of another process gets a reply at once.
        takes(
            "admin",
            with(
                doc! {"hello": 1, "helloOk": true},
                &with(poll, &doc! {"hosts": Value::Null}),
            ),
        ),
        takes(
            "admin",
            doc! {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "autoAuthorize": 1, "options": {"skipEmptyExchange": true}},
        ),
        // There is no certificate.
        fails(
            "$external",
            doc! {"authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=user"},
            18,
        ),
    ]
}

/// The generic arguments that drivers add to any command.
fn common() -> Vec<Sent> {
    let read = doc! {
        "comment": {"request": 7}, "maxTimeMS": 5000, "readConcern": {"level": "majority"},
        "$readPreference": {"mode": "secondaryPreferred", "tags": [{"dc": "east"}], "maxStalenessSeconds": 120, "hedge": {"enabled": true}},
        "lsid": lsid(), "$db": "test",
        "$clusterTime": {"clusterTime": empty_timestamp(), "signature": {"keyId": 0i64}},
    };
    let write = doc! {
        "comment": "x", "maxTimeMS": 5000i64, "writeConcern": {"w": "majority", "j": false, "wtimeout": 100},
        "lsid": lsid(), "txnNumber": 1i64, "$db": "test",
    };
    let api = doc! {"apiVersion": "1", "apiStrict": true, "apiDeprecationErrors": true};
    vec![
        takes("test", with(doc! {"find": "c"}, &read)),
        takes(
            "test",
            with(doc! {"aggregate": "c", "pipeline": [], "cursor": {}}, &read),
        ),
        takes("test", with(doc! {"count": "c"}, &read)),
        takes("test", with(doc! {"distinct": "c", "key": "a"}, &read)),
        takes(
            "test",
            with(with(doc! {"insert": "c", "documents": [{}]}, &write), &api),
        ),
        takes(
            "test",
            with(
                doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
                &write,
            ),
        ),
        takes(
            "test",
            with(
                doc! {"delete": "c", "deletes": [{"q": {}, "limit": 1}]},
                &write,
            ),
        ),
        takes(
            "test",
            with(
                doc! {"findAndModify": "c", "query": {}, "remove": true},
                &write,
            ),
        ),
        takes("test", with(with(doc! {"find": "c"}, &read), &api)),
    ]
}

fn reads() -> Vec<Sent> {
    let collation =
        doc! {"locale": "en", "strength": 2, "caseLevel": false, "numericOrdering": true};
    vec![
        takes(
            "test",
            doc! {
                "find": "c", "filter": {"a": {"$gte": 0}}, "sort": {"a": 1}, "projection": {"a": 1}, "hint": {"a": 1}, "skip": 1,
                "limit": 5, "batchSize": 2, "singleBatch": false, "max": {"a": 90}, "min": {"a": 0}, "returnKey": false,
                "showRecordId": false, "noCursorTimeout": true, "allowPartialResults": false, "allowDiskUse": true,
                "oplogReplay": false, "tailable": false, "awaitData": false, "let": {"x": 1}, "comment": "x", "maxTimeMS": 100,
            },
        ),
        takes(
            "test",
            doc! {"find": "c", "filter": {}, "collation": &collation, "returnKey": true, "showRecordId": true, "limit": 3i64, "singleBatch": true},
        ),
        takes(
            "test",
            doc! {"find": "capped", "filter": {}, "tailable": true, "awaitData": true, "batchSize": 0},
        ),
        takes(
            "test",
            doc! {
                "aggregate": "c", "pipeline": [{"$match": {"a": 10}}], "cursor": {"batchSize": 10}, "allowDiskUse": true,
                "bypassDocumentValidation": false, "hint": "a_1", "let": {"x": 1}, "comment": "x", "collation": {"locale": "simple"},
            },
        ),
        takes(
            "test",
            doc! {
                "aggregate": "c", "pipeline": [{"$out": {"db": "test", "coll": "o"}}], "cursor": {}, "bypassDocumentValidation": true,
                "writeConcern": {"w": 1, "j": true},
            },
        ),
        takes(
            "test",
            doc! {
                "aggregate": "c", "pipeline": [{"$merge": {
                    "into": {"db": "test", "coll": "o"}, "on": "_id", "let": {"n": 1}, "whenMatched": [{"$set": {"n": "$$n"}}], "whenNotMatched": "insert",
                }}], "cursor": {}, "writeConcern": {"w": 1},
            },
        ),
        takes(
            "test",
            doc! {"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}]}], "cursor": {}},
        ),
        takes(
            "test",
            doc! {"count": "c", "query": {"a": 10}, "limit": 5, "skip": 0, "hint": "a_1", "collation": {"locale": "simple"}, "comment": 1, "maxTimeMS": 10},
        ),
        takes(
            "test",
            doc! {"distinct": "c", "key": "a", "query": {"a": {"$gt": 0}}, "hint": {"a": 1}, "collation": {"locale": "simple"}, "comment": "x"},
        ),
        takes(
            "test",
            doc! {"explain": {"find": "c", "filter": {"a": 10}, "$db": "test"}, "verbosity": "queryPlanner", "comment": "x", "maxTimeMS": 10},
        ),
        takes(
            "test",
            doc! {"explain": {"aggregate": "c", "pipeline": [], "cursor": {}}, "verbosity": "executionStats"},
        ),
        takes(
            "test",
            doc! {"explain": {"update": "c", "ordered": true, "updates": [{"q": {}, "u": {"$set": {"x": 1}}, "multi": false, "upsert": false}]}, "verbosity": "allPlansExecution"},
        ),
        takes(
            "test",
            doc! {"killCursors": "c", "cursors": [1i64], "comment": "x", "lsid": lsid()},
        ),
        // A cursor that does not exist: the fields are read before.
        fails(
            "test",
            doc! {"getMore": 1i64, "collection": "c", "batchSize": 5, "maxTimeMS": 10, "comment": "x", "lsid": lsid()},
            43,
        ),
    ]
}

fn change_streams() -> Vec<Sent> {
    // Later than all that has happened: such a stream waits for its time.
    let later = Value::Timestamp(Timestamp {
        time: i32::MAX as u32,
        increment: 1,
    });
    let watch = |options: DocBuf| {
        doc! {"pipeline": [{"$changeStream": &options}, {"$match": {"operationType": "insert"}}]}
    };
    let options = doc! {
        "fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable", "showExpandedEvents": true,
    };
    let of_cluster = doc! {"allChangesForCluster": true, "startAtOperationTime": later};
    let command = |target: Value<'_>, options: DocBuf| {
        let mut command = DocBuf::new();
        command.push("aggregate", target);
        command.push_all(&watch(options));
        command.push_all(&doc! {
            "cursor": {"batchSize": 0}, "collation": {"locale": "en"}, "comment": "x", "lsid": &lsid(),
            "readConcern": {"level": "majority"},
        });
        command
    };
    vec![
        takes("test", command("c".into(), options)),
        takes("test", command("missing".into(), doc! {})),
        takes(
            "test",
            command(1.into(), doc! {"fullDocument": "updateLookup"}),
        ),
        takes("admin", command(1.into(), of_cluster)),
        takes(
            "test",
            doc! {
                "aggregate": "c", "cursor": {}, "apiVersion": "1", "apiStrict": true,
                "pipeline": [{"$changeStream": {"fullDocument": "default"}}, {"$changeStreamSplitLargeEvent": {}}],
            },
        ),
    ]
}

fn writes() -> Vec<Sent> {
    let fields = doc! {
        "ordered": false, "bypassDocumentValidation": false, "bypassEmptyTsReplacement": true, "comment": "x",
        "writeConcern": {"w": 1, "j": false, "wtimeout": 0},
    };
    let variables = doc! {"let": {"x": 1}};
    vec![
        takes(
            "test",
            with(
                doc! {"insert": "c", "documents": [{"_id": 100, "t": empty_timestamp()}]},
                &fields,
            ),
        ),
        takes(
            "test",
            with(
                with(
                    doc! {"update": "c", "updates": [
                        {"q": {"_id": 1}, "u": {"$set": {"l.$[e].x": 1}}, "multi": false, "upsert": false, "arrayFilters": [{"e.y": 1}],
                         "hint": {"_id": 1}, "collation": {"locale": "en"}, "sort": {"a": -1}},
                        {"q": {"_id": 2}, "u": [{"$set": {"y": "$$x"}}], "multi": true, "upsert": true},
                        {"q": {"_id": 3}, "u": {"z": 1}, "sort": {"a": 1}, "upsert": true},
                    ]},
                    &fields,
                ),
                &variables,
            ),
        ),
        takes(
            "test",
            with(
                with(
                    doc! {"delete": "c", "deletes": [
                        {"q": {"_id": 1}, "limit": 1, "hint": "_id_", "collation": {"locale": "en"}}, {"q": {"_id": 2}, "limit": 0},
                    ]},
                    &fields,
                ),
                &variables,
            ),
        ),
        takes(
            "test",
            doc! {
                "findAndModify": "c", "query": {"_id": 1}, "sort": {"a": 1}, "update": {"$set": {"l.$[e].x": 1}}, "new": true,
                "fields": {"a": 1}, "upsert": true, "arrayFilters": [{"e.y": 1}], "hint": {"_id": 1}, "let": {"x": 1}, "collation": {"locale": "en"},
                "bypassDocumentValidation": true, "bypassEmptyTsReplacement": true, "comment": "x", "maxTimeMS": 100,
                "writeConcern": {"w": 1},
            },
        ),
        takes(
            "test",
            doc! {"findAndModify": "c", "query": {"_id": 1}, "remove": true, "new": false, "upsert": false, "hint": "_id_"},
        ),
    ]
}

fn bulk_write() -> Vec<Sent> {
    let filter = doc! {"_id": 1};
    vec![takes(
        "admin",
        doc! {
            "bulkWrite": 1, "errorsOnly": false, "ordered": true, "bypassDocumentValidation": false, "bypassEmptyTsReplacement": false,
            "comment": "x", "let": {"x": 1}, "cursor": {}, "writeConcern": {"w": 1}, "lsid": lsid(), "txnNumber": 1i64,
            "nsInfo": [{"ns": "test.c"}],
            "ops": [
                {"insert": 0, "document": {"_id": 100}},
                {"update": 0, "filter": &filter, "updateMods": {"$set": {"l.$[e].x": 1}}, "multi": false, "upsert": false,
                 "arrayFilters": [{"e.y": 1}], "hint": "_id_", "collation": {"locale": "en"}, "sort": {"a": 1}},
                {"update": 0, "filter": &filter, "updateMods": [{"$set": {"y": "$$x"}}], "multi": false},
                {"update": 0, "filter": &filter, "updateMods": {"z": 1}, "multi": false, "upsert": true, "sort": {"a": 1}},
                {"delete": 0, "filter": &filter, "multi": false, "hint": {"_id": 1}, "collation": {"locale": "en"}},
            ],
        },
    )]
}

fn catalog() -> Vec<Sent> {
    vec![
        takes(
            "test",
            doc! {
                "create": "n", "capped": true, "size": 4096, "max": 10, "autoIndexId": true, "storageEngine": {"wiredTiger": {"configString": ""}},
                "validator": {"a": {"$exists": true}}, "validationLevel": "moderate", "validationAction": "warn",
                "indexOptionDefaults": {"storageEngine": {"wiredTiger": {"configString": ""}}}, "collation": {"locale": "en"},
                "comment": "x", "writeConcern": {"w": 1}, "maxTimeMS": 100,
            },
        ),
        takes(
            "test",
            doc! {"create": "n", "viewOn": "c", "pipeline": [{"$match": {}}], "collation": {"locale": "en"}},
        ),
        takes(
            "test",
            doc! {"create": "n", "clusteredIndex": {"key": {"_id": 1}, "unique": true, "name": "byId"}, "expireAfterSeconds": 60, "changeStreamPreAndPostImages": {"enabled": true}},
        ),
        takes(
            "test",
            doc! {"create": "n", "timeseries": {"timeField": "at", "metaField": "m", "granularity": "hours"}, "expireAfterSeconds": 60i64},
        ),
        takes(
            "test",
            doc! {"create": "n", "timeseries": {"timeField": "at", "bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 60}},
        ),
        takes(
            "test",
            doc! {
                "createIndexes": "n", "commitQuorum": "votingMembers", "comment": "x", "maxTimeMS": 100, "writeConcern": {"w": 1},
                "indexes": [
                    {"key": {"a": 1}, "name": "a_1", "unique": true, "sparse": false, "hidden": true, "background": true, "v": 2,
                     "partialFilterExpression": {"a": {"$gt": 1}}, "collation": {"locale": "en"}, "storageEngine": {"wiredTiger": {"configString": ""}}},
                    {"key": {"b": 1}, "name": "b_1", "expireAfterSeconds": 60, "dropDups": false},
                    {"key": {"_fts": "text", "_ftsx": 1}, "name": "s_text", "weights": {"s": 1}, "default_language": "german", "language_override": "lang", "textIndexVersion": 3},
                    {"key": {"p": "2dsphere"}, "name": "p_2dsphere", "2dsphereIndexVersion": 3},
                    {"key": {"q": "2d"}, "name": "q_2d", "bits": 26, "min": -180.0, "max": 180.0},
                    {"key": {"$**": 1}, "name": "all", "wildcardProjection": {"w": 0}},
                    {"key": {"h": "hashed"}, "name": "h_hashed"},
                ],
            },
        ),
        takes(
            "test",
            doc! {"listIndexes": "c", "cursor": {"batchSize": 5}, "comment": "x", "maxTimeMS": 10},
        ),
        takes(
            "test",
            doc! {"dropIndexes": "c", "index": "a_1", "comment": "x", "writeConcern": {"w": 1}, "maxTimeMS": 10},
        ),
        takes("test", doc! {"dropIndexes": "c", "index": ["a_1"]}),
        takes("test", doc! {"dropIndexes": "c", "index": {"a": 1}}),
        takes(
            "test",
            doc! {"listCollections": 1, "filter": {"name": "c"}, "nameOnly": true, "authorizedCollections": true, "cursor": {"batchSize": 5}, "comment": "x"},
        ),
        takes(
            "admin",
            doc! {"listDatabases": 1, "nameOnly": true, "filter": {"name": "test"}, "authorizedDatabases": true, "comment": "x"},
        ),
        takes(
            "admin",
            doc! {"renameCollection": "test.c", "to": "test.d", "dropTarget": true, "comment": "x", "writeConcern": {"w": 1}},
        ),
        takes(
            "test",
            doc! {"drop": "c", "comment": "x", "writeConcern": {"w": "majority"}},
        ),
        takes(
            "test",
            doc! {"dropDatabase": 1, "comment": "x", "writeConcern": {"w": 1}},
        ),
        takes(
            "test",
            doc! {"collMod": "c", "index": {"name": "a_1", "hidden": true}, "comment": "x", "writeConcern": {"w": 1}},
        ),
        takes(
            "test",
            doc! {"collMod": "c", "validator": {}, "validationLevel": "strict", "validationAction": "error", "changeStreamPreAndPostImages": {"enabled": false}},
        ),
        takes("test", doc! {"collMod": "v", "viewOn": "c", "pipeline": []}),
        takes(
            "test",
            doc! {"validate": "c", "scandata": true, "full": true, "background": false, "comment": "x"},
        ),
        takes(
            "test",
            doc! {"dbStats": 1, "scale": 1024, "freeStorage": 1, "comment": "x"},
        ),
        takes("test", doc! {"collStats": "c", "scale": 1, "comment": "x"}),
    ]
}

fn administration() -> Vec<Sent> {
    let id = Value::Binary {
        subtype: 4,
        bytes: &[7; 16],
    };
    vec![
        takes(
            "admin",
            doc! {"endSessions": [lsid()], "writeConcern": {"w": 0}, "$clusterTime": {"clusterTime": empty_timestamp()}},
        ),
        takes("admin", doc! {"killSessions": [{"id": id}]}),
        takes("admin", doc! {"refreshSessions": [lsid()]}),
        takes(
            "test",
            doc! {"ping": 1, "comment": "x", "maxTimeMS": 10, "$readPreference": {"mode": "primaryPreferred"}},
        ),
        takes("admin", doc! {"buildinfo": 1, "lsid": lsid()}),
        takes(
            "admin",
            doc! {"serverStatus": 1, "repl": 0, "metrics": 0, "locks": 0},
        ),
        takes(
            "test",
            doc! {"profile": 0, "slowms": 100, "sampleRate": 1.0, "comment": "x"},
        ),
        takes(
            "admin",
            doc! {"currentOp": 1, "$all": true, "$ownOps": false, "$truncateOps": true, "active": true, "comment": "x"},
        ),
        takes("admin", doc! {"killOp": 1, "op": 12345, "comment": "x"}),
        takes("admin", doc! {"getLog": "global", "comment": "x"}),
        takes(
            "admin",
            doc! {"getParameter": 1, "featureCompatibilityVersion": 1, "authenticationMechanisms": 1, "comment": "x"},
        ),
        takes(
            "admin",
            doc! {"getParameter": {"showDetails": true, "allParameters": true}},
        ),
        takes(
            "admin",
            doc! {"aggregate": 1, "cursor": {}, "pipeline": [{"$currentOp": {
                "allUsers": true, "idleConnections": true, "idleCursors": true, "idleSessions": true, "localOps": true, "truncateOps": false,
                "backtrace": false, "targetAllNodes": false,
            }}]},
        ),
        takes(
            "test",
            doc! {"aggregate": 1, "cursor": {}, "pipeline": [{"$listLocalSessions": {"allUsers": true}}]},
        ),
        takes(
            "config",
            doc! {"aggregate": "system.sessions", "cursor": {}, "pipeline": [{"$listSessions": {"users": [{"user": "u", "db": "d"}]}}]},
        ),
    ]
}

/// Mongoose 8 and 9: commands that the driver itself does not send.
fn mongoose() -> Vec<Sent> {
    vec![
        takes(
            "test",
            doc! {"createIndexes": "n", "indexes": [{"key": {"slug": 1}, "name": "slug_1", "unique": true, "background": true}]},
        ),
        takes(
            "test",
            doc! {"collMod": "c", "index": {"name": "a_1", "hidden": true}},
        ),
        takes(
            "test",
            doc! {"update": "c", "ordered": true, "updates": [{"q": {"_id": 100, "__v": 0}, "u": {"$set": {"a": 2}, "$inc": {"__v": 1}, "$setOnInsert": {"createdAt": Value::DateTime(0)}}, "upsert": true, "multi": false}], "bypassDocumentValidation": false},
        ),
        takes(
            "test",
            doc! {"find": "c", "filter": {"_id": {"$in": [1, 2]}}, "projection": {}, "limit": 1, "singleBatch": true, "comment": "x"},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$match": {}}, {"$group": {"_id": 1, "n": {"$sum": 1}}}], "cursor": {}},
        ),
    ]
}

/// Spring Data MongoDB: what its templates and repositories ask the Java driver for.
fn spring() -> Vec<Sent> {
    vec![
        takes(
            "test",
            doc! {"find": "c", "filter": {"a": 1}, "noCursorTimeout": false, "allowPartialResults": false, "allowDiskUse": false, "collation": {"locale": "de"}, "comment": "ShopRepository.findByA", "$readPreference": {"mode": "nearest"}},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$geoNear": {
                "near": {"type": "Point", "coordinates": [5.0, 52.0]}, "distanceField": "distance", "maxDistance": 1000.0, "minDistance": 0.0,
                "query": {}, "spherical": true, "distanceMultiplier": 0.001, "includeLocs": "at", "key": "place",
            }}], "cursor": {"batchSize": 100}, "allowDiskUse": true, "hint": "place_2dsphere", "readConcern": {"level": "local"}},
        ),
        takes(
            "test",
            doc! {"find": "c", "filter": {"$text": {"$search": "x", "$language": "none", "$caseSensitive": false, "$diacriticSensitive": false}}, "projection": {"score": {"$meta": "textScore"}}, "sort": {"score": {"$meta": "textScore"}}},
        ),
        takes(
            "test",
            doc! {"create": "n", "validator": {"$jsonSchema": {"type": "object", "required": ["a"]}}, "validationLevel": "strict", "validationAction": "error"},
        ),
        takes(
            "test",
            doc! {"findAndModify": "c", "query": {"_id": 1, "version": 0i64}, "update": {"$set": {"a": 1}, "$inc": {"version": 1i64}}, "new": true, "upsert": false},
        ),
        takes(
            "test",
            doc! {"insert": "c", "ordered": true, "documents": [{"_class": "shop.Order"}], "txnNumber": 1i64, "lsid": lsid()},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$lookup": {"from": "c", "let": {"x": "$a"}, "pipeline": [], "as": "l"}}, {"$unionWith": {"coll": "c", "pipeline": []}}], "cursor": {}},
        ),
    ]
}

/// Django's backend (django-mongodb-backend 5.2): schema editor, compiler, explain.
fn django() -> Vec<Sent> {
    vec![
        takes("test", doc! {"create": "shop_order"}),
        takes(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"name": "u_1", "unique": true, "partialFilterExpression": {"$and": [{"u": {"$type": "int"}}]}, "key": {"u": 1}}]},
        ),
        takes(
            "test",
            doc! {"update": "c", "ordered": true, "updates": [{"q": {}, "u": {"$rename": {"a": "b"}}, "multi": true, "upsert": false}]},
        ),
        takes(
            "test",
            doc! {"explain": {"aggregate": "c", "pipeline": [{"$match": {"$expr": {"$eq": ["$a", 1]}}}], "cursor": {}}, "verbosity": "executionStats", "comment": "x"},
        ),
        takes(
            "test",
            doc! {"aggregate": "c", "cursor": {}, "pipeline": [
                {"$facet": {"group": [{"$group": {"_id": null, "n": {"$sum": 1}}}]}},
                {"$addFields": {"n": {"$getField": {"input": {"$arrayElemAt": ["$group", 0]}, "field": "n"}}}},
                {"$unset": "group"},
            ]},
        ),
        takes(
            "test",
            doc! {"listCollections": 1, "cursor": {}, "nameOnly": true, "authorizedCollections": true},
        ),
        takes(
            "test",
            doc! {"mapReduce": "c", "map": "function() {}", "reduce": "function() {}", "out": {"inline": 1}, "query": {"a": 1},
            "sort": {"a": 1}, "limit": 5, "finalize": "function(k, v) { return v }", "scope": {"x": 1}, "jsMode": false,
            "verbose": true, "collation": {"locale": "simple"}, "comment": "x"},
        ),
    ]
}

/// Fields of features that docs/compatibility.md lists as not supported: the error names the feature.
fn unsupported_features() -> Vec<Sent> {
    let encrypted = doc! {"encryptionInformation": {"type": 1, "schema": {}}};
    let fields = doc! {"encryptedFields": {"fields": []}};
    vec![
        fails(
            "test",
            doc! {"find": "c", "readConcern": {"level": "snapshot"}},
            123,
        ),
        fails(
            "test",
            with(doc! {"insert": "c", "documents": [{}]}, &encrypted),
            238,
        ),
        fails("test", with(doc! {"create": "e"}, &fields), 6346402),
        fails(
            "test",
            doc! {"aggregate": "c", "pipeline": [{"$listSearchIndexes": {"name": "x"}}], "cursor": {}},
            31082,
        ),
        fails(
            "test",
            doc! {"createSearchIndexes": "c", "indexes": [{"name": "x", "definition": {}}]},
            59,
        ),
        fails(
            "test",
            doc! {"createIndexes": "c", "indexes": [{"key": {"g": "geoHaystack"}, "name": "g", "bucketSize": 1}]},
            67,
        ),
        fails(
            "test",
            doc! {"updateSearchIndex": "c", "name": "x", "definition": {}, "comment": "x"},
            59,
        ),
        fails(
            "test",
            doc! {"dropSearchIndex": "c", "name": "x", "comment": "x"},
            59,
        ),
    ]
}
