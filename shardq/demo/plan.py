"""What the user of the demo may choose, and what a run is asked to do."""

from __future__ import annotations

from pathlib import Path

from shardq.storage.opening import HasUrl

__all__ = ["Options", "Plan"]

KILL_AT = 0.4  # the share of the flights after which a worker is killed


class Options(HasUrl, frozen=True, kw_only=True):
    """The command's options. None: the SQLite file of the run, the data set from the package index, every flight."""

    url: str | None = None
    data: Path | None = None
    messages: int | None = None
    producers: int = 2
    workers: int = 3
    shards: int = 8
    time_shards: int = 10
    batch: int = 500
    visibility_timeout: float = 3.0
    output: Path = Path("shardq-demo")
    kill: bool = True
    keep: bool = False


class Plan(HasUrl, frozen=True, kw_only=True):
    """The settings of a run, the same in every process. Durations are seconds."""

    url: str
    queue: str
    data: Path
    records: Path  # the folder for what the processes write down
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
    def kill_after(self) -> int | None:
        """After so many flights received, the worker that has the next batch is killed. None: no worker."""
        return max(1, int(self.messages * KILL_AT)) if self.kill else None

    def part(self, producer: int) -> tuple[int, int]:
        """The rows of a producer: from, until, counted from 0."""
        return (
            producer * self.messages // self.producers,
            (producer + 1) * self.messages // self.producers,
        )
