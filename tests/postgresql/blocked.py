"""Waiting for somebody to wait for a transaction."""

from __future__ import annotations

import time
from typing import Any

import psycopg

__all__ = ["until_blocked"]

PATIENCE = 20.0


def until_blocked(connection: psycopg.Connection[Any]) -> None:
    """Return when somebody waits for a lock that the transaction of this connection has."""
    waits = f"SELECT 1 FROM pg_locks WHERE NOT granted AND {connection.info.backend_pid} = ANY (pg_blocking_pids(pid))"
    until = time.monotonic() + PATIENCE
    with psycopg.connect(connection.info.dsn, autocommit=True) as watching:
        while watching.execute(waits).rowcount == 0:
            assert time.monotonic() < until, "nobody waits"
            time.sleep(0.01)
