"""Waiting for somebody to wait for a transaction."""

from __future__ import annotations

import time
from typing import Any

import psycopg

__all__ = ["until_blocked"]

PATIENCE = 20.0


def until_blocked(connection: psycopg.Connection[Any], by: int = 0) -> int:
    """Return the process of a session that waits for the transaction of this connection, or of the session ``by``."""
    blocker = by or connection.info.backend_pid
    waits = f"SELECT pid FROM pg_locks WHERE NOT granted AND {blocker} = ANY (pg_blocking_pids(pid))"
    until = time.monotonic() + PATIENCE
    with psycopg.connect(connection.info.dsn, autocommit=True) as watching:
        while (row := watching.execute(waits).fetchone()) is None:
            assert time.monotonic() < until, "nobody waits"
            time.sleep(0.01)
    return int(row[0])
