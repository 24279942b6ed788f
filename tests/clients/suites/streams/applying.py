"""Applies the events of a stream to a copy of the documents, as a cache does."""

import re

NUMBER = re.compile(r"\d+")


def apply_update(document, description):
    """Changes a document as an update's description says. Fields must not have dots or numbers in their names."""
    for cut in description.get("truncatedArrays", []):
        parent, name = _parent(document, cut["field"])
        array = parent[name]
        assert len(array) > cut["newSize"], f"{cut} of an array of {len(array)}"
        del array[cut["newSize"] :]
    for path, value in description["updatedFields"].items():
        parent, name = _parent(document, path)
        if isinstance(parent, list) and name >= len(parent):
            # Positions that were skipped are null.
            parent.extend([None] * (name - len(parent) + 1))
        parent[name] = value
    for path in description["removedFields"]:
        parent, name = _parent(document, path)
        del parent[name]


def _parent(document, path):
    """The document or array that has a path's last name, and this name."""
    *names, last = path.split(".")
    for name in names:
        document = document[_key(document, name)]
    return document, _key(document, last)


def _key(container, name):
    return int(name) if isinstance(container, list) and NUMBER.fullmatch(name) else name


def apply(documents, event):
    """Applies an event of one collection to its documents by `_id`."""
    kind = event["operationType"]
    key = event["documentKey"]["_id"]
    if kind == "insert":
        assert key not in documents, f"{key} is inserted and was there"
        documents[key] = event["fullDocument"]
    elif kind == "update":
        apply_update(documents[key], event["updateDescription"])
    elif kind == "replace":
        assert key in documents, f"{key} is replaced and was not there"
        documents[key] = event["fullDocument"]
    elif kind == "delete":
        del documents[key]
    else:
        raise AssertionError(f"no change of a document: {event}")
