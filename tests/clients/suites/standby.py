"""A primary and its standby (`--follow`): the copy, every kind of entry, reads and refusals, kills of either side, stepping up.

From the environment: FROND_KILLS (2), the kills of either side under load; FROND_SEED.
"""

import os
import random
import shutil
import threading
import time

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from harness.replica_set import databases, described
from harness.server import Server, ServerError
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo import ASCENDING, MongoClient, ReadPreference, WriteConcern
from pymongo.errors import AutoReconnect, ConnectionFailure, NotPrimaryError, OperationFailure, PyMongoError

BINARY = os.environ.get("FROND_BINARY")
SEED = int(os.environ.get("FROND_SEED", time.time_ns() % 1_000_000))
KILLS = int(os.environ.get("FROND_KILLS", 2))
RAW = CodecOptions(document_class=RawBSONDocument)


def connect(server, user="", options="", **more):
    uri = f"mongodb://{user}127.0.0.1:{server.port}/?directConnection=true{options}"
    return MongoClient(uri, serverSelectionTimeoutMS=PATIENCE * 1000, **more)


def expect(code, call):
    try:
        call()
    except (OperationFailure, NotPrimaryError) as error:
        equal(error.details["code"], code, str(error))
        return error
    raise AssertionError(f"expected error {code}")


def until(what, holds):
    """Waits until something holds, also over restarts of a server, and returns its last value."""
    return wait_until(what, holds, passing=(AutoReconnect, ConnectionFailure))


def standby_status(client):
    return client.admin.command("serverStatus", metrics=0)["frond"]["standby"]


def in_state(client, *states):
    return until(f"state {states}", lambda: (found := standby_status(client))["state"] in states and found)


def last_entry(client):
    return client.admin.command("hello")["lastWrite"]["opTime"]["ts"]


def caught_up(primary, standby):
    """Waits until the standby has what the primary has now."""
    last = last_entry(primary)
    until(f"the standby is at {last}", lambda: last_entry(standby) >= last)


def reading(client, name):
    return client.get_database(name, codec_options=RAW, read_preference=ReadPreference.SECONDARY_PREFERRED)


def same(primary, standby):
    """Checks that both servers have the same: by reading everything, and by the hashes and the checks of the server."""
    caught_up(primary, standby)
    equal(databases(standby), databases(primary))
    for name in databases(primary):
        left = described(primary, name)
        equal(described(standby, name), left, name)
        for collection, (kind, options, _, _) in left.items():
            if kind != "collection" or collection.startswith("system.views"):
                continue
            is_by_order = "capped" in options or "timeseries" in options
            sort = [("$natural", 1)] if is_by_order else [("_id", 1)]
            theirs = [document.raw for document in reading(primary, name)[collection].find(sort=sort)]
            ours = [document.raw for document in reading(standby, name)[collection].find(sort=sort)]
            if ours != theirs:
                missing = [bson.decode(one) for one in theirs if one not in set(ours)][:3]
                more = [bson.decode(one) for one in ours if one not in set(theirs)][:3]
                raise AssertionError(f"{name}.{collection}: {len(ours)} and {len(theirs)}; missing {missing}, more {more}")
            checked = standby[name].command("validate", collection)
            assert checked["valid"], checked
        hashes = [client[name].command("dbHash")["collections"] for client in (primary, standby)]
        equal(hashes[1], hashes[0], name)


class Pair:
    """A primary and its standby, which begins with an empty directory unless it is made from a stopped primary."""

    def __init__(self, options=(), standby_options=(), prepare=None, cold=False, user=""):
        # With a user both check authorization, once `prepare` has made the user.
        self.user = user
        self.primary = Server(BINARY, options=options, replica_set="rs0")
        self.standby = Server(BINARY)
        secured = ["--auth"] if user else []
        self.standby.options = [*options, *standby_options, *secured, "--follow", self.source]
        self.primary.start()
        if prepare:
            prepare(connect(self.primary))
        if cold:
            self.primary.stop()
            shutil.copytree(self.primary.dbpath, self.standby.dbpath, dirs_exist_ok=True)
            os.remove(os.path.join(self.standby.dbpath, "mongod.lock"))
        if user:
            self.primary.stop()
            self.primary.options += secured
            # It is initiated, and only users may ask for that again.
            self.primary.replica_set = None
        if user or cold:
            self.primary.start()

    @property
    def source(self):
        return f"mongodb://{self.user}127.0.0.1:{self.primary.port}/?connectTimeoutMS=2000"

    def __enter__(self):
        self.standby.start()
        return self

    def __exit__(self, *_):
        for server in (self.standby, self.primary):
            server.close()

    def clients(self):
        return connect(self.primary, self.user), connect(self.standby, self.user)


def everything(client):
    """Every kind of entry."""
    db = client.shop
    db.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    for name in ("c", "images"):
        db[name].insert_many([{"_id": n, "a": n % 7, "u": n, "tags": [n, n + 1], "in": {"x": n}} for n in range(300)])
        db[name].update_many({"a": 3}, {"$set": {"in.x": -1}, "$push": {"tags": 5}, "$unset": {"in.y": 1}})
        db[name].replace_one({"_id": 4}, {"whole": True, "u": -4})
        db[name].delete_many({"a": 5})
    db.c.create_index([("tags", ASCENDING), ("a", -1)])
    db.c.create_index("u", unique=True, name="u_1")
    db.c.create_index("text_of", sparse=True)
    db.c.drop_index("text_of_1")
    db.c.update_one({"_id": 8}, {"$set": {"u": -100}})
    db.c.update_one({"_id": 9}, {"$set": {"u": 8}})
    for _ in range(30):
        db.c.update_one({"_id": 1}, {"$inc": {"n": 1}})
    db.c.find_one_and_update({"_id": 77}, {"$set": {"s": "x"}}, upsert=True)
    db.c.update_many({}, [{"$set": {"sum": {"$add": [{"$ifNull": ["$u", 0]}, 1]}}}])
    db.large.insert_one({"_id": 1, **{f"f{n}": "x" * 40 for n in range(2000)}})
    db.large.update_one({"_id": 1}, {"$set": {"f77": 1, "more": 2}, "$inc": {"n": 5}})
    db.create_collection("capped", capped=True, size=4096, max=30)
    for start in range(0, 100, 10):
        db.capped.insert_many([{"_id": n, "text": "y" * (n % 13)} for n in range(start, start + 10)])
    db.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    db.series.insert_many([{"t": bson.datetime.datetime(2024, 1, 1, 0, 0, n), "m": 1, "v": n} for n in range(50)])
    db.create_collection("collated", collation={"locale": "en", "strength": 2})
    db.collated.insert_many([{"_id": "A", "s": "x"}, {"_id": "b"}])
    db.collated.update_one({"_id": "a"}, {"$set": {"s": "z"}})
    db.command("collMod", "c", validator={"_id": {"$exists": True}}, validationLevel="moderate")
    db.command("collMod", "c", index={"name": "u_1", "hidden": True})
    db.old.insert_many([{"_id": n} for n in range(5)])
    db.target.insert_one({"_id": "gone"})
    db.old.rename("target", dropTarget=True)
    db.target.update_one({"_id": 2}, {"$set": {"after": "rename"}})
    db.dropped.insert_one({})
    db.dropped.drop()
    client.other.c.insert_one({})
    client.drop_database("other")
    db.command("create", "view", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    db.command("collMod", "view", viewOn="c", pipeline=[{"$match": {"a": 2}}])
    db.command("create", "view2", viewOn="c", pipeline=[])
    db.view2.drop()
    db.command("convertToCapped", "target", size=8192)
    list(db.c.aggregate([{"$project": {"a": 1}}, {"$out": "out"}]))
    list(db.c.aggregate([{"$project": {"u": 1}}, {"$merge": {"into": "out"}}]))
    client.admin.command("appendOplogNote", 1, data={"msg": "a note"})
    with client.start_session() as session, session.start_transaction():
        db.c.insert_many([{"_id": "t1", "u": "t1"}, {"_id": "t2", "u": "t2"}], session=session)
        db.c.update_one({"_id": "t1"}, {"$set": {"a": 1}}, session=session)
        db.c.update_one({"_id": "t1"}, {"$set": {"a": 2}}, session=session)
        db.c.delete_one({"_id": "t2"}, session=session)
        db.images.update_one({"_id": 1}, {"$set": {"in_transaction": True}}, session=session)
        db.fresh.insert_one({"_id": 1}, session=session)
    with client.start_session() as session, session.start_transaction():
        for n in range(20):
            db.wide.insert_one({"_id": n, "text": "z" * 1_000_000}, session=session)
    db.wide.delete_many({"_id": {"$gte": 3}})
    client.admin.command("setDefaultRWConcern", 1, defaultWriteConcern={"w": 1})


@test
def every_entry_reaches_a_standby_that_was_copied_from_files():
    with Pair(prepare=lambda client: client.shop.before.insert_many([{"_id": n} for n in range(100)]), cold=True) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        everything(primary)
        same(primary, standby)
        concern = standby.admin.command("getDefaultRWConcern")
        until("the default concern", lambda: standby.admin.command("getDefaultRWConcern")["defaultWriteConcern"] == {"w": 1})
        assert concern["defaultWriteConcern"], concern
        plan = reading(standby, "shop").command("explain", {"find": "c", "filter": {"tags": 3}}, verbosity="queryPlanner")
        assert "IXSCAN" in str(plan), plan
        figures = standby_status(standby)
        assert figures["commits"] < figures["appliedEntries"] / 2, figures


@test
def a_copy_is_taken_while_the_primary_is_written():
    with Server(BINARY, replica_set="rs0") as primary, Server(BINARY) as standby:
        primary.start()
        client = connect(primary)
        client.shop.c.create_index("a")
        client.shop.c.insert_many([{"_id": n, "a": n % 97, "text": "x" * 200} for n in range(20_000)])
        ends = threading.Event()

        def write():
            at = 0
            while not ends.is_set():
                at += 1
                client.shop.c.insert_many([{"_id": f"{at}-{n}", "a": n} for n in range(50)])
                client.shop.c.update_many({"a": at % 97}, {"$inc": {"n": 1}})
                client.shop.c.delete_many({"_id": {"$lt": at}})
                client.shop.c.create_index(f"k{at % 3}")
                client.shop[f"small{at % 5}"].insert_one({"x": at})
                client.shop[f"small{at % 5}"].create_index("x")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            standby.options = ["--follow", f"mongodb://127.0.0.1:{primary.port}"]
            standby.start()
            in_state(connect(standby), "following")
            # Some writes come after the copy.
            written = client.shop.c.estimated_document_count()
            until("more writes", lambda: client.shop.c.estimated_document_count() > written + 100)
        finally:
            ends.set()
            writer.join()
        same(client, connect(standby))
        # It goes on where it was after a start of either.
        for server in (standby, primary):
            server.stop()
            server.start()
        client, ours = connect(primary), connect(standby)
        client.shop.c.insert_one({"_id": "later"})
        same(client, ours)


@test
def a_standby_that_was_away_for_too_long_says_so_or_starts_anew():
    with Pair(options=("--oplogSize", "1")) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        pair.standby.stop()
        first = primary.local["oplog.rs"].find_one()["ts"]

        def trimmed():
            primary.shop.c.insert_many([{"text": "x" * 10_000} for _ in range(1000)])
            return primary.local["oplog.rs"].find_one()["ts"] > first

        until("the oplog is trimmed", trimmed)
        pair.standby.start()
        standby = connect(pair.standby)
        found = in_state(standby, "stale")
        assert "oplog begins at" in found["lastError"], found
        equal(reading_in(standby).c.count_documents({}) < primary.shop.c.count_documents({}), True)
        pair.standby.stop()
        pair.standby.options.append("--followAnew")
        pair.standby.start()
        in_state(standby, "following")
        same(primary, standby)


@test
def a_standby_reads_and_refuses_as_a_secondary():
    with Pair(prepare=lambda client: client.shop.c.insert_many([{"_id": n} for n in range(10)])) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        for name, given in [("c", {"insert": "c", "documents": [{}]}), ("u", {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]}),
                            ("d", {"delete": "c", "deletes": [{"q": {}, "limit": 1}]}), ("f", {"findAndModify": "c", "remove": True}),
                            ("n", {"create": "n"}), ("i", {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]}),
                            ("x", {"drop": "c"}), ("y", {"dropDatabase": 1}), ("m", {"collMod": "c"}),
                            ("o", {"aggregate": "c", "pipeline": [{"$out": "o"}], "cursor": {}}),
                            ("e", {"createUser": "u", "pwd": "p", "roles": []})]:
            error = expect(10107, lambda given=given: standby.shop.command(given))
            assert error.details["topologyVersion"], name
        for given in [{"find": "c"}, {"count": "c"}, {"distinct": "c", "key": "_id"}, {"listCollections": 1},
                      {"listIndexes": "c"}, {"aggregate": "c", "pipeline": [], "cursor": {}}]:
            primary_only = {**given, "$readPreference": {"mode": "primary"}}
            expect(13435, lambda given=primary_only: raw_command(pair.standby, given))
        for mode in ("secondary", "secondaryPreferred", "nearest", "primaryPreferred"):
            reply = raw_command(pair.standby, {"find": "c", "$readPreference": {"mode": mode}})
            equal(len(reply["cursor"]["firstBatch"]), 10)
        with standby.start_session() as session:
            session.start_transaction()
            expect(10107, lambda: standby.shop.c.find_one({}, session=session))
        standby.local.own.insert_one({"_id": "its own"})
        hello = standby.admin.command("hello")
        me, source = f"127.0.0.1:{pair.standby.port}", f"127.0.0.1:{pair.primary.port}"
        equal((hello["isWritablePrimary"], hello["secondary"], hello["setName"]), (False, True, "rs0"))
        equal((hello["primary"], hello["me"], hello["hosts"]), (source, me, [source, me]))
        status = standby.admin.command("replSetGetStatus")
        equal((status["myState"], [one["stateStr"] for one in status["members"]]), (2, ["PRIMARY", "SECONDARY"]))
        equal(status["members"][1]["optime"]["ts"], last_entry(standby))
        assert 0 <= status["standby"]["lagSeconds"] < 30, status
        equal(standby.admin.command("serverStatus")["repl"]["secondary"], True)
        # With the name of the set a driver finds the primary, and does not count the standby as a member.
        named = MongoClient(f"mongodb://127.0.0.1:{pair.standby.port}/?replicaSet=rs0", serverSelectionTimeoutMS=10_000)
        named.shop.c.insert_one({"_id": "through the standby"})
        equal(named.primary, ("127.0.0.1", pair.primary.port))
        same(primary, standby)


def raw_command(server, body):
    with server.connect() as connection:
        reply = connection.command(body, "shop")
    if reply["ok"] != 1:
        raise OperationFailure(reply["errmsg"], reply["code"], reply)
    return reply


@test
def causal_reads_snapshots_and_streams_are_right_on_a_standby():
    with Pair(prepare=lambda client: client.shop.c.insert_many([{"_id": n, "n": 0} for n in range(10)])) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        stream = standby.shop.c.watch(max_await_time_ms=100)
        with primary.start_session() as session:
            for n in range(1, 50):
                primary.shop.c.update_many({}, {"$set": {"n": n}}, session=session)
                with standby.start_session() as there:
                    there.advance_cluster_time(session.cluster_time)
                    there.advance_operation_time(session.operation_time)
                    found = {one["n"] for one in reading_in(standby).c.find({}, session=there)}
                    equal(found, {n})
        writer = threading.Thread(target=lambda: [primary.shop.c.update_many({}, {"$inc": {"n": 1}}) for _ in range(200)])
        writer.start()
        try:
            for _ in range(10):
                with standby.start_session(snapshot=True) as session:
                    first = sorted(one["n"] for one in reading_in(standby).c.find({}, session=session))
                    time.sleep(0.02)
                    again = sorted(one["n"] for one in reading_in(standby).c.find({}, session=session))
                    equal(again, first)
        finally:
            writer.join()
        equal([next(stream)["operationType"] for _ in range(490)], ["update"] * 490)
        stream.close()
        same(primary, standby)


def reading_in(client):
    return client.get_database("shop", read_preference=ReadPreference.SECONDARY_PREFERRED)


@test
def users_and_roles_are_those_of_the_primary():
    def add_users(client):
        client.admin.command("createUser", "root", pwd="secret", roles=["root"])

    with Pair(prepare=add_users, cold=True, user="root:secret@") as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        primary.shop.c.insert_many([{"_id": n} for n in range(5)])
        primary.shop.command("createRole", "reader", privileges=[
            {"resource": {"db": "shop", "collection": "c"}, "actions": ["find"]}], roles=[])
        primary.shop.command("createUser", "visitor", pwd="x", roles=["reader"])
        caught_up(primary, standby)
        visitor = connect(pair.standby, "visitor:x@", "&authSource=shop")
        equal(visitor.shop.c.count_documents({}), 5)
        expect(13, lambda: visitor.shop.d.find_one())
        expect(13, lambda: visitor.admin.command("replSetStepUp"))
        primary.shop.command("updateRole", "reader", privileges=[
            {"resource": {"db": "shop", "collection": "d"}, "actions": ["find"]}])
        caught_up(primary, standby)
        until("the role has changed", lambda: visitor.shop.d.find_one() is None)
        expect(13, lambda: visitor.shop.c.find_one())
        primary.shop.command("dropUser", "visitor")
        caught_up(primary, standby)
        expect(18, lambda: connect(pair.standby, "visitor:x@", "&authSource=shop").shop.d.find_one())
        same(primary, standby)


@test
def documents_expire_on_the_primary_alone():
    quick = ("--setParameter", "ttlMonitorSleepSecs=1")
    with Pair(options=quick) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        long_ago = bson.datetime.datetime(2020, 1, 1)
        primary.admin.command("setParameter", 1, ttlMonitorEnabled=False)
        primary.shop.c.create_index("at", expireAfterSeconds=1)
        primary.shop.c.insert_many([{"_id": n, "at": long_ago} for n in range(5)])
        caught_up(primary, standby)
        equal(reading_in(standby).c.count_documents({}), 5)
        primary.admin.command("setParameter", 1, ttlMonitorEnabled=True)
        until("they expire", lambda: reading_in(standby).c.count_documents({}) == 0)
        expired = [one.admin.command("serverStatus")["metrics"]["ttl"]["deletedDocuments"] for one in (primary, standby)]
        equal(expired, [5, 0])
        same(primary, standby)


@test
def a_standby_steps_up_and_a_stream_goes_on():
    with Pair(prepare=lambda client: client.shop.c.insert_many([{"_id": n} for n in range(10)])) as pair:
        primary, standby = pair.clients()
        in_state(standby, "following")
        seen = []
        with primary.shop.c.watch(max_await_time_ms=100) as stream:
            primary.shop.c.insert_many([{"_id": n} for n in range(100, 120)])
            seen += [next(stream)["documentKey"]["_id"] for _ in range(10)]
            token = stream.resume_token
        before = standby.admin.command("hello")
        term = primary.admin.command("replSetGetStatus")["term"]
        pair_token = token
        stepped = standby.admin.command("replSetStepUp")
        equal((stepped["caughtUp"], stepped["term"] > term), (True, True), str(stepped))
        hello = standby.admin.command("hello")
        assert hello["isWritablePrimary"] and hello["topologyVersion"]["counter"] > before["topologyVersion"]["counter"], hello
        assert hello["electionId"] > primary.admin.command("hello")["electionId"], hello
        equal(hello["hosts"], [f"127.0.0.1:{pair.standby.port}"])
        standby.shop.c.insert_many([{"_id": n} for n in range(200, 205)])
        with standby.shop.c.watch(resume_after=pair_token, max_await_time_ms=100) as stream:
            seen += [next(stream)["documentKey"]["_id"] for _ in range(15)]
        equal(seen, [*range(100, 120), *range(200, 205)])
        equal(standby.admin.command("replSetStepUp")["ok"], 1.0)
        # A start with the same settings does not follow again.
        pair.standby.stop()
        pair.standby.start()
        standby = connect(pair.standby)
        equal(standby.admin.command("hello")["isWritablePrimary"], True)
        equal(standby.shop.c.count_documents({}), 35)
        assert standby.admin.command("replSetGetStatus")["term"] > stepped["term"]
        # The old primary has written something else meanwhile. It is not joined with its data.
        primary.shop.c.insert_one({"_id": "lost"})
        pair.primary.stop()
        old = Server(BINARY, options=["--follow", f"mongodb://127.0.0.1:{pair.standby.port}"], folder=pair.primary.folder)
        old.start()
        try:
            found = in_state(connect(old), "diverged")
            assert "Start it anew" in found["lastError"], found
        finally:
            old.stop()


@test
def a_directory_of_a_standby_is_not_started_as_a_primary():
    with Pair() as pair:
        in_state(connect(pair.standby), "following")
        pair.standby.stop()
        other = Server(BINARY, folder=pair.standby.folder, replica_set="rs0")
        try:
            other.start()
        except ServerError as error:
            assert "standby's" in str(error), error
        else:
            other.stop()
            raise AssertionError("it started")


def write_until(pair, stop, source, done):
    """Writes at the primary through its deaths. What is unacknowledged may be there or not."""
    client = MongoClient(f"mongodb://127.0.0.1:{pair.primary.port}/?directConnection=true", serverSelectionTimeoutMS=PATIENCE * 1000)
    at = 0
    while not stop.is_set():
        db = client.get_database("load", write_concern=WriteConcern(w=1))
        try:
            kind = source.randrange(10)
            if kind < 6:
                db.c.insert_many([{"_id": f"{id(stop)}-{at + n}", "n": source.randrange(1000), "text": "x" * 50} for n in range(100)], ordered=False)
                at += 100
            elif kind < 8:
                db.c.update_many({"n": source.randrange(1000)}, {"$inc": {"m": 1}, "$set": {"text": "changed"}})
            elif kind < 9:
                db.c.delete_many({"n": source.randrange(1000)})
            else:
                with client.start_session() as session, session.start_transaction():
                    db.d.insert_one({"n": at}, session=session)
                    db.c.update_many({"n": source.randrange(1000)}, {"$inc": {"t": 1}}, session=session)
            done[0] += 1
        except PyMongoError:
            time.sleep(0.05)
        at += 1


@test
def both_sides_are_killed_under_load(seed=SEED):
    source = random.Random(seed)
    with Pair(prepare=lambda client: client.load.c.create_index("n")) as pair:
        stop, done = threading.Event(), [0]
        writers = [threading.Thread(target=write_until, args=(pair, stop, random.Random(seed + n), done)) for n in range(2)]
        for writer in writers:
            writer.start()
        try:
            for turn in range(2 * KILLS):
                time.sleep(source.uniform(0.3, 1.2))
                victim = pair.standby if turn % 2 else pair.primary
                victim.kill()
                victim.start()
            until("enough writes", lambda: done[0] > 10 * KILLS)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        primary, standby = pair.clients()
        in_state(standby, "following")
        same(primary, standby)
        print(f"# seed {seed}: {done[0]} writes, {standby_status(standby)}")


if __name__ == "__main__":
    run()
