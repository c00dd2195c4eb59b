"""A test of Spark that runs on every store."""

from __future__ import annotations

import pytest

SERVERS = {"cassandra": "cassandra_url", "mongodb": "replica_set_url", "postgresql": "postgresql_url"}
"""Their fixtures."""

on_every_store = pytest.mark.parametrize(
    "url",
    ["sqlite", *(pytest.param(each, marks=[pytest.mark.server, pytest.mark.long]) for each in SERVERS)],
    indirect=True,
)
