"""What ``shardq stats`` shows: the counts of a queue at one moment, and how they change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from shardq.cli.duration import in_words
from shardq.queue import Queue, QueueCounts, ShardState

__all__ = ["STATES", "Snapshot", "Total", "total_of"]

STATES = ("ready", "delayed", "in_flight", "processed")


class Total(msgspec.Struct, frozen=True):
    """Messages of a queue by state, and the change of each per second since the snapshot before."""

    queue: str
    ready: int
    delayed: int
    in_flight: int
    processed: int
    oldest: datetime | None
    oldest_seconds: float | None
    per_second: dict[str, float] | None = None
    shards: Sequence[ShardState] | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """The shards of a queue at one moment."""

    queue: str
    at: datetime
    shards: tuple[ShardState, ...]

    @classmethod
    def take(cls, queue: Queue) -> Snapshot:
        """Count now."""
        return cls(queue.name, datetime.now(UTC), queue.shard_states())

    def number(self, state: str) -> int:
        """All messages in a state."""
        return sum(getattr(shard.counts, state) for shard in self.shards)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest message was sent."""
        counts: list[QueueCounts] = [shard.counts for shard in self.shards]
        return min((part.oldest for part in counts if part.oldest is not None), default=None)


def total_of(now: Snapshot, before: Snapshot | None = None, *, shards: bool = False) -> Total:
    """A snapshot added up, with the changes since another."""
    numbers = {state: now.number(state) for state in STATES}
    age = None if now.oldest is None else max(0.0, (now.at - now.oldest).total_seconds())
    rates = None
    if before is not None:
        elapsed = max((now.at - before.at).total_seconds(), 0.001)
        rates = {state: round((numbers[state] - before.number(state)) / elapsed, 1) for state in STATES}
    return Total(
        now.queue,
        **numbers,
        oldest=now.oldest,
        oldest_seconds=age,
        per_second=rates,
        shards=now.shards if shards else None,
    )


def rows_of(total: Total) -> list[tuple[str, str, str]]:
    """A total as lines for people: state, number, change per second."""
    rates = total.per_second or {}
    rows = [
        (
            state.replace("_", " "),
            f"{getattr(total, state):,}",
            f"{rates[state]:+,.0f}/s" if state in rates else "",
        )
        for state in STATES
    ]
    age = "none" if total.oldest_seconds is None else in_words(total.oldest_seconds)
    return [*rows, ("oldest", age, "")]
