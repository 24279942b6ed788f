"""Reading change streams in tests, which must never wait for ever."""

import time

from harness.tap import equal

SECONDS_MAX = 20
AWAIT_MS = 100


def watch(target, pipeline=None, **options):
    """A stream whose empty reads return soon."""
    options.setdefault("max_await_time_ms", AWAIT_MS)
    return target.watch(pipeline, **options)


def read(stream, count, seconds=SECONDS_MAX):
    """The next `count` events."""
    events, until = [], time.monotonic() + seconds
    while len(events) < count:
        event = stream.try_next()
        if event is not None:
            events.append(event)
        elif not stream.alive or time.monotonic() > until:
            state = "waits" if stream.alive else "ended"
            raise AssertionError(f"the stream {state} after {kinds(events)}, expected {count} events")
    return events


def read_until(stream, is_last, seconds=SECONDS_MAX):
    """The events up to and with the one that is the last."""
    events = read(stream, 1, seconds)
    while not is_last(events[-1]):
        events += read(stream, 1, seconds)
    return events


def read_all(stream, marked):
    """The events before that of a document which is inserted now into `marked`, a collection that the stream sees."""
    mark = marked.insert_one({"mark": True}).inserted_id
    return read_until(stream, lambda e: e["operationType"] == "insert" and e["documentKey"]["_id"] == mark)[:-1]


def ends(stream):
    """Checks that a stream has ended, and that nothing more came."""
    until = time.monotonic() + SECONDS_MAX
    while stream.alive:
        event = stream.try_next()
        assert event is None, f"expected the end, got {event}"
        assert time.monotonic() < until, "the stream goes on"
    equal(stream.try_next(), None)


def kinds(events):
    return [event["operationType"] for event in events]


def token(event):
    return event["_id"]["_data"]


def in_order(events):
    """Checks the order of times and tokens, which compare as their text does."""
    for before, after in zip(events, events[1:]):
        assert before["clusterTime"] <= after["clusterTime"], f"{before} came before {after}"
        assert token(before) < token(after), f"the token of {before} is not below that of {after}"


def without(event, *names):
    """An event without what differs from run to run."""
    return {key: value for key, value in event.items() if key not in ("_id", "clusterTime", "wallTime", *names)}
