"""Connecting: handshake, server commands, compression, Unix socket, many connections."""

import os
import threading
import urllib.parse

from harness import addresses
from harness.tap import equal, of_one_server, raises, test
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandListener

from . import fresh


@test
def the_handshake_says_what_drivers_need(client):
    hello = client.admin.command("hello")
    equal((hello["isWritablePrimary"], hello["ok"]), (True, 1.0))
    equal(hello["maxBsonObjectSize"], 16 * 1024 * 1024)
    equal(hello["maxMessageSizeBytes"], 48_000_000)
    equal(hello["maxWriteBatchSize"], 100_000)
    equal((hello["minWireVersion"], hello["maxWireVersion"]), (0, 25))
    equal(hello["logicalSessionTimeoutMinutes"], 30)
    equal(hello["readOnly"], False)
    equal(client.admin.command("isMaster")["ismaster"], True)
    equal(client.admin.command("ismaster")["ismaster"], True)
    offered = client.admin.command("hello", compression=["zstd", "snappy", "nosuch", "zlib"])
    equal(set(offered["compression"]), {"zstd", "snappy", "zlib"})


@test
def server_commands_that_drivers_and_tools_send(client):
    admin = client.admin
    equal(admin.command("ping")["ok"], 1.0)
    build = admin.command("buildInfo")
    assert build["version"].startswith("8."), build["version"]
    equal((build["versionArray"][0], build["bits"], build["maxBsonObjectSize"]), (8, 64, 16 * 1024 * 1024))
    equal(client.server_info()["ok"], 1.0)
    equal("system" in admin.command("hostInfo"), True)
    equal("you" in admin.command("whatsmyuri"), True)
    equal(admin.command("connectionStatus")["authInfo"]["authenticatedUsers"], [])
    parameter = admin.command("getParameter", 1, featureCompatibilityVersion=1)
    equal(parameter["featureCompatibilityVersion"], {"version": "8.0"})
    log = admin.command("getLog", "startupWarnings")
    equal((log["totalLinesWritten"], log["log"]), (len(log["log"]), log["log"]))
    equal("argv" in admin.command("getCmdLineOpts"), True)
    equal(admin.command("endSessions", [])["ok"], 1.0)


@test
@of_one_server
def server_status_has_what_mongostat_reads(client):
    before = client.admin.command("serverStatus")
    for section in ("opcounters", "connections", "mem", "network", "uptime", "pid", "version", "localTime", "host"):
        assert section in before, section
    database = fresh(client, "status")
    database.c.insert_many([{"_id": n} for n in range(10)])
    list(database.c.find().batch_size(3))
    database.c.update_one({"_id": 1}, {"$set": {"x": 1}})
    database.c.delete_one({"_id": 2})
    after = client.admin.command("serverStatus")
    gained = {k: after["opcounters"][k] - before["opcounters"][k] for k in ("insert", "query", "update", "delete")}
    equal(gained, {"insert": 10, "query": 1, "update": 1, "delete": 1})
    assert after["opcounters"]["getmore"] - before["opcounters"]["getmore"] >= 3
    assert after["network"]["bytesIn"] > before["network"]["bytesIn"]
    assert after["network"]["bytesOut"] > before["network"]["bytesOut"]
    assert after["network"]["numRequests"] > before["network"]["numRequests"]
    assert after["connections"]["current"] >= 1
    assert after["mem"]["resident"] > 0


class Started(CommandListener):
    """Records the names of commands."""

    def __init__(self):
        self.names = []

    def started(self, event):
        self.names.append(event.command_name)

    def succeeded(self, event):
        pass

    def failed(self, event):
        self.names.append(f"{event.command_name} failed")


@test
@of_one_server
def every_compressor_carries_all_commands(client):
    uri = addresses.first()
    for compressor in ("zlib", "snappy", "zstd"):
        listener = Started()
        before = client.admin.command("serverStatus")["network"]
        with MongoClient(uri, compressors=compressor, event_listeners=[listener]) as compressed:
            collection = compressed.compression[compressor]
            collection.drop()
            documents = [{"_id": n, "text": "compress me " * 50} for n in range(1000)]
            collection.insert_many(documents)
            equal(list(collection.find().sort("_id", 1)), documents, compressor)
            raises(OperationFailure, compressed.admin.command, "nosuch")
        equal([name for name in listener.names if name.endswith("failed")], ["nosuch failed"])
        after = client.admin.command("serverStatus")["network"]
        # 600 kB each way, uncompressed.
        assert after["physicalBytesIn"] - before["physicalBytesIn"] < 200_000, (compressor, before, after)
        assert after["physicalBytesOut"] - before["physicalBytesOut"] < 200_000, (compressor, before, after)


@test
def the_unix_socket_serves_as_tcp_does(client):
    path = urllib.parse.quote_plus(os.environ["FROND_SOCKET"])
    with MongoClient(f"mongodb://{path}", serverSelectionTimeoutMS=5000) as local:
        local.unix.c.drop()
        local.unix.c.insert_one({"_id": 1})
    equal(client.unix.c.find_one(), {"_id": 1})


@test
def a_hundred_connections_at_once(client):
    collection = fresh(client, "connections").c
    problems = []

    def work(number):
        try:
            with MongoClient(os.environ["FROND_URI"]) as own:
                own.connections.c.insert_one({"_id": number})
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(problems, [])
    equal(collection.count_documents({}), 100)


@test
@of_one_server
def read_preferences_and_concerns_of_one_server(client):
    from pymongo import ReadPreference
    from pymongo.read_concern import ReadConcern

    database = fresh(client, "reads")
    database.c.insert_one({"_id": 1})
    for preference in (ReadPreference.PRIMARY_PREFERRED, ReadPreference.SECONDARY, ReadPreference.NEAREST):
        equal(database.get_collection("c", read_preference=preference).find_one(), {"_id": 1})
    for level in ("local", "available", "majority"):
        equal(database.get_collection("c", read_concern=ReadConcern(level)).find_one(), {"_id": 1}, level)
