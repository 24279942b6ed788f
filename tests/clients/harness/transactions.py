"""Transactions of clients whose server is killed: the outcome of each is known in the end."""

import time

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from .waiting import PATIENCE

COMMITTED, ABORTED, UNKNOWN = "ok", "fail", "info"
SECONDS_ANSWER_MAX = PATIENCE
NOT_KNOWN = "UnknownTransactionCommitResult"
TRANSIENT = "TransientTransactionError"
OUT_OF_DISK_SPACE = 14031


def connect(server, **options):
    """A client that waits for a server which is being restarted."""
    return MongoClient(
        server.uri,
        serverSelectionTimeoutMS=PATIENCE * 1000,
        connectTimeoutMS=20_000,
        heartbeatFrequencyMS=500,
        **options,
    )


def is_interruption(error):
    """Whether a statement of a transaction may end with this error: without a server, by a conflict, or on a full disk."""
    return isinstance(error, ConnectionFailure) or error.has_error_label(TRANSIENT) or is_refusal(error)


def is_refusal(error):
    """Whether a full disk was the reason, so that nothing was written."""
    return isinstance(error, OperationFailure) and error.code == OUT_OF_DISK_SPACE


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
            if is_refusal(error) or (isinstance(error, OperationFailure) and error.has_error_label(TRANSIENT)):
                return ABORTED
            problems.append(f"committing: {error!r}")
            return UNKNOWN


def abort(session, problems):
    """Aborts. The driver ignores what the server says to it."""
    try:
        session.abort_transaction()
    except PyMongoError as error:
        problems.append(f"aborting: {error!r}")
