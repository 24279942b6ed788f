"""Transactions of clients whose server is killed: the outcome of each is known in the end."""

import time

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from .waiting import PATIENCE

COMMITTED, ABORTED, UNKNOWN = "ok", "fail", "info"
SECONDS_ANSWER_MAX = PATIENCE
NOT_KNOWN = "UnknownTransactionCommitResult"
TRANSIENT = "TransientTransactionError"


def connect(server, **options):
    """A client that waits for a server which is being restarted."""
    return MongoClient(
        server.uri,
        serverSelectionTimeoutMS=PATIENCE * 1000,
        connectTimeoutMS=20_000,
        heartbeatFrequencyMS=500,
        **options,
    )


def commit(session, problems):
    """Commits, and repeats it until the outcome is known, also over a restart of the server.

    An error that no driver may get here is added to `problems`.
    """
    deadline = time.monotonic() + SECONDS_ANSWER_MAX
    while True:
        try:
            session.commit_transaction()
            return COMMITTED
        except PyMongoError as error:
            if error.has_error_label(NOT_KNOWN):
                if time.monotonic() > deadline:
                    problems.append(f"no answer to a commit within {SECONDS_ANSWER_MAX} s: {error!r}")
                    return UNKNOWN
                continue
            if isinstance(error, OperationFailure) and error.has_error_label(TRANSIENT):
                return ABORTED
            problems.append(f"committing: {error!r}")
            return UNKNOWN


def abort(session, problems):
    """Aborts. The driver ignores what the server says to it."""
    try:
        session.abort_transaction()
    except PyMongoError as error:
        problems.append(f"aborting: {error!r}")
