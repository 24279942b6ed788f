"""`frond migrate` between Frond and mongo-java-server: while clients write, killed and started again, and compared at the end by this
program, which knows nothing of how the copy is made."""

import datetime
import re
import signal
import subprocess

import bson
import pymongo
from harness.migration import BINARY, Two, Writer, await_following, connect, finish, migrate, moved, same
from harness.others import JavaServer
from harness.scram import SecuredServer
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import wait_until


def ids_of_every_type():
    return [
        1, 2.5, bson.Int64(2**40), bson.Decimal128("3.25"), float("nan"), float("-inf"), "text", "", {"a": 1},
        bson.Binary(b"abc"), bson.Binary(b"0123456789abcdef", 4), bson.ObjectId(), True, False,
        datetime.datetime(1960, 1, 1), datetime.datetime(2026, 1, 1), bson.Timestamp(5, 6), None, bson.MinKey(), bson.MaxKey(),
        bson.Code("x"), bson.Code("x", {"a": 1}),
    ]  # fmt: skip


def fill(client):
    """Something of all that a database can hold."""
    shop = client.shop
    shop.ids.insert_many([{"_id": value, "n": n} for n, value in enumerate(ids_of_every_type())])
    shop.create_collection("checked", validator={"n": {"$type": "int"}}, validationAction="error", validationLevel="moderate")
    shop.checked.insert_many([{"n": n, "tags": ["a", "b"], "at": datetime.datetime(2026, 1, 1)} for n in range(500)])
    shop.checked.create_index("n", unique=True)
    shop.checked.create_index([("tags", 1), ("n", -1)], name="tags and n", sparse=True)
    shop.checked.create_index("at", expireAfterSeconds=100_000_000)
    shop.checked.create_index("n", name="some", partialFilterExpression={"n": {"$gt": 100}})
    shop.create_collection("last", capped=True, size=100_000, max=50)
    shop.last.insert_many([{"_id": n * 7 % 101} for n in range(100)])
    shop.create_collection("names", collation={"locale": "de", "strength": 2})
    shop.names.insert_many([{"_id": name} for name in ("Äpfel", "apfel", "Zoo", "übel")])
    shop.create_collection("few", viewOn="checked", pipeline=[{"$match": {"n": {"$lt": 5}}}])
    client["other-db"]["with.dots"].insert_one({"deep": {"er": [1, {"x": bson.Regex("a", "i")}]}})
    client["other-db"]["with.dots"].create_index([("text", "text")])
    shop.create_collection("empty")


def started(*servers):
    for server in servers:
        server.start()


def many(client, count, name="many"):
    for start in range(0, count, 10_000):
        client.shop[name].insert_many([{"_id": bson.ObjectId(), "n": n, "s": "s" * (n % 40)} for n in range(start, start + 10_000)])


@test
def all_kinds_of_things_from_a_stand_alone_server():
    with Two(Server(BINARY), Server(BINARY)) as (source, target):
        with connect(source) as client:
            fill(client)
        said = moved(source, target, "--dry-run")
        assert "the target takes all" in said and "500 documents" in said, said
        with connect(target) as client:
            equal([name for name in client.list_database_names() if name not in ("admin", "config", "local")], [])
        moved(source, target, "--cutover")
        same(source, target)
        assert "is at the target already" in moved(source, target, "--cutover", code=1)
        with connect(target) as client:
            client.shop.checked.update_one({"n": 7}, {"$set": {"n": 7.0}}, bypass_document_validation=True)
            client.shop.ids.delete_one({"_id": None})
        said = moved(source, target, "--verify", code=2)
        assert "shop.checked: 1 documents differ" in said and "shop.ids: 1 documents differ" in said, said
        moved(source, target, "--drop", "--follow", "none", "--include", "shop", "--exclude", "shop.checked")
        said = moved(source, target, "--verify", code=2)
        assert "shop.ids" in said and "shop.ids: 1 documents differ" not in said, said
        moved(source, target, "--drop", "--cutover", uri=f"mongodb://127.0.0.1:1,127.0.0.1:{source.port}")
        same(source, target)


@test
def from_a_replica_set_with_writes_and_kills():
    with Two(Server(BINARY, replica_set="rs0"), Server(BINARY)) as (source, target):
        with connect(source) as client:
            fill(client)
            many(client, 60_000)
            client.shop.many.create_index("n")
            client.shop.written.create_index("u", unique=True)
        with Writer(source) as writer, connect(source) as ours, connect(target) as theirs:
            for part in (0.1, 0.4, 0.7):
                before = theirs.shop.many.estimated_document_count()
                process = migrate(source, target)
                wait_until("copying", lambda: theirs.shop.many.estimated_document_count() > max(before, part * 60_000) or process.poll() is not None)
                if part == 0.4:
                    # The target crashes; the migration goes on when it is back.
                    target.kill()
                    target.start()
                    wait_until("going on", lambda: theirs.shop.many.estimated_document_count() > 0.5 * 60_000 or process.poll() is not None)
                    if process.poll() is not None:
                        # It had not begun to copy yet.
                        said = finish(process, code=1)
                        assert "connect" in said.lower(), said
                        continue
                process.kill()
                process.communicate()
            with connect(target) as client:
                states = list(client.frond_migrate.state.find({"range_of": re.compile("shop.many$"), "done": True}))
                assert states, "no range was done when it was killed"
            process = migrate(source, target)
            wait_until("the copy", lambda: theirs.shop.many.estimated_document_count() >= 60_000)
            wait_until("the copy", lambda: theirs.shop.written.estimated_document_count() > 0)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process = migrate(source, target)
            wait_until("following", lambda: theirs.frond_migrate.state.find_one({"phase": "follow"}))
            target.kill()
            target.start()
            # What no update of documents is, too.
            ours.shop.written.create_index("a")
            ours.shop.last.rename("last_of_all")
            ours.shop.drop_collection("names")
            ours.shop.checked.drop_index("some")
            ours.shop.command("collMod", "checked", validator={"n": {"$gte": 0}})
            ours.created.things.insert_one({"_id": "new", "t": bson.Timestamp(1, 2)})
            ours.drop_database("other-db")
            with ours.start_session() as session, session.start_transaction():
                ours.shop.bank.insert_one({"_id": 1, "sum": 5}, session=session)
                ours.shop.many.delete_many({"n": {"$lt": 50}}, session=session)
            # A unique key that changes its owner.
            ours.shop.keys.create_index("k", unique=True)
            ours.shop.keys.insert_many([{"_id": 1, "k": "a"}, {"_id": 2, "k": "b"}])
            for _ in range(5):
                ours.shop.keys.update_one({"_id": 1}, {"$set": {"k": "c"}})
                ours.shop.keys.update_one({"_id": 2}, {"$set": {"k": "a"}})
                ours.shop.keys.update_one({"_id": 1}, {"$set": {"k": "b"}})
                ours.shop.keys.update_one({"_id": 2}, {"$set": {"k": "d"}})
                ours.shop.keys.update_one({"_id": 1}, {"$set": {"k": "a"}})
                ours.shop.keys.update_one({"_id": 2}, {"$set": {"k": "b"}})
            writes = writer.writes
            wait_until("more writes", lambda: writer.writes > writes + 50)
            writer.stop()
            process.send_signal(signal.SIGINT)
            said = finish(process)
            assert "caught up" in said and "shop.many: 59950 documents, equal" in said, said
        same(source, target)


@test
def by_a_change_stream():
    with Two(Server(BINARY, replica_set="rs0"), Server(BINARY)) as (source, target):
        with connect(source) as client:
            fill(client)
        with Writer(source) as writer, connect(source) as ours, connect(target) as theirs:
            process = migrate(source, target, "--follow", "change-stream")
            wait_until("the copy", lambda: theirs.shop.written.estimated_document_count() > 100)
            ours.shop.written.create_index("a")
            ours.shop.checked.rename("renamed")
            ours.shop.drop_collection("names")
            process.kill()
            process.communicate()
            writes = writer.writes
            wait_until("more writes", lambda: writer.writes > writes + 50)
            writer.stop()
            said = moved(source, target, "--cutover")
            assert "a change stream" in said, said
        same(source, target)


@test
def from_a_stand_alone_server_with_writes():
    with Two(Server(BINARY), Server(BINARY)) as (source, target):
        with connect(source) as client:
            fill(client)
        with Writer(source) as writer, connect(source) as ours, connect(target) as theirs:
            process = migrate(source, target)
            wait_until("the copy", lambda: theirs.shop.written.estimated_document_count() > 100)
            ours.shop.drop_collection("names")
            ours.shop.last.insert_many([{"n": n} for n in range(5)])
            ours.shop.fresh.insert_one({"_id": 1})
            writes = writer.writes
            wait_until("more writes", lambda: writer.writes > writes + 50)
            await_following(theirs, process)
            writer.stop()
            process.send_signal(signal.SIGINT)
            said = finish(process)
            assert "documents repaired" in said, said
        same(source, target)


@test
def by_the_opcodes_of_the_oldest_servers():
    with Two(Server(BINARY), Server(BINARY)) as (source, target):
        with connect(source) as client:
            fill(client)
            many(client, 20_000)
            client.shop.few.drop()
        moved(source, target, "--cutover", "--oldest-protocol")
        same(source, target)


@test
def users_log_in_at_the_target():
    old = ["--setParameter", "authenticationMechanisms=MONGODB-CR,SCRAM-SHA-1,SCRAM-SHA-256"]
    with Two(SecuredServer(BINARY, old), SecuredServer(BINARY)) as (source, target):
        operator, password = SecuredServer.ADMIN
        address = f"mongodb://{operator}:{password.replace(' ', '%20')}@127.0.0.1:"
        with pymongo.MongoClient(f"{address}{source.port}") as admin:
            admin.own.command("createRole", "reader", privileges=[{"resource": {"db": "own", "collection": "c"}, "actions": ["find"]}], roles=[])
            admin.own.command("createUser", "anna", pwd="for anna", roles=["reader"])
            admin.own.command("createUser", "bert", pwd="for bert", roles=["readWrite"], mechanisms=["SCRAM-SHA-1"])
            admin.own.command("createUser", "carl", pwd="for carl", roles=["read"], mechanisms=["MONGODB-CR"])
            admin.admin.command("createUser", "old", pwd="for old", roles=["root"], mechanisms=["MONGODB-CR"])
            admin.own.c.insert_one({"_id": 1})
        login = f"mongodb://old:for%20old@127.0.0.1:{source.port}/?authMechanism=MONGODB-CR"
        command = [BINARY, "migrate", "--from", login, "--to", f"{address}{target.port}", "--cutover"]
        finish(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for user in ("anna", "bert", "carl"):
            with pymongo.MongoClient("127.0.0.1", target.port, username=user, password=f"for {user}", authSource="own") as client:
                equal(client.own.c.find_one(), {"_id": 1})


@test
def from_mongo_java_server():
    with Two(JavaServer(), Server(BINARY)) as (source, target):
        with connect(source) as client:
            client.shop.things.insert_many([{"_id": n, "s": f"s{n}", "d": n / 4} for n in range(5_000)])
            client.shop.things.insert_many([{"s": n} for n in range(1_000)])
            client.shop.things.create_index("s")
        with Writer(source) as writer, connect(target) as theirs:
            process = migrate(source, target, "--no-users")
            wait_until("the copy", lambda: theirs.shop.things.estimated_document_count() >= 1_000 or process.poll() is not None)
            process.kill()
            process.communicate()
            process = migrate(source, target, "--no-users")
            await_following(theirs, process)
            writes = writer.writes
            wait_until("more writes", lambda: writer.writes > writes + 10)
            writer.stop()
            process.send_signal(signal.SIGINT)
            finish(process)
        same(source, target, with_indexes=False)


@test
def a_time_series_that_is_written_meanwhile_is_named():
    series = {"timeField": "at", "metaField": "where"}
    with Two(Server(BINARY, replica_set="rs0"), Server(BINARY)) as (source, target):
        with connect(source) as client, connect(target) as theirs:
            client.shop.create_collection("weather", timeseries=series)
            client.shop.weather.insert_many([{"_id": n, "at": datetime.datetime(2026, 1, 2), "where": n} for n in range(10)])
            process = migrate(source, target, "--no-verify")
            await_following(theirs, process)
            client.shop.weather.insert_one({"_id": 10, "at": datetime.datetime(2026, 1, 3), "where": 1})
            process.send_signal(signal.SIGINT)
            said = finish(process, code=2)
            assert "changes of the time series shop.weather are not followed" in said, said
            assert "shop.weather" in said.split("switching")[1], said
            said = moved(source, target, "--cutover", "--restart", "--drop", "--no-verify")
            equal(theirs.shop.weather.count_documents({}), 11)


@test
def users_that_the_source_hides_are_named():
    with Two(SecuredServer(BINARY), Server(BINARY)) as (source, target):
        operator, password = SecuredServer.ADMIN
        with pymongo.MongoClient(f"mongodb://{operator}:{password.replace(' ', '%20')}@127.0.0.1:{source.port}") as admin:
            admin.own.c.insert_one({"_id": 1})
            # As backup, but without the right to read users.
            privileges = [{"resource": {"db": "", "collection": ""}, "actions": ["find", "listCollections", "listIndexes", "collStats"]},
                          {"resource": {"cluster": True}, "actions": ["listDatabases", "serverStatus"]}]
            admin.admin.command("createRole", "copier", privileges=privileges, roles=[])
            admin.admin.command("createUser", "cora", pwd="for cora", roles=["copier"])
        login = f"mongodb://cora:for%20cora@127.0.0.1:{source.port}/?authSource=admin"
        options = ("--follow", "none", "--cutover")
        said = finish(migrate(source, target, *options, uri=login), code=2)
        assert "users and roles: the source does not show them" in said and "--no-users" in said, said
        said = finish(migrate(source, target, *options, "--dry-run", uri=login), code=2)
        assert "users and roles: the source does not show them" in said, said
        finish(migrate(source, target, *options, "--no-users", uri=login))


@test
def a_collection_that_the_target_refuses_is_named():
    with Two(Server(BINARY), JavaServer()) as (source, target):
        with connect(source) as client:
            client.shop.create_collection("last", capped=True, size=100_000)
            client.shop.last.insert_one({"_id": 1})
        said = moved(source, target, "--dry-run", code=2)
        assert "shop.last" in said and "capped" in said, said
        assert "--allow-refused" in moved(source, target, "--cutover", "--no-users", code=2)
        said = moved(source, target, "--cutover", "--no-users", "--allow-refused")
        assert "shop.last" in said and "capped" in said, said
        same(source, target, with_indexes=False)


if __name__ == "__main__":
    run()
