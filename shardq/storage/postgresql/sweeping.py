"""Removing what no operation needs any more."""

from __future__ import annotations

from contextlib import suppress

from shardq.errors import StoreUnavailable
from shardq.storage.postgresql import bundles, consumers, dedupe, removal
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.session import Session
from shardq.storage.requests import Sweep

__all__ = ["sweep", "tidy"]


def sweep(session: Session, request: Sweep) -> int:
    """Remove up to 1,000 things of each kind; returns how many."""
    removed = session.write(_sweep, request, durable=False) + tidy(session)
    for shard_key in session.read(removal.orphans):
        removed += session.write(removal.drop_rows, shard_key, durable=False)
    return removed


def tidy(session: Session) -> int:
    """Empty the tables of finished ids that were remembered for long enough; returns how many.

    What another transaction reads just then is left for the next time.
    """
    emptied = 0
    for table in session.read(bundles.old_tables, session.now()):
        with suppress(StoreUnavailable):
            emptied += session.write(bundles.empty_table, table, durable=False)
    return emptied


def _sweep(sql: Sql, request: Sweep, now: int) -> int:
    return (
        removal.expire(sql, request.queue, request.history_before, now)
        + dedupe.expire(sql, request.queue, now)
        + consumers.expire(sql, request.queue, now)
    )
