"""Lets old drivers load in today's Python, which has moved some names since."""

import collections
import collections.abc

for _name in ("Callable", "Iterable", "Mapping", "MutableMapping", "MutableSequence", "Sequence"):
    if not hasattr(collections, _name):
        setattr(collections, _name, getattr(collections.abc, _name))
