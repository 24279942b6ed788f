"""Clients and troubles of a replica set of three members."""
