"""Storing bundles at the ends of their groups.

An append reads the groups that it adds to. One conditional batch stores the bundles and what the groups are then. A
bundle that is stored or was finished a short time ago has a row under its id: a repeated append leaves it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound
from shardq.storage.cassandra import directory, removal
from shardq.storage.cassandra.bundles import PART_BUNDLES, PART_BYTES
from shardq.storage.cassandra.changing import attempts
from shardq.storage.cassandra.groups.changing import Draft, Moment
from shardq.storage.cassandra.groups.reading import GroupReader
from shardq.storage.cassandra.groups.rows import group_id
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Append, Bundle
from shardq.storage.writing import after_a_write, append_in_parts

__all__ = ["append"]


def append(session: Session, listed: directory.ListedShards, request: Append, now: Moment) -> None:
    """Store the bundles; raises QueueNotFound."""
    shard = request.shard
    if not listed.is_fresh(shard):
        listed.check(session, shard)
    append_in_parts(
        request,
        lambda part: _store(session, shard, part, now),
        most_bytes=PART_BYTES,
        most_bundles=PART_BUNDLES,
    )
    with after_a_write():
        if not listed.is_fresh(shard):
            try:
                listed.check(session, shard)
            except QueueNotFound:  # nothing of this incarnation counts any more
                removal.erase(session, str(shard), now())
                raise


def _store(session: Session, shard: Shard, bundles: Sequence[Bundle], now: Moment) -> None:
    """Store them in one change; in several, in their order, while others change some of the groups all the time."""
    left = list({each.id: each for each in bundles}.values())
    all_of_them = len(left)
    storing = _Storing(session, shard, now, all_of_them)
    with session.lock(str(shard)):
        while left:
            with after_a_write() if len(left) < all_of_them else nullcontext():
                left = left[storing.store_some(left) :]


class _Storing:
    def __init__(self, session: Session, shard: Shard, now: Moment, most: int) -> None:
        self._session, self._shard, self._now = session, shard, now
        self._reader = GroupReader(session, shard)
        self._most = most  # bundles at once

    def store_some(self, bundles: Sequence[Bundle]) -> int:
        """Store the first of the bundles; returns how many."""
        for attempt in attempts(self._shard):
            part = bundles[: self._most]
            stored: set[bytes] = set()
            if attempt:  # others were faster, or the bundles are stored
                stored = self._reader.known(each.id for each in part)
            if self._apply([each for each in part if each.id not in stored]):
                break
            if attempt:
                self._most = max(len(part) >> 1, 1)
        return len(part)

    def _apply(self, new: Sequence[Bundle]) -> bool:
        if not new:
            return True
        groups = self._reader.groups({group_id(each.group) for each in new})
        draft = Draft(self._session, self._shard, groups, self._now)
        for each in new:
            draft.add(each)
        return draft.apply()
