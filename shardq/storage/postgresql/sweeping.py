"""Removing what no operation needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.postgresql import bundles, consumers, dedupe, directory, read_cursors, removal
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.session import Session
from shardq.storage.requests import Sweep

__all__ = ["show_hidden", "sweep", "tidy"]


def sweep(session: Session, request: Sweep) -> int:
    """Remove up to 1,000 things of each kind; returns how many."""
    removed = session.write(_sweep, request, durable=False) + tidy(session)
    removed += show_hidden(session, session.read(directory.listing, request.queue))
    for shard_key in session.read(removal.orphans):
        removed += session.write(removal.drop_rows, shard_key, durable=False)
    return removed


def tidy(session: Session) -> int:
    """Empty the tables of finished ids that were remembered for long enough; returns how many.

    Tables that another transaction reads just then are left for the next time.
    """
    emptied = 0
    for table in session.read(bundles.old_tables, session.now()):
        with suppress(StoreUnavailable):
            emptied += session.write(bundles.empty_table, table, durable=False)
    return emptied


def show_hidden(session: Session, shards: Sequence[Shard]) -> int:
    """Lower the low watermarks of these shards that hide something; returns how many shards had such."""
    found = session.read(read_cursors.hidden, shards)
    if found:
        session.write(read_cursors.show, found, durable=False)
    return len(found)


def _sweep(sql: Sql, request: Sweep, now: int) -> int:
    return (
        removal.expire(sql, request.queue, request.history_before, now)
        + dedupe.expire(sql, request.queue, now)
        + consumers.expire(sql, request.queue, now)
    )
