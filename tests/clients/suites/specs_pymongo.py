"""PyMongo's own tests of sessions, transactions, retries, change streams and read and write concerns, with fail points, on a replica
set; on one of several members also those of server discovery and server selection."""

import os

from specs.of_pymongo import run_modules
from specs.servers import MEMBERS, WORKERS
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
    "test.test_read_concern",
    "test.test_write_concern",
    "test.test_read_write_concern_spec",
]
DISCOVERY = [
    "test.test_connections_survive_primary_stepdown_spec",
    "test.test_discovery_and_monitoring",
    "test.test_heartbeat_monitoring",
    "test.test_max_staleness",
    "test.test_read_preferences",
    "test.test_sdam_monitoring_spec",
    "test.test_server_selection",
    "test.test_server_selection_in_window",
    "test.test_streaming_protocol",
    "test.test_topology",
]
if MEMBERS > 1:
    MODULES += DISCOVERY
# Tests of sets with users; a set of one member has none here.
WITH_USERS = r"test\.test_\w+\.TestUnified(\w*Handshake\w*|Auth\w*)"

skips = Skips(os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs", "pymongo-skipped.txt"), MEMBERS)
run_modules(MODULES, skips, WORKERS, with_users=WITH_USERS if MEMBERS > 1 else None)
