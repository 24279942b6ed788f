"""Reading change streams in tests, which must never wait for ever."""


from harness.tap import equal
from harness.waiting import wait_until

AWAIT_MS = 100


def watch(target, pipeline=None, **options):
    """A stream whose empty reads return soon."""
    options.setdefault("max_await_time_ms", AWAIT_MS)
    return target.watch(pipeline, **options)


def read(stream, count):
    """The next `count` events."""
    events = []

    def are_enough():
        while len(events) < count and (event := stream.try_next()) is not None:
            events.append(event)
        assert len(events) == count or stream.alive, f"the stream ended after {kinds(events)}, expected {count} events"
        return len(events) == count

    wait_until(f"{count} events", are_enough)
    return events


def read_until(stream, is_last):
    """The events up to and with the one that is the last."""
    events = read(stream, 1)
    while not is_last(events[-1]):
        events += read(stream, 1)
    return events


def read_all(stream, marked):
    """The events before that of a document which is inserted now into `marked`, a collection that the stream sees."""
    mark = marked.insert_one({"mark": True}).inserted_id
    return read_until(stream, lambda e: e["operationType"] == "insert" and e["documentKey"]["_id"] == mark)[:-1]


def ends(stream):
    """Checks that a stream has ended, and that nothing more came."""

    def has_ended():
        event = stream.try_next()
        assert event is None, f"expected the end, got {event}"
        return not stream.alive

    wait_until("the end of the stream", has_ended)
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
