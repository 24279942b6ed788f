//! Tables of filters, projections, sorts, pipelines and updates: a store with documents in parts answers each like one
//! with whole documents. The query language says which fields a computation requires; a missing one would show here.

use frond_bson::extjson::parse;
use frond_bson::{ArrayBuf, DocBuf, OwnedValue, doc};
use frond_store::{Durability, FindRequest};

use crate::common::ns;
use crate::large_documents::operations::{Op, UpdateOp, run};
use crate::large_documents::queries::{brief, find, in_parts};
use crate::large_documents::setting::{SETTINGS, WHOLE};
use crate::large_documents::twins::{Twin, Twins};

/// Documents whose `n` is large, small, an array, a scalar or missing; and others with large parts elsewhere.
fn documents(many: usize) -> Vec<DocBuf> {
    let ints = || {
        let mut out = DocBuf::new();
        (0..many).for_each(|n| out.push(&format!("k{n}"), n as i32));
        out
    };
    let mixed = || {
        let mut out = DocBuf::new();
        for n in 0..many / 4 {
            out.push(&format!("k{n}"), n as i64);
            out.push(
                &format!("d{n}"),
                &doc! {"a": n as i32, "b": [n as i32, "x"], "c": {"d": "e"}},
            );
            out.push(&format!("l{n}"), &(0..3_i32).collect::<ArrayBuf>());
            out.push(&n.to_string(), "number");
        }
        out.push("s", "a red fox");
        out.push("null", frond_bson::Value::Null);
        out
    };
    let list: ArrayBuf = (0..many as i32).collect();
    let mut docs = ArrayBuf::new();
    (0..many as i32 / 3).for_each(|n| docs.push(&doc! {"a": n, "k1": n % 3}));
    let mut wide = doc! {"_id": 7, "a": 7};
    wide.push_all(&ints());
    wide.push("n", &doc! {"k1": 1, "k5": 5});
    vec![
        doc! {"_id": 0, "a": 1, "n": ints(), "m": mixed(), "z": 1},
        doc! {"_id": 1, "a": 2, "n": {"k1": 1, "k2": 20, "x": {"y": 1}}, "m": 5},
        doc! {"_id": 2, "a": 1, "n": list, "m": mixed()},
        doc! {"_id": 3, "a": 3, "n": "text", "m": {"in": ints(), "k1": 1}, "z": [1, 2]},
        doc! {"_id": 4, "a": 1, "m": {"in": {"in": mixed(), "k1": 3}}},
        doc! {"_id": 5, "a": 2, "n": docs, "z": "end"},
        doc! {"_id": 6, "n": {"in": ints(), "k1": {"k1": ints(), "a": 1}, "k2": 6}, "a": [1, 5]},
        wide,
        doc! {"_id": 8, "a": 1, "n": ints(), "m": {"in": ints(), "s": "b"}, "z": mixed(), "last": 1},
        doc! {"_id": 9, "n": {}, "m": {"in": {}, "k1": []}},
    ]
}

fn twins(setting: usize) -> Twins {
    let setting = &SETTINGS[setting];
    let twins = Twins {
        whole: Twin::new(&WHOLE),
        other: Twin::new(setting),
        what: setting.name.to_owned(),
    };
    let insert = Op::Insert(documents((setting.threshold / 8).max(60)));
    twins.same("insert", |store| {
        run(store, &ns("db.c"), &insert, Durability::Logged)
    });
    // Documents without a sub-document large enough stay whole.
    assert!(in_parts(&twins.other.store, &ns("db.c")) >= 6);
    twins
}

const FILTERS: &[&str] = &[
    "{}",
    r#"{"n.k1": 1}"#,
    r#"{"n.k1": {"$ne": 1}}"#,
    r#"{"n.k1": {"$exists": false}}"#,
    r#"{"n.k1": null}"#,
    r#"{"n.k1": {"$type": "int"}}"#,
    r#"{"n.k1": {"$not": {"$gt": 0}}}"#,
    r#"{"n.5": 5}"#,
    r#"{"n.5": {"$exists": true}}"#,
    r#"{"n": {"$type": "object"}}"#,
    r#"{"n": {"$type": "array"}}"#,
    r#"{"n": {"$exists": false}}"#,
    r#"{"n": {"$size": 20}}"#,
    r#"{"n": {}}"#,
    r#"{"n": {"k1": 1, "k2": 20, "x": {"y": 1}}}"#,
    r#"{"n": {"$gt": {"k0": 0}}}"#,
    r#"{"n": {"$elemMatch": {"a": 3, "k1": 0}}}"#,
    r#"{"n": 3, "n.k1": {"$exists": false}}"#,
    r#"{"m.d3.a": 3}"#,
    r#"{"m.d3": {"a": 3, "b": [3, "x"], "c": {"d": "e"}}}"#,
    r#"{"m.d3.b": "x", "m.l2": {"$all": [1, 2]}}"#,
    r#"{"m.d3.b.0": 3}"#,
    r#"{"m.in.k7": {"$mod": [7, 0]}}"#,
    r#"{"m.in.in.s": {"$regex": "^a R", "$options": "i"}}"#,
    r#"{"m.s": {"$in": ["b", {"$regularExpression": {"pattern": "fox", "options": ""}}]}}"#,
    r#"{"$or": [{"n.k2": 20}, {"m.in.k1": 1}]}"#,
    r#"{"$nor": [{"n.k2": 2}, {"z": {"$exists": true}}]}"#,
    r#"{"$and": [{"n.k2": {"$gte": 2}}, {"n.k3": {"$bitsAllSet": 3}}]}"#,
    r#"{"$expr": {"$gt": ["$n.k2", "$n.k1"]}}"#,
    r#"{"$expr": {"$eq": [{"$type": "$n"}, "object"]}}"#,
    r#"{"$expr": {"$gt": [{"$size": {"$objectToArray": "$n"}}, 10]}}"#,
    r#"{"$expr": {"$gt": [{"$bsonSize": "$$ROOT"}, 500]}}"#,
    r#"{"$expr": {"$eq": [{"$getField": {"field": "k2", "input": "$n"}}, 2]}}"#,
    r#"{"$expr": {"$eq": [{"$getField": "a"}, 1]}}"#,
    r#"{"$expr": {"$eq": [{"$getField": {"field": {"$literal": "k2"}, "input": "$$CURRENT.n"}}, 20]}}"#,
    r#"{"$expr": {"$let": {"vars": {"x": "$$ROOT"}, "in": {"$gt": ["$$x.n.k5", 1]}}}}"#,
    r#"{"$expr": {"$in": [5, {"$ifNull": [{"$map": {"input": {"$objectToArray": "$m.in"}, "in": "$$this.v"}}, []]}]}}"#,
    r#"{"$jsonSchema": {"properties": {"n": {"bsonType": "object", "minProperties": 4}}, "required": ["n"]}}"#,
    r#"{"$jsonSchema": {"properties": {"n": {"additionalProperties": {"bsonType": "int"}}}}}"#,
    r#"{"$jsonSchema": {"maxProperties": 5}}"#,
    r#"{"$jsonSchema": {"properties": {"m": {"patternProperties": {"^k": {"maximum": 2}}}}}}"#,
    r#"{"k5": 5}"#,
    r#"{"k5": {"$gte": 5}, "n.k5": 5}"#,
    r#"{"_id": {"$in": [0, 7]}, "a": {"$lt": 8}}"#,
    r#"{"a": {"$elemMatch": {"$gt": 2}}}"#,
    r#"{"": 1}"#,
    r#"{"n.": 1}"#,
    r#"{"n..k1": 1}"#,
];

const PROJECTIONS: &[&str] = &[
    "{}",
    r#"{"n.k1": 1}"#,
    r#"{"n.k1": 0}"#,
    r#"{"n": 1, "_id": 0}"#,
    r#"{"n": 0}"#,
    r#"{"n": {"k1": 1, "x": {"y": 1}}}"#,
    r#"{"n": {"in": {"k1": 0}}}"#,
    r#"{"m.d1.b": {"$slice": 1}}"#,
    r#"{"m.d1.b": {"$slice": 1}, "a": 1}"#,
    r#"{"n": {"$slice": [1, 2]}}"#,
    r#"{"n": {"$slice": -1}, "m": 0}"#,
    r#"{"n": {"$elemMatch": {"a": 2}}}"#,
    r#"{"z": 1, "a": 1, "m.in.in.d2.c": 1}"#,
    r#"{"k5": 1, "k1": 1}"#,
    r#"{"k5": 0}"#,
    r#"{"n.in.k3": 1, "n.k1.k1.k2": 1}"#,
    r#"{"x": "$n.k1"}"#,
    r#"{"n.k1": "$n.k2"}"#,
    r#"{"n.new": {"$literal": 1}}"#,
    r#"{"n.new.deep": "$a", "m": 1}"#,
    r#"{"x": "$$ROOT", "_id": 0}"#,
    r#"{"x": {"$objectToArray": "$n"}}"#,
    r#"{"n.k1": 1, "n.k2": 0}"#,
    r#"{"n.k1": 1, "n": 1}"#,
    r#"{"_id": 1}"#,
    r#"{"_id": 0}"#,
];

const SORTS: &[&str] = &[
    r#"{"n.k1": 1, "_id": 1}"#,
    r#"{"n.k2": -1, "_id": 1}"#,
    r#"{"n": 1, "_id": -1}"#,
    r#"{"m.in.k5": -1, "a": 1, "_id": 1}"#,
    r#"{"m.d1.b": 1, "_id": 1}"#,
    r#"{"n": -1, "a": 1, "_id": 1}"#,
    r#"{"k5": 1, "n.5": 1, "_id": 1}"#,
];

const PIPELINES: &[&str] = &[
    r#"{"$project": {"n.k1": 1}}"#,
    r#"{"$project": {"n": 0}}"#,
    r#"{"$project": {"n.k1": 0, "m.in": 0}}, {"$project": {"m": 1, "n": 1}}"#,
    r#"{"$unset": ["n.k1", "m.d1.a"]}"#,
    r#"{"$set": {"n.k1": 5}}, {"$project": {"n.k1": 1}}"#,
    r#"{"$set": {"n.k1": 5}}, {"$project": {"x": "$n"}}"#,
    r#"{"$set": {"n.k1": 5}}, {"$group": {"_id": "$n.k1", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}"#,
    r#"{"$set": {"n.k1.deep": 5}}, {"$project": {"n.k1": 1}}"#,
    r#"{"$set": {"n": {"k1": 5}}}, {"$project": {"n": 1}}"#,
    r#"{"$set": {"x": "$n"}}, {"$project": {"x.k1": 1}}"#,
    r#"{"$set": {"x": "$$ROOT"}}, {"$project": {"x.n.k1": 1}}"#,
    r#"{"$set": {"x": "$$CURRENT.m"}}, {"$unset": "m"}, {"$project": {"x.d1.a": 1, "m": 1}}"#,
    r#"{"$set": {"x": {"$bsonSize": "$$ROOT"}}}, {"$project": {"x": 1}}"#,
    r#"{"$set": {"a": "$$REMOVE"}}, {"$project": {"a": 1, "z": 1}}"#,
    r#"{"$project": {"x": {"$mergeObjects": ["$n", "$m"]}}}, {"$match": {"_id": 9}}"#,
    r#"{"$project": {"x": {"$setField": {"field": "k1", "input": "$$ROOT", "value": 1}}}}"#,
    r#"{"$project": {"x": {"$getField": {"field": "k5", "input": "$$ROOT"}}}}"#,
    r#"{"$project": {"x": {"$getField": "n"}}}, {"$project": {"x.k1": 1}}"#,
    r#"{"$project": {"n": {"k1": "$n.k2"}}}"#,
    r#"{"$project": {"n": {"k1": 1, "k2": "$a"}}}"#,
    r#"{"$project": {"x": ["$n.k1", "$m.k1"]}}"#,
    r#"{"$project": {"x": {"$let": {"vars": {"r": "$$ROOT.n"}, "in": "$$r.k3"}}}}"#,
    r#"{"$project": {"x": {"$reduce": {"input": {"$objectToArray": {"$cond": [{"$eq": [{"$type": "$n"}, "object"]}, "$n", {}]}}, "initialValue": 0, "in": {"$add": ["$$value", 1]}}}}}"#,
    r#"{"$replaceWith": {"$ifNull": ["$m.in", {}]}}"#,
    r#"{"$replaceRoot": {"newRoot": {"$mergeObjects": [{"b": 1}, "$$ROOT"]}}}"#,
    r#"{"$replaceWith": {"x": "$n.k1", "y": {"$type": "$m"}}}"#,
    r#"{"$group": {"_id": "$a", "x": {"$first": "$n"}, "y": {"$last": "$$ROOT"}}}, {"$sort": {"_id": 1}}"#,
    r#"{"$group": {"_id": {"$type": "$n.k1"}, "ids": {"$push": "$_id"}, "s": {"$sum": "$n.k5"}}}, {"$sort": {"_id": 1}}"#,
    r#"{"$group": {"_id": null, "x": {"$mergeObjects": "$m.in"}}}"#,
    r#"{"$group": {"_id": null, "x": {"$top": {"sortBy": {"n.k2": -1, "_id": 1}, "output": ["$_id", "$n.k2"]}}}}"#,
    r#"{"$group": {"_id": null, "x": {"$push": {"a": "$n.k1", "b": "$m.d2.c"}}}}"#,
    r#"{"$bucket": {"groupBy": "$_id", "boundaries": [0, 3, 6], "default": "more", "output": {"x": {"$push": "$n.k2"}}}}"#,
    r#"{"$bucketAuto": {"groupBy": "$_id", "buckets": 3, "output": {"x": {"$push": "$m.in.k3"}}}}"#,
    r#"{"$sortByCount": "$n.k1"}, {"$sort": {"count": 1, "_id": 1}}"#,
    r#"{"$unwind": "$n"}, {"$project": {"n.k1": 1}}"#,
    r#"{"$unwind": {"path": "$m.d1.b", "includeArrayIndex": "n.k1", "preserveNullAndEmptyArrays": true}}, {"$project": {"n.k1": 1, "m.d1": 1}}"#,
    r#"{"$unwind": {"path": "$n", "includeArrayIndex": "i"}}, {"$group": {"_id": "$i", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}, {"$limit": 5}"#,
    r#"{"$match": {"n.k1": 1}}, {"$limit": 2}, {"$project": {"m.d1.a": 1}}"#,
    r#"{"$match": {"n.k1": 1}}, {"$count": "n"}"#,
    r#"{"$sort": {"n.k2": 1, "_id": 1}}, {"$limit": 3}, {"$project": {"n.k3": 1}}"#,
    r#"{"$sort": {"n.k2": 1, "_id": 1}}, {"$group": {"_id": null, "x": {"$push": "$_id"}}}"#,
    r#"{"$lookup": {"from": "c", "localField": "n.k1", "foreignField": "m.in.k1", "as": "x"}}, {"$project": {"x._id": 1}}"#,
    r#"{"$lookup": {"from": "c", "localField": "_id", "foreignField": "_id", "as": "n.x"}}, {"$project": {"n.x": {"$size": "$n.x"}}}"#,
    r#"{"$lookup": {"from": "c", "let": {"k": "$n.k2"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$n.k1", "$$k"]}}}, {"$project": {"n.k3": 1}}], "as": "x"}}, {"$project": {"x": 1}}"#,
    r#"{"$lookup": {"from": "c", "let": {"r": "$$ROOT"}, "pipeline": [{"$limit": 1}, {"$project": {"y": "$$r.n.k5"}}], "as": "x"}}, {"$project": {"x": 1}}"#,
    r#"{"$graphLookup": {"from": "c", "startWith": "$n.k2", "connectFromField": "n.k3", "connectToField": "_id", "as": "x"}}, {"$project": {"x._id": 1}}"#,
    r#"{"$facet": {"a": [{"$project": {"n.k1": 1}}], "b": [{"$group": {"_id": null, "x": {"$sum": "$n.k5"}}}], "c": [{"$match": {"m.in.k1": 1}}, {"$project": {"m": 1}}]}}"#,
    r#"{"$setWindowFields": {"partitionBy": "$a", "sortBy": {"_id": 1}, "output": {"x": {"$sum": "$n.k2", "window": {"documents": ["unbounded", "current"]}}}}}, {"$project": {"x": 1}}"#,
    r#"{"$setWindowFields": {"sortBy": {"_id": 1}, "output": {"n.x": {"$shift": {"output": "$n.k5", "by": 1}}}}}, {"$project": {"n.x": 1}}"#,
    r#"{"$redact": {"$cond": [{"$eq": ["$k1", 1]}, "$$PRUNE", "$$DESCEND"]}}"#,
    r#"{"$redact": {"$cond": [{"$gt": ["$n.k5", 1]}, "$$KEEP", "$$PRUNE"]}}"#,
    r#"{"$unionWith": {"coll": "c", "pipeline": [{"$match": {"n.k1": 1}}, {"$project": {"m.k1": 1}}]}}, {"$project": {"m.k1": 1, "n.k1": 1}}"#,
    r#"{"$fill": {"sortBy": {"_id": 1}, "output": {"z": {"value": 0}, "n.k2": {"method": "locf"}}}}, {"$project": {"z": 1, "n.k2": 1}}"#,
    r#"{"$densify": {"field": "_id", "range": {"step": 2, "bounds": "full"}}}, {"$project": {"n.k1": 1}}"#,
    r#"{"$out": "out"}"#,
    r#"{"$project": {"n.k1": 1, "m.in": 1}}, {"$out": "out"}"#,
    r#"{"$set": {"n.k1": "merged"}}, {"$merge": "out"}"#,
    r#"{"$project": {"n.k2": {"$literal": 1}}}, {"$merge": {"into": "out", "whenMatched": [{"$set": {"n.k3": "$$new.n.k2", "m.d1.a": "$n.k4"}}]}}"#,
    r#"{"$project": {"x": 1, "n": {"k1": "self"}}}, {"$merge": {"into": "c", "whenMatched": "replace"}}"#,
];

const UPDATES: &[&str] = &[
    r#"{"$set": {"n.k1": 5}}"#,
    r#"{"$set": {"n.k1.deep": 5}}"#,
    r#"{"$set": {"n.x.y": 5, "n.x.z": 6}}"#,
    r#"{"$set": {"n.new": 1, "n.b": 2, "n.a": 3, "a": 1}}"#,
    r#"{"$set": {"n.5": "five"}}"#,
    r#"{"$set": {"n": {"k1": 1}}}"#,
    r#"{"$set": {"m.in": 5}}"#,
    r#"{"$set": {"m.in.in": {}}}"#,
    r#"{"$set": {"m.d1.c": 1, "m.d2.b.0": "y"}}"#,
    r#"{"$set": {"k5": "root", "new": 1}}"#,
    r#"{"$unset": {"n.k1": 1, "n.k5": 1, "k5": 1}}"#,
    r#"{"$unset": {"n": 1}}"#,
    r#"{"$unset": {"m.in": 1, "m.d1.b": 1}}"#,
    r#"{"$unset": {"n.5": 1}}"#,
    r#"{"$inc": {"n.k1": 1}}"#,
    r#"{"$inc": {"n.k1": 1, "n.none": 1, "n.k2": 5000000000}}"#,
    r#"{"$inc": {"m.in.k1": 1, "n.k3": -7}}"#,
    r#"{"$inc": {"k5": 1, "k500": 1, "a": 1}}"#,
    r#"{"$inc": {"n.k1": 1.5}}"#,
    r#"{"$inc": {"n.k1": 0, "n.k2": 0}}"#,
    r#"{"$inc": {"n.k1": 1}, "$set": {"n.k2": "text"}}"#,
    r#"{"$inc": {"n.k1": 1}, "$unset": {"n.k2": 1}}"#,
    r#"{"$inc": {"n.k2": 1}, "$rename": {"n.k1": "n.moved"}}"#,
    r#"{"$inc": {"n.k2": 1}, "$rename": {"n": "renamed"}}"#,
    r#"{"$inc": {"n.k1": 1}, "$min": {"n.k2": 0}, "$max": {"n.k3": 100}, "$mul": {"n.k4": 2}}"#,
    r#"{"$rename": {"n.k1": "n.k2"}}"#,
    r#"{"$rename": {"n.k1": "x.y.z"}}"#,
    r#"{"$rename": {"m.in": "m.out"}}"#,
    r#"{"$rename": {"m.in": "n"}}"#,
    r#"{"$rename": {"a": "n.a"}}"#,
    r#"{"$rename": {"a": "n"}}"#,
    r#"{"$rename": {"n.k1": "k5"}}"#,
    r#"{"$push": {"n.list": 1, "m.l1": 9}}"#,
    r#"{"$push": {"n": {"a": 1}}}"#,
    r#"{"$push": {"m.l1": {"$each": [7, 3], "$sort": -1, "$slice": 4}}}"#,
    r#"{"$pull": {"m.l1": {"$gte": 1}, "n": {"a": {"$lt": 5}}}}"#,
    r#"{"$addToSet": {"m.l1": 1, "m.l2": 99}}"#,
    r#"{"$pop": {"m.l1": 1}}"#,
    r#"{"$pullAll": {"m.l1": [0, 1]}}"#,
    r#"{"$set": {"n.$[]": 0}}"#,
    r#"{"$set": {"n.$[].k1": 0}}"#,
    r#"{"$inc": {"m.l1.$[]": 1}}"#,
    r#"{"$bit": {"n.k3": {"or": 8}, "n.none": {"xor": 1}}}"#,
    r#"{"$setOnInsert": {"n.k1": 1}}"#,
    r#"{"replaced": 1, "n": {"k1": 1}}"#,
    r#"[{"$set": {"n.k1": "$n.k2"}}]"#,
    r#"[{"$set": {"n.k1": {"$add": [1, {"$cond": [{"$isNumber": "$n.k1"}, "$n.k1", 0]}]}}}]"#,
    r#"[{"$unset": ["n.k1", "m"]}]"#,
    r#"[{"$unset": "n.k1"}, {"$set": {"n.k1": 5}}]"#,
    r#"[{"$unset": ["n.k3", "a", "m.in.k1"]}, {"$set": {"n.k3": 3, "a": 1, "m.in.k1": 1}}]"#,
    r#"[{"$replaceWith": {"$mergeObjects": [{"first": 1}, "$$ROOT", {"n": {"k1": 0}}]}}]"#,
    r#"[{"$project": {"n": 1}}]"#,
    r#"[{"$project": {"n.k1": 0, "m.in": 0}}]"#,
    r#"[{"$set": {"swap": "$n"}}, {"$set": {"n": "$m"}}, {"$set": {"m": "$swap"}}, {"$unset": "swap"}]"#,
    r#"[{"$set": {"m.in.k1": "$$ROOT.a", "k5": 1}}]"#,
];

#[test]
fn filters_projections_and_sorts() {
    for setting in 0..SETTINGS.len() {
        let twins = twins(setting);
        let c = ns("db.c");
        let ask = |filter: &str, projection: &str, sort: &str| {
            let (filter, projection, sort) = (
                parse(filter).unwrap(),
                parse(projection).unwrap(),
                parse(sort).unwrap(),
            );
            let request = FindRequest {
                filter: Some(&filter),
                projection: Some(&projection),
                sort: Some(&sort),
                ..FindRequest::default()
            };
            let what = format!("find {filter:?} show {projection:?} sort {sort:?}");
            twins.both(&what, |store| find(store, &c, &request)).is_ok()
        };
        let mut good = 0;
        for filter in FILTERS {
            good += usize::from(ask(filter, "{}", r#"{"_id": 1}"#));
            ask(filter, r#"{"a": 1, "n.k1": 1}"#, r#"{"_id": 1}"#);
            ask(filter, r#"{"_id": 1}"#, "{}");
        }
        assert!(good >= FILTERS.len() - 4, "{good}");
        for projection in PROJECTIONS.iter().step_by([1, 1, 3][setting]) {
            for filter in [
                r#"{}"#,
                r#"{"n.k2": {"$gte": 2}}"#,
                r#"{"m.in.k1": 1, "a": {"$gt": 0}}"#,
            ] {
                for sort in ["{}", r#"{"n.k2": -1, "_id": 1}"#] {
                    ask(filter, projection, sort);
                }
            }
        }
        for sort in SORTS {
            for projection in ["{}", r#"{"a": 1}"#, r#"{"n.k1": 1}"#] {
                ask("{}", projection, sort);
            }
        }
        for path in [
            "n",
            "n.k1",
            "n.5",
            "m.in",
            "m.d1.b",
            "n.a",
            "k5",
            "m.in.in.d1.c",
        ] {
            twins.same(&format!("distinct {path}"), |store| {
                let context = frond_store::OpContext::new();
                let values = store.distinct(&c, path, None, None, None, &context);
                values.map(|values| values.as_doc().to_owned()).ok()
            });
        }
    }
}

#[test]
fn pipelines() {
    for setting in 0..SETTINGS.len() {
        let twins = twins(setting);
        let mut good = 0;
        // With larger documents a part of the cases is enough.
        let (ways, step): (&[bool], _) =
            [(&[true, false][..], 1), (&[false], 1), (&[true], 4)][setting];
        for &sorted in ways {
            for text in PIPELINES.iter().step_by(step) {
                let first = if sorted {
                    r#"{"$sort": {"_id": 1}}, "#
                } else {
                    ""
                };
                let pipeline = parse(&format!(r#"{{"p": [{first}{text}]}}"#)).unwrap();
                let stages = pipeline.get_array("p").unwrap();
                good += usize::from(twins.aggregate(&ns("db.c"), stages));
                twins.compare(&ns("db.out"));
            }
        }
        assert!(good >= ways.len() * (PIPELINES.len() / step - 10), "{good}");
        twins.compare(&ns("db.c"));
    }
}

#[test]
fn updates() {
    for setting in 0..SETTINGS.len() {
        // Each alone, or all of them one after the other; with an index.
        let ways: &[(bool, &str)] = match setting {
            0 => &[
                (true, "{}"),
                (false, r#"{"n.k1": 1}"#),
                (false, r#"{"n.$**": 1}"#),
            ],
            1 => &[(false, r#"{"m.in.k1": 1, "a": -1}"#)],
            _ => &[(false, "{}")],
        };
        for &(each, index) in ways {
            let mut stores = twins(setting);
            for (number, text) in UPDATES.iter().enumerate() {
                // New stores take a while, so several updates that are far apart share one.
                if number == 0 || (each && number % 3 == 0) {
                    stores = twins(setting);
                    if index != "{}" {
                        stores.create_index(&ns("db.c"), &doc! {"key": parse(index).unwrap()});
                    }
                }
                let wrapped = parse(&format!(r#"{{"u": {text}}}"#)).unwrap();
                for id in 0..10 {
                    let op = Op::Update(UpdateOp {
                        filter: doc! {"_id": id},
                        update: OwnedValue::from(wrapped.get("u").unwrap()),
                        array_filters: Vec::new(),
                        multi: false,
                        upsert: false,
                    });
                    let what = brief(&op);
                    stores.same(&what, |store| {
                        run(store, &ns("db.c"), &op, Durability::Logged)
                    });
                }
                let found = stores.both(text, |store| {
                    crate::large_documents::queries::all(store, &ns("db.c"))
                });
                assert_eq!(found.len(), 10);
            }
            stores.compare(&ns("db.c"));
        }
    }
}
