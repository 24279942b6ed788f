"""Logs in with each connection string of a file, as login.py describes, with PyMongo."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

from pymongo import MongoClient


def probe(case):
    try:
        with MongoClient(case["uri"]) as client:
            status = client.own.command("connectionStatus")
            client.own.c.find_one()
        users = status["authInfo"]["authenticatedUsers"]
        return {"name": case["name"], "users": [f"{user['user']}@{user['db']}" for user in users]}
    except Exception as error:  # what the driver says is the result
        return {"name": case["name"], "error": f"{getattr(error, 'code', '')} {error}"}


with open(sys.argv[1], encoding="utf-8") as file:
    cases = json.load(file)
with ThreadPoolExecutor(len(cases)) as pool:
    for result in pool.map(probe, cases):
        print(json.dumps(result))
