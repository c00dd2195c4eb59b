"""Removing what no operation needs any more."""

from __future__ import annotations

import sqlite3

from shardq.storage.requests import Sweep
from shardq.storage.sqlite import bundles, claims, consumers, dedupe, removal, settling

__all__ = ["sweep"]

_LIMIT = 1000


def sweep(sql: sqlite3.Connection, request: Sweep, now: int) -> int:
    """Remove up to 1,000 things of each kind; returns how many. Transactions leave no orphans to look for."""
    return (
        removal.expire(sql, request.queue, request.history_before, _LIMIT, now)
        + dedupe.expire(sql, request.queue, _LIMIT, now)
        + consumers.expire(sql, request.queue, now)
        + bundles.prune(sql, now, _LIMIT)
        + settling.prune_moves(sql, now, _LIMIT)
        + claims.expire(sql, now)
    )
