"""The kinds of events, and what is in them."""

import datetime
import random

import pymongo
from bson import Timestamp
from bson.binary import Binary
from harness.tap import equal, raises, test
from pymongo.errors import OperationFailure

from .applying import apply
from .watching import ends, in_order, kinds, read, read_all, watch, without

NOT_PERMITTED, BAD_VALUE, INVALID_OPTIONS, INVALID_NAMESPACE = 20, 2, 72, 73


@test
def inserts_updates_replacements_and_deletes(server, client):
    changed = fresh(client).changed
    with watch(changed) as stream:
        changed.insert_one({"_id": 1, "a": 1, "b": {"c": 1, "d": [1, 2]}, "gone": True})
        changed.insert_many([{"_id": 2}, {"_id": 3}])
        changed.update_one({"_id": 1}, {"$inc": {"a": 1}, "$set": {"b.c": 9, "new": "x"}, "$unset": {"gone": 1}})
        changed.update_one({"_id": 1}, {"$push": {"b.d": 3}})
        changed.update_one({"_id": 1}, {"$set": {"a": 2}})
        changed.replace_one({"_id": 1}, {"a": "replaced"})
        changed.update_one({"_id": 4}, {"$set": {"u": 1}}, upsert=True)
        changed.find_one_and_update({"_id": 2}, {"$set": {"x": 1}})
        changed.find_one_and_delete({"_id": 3})
        changed.delete_many({})
        events = read_all(stream, changed)
        in_order(events)
        place = {"db": "streams", "coll": "changed"}
        now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        for event in events:
            equal(event["ns"], place)
            assert isinstance(event["clusterTime"], Timestamp)
            assert abs((now - event["wallTime"]).total_seconds()) < 60, event["wallTime"]
            equal(list(event["_id"]), ["_data"])
        change = {"updatedFields": {"a": 2, "b.c": 9, "new": "x"}, "removedFields": ["gone"], "truncatedArrays": []}
        push = {"updatedFields": {"b.d.2": 3}, "removedFields": [], "truncatedArrays": []}
        one = {"updatedFields": {"x": 1}, "removedFields": [], "truncatedArrays": []}
        expected = [
            insert({"_id": 1, "a": 1, "b": {"c": 1, "d": [1, 2]}, "gone": True}),
            insert({"_id": 2}),
            insert({"_id": 3}),
            {"operationType": "update", "documentKey": {"_id": 1}, "updateDescription": change},
            {"operationType": "update", "documentKey": {"_id": 1}, "updateDescription": push},
            # The third update of the first document changed nothing.
            {"operationType": "replace", "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "a": "replaced"}},
            insert({"_id": 4, "u": 1}),
            {"operationType": "update", "documentKey": {"_id": 2}, "updateDescription": one},
            {"operationType": "delete", "documentKey": {"_id": 3}},
            *({"operationType": "delete", "documentKey": {"_id": n}} for n in (1, 2, 4)),
        ]
        equal([without(event, "ns") for event in events], expected)


@test
def a_dropped_partition_is_one_event(server, client):
    database = client.streams
    database.drop_collection("divided")
    divided = database.create_collection("divided", partitioned={"by": "ts", "every": "1d"})
    days = [datetime.datetime(2030, 1, day) for day in (1, 2)]
    with watch(divided) as stream:
        divided.insert_many([{"_id": n, "ts": days[n % 2]} for n in range(6)])
        database.command("dropPartition", "divided", id=days[0])
        divided.delete_one({"_id": 1})
        events = read(stream, 8)
    equal(kinds(events), ["insert"] * 6 + ["dropPartition", "delete"])
    equal(events[6]["ns"], {"db": "streams", "coll": "divided"})
    with watch(divided, show_expanded_events=True, resume_after=events[5]["_id"]) as stream:
        (expanded,) = read(stream, 1)
    equal(expanded["operationDescription"], {"id": days[0], "numRecords": 3})


def fresh(client, name="streams"):
    client.drop_database(name)
    return client[name]


def insert(document):
    return {"operationType": "insert", "documentKey": {"_id": document["_id"]}, "fullDocument": document}


@test
def every_kind_of_update_is_described(server, client):
    """A copy that is kept by the descriptions equals the collection after each update."""
    collection = fresh(client).described
    start = {
        "_id": 1,
        "n": 1,
        "list": [5, 3, 8, 3, 1],
        "rows": [{"k": 1, "v": [1, 2, 3]}, {"k": 2, "v": []}],
        "deep": {"x": {"y": {"z": 1}}},
        "long": list(range(100)),
    }
    updates = [
        {"$inc": {"n": 5, "deep.x.y.z": 1}},
        {"$mul": {"n": 3}},
        {"$min": {"n": 2}, "$max": {"deep.x.y.z": 50}},
        {"$push": {"list": {"$each": [9, 7], "$position": 1, "$sort": 1, "$slice": 6}}},
        {"$addToSet": {"list": 77}},
        {"$pull": {"list": {"$gt": 50}}},
        {"$pullAll": {"list": [3, 5]}},
        {"$pop": {"list": -1}},
        {"$set": {"rows.0.v.1": "x", "rows.1.v.4": 1}},
        {"$set": {"rows.$[one].k": 9}},
        {"$unset": {"rows.1.v.0": 1, "deep.x.y": 1}},
        {"$rename": {"deep.x": "moved"}},
        {"$bit": {"n": {"or": 8}}},
        {"$currentDate": {"at": True}},
        {"$set": {"list": []}},
        {"$set": {"deep": {"a": 1, "b": [{"c": 1}]}}},
        [{"$set": {"long": {"$slice": ["$long", 40]}}}],
        [{"$set": {"deep.b": [{"c": 2}], "sum": {"$sum": "$long"}}}, {"$unset": "n"}],
        [{"$set": {"long": {"$concatArrays": ["$long", [1, 2]]}}}],
        [{"$replaceWith": {"_id": "$_id", "only": "$sum"}}],
    ]
    with watch(collection) as stream:
        collection.insert_one(start)
        copy = {}
        for event in read_all(stream, client.streams.described):
            apply(copy, event)
        collection.delete_many({"mark": True})
        read(stream, 1)
        for update in updates:
            filters = [{"one.k": 2}] if "rows.$[one].k" in str(update) else None
            equal(collection.update_one({"_id": 1}, update, array_filters=filters).modified_count, 1, str(update))
            (event,) = read(stream, 1)
            apply(copy, event)
            equal(copy[1], collection.find_one({"_id": 1}), f"{update} as {event}")


@test
def operators_that_change_an_array_set_it_whole_unless_they_append(server, client):
    """Programs that know MongoDB's entries, such as Meteor, understand no others."""
    collection = fresh(client).whole
    with watch(collection) as stream:
        for update, expected in [
            ({"$set": {"l": [1]}}, {"l": [1]}),
            ({"$pull": {"l": 2}}, {"l": [1, 3]}),
            ({"$pop": {"l": 1}}, {"l": [1, 2]}),
            ({"$push": {"l": {"$each": [0], "$position": 0}}}, {"l": [0, 1, 2, 3]}),
            ({"$push": {"l": {"$each": [9], "$slice": -2}}}, {"l": [3, 9]}),
            ({"$push": {"l": {"$each": [4, 5]}}}, {"l.3": 4, "l.4": 5}),
            ({"$addToSet": {"l": 4}}, {"l.3": 4}),
            ({"$set": {"l.1": "x"}}, {"l.1": "x"}),
        ]:
            collection.replace_one({"_id": 1}, {"l": [1, 2, 3]}, upsert=True)
            collection.update_one({"_id": 1}, update)
            description = read(stream, 2)[1]["updateDescription"]
            whole = {"updatedFields": expected, "removedFields": [], "truncatedArrays": []}
            equal(description, whole, str(update))


@test
def a_pipeline_that_shortens_an_array_says_so(server, client):
    collection = fresh(client).cut
    collection.insert_one({"_id": 1, "list": ["a" * 50, "b" * 50, "c" * 50]})
    with watch(collection) as stream:
        collection.update_one({"_id": 1}, [{"$set": {"list": {"$slice": ["$list", 1]}}}])
        (event,) = read(stream, 1)
        cut = {"updatedFields": {}, "removedFields": [], "truncatedArrays": [{"field": "list", "newSize": 1}]}
        equal(event["updateDescription"], cut)


@test
def random_changes_rebuild_the_collection(server, client):
    source = random.Random(18)
    collection = fresh(client).random
    with watch(collection) as stream:
        for number in range(400):
            key = source.randrange(40)
            step = source.randrange(8)
            if step == 0:
                collection.replace_one({"_id": key}, {"n": number, "list": [number]}, upsert=True)
            elif step == 1:
                collection.delete_one({"_id": key})
            elif step == 2:
                collection.update_many({"n": {"$gt": number - 5}}, {"$inc": {"m": 1}})
            else:
                change = {"$push": {"list": {"$each": [number], "$slice": -6}}, "$set": {f"sub.f{step}": number}}
                collection.update_one({"_id": key}, change, upsert=True)
        copy = {}
        for event in read_all(stream, collection):
            apply(copy, event)
    there = {d["_id"]: d for d in collection.find({"mark": None})}
    equal(copy, there)


@test
def a_transaction_comes_whole_and_an_aborted_one_never(server, client):
    database = fresh(client)
    database.one.insert_one({"_id": 0})
    database.create_collection("two")
    with watch(database) as stream, client.start_session() as session:
        with session.start_transaction():
            database.one.insert_one({"_id": 1}, session=session)
            database.one.update_one({"_id": 0}, {"$set": {"x": 1}}, session=session)
            # Outside of the transaction, and before it in time.
            database.two.insert_one({"_id": "other"})
            database.two.insert_many([{"_id": n} for n in range(3)], session=session)
            database.one.delete_one({"_id": 1}, session=session)
        number = session._server_session.transaction_id
        session.start_transaction()
        database.one.insert_one({"_id": "aborted"}, session=session)
        session.abort_transaction()
        events = read_all(stream, database.one)
        in_order(events)
        expected = ["insert", "insert", "update", "insert", "insert", "insert", "delete"]
        equal(kinds(events), expected)
        outside, inside = events[0], events[1:]
        equal(outside["documentKey"], {"_id": "other"})
        assert "txnNumber" not in outside and "lsid" not in outside, outside
        equal({event["txnNumber"] for event in inside}, {number})
        equal({event["lsid"]["id"] for event in inside}, {session.session_id["id"]})
        equal(len({event["clusterTime"] for event in inside}), 1)
        equal([event["ns"]["coll"] for event in inside], ["one", "one", "two", "two", "two", "one"])


@test
def a_large_transaction_comes_whole(server, client):
    """Its entry in the oplog is a chain, as one would be larger than 16 MB."""
    database = fresh(client)
    database.large.insert_one({"_id": -1})
    text = "x" * 1_000_000
    with watch(database.large, [{"$project": {"fullDocument.text": 0}}]) as stream:
        with client.start_session() as session, session.start_transaction():
            for n in range(24):
                database.large.insert_one({"_id": n, "text": text}, session=session)
        events = read_all(stream, database.large)
        equal([event["documentKey"]["_id"] for event in events], list(range(24)))
        equal(len({event["txnNumber"] for event in events}), 1)
        in_order(events)


@test
def a_dropped_collection_ends_its_stream(server, client):
    database = fresh(client)
    database.gone.insert_one({})
    place = {"db": "streams", "coll": "gone"}
    with watch(database.gone) as stream, watch(database) as wide, watch(client) as widest:
        database.gone.drop()
        dropped, invalidated = read(stream, 2)
        equal(without(dropped), {"operationType": "drop", "ns": place})
        equal(without(invalidated), {"operationType": "invalidate"})
        ends(stream)
        (event,) = read_all(wide, database.after)
        equal(event, dropped, "a database's stream has the same event, with the same token")
        (event,) = [e for e in read_all(widest, database.after) if e["ns"]["coll"] == "gone"]
        equal(event, dropped)


@test
def a_renamed_collection_ends_the_streams_of_both_names(server, client):
    database = fresh(client)
    database.old.insert_one({"_id": 1})
    database.target.insert_one({"_id": 2})
    with watch(database.old) as old, watch(database.target) as target, watch(database) as wide:
        database.old.rename("target", dropTarget=True)
        expected = {
            "operationType": "rename",
            "ns": {"db": "streams", "coll": "old"},
            "to": {"db": "streams", "coll": "target"},
        }
        for stream in (old, target):
            renamed, invalidated = read(stream, 2)
            equal(without(renamed), expected)
            equal(without(invalidated), {"operationType": "invalidate"})
            ends(stream)
        database.target.insert_one({"_id": 3})
        renamed, inserted = read(wide, 2)
        equal(without(renamed), expected)
        equal(inserted["ns"], {"db": "streams", "coll": "target"})


@test
def a_dropped_database_ends_its_streams_but_not_that_of_the_cluster(server, client):
    database = fresh(client)
    database.a.insert_one({})
    database.b.insert_one({})
    with watch(database.a) as narrow, watch(database) as stream, watch(client) as widest:
        client.drop_database("streams")
        equal(kinds(read(narrow, 2)), ["drop", "invalidate"])
        ends(narrow)
        events = read(stream, 4)
        equal(kinds(events), ["drop", "drop", "dropDatabase", "invalidate"])
        equal(sorted(event["ns"]["coll"] for event in events[:2]), ["a", "b"])
        equal(without(events[2]), {"operationType": "dropDatabase", "ns": {"db": "streams"}})
        ends(stream)
        database.again.insert_one({"_id": 1})
        events = read(widest, 4)
        equal(kinds(events), ["drop", "drop", "dropDatabase", "insert"])


@test
def a_stream_of_a_collection_that_is_not_there_waits_for_it(server, client):
    database = fresh(client)
    with watch(database.later) as stream:
        equal(stream.try_next(), None)
        database.create_collection("other")
        database.create_collection("later")
        database.later.insert_one({"_id": 1})
        equal([without(e, "ns") for e in read(stream, 1)], [insert({"_id": 1})])


@test
def a_database_sees_its_own_collections_only(server, client):
    database, other = fresh(client), fresh(client, "streams_other")
    with watch(database) as stream, watch(client, [{"$match": {"ns.db": {"$regex": "^streams"}}}]) as wide:
        other.c.insert_one({"_id": 1})
        database.c.insert_one({"_id": 2})
        database["with.dots"].insert_one({"_id": 3})
        equal([e["documentKey"]["_id"] for e in read(stream, 2)], [2, 3])
        equal([(e["ns"]["db"], e["documentKey"]["_id"]) for e in read(wide, 3)],
              [("streams_other", 1), ("streams", 2), ("streams", 3)])


@test
def expanded_events_tell_of_catalog_changes(server, client):
    database = fresh(client)
    with watch(database, show_expanded_events=True) as stream, watch(database) as plain:
        database.create_collection("made", validator={"a": {"$exists": True}})
        (uuid,) = [c["info"]["uuid"] for c in database.list_collections()]
        database.made.create_index("a")
        database.made.create_index([("b", -1)], name="second", unique=True)
        database.command("collMod", "made", index={"name": "a_1", "hidden": True})
        database.command("collMod", "made", validator={})
        database.made.insert_one({"_id": 1, "a": 1})
        database.made.update_one({"_id": 1}, {"$set": {"a": 2}})
        database.made.drop_index("second")
        database.made.rename("renamed")
        database.renamed.drop()
        events = read(stream, 10)
        in_order(events)
        expected = ["create", "createIndexes", "createIndexes", "modify", "modify", "insert", "update", "dropIndexes", "rename", "drop"]
        equal(kinds(events), expected)
        for event in events:
            equal(event["collectionUUID"], uuid if isinstance(uuid, Binary) else Binary.from_uuid(uuid), str(event))
        create, first, second, hide, modify, _, update, drop, rename, _ = events
        made = create["operationDescription"]
        equal(made["idIndex"], {"v": 2, "key": {"_id": 1}, "name": "_id_"})
        equal(made["validator"], {"a": {"$exists": True}})
        equal(first["operationDescription"], {"indexes": [{"v": 2, "key": {"a": 1}, "name": "a_1"}]})
        (index,) = second["operationDescription"]["indexes"]
        equal((index["key"], index["name"], index["unique"]), ({"b": -1}, "second", True))
        equal(hide["operationDescription"], {"index": {"name": "a_1", "hidden": True}})
        equal(modify["operationDescription"]["validator"], {})
        equal(modify["stateBeforeChange"]["collectionOptions"]["validator"], {"a": {"$exists": True}})
        equal(update["updateDescription"]["disambiguatedPaths"], {})
        (index,) = drop["operationDescription"]["indexes"]
        equal((index["key"], index["name"]), ({"b": -1}, "second"))
        equal(rename["operationDescription"]["to"], {"db": "streams", "coll": "renamed"})
        equal(kinds(read(plain, 4)), ["insert", "update", "rename", "drop"])


@test
def pipelines_filter_and_shape_events(server, client):
    database = fresh(client)
    numbers = database.numbers
    pipeline = [
        {"$match": {"operationType": {"$in": ["insert", "delete"]}, "documentKey._id": {"$mod": [2, 0]}}},
        {"$addFields": {"double": {"$multiply": ["$documentKey._id", 2]}}},
        {"$project": {"double": 1, "operationType": 1}},
    ]
    with watch(numbers, pipeline) as stream:
        numbers.insert_many([{"_id": n} for n in range(6)])
        numbers.update_many({}, {"$set": {"x": 1}})
        numbers.delete_many({"_id": {"$gte": 3}})
        events = [{k: v for k, v in e.items() if k != "_id"} for e in read(stream, 4)]
        expected = [("insert", 0), ("insert", 4), ("insert", 8), ("delete", 8)]
        equal(events, [{"operationType": kind, "double": n} for kind, n in expected])
    with watch(numbers, [{"$match": {"fullDocument.x": {"$gt": 5}}}, {"$replaceWith": {"_id": "$_id", "x": "$fullDocument.x"}}]) as stream:
        numbers.insert_many([{"x": n} for n in range(8)])
        equal([event["x"] for event in read(stream, 2)], [6, 7])


@test
def what_cannot_be_watched_is_refused(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": 1})
    database.create_collection("view", viewOn="c", pipeline=[])

    def refused(code, call, *arguments, **options):
        error = raises(OperationFailure, call, *arguments, **options)
        equal(error.code, code, str(error))
        return error

    watch_c = database.c.watch
    refused(166, database.view.watch)
    refused(NOT_PERMITTED, watch_c, [{"$group": {"_id": 1}}])
    refused(NOT_PERMITTED, watch_c, [{"$sort": {"_id": 1}}])
    refused(NOT_PERMITTED, watch_c, [{"$out": "x"}])
    refused(40324, watch_c, [{"$noSuchStage": {}}])
    refused(BAD_VALUE, watch_c, full_document="nonsense")
    refused(BAD_VALUE, watch_c, full_document_before_change="nonsense")
    refused(INVALID_NAMESPACE, client.local.c.watch)
    refused(INVALID_NAMESPACE, client.local.watch)
    refused(INVALID_NAMESPACE, client.config.watch)
    refused(INVALID_NAMESPACE, client.admin.c.watch)
    refused(INVALID_NAMESPACE, database["system.views"].watch)
    aggregate = database.c.aggregate
    refused(40602, aggregate, [{"$match": {}}, {"$changeStream": {}}])
    refused(40415, aggregate, [{"$changeStream": {"nonsense": 1}}])
    refused(INVALID_OPTIONS, aggregate, [{"$changeStream": {"allChangesForCluster": True}}])
    with watch(database.c) as stream:
        database.c.insert_one({})
        token = read(stream, 1)[0]["_id"]
    time = Timestamp(1_700_000_000, 1)
    refused(40674, aggregate, [{"$changeStream": {"resumeAfter": token, "startAtOperationTime": time}}])
    refused(50865, aggregate, [{"$changeStream": {"resumeAfter": token, "startAfter": token}}])
    for bad in ("", "nonsense", "82", token["_data"][:-8], "9" * 40):
        error = raises(OperationFailure, aggregate, [{"$changeStream": {"resumeAfter": {"_data": bad}}}])
        assert error.code not in (1, 8), f"{bad} is no fault of the server: {error}"
    local = database.get_collection("c", read_concern=pymongo.read_concern.ReadConcern("local"))
    refused(INVALID_OPTIONS, local.watch)
    with client.start_session() as session:
        session.start_transaction()
        refused(263, database.c.watch, session=session)
        session.abort_transaction()


@test
def an_event_without_its_token_is_an_error(server, client):
    collection = fresh(client).c
    with watch(collection, [{"$project": {"_id": 0}}]) as stream:
        collection.insert_one({})
        error = raises(OperationFailure, read, stream, 1)
        equal(error.code, 280)
        assert error.has_error_label("NonResumableChangeStreamError"), error.details
