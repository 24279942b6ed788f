"""A user without roles tries to take all memory, and to keep the server busy for ever, with expressions over one document."""

import os
import threading

import pymongo
from harness.scram import SecuredServer
from harness.tap import equal, run, test
from harness.waiting import wait_for_operations, wait_until
from pymongo.errors import OperationFailure, PyMongoError

BINARY = os.environ["FROND_BINARY"]
USER, PASSWORD = "mallory", "let me in"
# More than the tickets for reads that one user gets.
OPERATIONS = 80

# What one operation's expressions may hold, what the allocator keeps, and a reply.
GROWTH_KIB = 250 << 10

# It would run for hours.
NESTED = {"$map": {"input": {"$range": [0, 1_000_000]}, "in": {"$sum": {"$range": [0, 100_000]}}}}


def over(documents, expression):
    """A pipeline that evaluates an expression over documents of its own."""
    return [{"$documents": documents}, {"$project": {"r": expression}}]


def endless(comment):
    return {"aggregate": 1, "pipeline": over([{}], {"$size": NESTED}), "cursor": {}, "comment": comment}


def of_group(comment):
    return {"command.comment": comment, "command.aggregate": 1}


class Users:
    """The server, its operator, and a user without roles."""

    def __init__(self, server):
        self.server = server
        self.root = pymongo.MongoClient(server.admin_uri)
        self.root.admin.command("createUser", USER, pwd=PASSWORD, roles=[])
        self.user = self.client()

    def client(self, **options):
        return pymongo.MongoClient("localhost", self.server.port, username=USER, password=PASSWORD, **options)

    def peak_kib(self):
        with open(f"/proc/{self.server.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

    def connections(self):
        stages = [{"$currentOp": {"allUsers": True, "idleConnections": True}}, {"$match": {"effectiveUsers.user": USER}}]
        return len(list(self.root.admin.aggregate(stages)))

    def in_background(self, command, count=1, **options):
        """Runs a command `count` times at once. Returns a function that waits for them and returns their errors."""
        errors = []
        # With a client for each, the log-ins and monitors of so many clients would take longer than the test.
        client = self.client(minPoolSize=count, maxPoolSize=count, **options)
        # Beside the operations, log-ins would get little processor time.
        wait_until(f"{count} connections are logged in", lambda: self.connections() >= count)

        def operate():
            try:
                client.admin.command(command)
                errors.append(None)
            except PyMongoError as error:
                errors.append(error)

        threads = [threading.Thread(target=operate) for _ in range(count)]
        for thread in threads:
            thread.start()

        def joined():
            for thread in threads:
                thread.join()
            client.close()
            return errors

        return joined

    def kill(self, operations):
        for operation in operations:
            self.root.admin.command("killOp", op=operation["opid"])


def code_of(call):
    try:
        call()
        return None
    except OperationFailure as error:
        return error.code


@test
def what_an_expression_makes_of_much_is_refused(users):
    long = {"s": "a" * 4_000_000, "w": "b" * 4_000_000}
    wide = {"$concat": ["$s", "$w"] * 7}
    before = users.peak_kib()
    for expression in [
        {"$strLenBytes": {"$replaceAll": {"input": "$s", "find": "a", "replacement": "$w"}}},
        {"$size": [[wide] * 50]},
        {"$size": {"$concatArrays": [{"$range": [0, 4_000_000]}] * 50}},
        {"$size": {"$zip": {"inputs": [{"$range": [0, 4_000_000]}] * 50}}},
        {"$size": {"$map": {"input": {"$range": [0, 1000]}, "in": "$s"}}},
        {"$reduce": {"input": {"$range": [0, 64]}, "initialValue": "$s", "in": {"$concat": ["$$value", "$$value"]}}},
        {"$let": {"vars": {f"v{n}": wide for n in range(50)}, "in": 1}},
    ]:
        pipeline = over([long], expression)
        code = code_of(lambda pipeline=pipeline: list(users.user.admin.aggregate(pipeline)))
        assert code in (146, 10334), f"{code}: {str(expression)[:200]}"
    grown = users.peak_kib() - before
    assert grown < GROWTH_KIB, f"{grown} KiB more"


@test
def expressions_are_interrupted_inside_one_document(users):
    equal(code_of(lambda: users.user.admin.command({**endless("limited"), "maxTimeMS": 50})), 50)
    joined = users.in_background(endless("killed"))
    users.kill(wait_for_operations(users.root, 1, of_group("killed")))
    equal([error.code for error in joined()], [11601])
    # The client gives up and closes its connection.
    joined = users.in_background(endless("left"), socketTimeoutMS=300)
    assert isinstance(joined()[0], PyMongoError)
    wait_for_operations(users.root, 0, of_group("left"))


@test
def filters_and_updates_are_interrupted_inside_one_document(users):
    items = users.root.test.items
    document = {"_id": 1, "l": list(range(100_000)), "d": [{"a": n} for n in range(50_000)]}
    items.insert_one(document)

    def none_of(name):
        return [{name: -n - 1} for n in range(50_000)]

    update = {"q": {"_id": 1}}
    for command in [
        {"find": "items", "filter": {"$or": [{"l": {"$elemMatch": {"$lt": -n}}} for n in range(50_000)]}},
        {"update": "items", "updates": [{**update, "u": {"$pull": {"d": {"$or": none_of("a")}}}}]},
        {
            "update": "items",
            "updates": [{**update, "u": {"$set": {"l.$[e]": 0}}, "arrayFilters": [{"$or": none_of("e")}]}],
        },
    ]:
        limited = {**command, "maxTimeMS": 300}
        equal(code_of(lambda limited=limited: users.root.test.command(limited)), 50, next(iter(command)))
    equal(items.find_one(), document)


@test
def one_user_does_not_keep_others_waiting(users):
    items = users.root.test.others
    items.insert_many([{"_id": n} for n in range(100)])
    joined = users.in_background(endless("many"), OPERATIONS)
    operations = wait_for_operations(users.root, OPERATIONS, of_group("many"))
    held = users.root.admin.command("serverStatus")["queues"]["execution"]["read"]
    assert held["out"] <= held["totalTickets"], held
    for n in range(100):
        equal(items.find_one({"_id": n}), {"_id": n})
    users.kill(operations)
    equal({error.code for error in joined()}, {11601})


def main():
    with SecuredServer(BINARY) as server:
        server.start()
        run(Users(server))


if __name__ == "__main__":
    main()
