"""PyMongo's own tests of sessions, transactions, retries and change streams, with fail points, against two servers over the cluster."""

import os
import random

from cluster import Servers, is_free
from specs.of_pymongo import run_modules
from specs.servers import OPTIONS
from specs.skips import Skips

MODULES = [
    "test.test_transactions",
    "test.test_transactions_unified",
    "test.test_session",
    "test.test_sessions_unified",
    "test.test_retryable_writes",
    "test.test_retryable_writes_unified",
    "test.test_retryable_reads",
    "test.test_retryable_reads_unified",
    "test.test_causal_consistency",
    "test.test_change_stream",
]
WORKERS = 3


def free_pair():
    """The first of two free ports: PyMongo's tests look for a second mongos at the next one."""
    while True:
        first = random.randrange(28_000, 32_000, 2)
        if is_free(first) and is_free(first + 1):
            return first


def make_servers():
    first = free_pair()
    return Servers(os.environ["FROND_BINARY"], os.environ["FROND_TEST_PD"], options=OPTIONS, ports=(first, first + 1))


skips = Skips(os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs-skipped.txt"))
run_modules(MODULES, skips, WORKERS, make=make_servers)
