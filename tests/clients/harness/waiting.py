"""Waits for a condition. A test that sleeps for a fixed time instead depends on how fast the machine is."""

import time

# Longer than any step takes, even on a busy machine. It guards against a test that hangs; no test may depend on it.
PATIENCE = 300
PAUSE = 0.02


def wait_until(what, holds, passing=()):
    """Waits until `holds()` is true, and returns what it returned. An error of a kind in `passing` counts as false."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            found, problem = holds(), None
        except passing as error:
            found, problem = None, error
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {PATIENCE} s") from problem
        time.sleep(PAUSE)


def wait_for_operations(client, count, match):
    """Waits until `$currentOp` shows this many operations that match a filter, and returns them."""
    stages = [{"$currentOp": {"allUsers": True}}, {"$match": match}]
    operations = []

    def are_shown():
        operations[:] = client.admin.aggregate(stages)
        return len(operations) == count

    wait_until(f"{count} operations that match {match}", are_shown)
    return operations


def wait_until_idle(pid):
    """Waits for half a second in which a process uses less than a tenth of a processor. A process that spins has none."""

    def ticks():
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def is_idle():
        began, before = time.monotonic(), ticks()
        time.sleep(0.5)
        return (ticks() - before) / 100 < 0.1 * (time.monotonic() - began)

    wait_until("an idle process", is_idle)
