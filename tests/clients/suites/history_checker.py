"""The checker of histories finds each anomaly in histories made by hand and by a model, and none in correct ones."""

from harness.tap import equal, raises, run, test
from history import model
from history.checker import FAIL, INFO, Transaction, check_lists, check_registers


def transaction(words, status="ok", began=0.0, ended=float("inf")):
    """A transaction from words: "x+1" appends, "x=1" writes, "x:1,2" reads a list, "x?1" reads a register."""
    ops = []
    for word in words.split():
        key, sign, value = word[0], word[1], word[2:]
        if sign == "+":
            ops.append(("append", key, int(value)))
        elif sign == "=":
            ops.append(("w", key, int(value)))
        elif sign == ":":
            ops.append(("r", key, [int(part) for part in value.split(",") if part]))
        else:
            ops.append(("r", key, int(value) if value else None))
    return Transaction(ops, status, began, ended)


def lists(*texts):
    return found(check_lists([t if isinstance(t, Transaction) else transaction(t) for t in texts]))


def registers(*texts):
    return found(check_registers([t if isinstance(t, Transaction) else transaction(t) for t in texts]))


def found(verdict):
    return sorted(verdict.anomalies)


@test
def a_correct_history_has_no_anomaly():
    equal(lists("x+1", "x:1 x+2", "x:1,2 y:", "y+1 x:1,2 y:1"), [])
    equal(registers("x=1", "x?1 x=2 x?2", "x?2 y?", "y=1 x?2"), [])
    equal(lists(), [])


@test
def g0_a_cycle_of_writes():
    equal(lists("x+1 y+1", "x+2 y+2", "x:1,2", "y:2,1"), ["G0"])
    # x=2 follows x=1, and y=1 follows y=2.
    equal(registers("x=1 y?2 y=1", "y=2 x?1 x=2"), ["G0", "G1c"])


@test
def g1a_a_read_of_an_aborted_write():
    equal(lists(transaction("x+1", FAIL), "x:1"), ["G1a"])
    equal(registers(transaction("x=1", FAIL), "x?1"), ["G1a"])
    equal(lists(transaction("x+1", FAIL), "x:"), [])
    # What an aborted transaction itself read does not count.
    equal(lists(transaction("x+1", FAIL), transaction("x:1", FAIL)), [])


@test
def a_commit_without_an_answer_may_be_read_or_not():
    equal(lists(transaction("x+1", INFO), "x:1"), [])
    equal(lists(transaction("x+1", INFO), "x:"), [])
    equal(registers(transaction("x=1", INFO), "x?1"), [])
    equal(registers(transaction("x=1", INFO), "x?"), [])


@test
def g1b_a_read_of_an_intermediate_version():
    equal(lists("x+1 x+2", "x:1", "x:1,2"), ["G-single", "G1b"])
    equal("G1b" in registers("x=1 x=2", "x?1"), True)
    equal(lists("x+1 x:1 x+2 x:1,2", "x:1,2"), [])


@test
def g1c_a_cycle_of_reads():
    equal(lists("x+1 y:1", "y+1 x:1"), ["G1c"])
    equal(registers("x=1 y?1", "y=1 x?1"), ["G1c"])


@test
def g_single_read_skew():
    # The second saw the first's write to y and not that to x.
    equal(lists("x+1 y+1", "x: y:1", "x:1"), ["G-single"])
    equal(registers("x=1 y=1", "x? y?1"), ["G-single"])
    # Over a third transaction.
    equal(lists("x+1", "x:1 y+1", "y:1 x:"), ["G-single"])


@test
def a_lost_update():
    equal(lists("x: x+1", "x: x+2", "x:1,2"), ["G-single", "lost update"])
    equal("lost update" in registers("x=1", "x?1 x=2", "x?1 x=3"), True)
    equal(lists("x: x+1", transaction("x: x+2", FAIL), "x:1"), [])


@test
def two_anti_dependencies_that_are_no_neighbours():
    # T0 -rw-> T1 -wr-> T2 -rw-> T3 -wr-> T0
    equal(lists("x: d:1", "x+1 b+1", "b:1 c:", "c+1 d+1", "x:1 b:1 c:1 d:1"), ["G-nonadjacent"])


@test
def write_skew_is_reported_and_allowed():
    for verdict in (
        check_lists([transaction(t) for t in ("x: y: x+1", "x: y: y+1", "x:1 y:1")]),
        check_registers([transaction(t) for t in ("x? y? x=1", "x? y? y=1", "x?1 y?1")]),
    ):
        equal(found(verdict), ["G2-item"])
        equal(verdict.forbidden, {})


@test
def a_transaction_that_does_not_see_what_had_ended():
    early = transaction("x+1", began=1, ended=2)
    late = transaction("x:1", began=5, ended=6)
    equal(lists(early, transaction("x:", began=3, ended=4), late), ["G-single with real time"])
    equal(
        registers(transaction("x=1", began=1, ended=2), transaction("x?", began=3, ended=4)),
        ["G-single with real time"],
    )
    # It may miss what ended after it began.
    equal(lists(early, transaction("x:", began=1.5, ended=4), late), [])


@test
def a_lost_write():
    equal(
        lists(transaction("x+1", began=1, ended=2), transaction("x:", began=3, ended=4)),
        ["lost write"],
    )
    # It was read once, and is gone.
    equal("incompatible order" in lists("x+1", "x+2", "x:1", "x:2"), True)


@test
def values_that_cannot_be():
    equal(lists("x:7"), ["garbage read"])
    equal(registers("x?7"), ["garbage read"])
    equal("duplicate" in lists("x+1", "x:1,1"), True)
    equal(lists("x+1 x:"), ["internal"])
    equal("internal" in lists("x+1", "x: x:1"), True)
    equal(registers("x=1 x?2", "x=2"), ["internal"])
    raises(ValueError, lists, "x+1", "x+1")


def as_registers(history):
    """The same history of registers: the value of one is the last element of its list."""
    for entry in history:
        entry.ops = [
            ("w", key, value) if op == "append" else ("r", key, value[-1] if value else None)
            for op, key, value in entry.ops
        ]
    return history


@test
def histories_of_a_model_with_snapshot_isolation_pass():
    skewed = 0
    for seed in range(20):
        verdict = check_lists(model.record("snapshot", seed))
        equal(verdict.forbidden, {}, f"seed {seed}")
        equal(check_registers(as_registers(model.record("snapshot", seed))).forbidden, {}, f"seed {seed}")
        skewed += "G2-item" in verdict.anomalies
        for kind in ("ww", "wr", "rw", "rt"):
            assert verdict.edges[kind] > 50, verdict.edges
    assert skewed > 10, f"only {skewed} of 20 histories have write skew"


@test
def histories_of_a_model_with_weaker_isolation_fail():
    expected = {
        "no conflicts": "lost update",
        "read committed": "G-single",
        "read uncommitted": "G1a",
        "stale snapshot": "G-single with real time",
    }
    equal(set(expected) | {"snapshot"}, set(model.LEVELS))
    for level, anomaly in expected.items():
        found_in_registers = 0
        for seed in range(5):
            anomalies = check_lists(model.record(level, seed)).forbidden
            assert anomaly in anomalies, f"{level}, seed {seed}: {sorted(anomalies)}"
            found_in_registers += bool(check_registers(as_registers(model.record(level, seed))).forbidden)
        # What nobody reads tells nothing about the order of blind writes.
        assert found_in_registers >= 3, f"registers, {level}: only {found_in_registers} of 5"


run()
