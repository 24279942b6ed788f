"""A small test runner that prints TAP (testanything.org), which run.py counts."""

import os
import sys
import traceback

_TESTS = []
_OF_ONE_SERVER = set()
_TESTS_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def test(function):
    """Marks a function as a test. Its name, read as words, is the test's name."""
    _TESTS.append(function)
    return function


def of_one_server(function):
    """Marks a test about one server: its counters, parameters, address, or the cursors by their numbers."""
    _OF_ONE_SERVER.add(function)
    return function


def equal(got, expected, what=""):
    if got != expected:
        raise AssertionError(f"{what}{': ' if what else ''}got {got!r}, expected {expected!r}")


def raises(kind, function, *args, **kwargs):
    """Calls a function that must raise an error of this kind, and returns the error."""
    try:
        result = function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, got {result!r}")


def _explain():
    """Prints the current error and its lines in the tests, without the driver's frames."""
    kind, error, trace = sys.exc_info()
    for frame in traceback.extract_tb(trace):
        if _TESTS_FOLDER in frame.filename and "tap.py" not in frame.filename:
            print(f"  # {os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}")
    for line in "".join(traceback.format_exception_only(kind, error)).rstrip().splitlines():
        print(f"  # {line}")
    sys.stdout.flush()


def run(*context, counted=(0, 0), of_one_server=None):
    """Runs every test with the context, in order, and ends the process. Those about one server get the context `of_one_server`.

    `counted` is how many tests passed and failed before, with their lines printed already.
    """
    only = os.environ.get("FROND_TEST", "")
    failed = counted[1]
    count = sum(counted)
    for function in _TESTS:
        name = function.__name__.strip("_").replace("_", " ")
        if only and only not in name:
            continue
        count += 1
        try:
            function(*(of_one_server if of_one_server and function in _OF_ONE_SERVER else context))
            print(f"ok {count} - {name}", flush=True)
        except Exception:  # every failure of a test is reported, whatever it is
            failed += 1
            print(f"not ok {count} - {name}")
            _explain()
    print(f"1..{count}")
    sys.exit(1 if failed or not count else 0)
