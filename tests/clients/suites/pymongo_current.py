"""The newest PyMongo, as current applications use it."""

import os

import pymongo
from harness import addresses, tap

# Each module adds its tests; they run in this order.
from pymongo_tests import aggregation, capped, catalog, collations, connection, crud, cursors, errors, geo, index_kinds, indexes, large_documents, mongodb_8, rolling_data, stages, text, transactions, updates, validators, views, writes  # noqa: F401

client = pymongo.MongoClient(os.environ["FROND_URI"], serverSelectionTimeoutMS=60_000)
first = pymongo.MongoClient(addresses.first(), serverSelectionTimeoutMS=60_000)
tap.run(client, of_one_server=(first,))
