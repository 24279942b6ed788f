use super::*;
use frond_bson::doc;

#[test]
fn options_are_taken_or_refused_by_name() {
    for (options, code) in [
        (doc! {}, None),
        (doc! {"capped": false}, None),
        (doc! {"validator": {}, "validationLevel": "strict"}, None),
        (
            doc! {"validator": {"a": 1}, "validationAction": "warn"},
            None,
        ),
        (doc! {"validator": 1}, Some(14)),
        (doc! {"validator": {"$where": "1"}}, Some(2)),
        (doc! {"validationLevel": "x"}, Some(2)),
        (doc! {"validationAction": true}, Some(14)),
        (doc! {"collation": {"locale": "simple"}}, None),
        (
            doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}},
            None,
        ),
        (
            doc! {"clusteredIndex": {"key": {"a": 1}, "unique": true}},
            Some(197),
        ),
        (doc! {"clusteredIndex": {"key": {"_id": 1}}}, Some(40414)),
        (
            doc! {"storageEngine": {"wiredTiger": {"configString": ""}}},
            None,
        ),
        (doc! {"storageEngine": {"mmapv2": {}}}, Some(72)),
        (
            doc! {"storageEngine": {"wiredTiger": {"configString": "block_compressor=best"}}},
            Some(2),
        ),
        (
            doc! {"compression": "lz4",
            "storageEngine": {"wiredTiger": {"configString": "block_compressor=zlib"}}},
            Some(72),
        ),
        (
            doc! {"indexOptionDefaults": {"storageEngine": {"wiredTiger": {}}}},
            None,
        ),
        (
            doc! {"changeStreamPreAndPostImages": {"enabled": true}},
            None,
        ),
        (
            doc! {"changeStreamPreAndPostImages": {"enabled": 1}},
            Some(14),
        ),
        (
            doc! {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}},
            None,
        ),
        (doc! {"idIndex": {"key": {"a": 1}}}, Some(2)),
        (doc! {"capped": true, "size": 1000, "max": 5.0}, None),
        (doc! {"capped": true}, Some(72)),
        (doc! {"size": 1000}, Some(72)),
        (doc! {"max": 10}, Some(72)),
        (doc! {"capped": true, "size": 0}, Some(51024)),
        (doc! {"capped": true, "size": 1i64 << 51}, Some(51024)),
        (
            doc! {"capped": true, "size": 1000, "max": 1i64 << 31},
            Some(2),
        ),
        (doc! {"capped": "yes", "size": 1000}, Some(14)),
        (doc! {"timeseries": {"timeField": "t"}}, None),
        (
            doc! {"timeseries": {"timeField": "t", "metaField": "t"}},
            Some(72),
        ),
        (
            doc! {"timeseries": {"timeField": "t", "granularity": "days"}},
            Some(2),
        ),
        (doc! {"timeseries": {"metaField": "t"}}, Some(40414)),
        (
            doc! {"timeseries": {"timeField": "t"}, "validator": {"a": 1}},
            Some(72),
        ),
        (
            doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 9},
            None,
        ),
        (doc! {"expireAfterSeconds": 9}, Some(72)),
        (doc! {"collation": {"locale": "de"}}, None),
        (doc! {"collation": {"locale": "xx"}}, Some(2)),
        (doc! {"collation": {}}, Some(40414)),
        (doc! {"collation": "de"}, Some(14)),
        (doc! {"viewOn": "x"}, None),
        (doc! {"viewOn": "x", "pipeline": [{"$match": {}}]}, None),
        (doc! {"viewOn": ""}, Some(2)),
        (doc! {"viewOn": "x", "validator": {"a": 1}}, Some(72)),
        (doc! {"pipeline": []}, Some(72)),
        (doc! {"autoIndexId": false}, Some(72)),
        (doc! {"primaryKey": {"ts": 1, "_id": 1}}, None),
        (doc! {"primaryKey": {"a.b": -1, "c": 1, "_id": 1}}, None),
        (
            doc! {"primaryKey": {"_id": 1}, "capped": true, "size": 1000},
            None,
        ),
        (doc! {"primaryKey": {"ts": 1}}, Some(72)),
        (doc! {"primaryKey": {"_id": 1, "ts": 1}}, Some(72)),
        (doc! {"primaryKey": {"ts": 1, "_id": -1}}, Some(72)),
        (doc! {"primaryKey": {"ts": "hashed", "_id": 1}}, Some(72)),
        (doc! {"primaryKey": {"ts": 1, "ts": 1, "_id": 1}}, Some(2)),
        (doc! {"primaryKey": {"_id.a": 1, "_id": 1}}, Some(72)),
        (doc! {"primaryKey": {}}, Some(72)),
        (doc! {"primaryKey": "ts"}, Some(14)),
        (
            doc! {"primaryKey": {"ts": 1, "_id": 1}, "capped": true, "size": 1000},
            Some(72),
        ),
        (
            doc! {"primaryKey": {"ts": 1, "_id": 1}, "naturalOrder": "insertion"},
            Some(72),
        ),
        (
            doc! {"primaryKey": {"ts": 1, "_id": 1}, "viewOn": "x"},
            Some(72),
        ),
        (doc! {"encryptedFields": {"fields": []}}, Some(6346402)),
        (doc! {"nonsense": 1}, Some(40415)),
        (doc! {"compression": "best"}, Some(2)),
    ] {
        let parsed = CollectionOptions::parse(&options);
        assert_eq!(
            parsed.err().map(|error| error.code().code()),
            code,
            "{options:?}"
        );
    }
    let zlib = doc! {"wiredTiger": {"configString": "block_compressor=zlib"}};
    let given = doc! {"storageEngine": &zlib, "indexOptionDefaults": {"storageEngine": &zlib}};
    let parsed = CollectionOptions::parse(&given).unwrap();
    assert_eq!(parsed.tree.compression, Compression::Zlib);
    assert_eq!(parsed.index_compression, Some(Compression::Zlib));
    let parsed = CollectionOptions::parse(&doc! {"compression": "lz4"}).unwrap();
    assert_eq!(parsed.tree.compression, Compression::Lz4);
}

#[test]
fn options_are_stored_as_they_are_shown() {
    for (given, stored) in [
        (
            doc! {"capped": false, "compression": "lz4", "flags": 1},
            doc! {"compression": "lz4"},
        ),
        (
            doc! {"validationLevel": "moderate", "validator": {"a": 1}},
            doc! {"validator": {"a": 1}, "validationLevel": "moderate", "validationAction": "error"},
        ),
        (
            doc! {"capped": true, "size": 1000, "max": 0},
            doc! {"capped": true, "size": 1000i64},
        ),
        (
            doc! {"timeseries": {"timeField": "t"}, "expireAfterSeconds": 5},
            doc! {"expireAfterSeconds": 5i64, "timeseries": {
                "timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 3600,
            }},
        ),
        (
            doc! {"clusteredIndex": {"unique": true, "key": {"_id": 1}, "name": "x"}},
            doc! {"clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "x", "unique": true}},
        ),
    ] {
        let parsed = CollectionOptions::parse(&given).unwrap();
        assert_eq!(parsed.stored(&given), stored);
        // The stored form is parsed again at each start.
        let again = CollectionOptions::parse(&stored).unwrap();
        assert_eq!(again.stored(&stored), stored);
    }
}
