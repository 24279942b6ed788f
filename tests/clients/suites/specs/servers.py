"""Runs parts of a driver's tests side by side, each against a replica set of one of its own.

A fail point applies to the whole server, so that two tests cannot share one.
"""

import os
import queue
import threading

from harness.server import Server

OPTIONS = ["--setParameter", "enableTestCommands=1"]


def run_in_parallel(parts, run, workers):
    """Calls run(server, part) for all parts, with one server for each of the workers. Errors are raised at the end.

    Parts begin in the order given; put the long ones first.
    """
    waiting = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    errors = []

    def work():
        try:
            with Server(os.environ["FROND_BINARY"], OPTIONS, replica_set="rs0") as server:
                server.start()
                while True:
                    try:
                        part = waiting.get_nowait()
                    except queue.Empty:
                        break
                    run(server, part)
                server.stop()
        except Exception as error:  # raised by the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
