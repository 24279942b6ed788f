"""The bank's data, and what must be true of it at any moment.

An account is a document in one of three collections. `card` has a unique index and changes with each transfer; `recent`
has a multikey index. A transfer leaves a document of its own with both parties.
"""

from collections import defaultdict

ACCOUNTS = 1_000
BALANCE = 1_000
TOTAL = ACCOUNTS * BALANCE
COLLECTIONS = ["private", "business", "savings"]
RECENT_MAX = 4


def home(number):
    """The collection that an account is opened in; it may move later."""
    return COLLECTIONS[number % len(COLLECTIONS)]


def open_bank(database):
    for name in COLLECTIONS:
        collection = database[name]
        collection.create_index("card", unique=True)
        collection.create_index("recent")
        collection.create_index([("balance", 1), ("owner", -1)])
        collection.insert_many(
            {"_id": n, "owner": f"owner {n}", "card": f"first {n}", "balance": BALANCE, "recent": [], "visits": 0}
            for n in range(ACCOUNTS)
            if home(n) == name
        )
    database.transfers.create_index("parties")
    database.transfers.create_index("serial", unique=True)


def find_account(database, number, session):
    """(collection, document) of an account."""
    first = COLLECTIONS.index(home(number))
    for place in range(len(COLLECTIONS)):
        collection = database[COLLECTIONS[(first + place) % len(COLLECTIONS)]]
        if document := collection.find_one({"_id": number}, session=session):
            return collection, document
    raise AssertionError(f"account {number} is in no collection")


def sum_of(database, session):
    """(accounts, their balances) in all collections."""
    accounts = money = 0
    group = {"$group": {"_id": None, "accounts": {"$sum": 1}, "money": {"$sum": "$balance"}}}
    for name in COLLECTIONS:
        for row in database[name].aggregate([group], session=session):
            accounts += row["accounts"]
            money += row["money"]
    return accounts, money


def balance_by_transfers(database, number, session):
    """What an account must have, by its transfers, and their ids."""
    balance, ids = BALANCE, []
    for transfer in database.transfers.find({"parties": number}, session=session):
        balance += transfer["amount"] if transfer["parties"][1] == number else -transfer["amount"]
        ids.append(transfer["_id"])
    return balance, ids


def problems_of(database):
    """What is wrong when nobody works: each account is compared with all transfers."""
    expected = defaultdict(lambda: BALANCE)
    for transfer in database.transfers.find():
        source, target = transfer["parties"]
        expected[source] -= transfer["amount"]
        expected[target] += transfer["amount"]
    problems, seen = [], set()
    for name in COLLECTIONS:
        for account in database[name].find():
            number = account["_id"]
            if number in seen:
                problems.append(f"account {number} is in two collections")
            seen.add(number)
            if account["balance"] != expected[number]:
                text = f"account {number} has {account['balance']}, by its transfers {expected[number]}"
                problems.append(text)
    if len(seen) != ACCOUNTS:
        problems.append(f"{len(seen)} accounts of {ACCOUNTS}")
    return problems
