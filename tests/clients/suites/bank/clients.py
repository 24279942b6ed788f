"""The bank's clients: threads of a process of their own, which report what they did when they are told to stop."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

from harness.transactions import ABORTED, COMMITTED, TRANSIENT, abort, commit, connect, is_interruption, is_refusal
from pymongo.errors import ConnectionFailure, DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from .accounts import ACCOUNTS, COLLECTIONS, RECENT_MAX, TOTAL, balance_by_transfers, find_account, home, sum_of

DATABASE = "bank"
# SnapshotTooOld and SnapshotUnavailable
SNAPSHOT_GONE = (239, 246)
SNAPSHOT, MAJORITY = ReadConcern("snapshot"), WriteConcern("majority")


@dataclass
class Report:
    """What the threads of one process did."""

    # Transfers by what the server said in the end.
    committed: dict = field(default_factory=dict)
    aborted: set = field(default_factory=set)
    unknown: dict = field(default_factory=dict)
    # Transfers that readers saw.
    seen: set = field(default_factory=set)
    visits: int = 0
    visits_unknown: int = 0
    counts: Counter = field(default_factory=Counter)
    problems: list = field(default_factory=list)


class Server:
    """The address of a server, for `connect`."""

    def __init__(self, uri):
        self.uri = uri


def work(uri, first, writers, readers, visitors, seed, stop, reports):
    """The body of a process: runs its threads until `stop` is set, then puts its report."""
    report, lock, stopping = Report(), threading.Lock(), threading.Event()
    source = random.Random(seed)
    kinds = [(_transfer, writers), (_read, readers), (_visit, visitors)]
    with connect(Server(uri), maxPoolSize=writers + readers + visitors) as client:

        def run(step, number, own):
            serial = 0
            while not stopping.is_set():
                serial += 1
                try:
                    step(client, number, serial, own, report, lock)
                except Exception as error:  # reported, and the client goes on
                    with lock:
                        report.problems.append(f"{step.__name__.strip('_')}: {error!r}")
                        if len(report.problems) > 50:
                            return

        threads = []
        for step, count in kinds:
            for _ in range(count):
                own = random.Random(source.random())
                threads.append(threading.Thread(target=run, args=(step, first + len(threads), own), daemon=True))
        for thread in threads:
            thread.start()
        stop.wait()
        stopping.set()
        for thread in threads:
            thread.join(90)
        with lock:
            report.problems += [f"{t.name} did not stop" for t in threads if t.is_alive()]
            reports.put(report)


def _transfer(client, number, serial, source, report, lock):
    """One transaction: a transfer, or the move of an account to another collection."""
    database = client[DATABASE]
    moves = source.random() < 0.05
    name = f"{number}-{serial}"
    parties = source.sample(range(ACCOUNTS), 2)
    transfer = {
        "_id": name,
        "serial": number * 10_000_000 + serial,
        "parties": parties,
        "amount": source.randint(1, 50),
    }
    with client.start_session() as session:
        session.start_transaction(read_concern=SNAPSHOT, write_concern=MAJORITY)
        problems = []
        kind = "moves" if moves else "transfers"
        try:
            if moves:
                _move(database, parties[0], session, source)
            else:
                _book(database, transfer, session, source)
            gives_up = source.random() < 0.05
            if gives_up:
                abort(session, problems)
                outcome, kind = ABORTED, f"{kind} given up"
            else:
                outcome = commit(session, problems)
        except _Refused:
            abort(session, problems)
            outcome, kind = ABORTED, "duplicate cards refused"
        except PyMongoError as error:
            if not is_interruption(error):
                problems.append(f"in a transaction: {error!r}")
            kind = "aborted by lost connections" if isinstance(error, ConnectionFailure) else "conflicts"
            abort(session, problems)
            outcome = ABORTED
        else:
            kind = f"{kind} {outcome}" if not gives_up else kind
    with lock:
        report.counts[kind] += 1
        report.problems += problems
        if not moves:
            if outcome == COMMITTED:
                report.committed[name] = transfer
            elif outcome == ABORTED:
                report.aborted.add(name)
            else:
                report.unknown[name] = transfer


class _Refused(Exception):
    """A duplicate was refused, as it must be."""


def _book(database, transfer, session, source):
    """Moves money from one account to another."""
    steps = []
    for number, sign in zip(transfer["parties"], (-1, 1)):
        collection, account = find_account(database, number, session)
        steps.append((collection, account, sign * transfer["amount"]))
    for collection, account, amount in steps:
        card = f"{transfer['_id']} of {account['_id']}"
        recent = {"$each": [transfer["_id"]], "$slice": -RECENT_MAX}
        done = collection.update_one(
            {"_id": account["_id"]},
            {"$inc": {"balance": amount}, "$set": {"card": card}, "$push": {"recent": recent}},
            session=session,
        )
        assert done.modified_count == 1, done.raw_result
        changed = collection.find_one({"card": card}, session=session)
        assert changed["balance"] == account["balance"] + amount, "a transaction does not see its own write"
        assert changed["recent"][-1] == transfer["_id"], "a transaction does not see its own write"
    if steps[0][0].name == steps[1][0].name and source.random() < 0.05:
        # Both would have the same card.
        taken = f"{transfer['_id']} of {transfer['parties'][0]}"
        try:
            steps[1][0].update_one({"_id": transfer["parties"][1]}, {"$set": {"card": taken}}, session=session)
        except DuplicateKeyError as error:
            raise _Refused() from error
        raise AssertionError(f"two accounts have the card {taken}")
    database.transfers.insert_one(transfer, session=session)


def _move(database, number, session, source):
    """Moves an account to another collection."""
    collection, account = find_account(database, number, session)
    other = source.choice([name for name in COLLECTIONS if name != collection.name])
    gone = collection.delete_one({"_id": number}, session=session)
    assert gone.deleted_count == 1, gone.raw_result
    database[other].insert_one(account, session=session)


def _read(client, number, serial, source, report, lock):
    """Sums all accounts in one snapshot, and compares one of them with its transfers."""
    database = client[DATABASE]
    in_transaction = source.random() < 0.5
    try:
        if in_transaction:
            with client.start_session() as session:
                session.start_transaction(read_concern=SNAPSHOT)
                result = _look(database, session, source)
                session.commit_transaction()
        else:
            with client.start_session(snapshot=True) as session:
                result = _look(database, session, source)
    except PyMongoError as error:
        # The server keeps the moments of snapshot sessions in memory: those of before a restart are gone.
        if not in_transaction and getattr(error, "code", None) in SNAPSHOT_GONE:
            with lock:
                report.counts["snapshots gone"] += 1
            return
        # A commit that only read needs no known outcome.
        if isinstance(error, ConnectionFailure) or (in_transaction and error.has_error_label(TRANSIENT)):
            with lock:
                report.counts["reads without an answer"] += 1
            return
        raise
    problem, ids = result
    way = "in a transaction" if in_transaction else "in a snapshot session"
    with lock:
        report.counts[f"sums {way}"] += 1
        report.seen.update(ids)
        if problem:
            report.problems.append(f"{way}: {problem}")


def _look(database, session, source):
    """(problem or None, the transfers that were seen)"""
    accounts, money = sum_of(database, session)
    number = source.randrange(ACCOUNTS)
    _, account = find_account(database, number, session)
    expected, ids = balance_by_transfers(database, number, session)
    if (accounts, money) != (ACCOUNTS, TOTAL):
        return f"{accounts} accounts had {money} together, not {TOTAL}", ids
    if account["balance"] != expected:
        return f"account {number} had {account['balance']}, by its transfers {expected}", ids
    if not set(account["recent"]) <= set(ids):
        return f"account {number} has a transfer that is not there: {account['recent']}", ids
    return None, ids


def _visit(client, number, serial, source, report, lock):
    """A single write outside of transactions, which the driver retries: it must count once."""
    account = source.randrange(ACCOUNTS)
    try:
        done = client[DATABASE][home(account)].update_one({"_id": account}, {"$inc": {"visits": 1}})
    except PyMongoError as error:
        # The driver retries once. The second attempt may meet an election, too, or a full disk.
        if not (isinstance(error, ConnectionFailure) or error.has_error_label("RetryableWriteError") or is_refusal(error)):
            raise
        with lock:
            report.visits_unknown += 1
        return
    with lock:
        report.visits += done.modified_count
