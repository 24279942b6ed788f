"""Documents before and after a change, and events that are too large for one document."""


from harness.tap import equal, raises, test
from harness.waiting import wait_until
from pymongo.errors import OperationFailure

from .events import fresh
from .watching import ends, kinds, read, read_all, read_until, watch

NO_MATCHING_DOCUMENT, TOO_LARGE = 47, 10334
BEFORE, AFTER = "fullDocumentBeforeChange", "fullDocument"


def with_images(database, name="kept"):
    return database.create_collection(name, changeStreamPreAndPostImages={"enabled": True})


@test
def update_lookup_reads_the_document_of_today(server, client):
    collection = fresh(client).looked_up
    with watch(collection, full_document="updateLookup") as stream:
        collection.insert_one({"_id": 1, "n": 0})
        collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
        collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
        collection.insert_one({"_id": 2})
        collection.update_one({"_id": 2}, {"$set": {"n": 1}})
        collection.delete_one({"_id": 2})
        events = read(stream, 6)
        equal(kinds(events), ["insert", "update", "update", "insert", "update", "delete"])
        equal([e.get(AFTER) for e in events], [{"_id": 1, "n": 0}, *[{"_id": 1, "n": 2}] * 2, {"_id": 2}, None, None])
        assert AFTER in events[4], "a document that is gone is null"
        assert AFTER not in events[5], events[5]


@test
def images_are_those_of_the_change(server, client):
    database = fresh(client)
    collection = with_images(database)
    options = {"full_document": "required", "full_document_before_change": "required"}
    with watch(collection, **options) as stream:
        collection.insert_one({"_id": 1, "n": 0, "list": [1, 2]})
        collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
        collection.update_one({"_id": 1}, {"$push": {"list": 3}, "$inc": {"n": 1}})
        collection.replace_one({"_id": 1}, {"r": 1})
        with client.start_session() as session, session.start_transaction():
            collection.update_one({"_id": 1}, {"$set": {"r": 2}}, session=session)
            collection.update_one({"_id": 1}, {"$set": {"r": 3}}, session=session)
        collection.delete_one({"_id": 1})
        versions = [
            None,
            {"_id": 1, "n": 0, "list": [1, 2]},
            {"_id": 1, "n": 1, "list": [1, 2]},
            {"_id": 1, "n": 2, "list": [1, 2, 3]},
            *({"_id": 1, "r": n} for n in (1, 2, 3)),
            None,
        ]
        events = read(stream, 7)
        equal(kinds(events), ["insert", "update", "update", "replace", "update", "update", "delete"])
        equal([e.get(BEFORE) for e in events], versions[:-1])
        equal([e.get(AFTER) for e in events], versions[1:])
        assert BEFORE not in events[0] and AFTER not in events[-1], "inserts have nothing before, deletes nothing after"


@test
def many_updates_have_an_image_each(server, client):
    collection = with_images(fresh(client))
    collection.insert_many([{"_id": n, "n": n} for n in range(50)])
    with watch(collection, full_document="whenAvailable", full_document_before_change="whenAvailable") as stream:
        collection.update_many({}, {"$inc": {"n": 100}})
        collection.delete_many({"_id": {"$lt": 10}})
        events = read(stream, 60)
        equal(sorted((e[BEFORE]["n"], e[AFTER]["n"]) for e in events[:50]), [(n, n + 100) for n in range(50)])
        equal(sorted(e[BEFORE]["n"] for e in events[50:]), [n + 100 for n in range(10)])


@test
def without_images_there_is_null_or_an_error(server, client):
    database = fresh(client)
    collection = database.plain
    collection.insert_one({"_id": 1, "n": 0})
    with watch(collection, full_document="whenAvailable", full_document_before_change="whenAvailable") as lenient:
        for options in ({"full_document": "required"}, {"full_document_before_change": "required"}):
            with watch(collection, **options) as strict:
                collection.update_one({"_id": 1}, {"$inc": {"n": 1}})
                equal(raises(OperationFailure, read, strict, 1).code, NO_MATCHING_DOCUMENT)
        collection.delete_one({"_id": 1})
        events = read(lenient, 3)
        equal([(e[BEFORE], e.get(AFTER, "absent")) for e in events], [(None, None), (None, None), (None, "absent")])


@test
def images_are_switched_by_coll_mod(server, client):
    database = fresh(client)
    database.c.insert_one({"_id": 1, "n": 0})

    def options():
        (info,) = database.list_collections(filter={"name": "c"})
        return info["options"]

    with watch(database.c, full_document_before_change="whenAvailable") as stream:
        for enabled in (True, False, True):
            database.command("collMod", "c", changeStreamPreAndPostImages={"enabled": enabled})
            equal(options().get("changeStreamPreAndPostImages"), {"enabled": True} if enabled else None)
            database.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
        equal([event[BEFORE] for event in read(stream, 3)], [{"_id": 1, "n": 0}, None, {"_id": 1, "n": 2}])


@test
def images_outlive_a_crash(server, client):
    collection = with_images(fresh(client))
    with watch(collection) as stream:
        collection.insert_one({"_id": 1, "n": 0})
        token = read(stream, 1)[0]["_id"]
    collection.update_one({"_id": 1}, {"$set": {"n": 1}})
    collection.delete_one({"_id": 1})
    server.kill()
    server.start()
    options = {"full_document": "required", "full_document_before_change": "required"}
    with watch(collection, resume_after=token, **options) as stream:
        update, delete = read(stream, 2)
        equal((update[BEFORE], update[AFTER], delete[BEFORE]), ({"_id": 1, "n": 0}, {"_id": 1, "n": 1}, {"_id": 1, "n": 1}))


@test
def images_expire(server, client):
    parameter = {"preAndPostImages": {"expireAfterSeconds": 1}}
    client.admin.command("setClusterParameter", {"changeStreamOptions": parameter})
    (got,) = client.admin.command("getClusterParameter", "changeStreamOptions")["clusterParameters"]
    equal((got["_id"], got["preAndPostImages"]), ("changeStreamOptions", {"expireAfterSeconds": 1}))
    collection = with_images(fresh(client))
    with watch(collection) as stream:
        collection.insert_one({"_id": 1, "n": 0})
        token = read(stream, 1)[0]["_id"]
    collection.update_one({"_id": 1}, {"$inc": {"n": 1}})

    def without_image():
        with watch(collection, resume_after=token, full_document_before_change="whenAvailable") as stream:
            (event,) = read(stream, 1)
        if event[BEFORE] is None:
            return event
        equal(event[BEFORE], {"_id": 1, "n": 0})

    event = wait_until("an event without its image", without_image)
    # The event itself stays.
    equal(event["updateDescription"]["updatedFields"], {"n": 1})
    required = {"resume_after": token, "full_document_before_change": "required"}
    error = raises(OperationFailure, lambda: read(watch(collection, **required), 1))
    equal(error.code, NO_MATCHING_DOCUMENT)
    client.admin.command("setClusterParameter", {"changeStreamOptions": {"preAndPostImages": {"expireAfterSeconds": "off"}}})
    for wrong in (0, -1, "on"):
        parameter = {"preAndPostImages": {"expireAfterSeconds": wrong}}
        error = raises(OperationFailure, client.admin.command, "setClusterParameter", {"changeStreamOptions": parameter})
        assert error.code in (2, 9), error


def replace_large(collection):
    """A replacement whose documents together are larger than one may be."""
    collection.replace_one({"_id": 1}, {"text": "b" * 10_000_000})


@test
def an_event_that_is_too_large_is_an_error(server, client):
    collection = with_images(fresh(client))
    with watch(collection, full_document_before_change="required") as stream:
        collection.insert_one({"_id": 1, "text": "a" * 10_000_000})
        equal(kinds(read(stream, 1)), ["insert"])
        replace_large(collection)
        equal(raises(OperationFailure, read, stream, 1).code, TOO_LARGE)


@test
def a_large_event_is_split(server, client):
    collection = with_images(fresh(client))
    split = [{"$changeStreamSplitLargeEvent": {}}]
    with watch(collection, split, full_document_before_change="required") as stream:
        collection.insert_one({"_id": 1, "text": "a" * 10_000_000})
        (small,) = read(stream, 1)
        replace_large(collection)
        collection.insert_one({"_id": 2})
        assert "splitEvent" not in small, "events that fit are whole"
        parts = read_until(stream, lambda e: e.get("splitEvent", {"fragment": 1, "of": 1})["fragment"] == e.get("splitEvent", {"of": 1})["of"])
        count = len(parts)
        assert count >= 2, f"{count} fragments"
        equal([part["splitEvent"] for part in parts], [{"fragment": n + 1, "of": count} for n in range(count)])
        whole = {}
        for part in parts:
            fields = {name: value for name, value in part.items() if name not in ("_id", "splitEvent")}
            assert not whole.keys() & fields.keys(), "a field is in one fragment only"
            whole.update(fields)
        equal(whole["operationType"], "replace")
        equal((whole[BEFORE]["text"][:2], whole[AFTER]["text"][:2]), ("aa", "bb"))
        equal((len(whole[BEFORE]["text"]), len(whole[AFTER]["text"])), (10_000_000, 10_000_000))
        equal(read(stream, 1)[0]["documentKey"], {"_id": 2})
    # A fragment's token goes on with the next fragment, also after a crash.
    server.kill()
    server.start()
    for at, part in enumerate(parts):
        with watch(collection, split, full_document_before_change="required", resume_after=part["_id"]) as stream:
            rest = read(stream, count - at)
            equal([list(e) for e in rest[:-1]], [list(e) for e in parts[at + 1 :]])
            equal(rest[-1]["documentKey"], {"_id": 2})
    # Without the stage there would be no such fragment.
    whole = {"full_document_before_change": "required", "resume_after": small["_id"]}
    equal(raises(OperationFailure, lambda: read(watch(collection, **whole), 1)).code, TOO_LARGE)


@test
def the_split_comes_last_and_once(server, client):
    collection = fresh(client).c
    stage = {"$changeStreamSplitLargeEvent": {}}
    for pipeline in ([stage, {"$match": {}}], [stage, stage]):
        error = raises(OperationFailure, collection.watch, pipeline)
        assert error.code not in (1, 8, 40573), error
    raises(OperationFailure, collection.aggregate, [stage])
