"""The operations on a shard, under its name in the tables: one without groups, and one of groups."""

from __future__ import annotations

from shardq.base.shard import Shard
from shardq.storage.cassandra import bundles, claims, peeking, removal, settling
from shardq.storage.cassandra.directory import ListedShards
from shardq.storage.cassandra.groups import bundles as group_bundles
from shardq.storage.cassandra.groups import claims as group_claims
from shardq.storage.cassandra.groups import peeking as group_peeking
from shardq.storage.cassandra.groups import removal as group_removal
from shardq.storage.cassandra.groups import settling as group_settling
from shardq.storage.cassandra.groups.changing import KnownGroups
from shardq.storage.cassandra.groups.reading import GroupReader
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

__all__ = ["GroupedShards", "UngroupedShards"]


class UngroupedShards:
    """Shards without groups. Sends are plain writes; everything else is one conditional batch."""

    def __init__(
        self, session: Session, cursors: ReadCursors, listed: ListedShards, clock: ServerClock
    ) -> None:
        self._session, self._cursors, self._listed, self._clock = session, cursors, listed, clock
        self.held = Held()

    def append(self, request: Append) -> None:
        """Store the bundles; raises QueueNotFound when this incarnation of the queue has ended."""
        bundles.append(self._session, self._listed, request, self._now)

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


class GroupedShards:
    """Shards of groups. Everything that changes one is a conditional batch, sends too."""

    def __init__(
        self, session: Session, cursors: ReadCursors, listed: ListedShards, clock: ServerClock
    ) -> None:
        self._session, self._cursors, self._listed, self._clock = session, cursors, listed, clock
        self.known = KnownGroups()

    def append(self, request: Append) -> None:
        """Store the bundles at the ends of their groups; raises QueueNotFound when this incarnation has ended."""
        group_bundles.append(self._session, self._listed, request, self._now)

    def claim(self, request: Claim) -> Claimed:
        """Take the first messages of groups, and those after them."""
        return group_claims.claim(self._session, self._cursors, self.known, request, self._clock)

    def acknowledge(self, request: Acknowledge) -> Fenced:
        """Finish messages that are still held, and let the next go."""
        return group_settling.acknowledge(self._session, self.known, request, self._now)

    def extend(self, request: Extend) -> Fenced:
        """Hide messages that are still held until now + lease."""
        return group_settling.extend(self._session, self.known, request, self._now)

    def release(self, request: Release) -> Fenced:
        """Release messages that are still held, and the held ones behind them."""
        return group_settling.release(self._session, self.known, request, self._now)

    def forward(self, request: Forward) -> Fenced:
        """Acknowledge and append in one conditional batch, within a shard."""
        return group_settling.forward(self._session, self.known, request, self._now)

    def peek(self, request: Peek) -> PeekPage:
        """Read one page of slices, group after group; of the history, as in every shard."""
        if request.processed:
            return peeking.peek(WideRow(self._session, str(request.shard)), request, self._now())
        return group_peeking.peek(self._reader(request.shard), request, self._now())

    def find(self, shard: Shard, bundle_id: bytes, position: int) -> StoredSlice | None:
        """Return the slice that holds this message, in the history too, or None."""
        return group_peeking.find(self._reader(shard), bundle_id, position, self._now())

    def remove(self, shard: Shard, bundle_id: bytes, position: int) -> bool:
        """Remove one message, out of the history too; False when it is not stored."""
        return group_removal.remove(self._session, shard, bundle_id, position, self._now)

    def purge(self, shard: Shard) -> int:
        """Remove all messages of the shard, group by group; returns how many they were."""
        return group_removal.purge(self._session, shard, self._now() + bundles.HEAD_START, self._now)

    def count(self, shard: Shard, *, sizes: bool) -> ShardCounts:
        """Count messages by state; the cost grows with the number of slices."""
        return group_peeking.count(self._reader(shard), self._now(), sizes=sizes)

    def is_empty(self, shard: Shard) -> bool:
        """Return whether the shard holds nothing, its history included."""
        return group_peeking.is_empty(self._reader(shard))

    def _now(self) -> int:
        return self._clock.now()

    def _reader(self, shard: Shard) -> GroupReader:
        return GroupReader(self._session, shard)
