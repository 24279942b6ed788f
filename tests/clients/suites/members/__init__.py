"""Tests of a replica set of three members."""
