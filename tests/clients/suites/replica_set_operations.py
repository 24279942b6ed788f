"""What an operator does with three members: start and stop them, look at them, back one up, restore into a new set."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import pymongo
from harness.ports import adjacent_free_ports, free_port
from harness.replica_set import NAME, ReplicaSet, assert_same
from harness.server import Server
from harness.tap import equal, run, test
from harness.waiting import PATIENCE, wait_until
from pymongo import WriteConcern
from pymongo.errors import PyMongoError

BINARY = os.environ["FROND_BINARY"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SCRIPT = os.path.join(ROOT, "scripts", "replica_set.py")
FOLDER = tempfile.mkdtemp(prefix="frond-set-")
DATA = os.path.join(FOLDER, "set")
MEMBERS = 3
PORT = adjacent_free_ports(MEMBERS)


def script(*arguments, check=True):
    command = [sys.executable, SCRIPT, *map(str, arguments), "--data", DATA]
    if arguments[0] == "start":
        command += ["--program", BINARY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    if check:
        equal(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


def frond(*arguments, check=True):
    done = subprocess.run(
        [BINARY, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False
    )
    if check:
        equal(done.returncode, 0, done.stdout)
    return done.stdout


def member(number):
    """A connection to one member."""
    return pymongo.MongoClient(
        "127.0.0.1", PORT + number, directConnection=True, serverSelectionTimeoutMS=PATIENCE * 1000,
        readPreference="secondaryPreferred",
    )


def whole(**more):
    hosts = ",".join(f"127.0.0.1:{PORT + number}" for number in range(MEMBERS))
    return pymongo.MongoClient(f"mongodb://{hosts}/?replicaSet=rs0", serverSelectionTimeoutMS=PATIENCE * 1000, **more)


def secondary():
    """The number of a member that is a secondary."""
    for number in range(MEMBERS):
        with member(number) as client:
            if client.admin.command("hello").get("secondary"):
                return number
    raise AssertionError("no secondary")


def log_lines(number):
    with open(os.path.join(DATA, f"member-{number + 1}.log"), encoding="utf-8", errors="replace") as log:
        for line in log:
            if line.startswith("{"):
                yield json.loads(line)


def logged(pattern, **attributes):
    """Lines of all members whose message matches, with these attributes."""
    return [
        line
        for number in range(MEMBERS)
        for line in log_lines(number)
        if re.search(pattern, line["msg"]) and attributes.items() <= line.get("attr", {}).items()
    ]


@test
def the_script_starts_a_set_once():
    said = script("start", "--port", PORT, "--members", MEMBERS)
    address = ",".join(f"127.0.0.1:{PORT + number}" for number in range(MEMBERS))
    assert f"mongosh 'mongodb://{address}/?replicaSet=rs0'" in said, said
    status = script("status")
    equal((status.count("primary"), status.count("secondary")), (1, 2), status)
    # Started again it changes nothing; after a stop it goes on with its data.
    equal(script("start", "--port", 1), said)
    with whole() as client:
        client.shop.orders.insert_many([{"_id": n} for n in range(100)])
    script("stop")
    assert "does not answer" in script("status", check=False)
    script("start")
    with whole() as client:
        equal(client.shop.orders.count_documents({}), 100)


@test
def elections_are_logged_with_their_reason():
    with whole() as client:
        status = client.admin.command("replSetGetStatus")
        term = status["term"]
        reason = next(line for line in logged("Transition to primary complete", term=term))
        equal(reason["attr"]["reason"], "electionTimeout")
        client.admin.command("replSetStepDown", 5)
        wait_until("another primary", lambda: client.admin.command("replSetGetStatus")["term"] > term, passing=PyMongoError)
        lost = wait_until("the line", lambda: logged("Stepping down from primary", term=term))
        equal(lost[0]["attr"]["reason"], "it hands over to another member")
        # The stop of the set before has handed over, too.
        handed = lambda: [one for one in logged("the primary hands over to this server") if one["attr"]["term"] > term]
        line = wait_until("the line", handed)
        equal(line[0]["attr"]["reason"], "stepUpRequestSkipDryRun")
        wait_until("the other members", lambda: len(logged("Another member is the primary", term=line[0]["attr"]["term"])) == 2)
    number = secondary()
    with member(number) as client:
        client.admin.command("replSetStepUp", 1)
        metrics = client.admin.command("serverStatus")["electionMetrics"]
        assert metrics["stepUpCmd"]["successful"] >= 1, metrics
        equal(client.admin.command("replSetGetStatus")["electionCandidateMetrics"]["lastElectionReason"], "stepUpRequest")


@test
def members_that_are_lost_and_found_are_logged():
    number = secondary()
    host = f"127.0.0.1:{PORT + number}"
    with open(os.path.join(DATA, f"member-{number + 1}.pid"), encoding="ascii") as file:
        os.kill(int(file.read()), 9)
    wait_until("the line", lambda: logged("Member is in new state", hostAndPort=host, newState="(not reachable/healthy)"))
    with whole() as client:

        def is_down():
            known = client.admin.command("serverStatus")["frond"]["replicaSet"]["members"][host]
            return not known["isUp"] and "lagSeconds" not in known

        wait_until("the primary to notice", is_down)
    report = frond("doctor", "--skipSpeed", "--dbpath", DATA, "--uri", f"mongodb://127.0.0.1:{PORT + (number + 1) % MEMBERS}/", check=False)
    assert f"{host} does not answer" in report, report
    before = len(logged("Member is in new state", hostAndPort=host, newState="SECONDARY"))
    script("start")
    wait_until("the line", lambda: len(logged("Member is in new state", hostAndPort=host, newState="SECONDARY")) > before)


@test
def doctor_looks_at_the_set():
    report = json.loads(frond("doctor", "--skipSpeed", "--json", "--dbpath", DATA, "--uri", f"mongodb://127.0.0.1:{PORT}/", check=False))
    found = [(one["level"], one["what"]) for one in report["findings"] if one["area"] == "replica set"]
    equal([level for level, _ in found], ["ok", "note"], found)
    assert "rs0 has 3 members and 3 votes; the primary is 127.0.0.1:" in found[0][1], found
    equal(found[1][1], "all members are on this machine")
    # With the configuration of a member it needs no address.
    config = os.path.join(FOLDER, "frond.conf")
    with open(config, "w", encoding="ascii") as file:
        file.write(f"net: {{port: {PORT + 1}}}\nreplication: {{replSetName: rs0}}\nstorage: {{dbPath: {DATA}/member-2}}\n")
    text = frond("doctor", "--skipSpeed", "--config", config, check=False)
    assert found[0][1] in text, text


@test
def status_shows_all_members():
    with whole() as client:
        client.shop.get_collection("orders", write_concern=WriteConcern(MEMBERS)).insert_one({"_id": "all"})
        status = client.admin.command("serverStatus")
        equal(status["repl"]["isWritablePrimary"], True)
        equal(len(status["repl"]["hosts"]), MEMBERS)
        part = status["frond"]["replicaSet"]
        equal((part["isPrimary"], part["hasPrimary"], len(part["members"])), (True, True, MEMBERS))
        assert part["messages"]["bytesSent"] > 0 and part["waits"]["num"] > 0, part
        wait_until(
            "no lag",
            lambda: all(
                one.get("lagSeconds") == 0 for one in client.admin.command("serverStatus")["frond"]["replicaSet"]["members"].values()
            ),
        )


def begun_anew(backup, name, expected):
    """Restores a backup, and begins a new set with it, which must have these documents."""
    folder = os.path.join(FOLDER, name)
    frond("restore", "--from", backup, "--dbpath", os.path.join(folder, "db"), "--quiet")
    port = free_port()
    with Server(BINARY, folder=folder, port=port, options=["--replSet", name]) as server:
        server.start()
        with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
            client.admin.command("replSetInitiate", {"_id": name, "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]})
            wait_until("the primary", lambda: client.admin.command("hello")["isWritablePrimary"])
            equal(client.shop.orders.count_documents({}), expected)
            client.shop.orders.insert_one({"_id": "after"})
        server.stop()


@test
def a_secondary_is_backed_up_and_restored_into_a_new_set():
    backup = os.path.join(FOLDER, "backup")
    with whole() as client:
        client.shop.get_collection("orders", write_concern=WriteConcern(MEMBERS)).insert_one({"_id": "last"})
        count = client.shop.orders.count_documents({})
    frond("backup", "--uri", f"mongodb://127.0.0.1:{PORT + secondary()}/?directConnection=true", "--out", backup, "--quiet")
    begun_anew(backup, "rs1", count)


def follows(member):
    """Whether it is a secondary. As soon as it shows the set it shows all of it."""
    hello = member.hello()
    if "setName" in hello:
        assert "lastWrite" in hello and "me" in hello, hello
    return hello.get("secondary")


@test
def new_members_copy_what_was_there_before_the_set():
    with ReplicaSet(BINARY) as added:
        first, *others = added.members
        options, first.options = first.options, []
        first.start()
        first.client().early.c.insert_many([{"_id": n, "text": "x" * 200} for n in range(5000)])
        first.stop()
        first.forget_clients()
        first.options = options
        first.start()
        first.command("replSetInitiate", {"_id": NAME, "members": [{"_id": 0, "host": first.host}]})
        added.wait_for_primary([first])
        for other in others:
            other.start()
            new = {"_id": other.number, "host": other.host}
            added.reconfigure(lambda config, new=new: config["members"].append(new))
            wait_until("it follows", lambda other=other: follows(other), passing=(PyMongoError,))
            with open(other.log_path, encoding="utf-8") as log:
                lines = [json.loads(line) for line in log if line.startswith("{")]
            copied = [line["attr"]["source"] for line in lines if line["msg"] == "The copy of another member is complete"]
            # A secondary if one has been heard of, otherwise the primary.
            assert copied and copied[-1] in {one.host for one in added.others(other)}, copied
        added.catch_up(others)
        assert_same(added)


@test
def a_new_set_begins_with_the_last_member():
    rest = secondary()
    with member(rest) as client:
        count = client.shop.orders.count_documents({})
    for number in range(MEMBERS):
        if number != rest:
            with open(os.path.join(DATA, f"member-{number + 1}.pid"), encoding="ascii") as file:
                os.kill(int(file.read()), 9)
    with member(rest) as client:
        states = lambda: [one["health"] for one in client.admin.command("replSetGetStatus")["members"]]  # noqa: E731
        wait_until("the loss of the others", lambda: states().count(0.0) == 2)
    rescue = os.path.join(FOLDER, "rescue")
    frond("backup", "--uri", f"mongodb://127.0.0.1:{PORT + rest}/?directConnection=true", "--out", rescue, "--quiet")
    begun_anew(rescue, "rs0", count)


try:
    run()
finally:
    script("stop", check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)
