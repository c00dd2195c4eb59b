"""Storing bundles at the ends of their groups.

An append reads the groups that it adds to. One conditional batch stores the bundles and what the groups are then. A
bundle that is stored or was finished a short time ago has a row under its id: a repeated append leaves it alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardq.errors import QueueNotFound
from shardq.sharding.shard import Shard
from shardq.storage.cassandra import directory, removal
from shardq.storage.cassandra.bundles import PART_BUNDLES, PART_BYTES
from shardq.storage.cassandra.changing import attempts
from shardq.storage.cassandra.faults import after_a_write
from shardq.storage.cassandra.groups.changing import Draft, Moment
from shardq.storage.cassandra.groups.reading import GroupReader
from shardq.storage.cassandra.groups.rows import group_id
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Append, Bundle
from shardq.storage.writing import append_in_parts

__all__ = ["append"]


def append(session: Session, entered: directory.Entered, request: Append, now: Moment) -> None:
    """Store the bundles; raises QueueNotFound."""
    shard = request.shard
    if not entered.is_fresh(shard):
        entered.look(session, shard)
    append_in_parts(
        request,
        lambda part: _store(session, shard, part, now),
        most_bytes=PART_BYTES,
        most_bundles=PART_BUNDLES,
    )
    with after_a_write():
        if not entered.is_fresh(shard):
            try:
                entered.look(session, shard)
            except QueueNotFound:  # nothing of this incarnation counts any more
                removal.erase(session, str(shard), now())
                directory.leave(session, shard)
                raise


def _store(session: Session, shard: Shard, bundles: Sequence[Bundle], now: Moment) -> None:
    reader = GroupReader(session, shard)
    stored: set[bytes] = set()
    with session.turn(str(shard)):
        for attempt in attempts(shard):
            if attempt:  # others were faster, or the bundles are stored
                stored = reader.known(each.id for each in bundles)
            new = {each.id: each for each in bundles if each.id not in stored}.values()
            if not new:
                return
            groups = reader.groups({group_id(each.group) for each in new})
            draft = Draft(session, shard, groups, now)
            for each in new:
                draft.add(each)
            if draft.apply():
                return
