"""Tests for the newest PyMongo; each takes a client, and works in a database of its own name."""


def fresh(client, name):
    """An empty database."""
    client.drop_database(name)
    return client[name]
