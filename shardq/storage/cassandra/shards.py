"""The operations on a shard, under its name in the tables. ``groups/shards.py`` has the same for groups."""

from __future__ import annotations

from shardq.base.shard import Shard
from shardq.storage.cassandra import bundles, claims, peeking, removal, settling
from shardq.storage.cassandra.directory import Entered
from shardq.storage.cassandra.lease_rows import Held
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

__all__ = ["UngroupedShards"]


class UngroupedShards:
    """Shards without groups. Sends are plain writes; everything else is one conditional batch."""

    def __init__(self, session: Session, cursors: ReadCursors, entered: Entered, clock: ServerClock) -> None:
        self._session, self._cursors, self._entered, self._clock = session, cursors, entered, clock
        self.held = Held()

    def append(self, request: Append) -> None:
        """Store the bundles; raises QueueNotFound when this incarnation of the queue has ended."""
        bundles.append(self._session, self._entered, request, self._now)

    def claim(self, request: Claim) -> Claimed:
        """Take messages with one read and one conditional batch."""
        return claims.claim(self._session, self._cursors, self.held, request, self._clock)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held."""
        return settling.acknowledge(self._session, self.held, request, self._now)

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return settling.extend(self._session, self.held, request, self._now)

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held."""
        return settling.release(self._session, self.held, request, self._now)

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one conditional batch, within a shard."""
        return settling.forward(self._session, self.held, request, self._now)

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, in delivery order."""
        return peeking.peek(self._row(request.shard), request, self._now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return peeking.find(self._row(shard), bundle_id, position, self._now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return removal.remove(self._session, shard, bundle_id, position)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, some hundred at a time; returns how many they were."""
        return removal.purge(self._session, shard, self._now() + bundles.HEAD_START, self._now)

    def count(self, shard: Shard, *, sizes: bool) -> ShardCounts:
        """Count messages by state; the cost grows with the number of slices."""
        return peeking.count(self._row(shard), self._now(), sizes=sizes)

    def is_empty(self, shard: Shard) -> bool:
        """Return whether the shard holds nothing, its history included."""
        return peeking.is_empty(self._row(shard), self._now())

    def _now(self) -> int:
        return self._clock.now()

    def _row(self, shard: Shard) -> WideRow:
        return WideRow(self._session, str(shard))
