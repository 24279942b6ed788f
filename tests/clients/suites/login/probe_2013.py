"""Logs in with PyMongo 2.4 (January 2013), which knows MONGODB-CR only: addresses and credentials of a file."""

import json
import sys

from harness import legacy_python  # noqa: F401  (must come before the driver)
from pymongo import MongoClient


def probe(case):
    client = MongoClient("127.0.0.1", case["port"])
    try:
        if case["user"] and not client[case["database"]].authenticate(case["user"], case["password"]):
            # It does not tell why.
            return {"name": case["name"], "error": "authentication failed"}
        client.own.c.find_one()
        client.own.c.insert({"by": "PyMongo 2.4"})
        status = client.own.command("connectionStatus")
        users = status["authInfo"]["authenticatedUsers"]
        return {"name": case["name"], "users": [f"{user['user']}@{user['db']}" for user in users]}
    except Exception as error:  # what the driver says is the result
        return {"name": case["name"], "error": str(error)}
    finally:
        client.disconnect()


with open(sys.argv[1], encoding="utf-8") as file:
    for one in json.load(file):
        print(json.dumps(probe(one)), flush=True)
