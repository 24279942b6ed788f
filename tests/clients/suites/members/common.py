"""Shared by the tests of replica sets: errors that are expected, and tests that begin with a whole set."""

import functools

from harness.tap import equal, test
from pymongo.errors import BulkWriteError, OperationFailure, PyMongoError


def with_set(function):
    """Marks a test that needs all members to run, whatever a test before has left behind."""

    @functools.wraps(function)
    def wrapped(replica_set):
        replica_set.settle()
        function(replica_set)

    return test(wrapped)


def code_of(error):
    """The code of an error, also of a write concern or of a transport that reports one."""
    details = getattr(error, "details", None) or {}
    if isinstance(error, BulkWriteError):
        errors = [*details["writeErrors"], *details["writeConcernErrors"]]
        return errors[0]["code"]
    if isinstance(error, OperationFailure) and error.code is not None:
        return error.code
    return details.get("code")


def expect(code, call):
    """Calls a function that must raise an error of the server with this code, and returns the error."""
    try:
        result = call()
    except PyMongoError as error:
        equal(code_of(error), code, repr(error))
        return error
    raise AssertionError(f"expected error {code}, got {result!r}")


def expect_write_concern(code, call):
    """As `expect`, of a write that is done although its concern fails. Returns what the reply says about the concern."""
    details = expect(code, call).details
    errors = details.get("writeConcernErrors") or [details.get("writeConcernError", details)]
    equal({error["code"] for error in errors}, {code}, str(details))
    return errors[0]
