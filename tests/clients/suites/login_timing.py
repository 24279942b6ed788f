"""How long a refused login takes for an unknown user and for a wrong password. `make login-timing` runs it; it is no part of
`make test`, as a busy machine moves all times.

The two kinds take turns in random order, on connections of their own. For each step of a login it prints medians, the
interval in which the difference of the medians lies (95%, by resampling), and the probability that an attempt of the one kind
takes longer than one of the other (0.5: they cannot be told apart) with the p-value of the Mann-Whitney test. It fails if an
attempt of one kind can be told from the other with a probability of more than 0.55 and a p-value below 0.001.
"""

import math
import os
import random
import statistics
import time

from harness import raw
from harness.scram import Conversation, SecuredServer, login
from harness.tap import run, test

ATTEMPTS = int(os.environ.get("FROND_ATTEMPTS", "400"))
SEED = int(os.environ.get("FROND_SEED") or time.time())
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-1"]


def attempt(port, mechanism, user):
    """Seconds of both steps of a login that fails, and their code."""
    talk = Conversation(mechanism, user, "a wrong password")
    with raw.Connection(port, timeout=60) as connection:
        connection.command({"hello": 1})
        start = raw.op_msg({"saslStart": 1, "mechanism": mechanism, "payload": talk.first}, "own")
        began = time.perf_counter()
        connection.send(start)
        reply = connection.receive()[2]
        first = time.perf_counter() - began
        assert reply["ok"] == 1, reply
        payload = talk.final(reply["payload"].decode())
        proof = {"saslContinue": 1, "conversationId": reply["conversationId"], "payload": payload}
        message = raw.op_msg(proof, "own")
        began = time.perf_counter()
        connection.send(message)
        reply = connection.receive()[2]
        second = time.perf_counter() - began
        return first, second, reply["code"], reply["errmsg"]


def mann_whitney(left, right):
    """The probability that a value of `left` is above one of `right`, and the p-value of its difference from one half."""
    ordered = sorted([(value, 0) for value in left] + [(value, 1) for value in right])
    ranks = 0.0
    at = 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        middle = (at + end + 1) / 2
        ranks += middle * sum(1 for value, kind in ordered[at:end] if kind == 0)
        at = end
    n, m = len(left), len(right)
    u = ranks - n * (n + 1) / 2
    z = (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
    return u / (n * m), math.erfc(abs(z) / math.sqrt(2))


def interval(left, right, chance):
    """The difference of the medians, and the interval of 95% of it by resampling, in seconds."""
    differences = sorted(
        statistics.median(chance.choices(left, k=len(left))) - statistics.median(chance.choices(right, k=len(right)))
        for _ in range(1000)
    )
    return statistics.median(left) - statistics.median(right), differences[25], differences[974]


@test
def the_check_itself_tells_different_times_apart(_):
    chance = random.Random(1)
    same = [[chance.gauss(1, 0.1) for _ in range(400)] for _ in range(2)]
    probability, p = mann_whitney(*same)
    assert abs(probability - 0.5) < 0.05 and p > 0.001, (probability, p)
    slower = [value + 0.03 for value in same[0]]
    probability, p = mann_whitney(slower, same[1])
    assert probability > 0.55 and p < 0.001, (probability, p)


def measure(server, mechanism):
    chance = random.Random(SEED)
    kinds = {"wrong password": "somebody", "unknown user": "nobody"}
    order = [kind for kind in kinds for _ in range(ATTEMPTS)]
    chance.shuffle(order)
    times = {kind: ([], []) for kind in kinds}
    answers = set()
    for kind in order:
        # A name of its own for each attempt: an unknown user must not become known by being asked for again.
        user = kinds[kind] if kind == "wrong password" else f"nobody{chance.randrange(10**6)}"
        first, second, *answer = attempt(server.port, mechanism, user)
        times[kind][0].append(first)
        times[kind][1].append(second)
        answers.add(tuple(answer))
    assert len(answers) == 1, f"the errors differ: {answers}"
    problems = []
    for step, name in enumerate(("saslStart", "saslContinue")):
        wrong, unknown = times["wrong password"][step], times["unknown user"][step]
        difference, low, high = interval(wrong, unknown, chance)
        probability, p = mann_whitney(wrong, unknown)
        print(
            f"# {mechanism} {name}: wrong password {statistics.median(wrong) * 1e6:.0f} us, unknown user "
            f"{statistics.median(unknown) * 1e6:.0f} us, difference {difference * 1e6:+.1f} us "
            f"[{low * 1e6:+.1f}, {high * 1e6:+.1f}], probability {probability:.3f}, p {p:.3g}"
        )
        if abs(probability - 0.5) > 0.05 and p < 0.001:
            problems.append(f"{name}: {probability:.3f}")
    assert not problems, problems


def main():
    print(f"# FROND_SEED={SEED}, {ATTEMPTS} attempts of each kind")
    # Without the delay of failed logins, in which differences could hide from a test but not from many attempts.
    with SecuredServer(os.environ["FROND_BINARY"], ["--setParameter", "authFailedDelayMs=0"]) as server:
        server.start()
        with raw.Connection(server.port) as connection:
            login(connection, *SecuredServer.ADMIN)
            user = {"createUser": "somebody", "pwd": "right", "roles": [], "mechanisms": MECHANISMS}
            assert connection.command(user, "own")["ok"] == 1
        for mechanism in MECHANISMS:

            def of_mechanism(server, mechanism=mechanism):
                measure(server, mechanism)

            of_mechanism.__name__ = f"a wrong password and an unknown user take the same time by {mechanism}"
            test(of_mechanism)
        run(server)


if __name__ == "__main__":
    main()
