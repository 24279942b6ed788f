"""Tests for the newest PyMongo; each takes a client, and uses a database named after the test."""


def fresh(client, name):
    """An empty database."""
    client.drop_database(name)
    return client[name]
