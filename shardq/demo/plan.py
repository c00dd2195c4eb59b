"""What a run of the demo is asked to do."""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["Plan"]

KILL_AT = 0.4  # the share of the flights after which a worker is killed


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run, the same in every process. Durations are seconds."""

    url: str
    queue: str
    data: Path
    records: Path
    messages: int
    producers: int
    workers: int
    shards: int
    time_shards: int
    time_shard_seconds: float
    batch: int
    visibility_timeout: float
    kill: bool

    @property
    def kill_after(self) -> int:
        """After so many flights received, the worker that has the next batch is killed; more than there are: none."""
        return max(1, int(self.messages * KILL_AT)) if self.kill else 2**62

    @property
    def worker_places(self) -> int:
        """Workers, with the one that replaces the killed one."""
        return self.workers + int(self.kill)

    def part(self, producer: int) -> tuple[int, int]:
        """The rows of a producer: from, until, counted from 0."""
        return (
            producer * self.messages // self.producers,
            (producer + 1) * self.messages // self.producers,
        )
