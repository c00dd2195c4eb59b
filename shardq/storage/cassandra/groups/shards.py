"""The operations on a shard of groups, under its name in the tables."""

from __future__ import annotations

from shardq.base.shard import Shard
from shardq.storage.cassandra.bundles import HEAD_START
from shardq.storage.cassandra.directory import Entered
from shardq.storage.cassandra.groups import bundles, claims, peeking, removal, settling
from shardq.storage.cassandra.groups.changing import KnownGroups
from shardq.storage.cassandra.groups.reading import GroupReader
from shardq.storage.cassandra.peeking import peek as history
from shardq.storage.cassandra.read_cursors import ReadCursors
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.shard_rows import WideRow
from shardq.storage.clocks import ServerClock
from shardq.storage.requests import (
    Acknowledge,
    Append,
    Claim,
    Claimed,
    Extend,
    Fenced,
    Forward,
    Peek,
    PeekPage,
    Release,
    ShardCounts,
    StoredSlice,
)

__all__ = ["GroupedShards"]


class GroupedShards:
    """Shards of groups. Everything that changes one is a conditional batch, sends too."""

    def __init__(self, session: Session, cursors: ReadCursors, entered: Entered, clock: ServerClock) -> None:
        self._session, self._cursors, self._entered, self._clock = session, cursors, entered, clock
        self.known = KnownGroups()

    def append(self, request: Append) -> None:
        """Store the bundles at the ends of their groups; raises QueueNotFound when this incarnation has ended."""
        bundles.append(self._session, self._entered, request, self._now)

    def claim(self, request: Claim) -> Claimed:
        """Take the first messages of groups, and those after them."""
        return claims.claim(self._session, self._cursors, self.known, request, self._clock)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held, and let the next go."""
        return settling.acknowledge(self._session, self.known, request, self._now)

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return settling.extend(self._session, self.known, request, self._now)

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held, and the held ones behind them."""
        return settling.release(self._session, self.known, request, self._now)

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one conditional batch, within a shard."""
        return settling.forward(self._session, self.known, request, self._now)

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, group after group; of the history, as in every shard."""
        if request.processed:
            return history(WideRow(self._session, str(request.shard)), request, self._now())
        return peeking.peek(self._reader(request.shard), request, self._now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return peeking.find(self._reader(shard), bundle_id, position, self._now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return removal.remove(self._session, shard, bundle_id, position, self._now)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, group by group; returns how many they were."""
        return removal.purge(self._session, shard, self._now() + HEAD_START, self._now)

    def count(self, shard: Shard, *, sizes: bool) -> ShardCounts:
        """Count messages by state; the cost grows with the number of slices."""
        return peeking.count(self._reader(shard), self._now(), sizes=sizes)

    def is_empty(self, shard: Shard) -> bool:
        """Return whether the shard holds nothing, its history included."""
        return peeking.is_empty(self._reader(shard))

    def _now(self) -> int:
        return self._clock.now()

    def _reader(self, shard: Shard) -> GroupReader:
        return GroupReader(self._session, shard)
