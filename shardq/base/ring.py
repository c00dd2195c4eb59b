"""The ring of time shards: which of them a moment belongs to."""

from __future__ import annotations

import msgspec

from shardq.base.shard import Shard

__all__ = ["Layout"]


class Layout(msgspec.Struct, frozen=True):
    """How a queue is cut into shards.

    >>> Layout(shards=20, time_shards=50, time_shard_seconds=30).time_shard(1_000_000_000)
    33
    """

    shards: int
    time_shards: int
    time_shard_seconds: float

    def window(self, moment: int) -> int:
        """Return the number of the window of ``time_shard_seconds`` that a moment in microseconds is in."""
        return int(moment // (self.time_shard_seconds * 1_000_000))

    def time_shard(self, moment: int) -> int:
        """Return the place on the ring of the window that a moment in microseconds is in."""
        return int(moment // (self.time_shard_seconds * 1_000_000)) % self.time_shards

    def all_shards(self, queue: str) -> tuple[Shard, ...]:
        """List every shard of the ring."""
        return tuple(
            Shard(queue, time_shard, number)
            for time_shard in range(self.time_shards)
            for number in range(self.shards)
        )

    def time_shards_between(self, start: int, end: int) -> tuple[int, ...]:
        """List the places on the ring that are passed from one moment to another, both included, in order."""
        first, last = self.window(start), self.window(end)
        first = max(first, last - self.time_shards + 1)
        return tuple(window % self.time_shards for window in range(first, last + 1))

    def shards_between(self, queue: str, start: int, end: int) -> tuple[Shard, ...]:
        """List every shard that is written between two moments."""
        return tuple(
            Shard(queue, time_shard, number)
            for time_shard in self.time_shards_between(start, end)
            for number in range(self.shards)
        )
