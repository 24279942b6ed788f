"""What the bank's clients were told, compared with what is there."""

from . import accounts
from .clients import Report


def gather(reports, count):
    """One report of all processes."""
    whole = Report()
    for _ in range(count):
        one = reports.get(timeout=120)
        whole.committed.update(one.committed)
        whole.unknown.update(one.unknown)
        whole.aborted |= one.aborted
        whole.seen |= one.seen
        whole.visits += one.visits
        whole.visits_unknown += one.visits_unknown
        whole.counts.update(one.counts)
        whole.problems += one.problems
    return whole


def wrong(database, whole):
    """What differs between the bank and what clients were told."""
    problems = accounts.problems_of(database)
    there = {transfer["_id"]: transfer for transfer in database.transfers.find()}
    for name, transfer in whole.committed.items():
        if there.get(name) != transfer:
            problems.append(f"transfer {name} was acknowledged: {transfer}; there is {there.get(name)}")
    told = whole.committed.keys() | whole.unknown.keys()
    problems += [f"transfer {name} is there, and was not committed" for name in there if name not in told]
    problems += [f"transfer {name} was seen and is not there" for name in sorted(whole.seen - there.keys())]
    problems += [f"transfer {name} was seen and aborted" for name in sorted(whole.seen & whole.aborted)]
    visits = sum(account["visits"] for name in accounts.COLLECTIONS for account in database[name].find())
    if not 0 <= visits - whole.visits <= whole.visits_unknown:
        text = f"{whole.visits} visits were acknowledged, {whole.visits_unknown} had no answer, {visits} are there"
        problems.append(text)
    return problems
