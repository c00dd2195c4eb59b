"""What a measurement is given to do, and how large a run of all measurements is."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "Load", "Size", "bodies"]

DIFFERENT_BODIES = 64


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a measurement; each reads what concerns it.

    ``messages`` in all, ``batch`` for each bulk read, ``rate`` in messages per second, ``linger`` and ``seconds``
    in seconds.
    """

    messages: int = 0
    body_bytes: int = 512
    shards: int = 8
    processes: int = 1
    threads: int = 1
    batch: int = 500
    linger: float = 0.0
    rate: float = 0.0
    seconds: float = 0.0
    backlog: int = 0
    consumed: int = 0
    claims: int = 0
    singles: bool = False
    history: bool = False


def bodies(count: int, size: int) -> Iterator[bytes]:
    """So many bodies of random bytes, the same in every run; some dozens of different ones, in turn."""
    source = random.Random(size)
    different = [source.randbytes(size) for _ in range(min(count, DIFFERENT_BODIES))]
    return itertools.islice(itertools.cycle(different), count)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of messages and rounds, durations in seconds; ``thin``: no variations of body, batch, processes."""

    rounds: int
    bulk: int
    singles: int
    threads: int
    latencies: int
    rate: float
    rate_seconds: float
    claims: int
    backlogs: tuple[int, ...]
    consumed: int
    memory: int
    idle_seconds: float
    idle_processes: int
    thin: bool


FULL = Size(
    rounds=5,
    bulk=100_000,
    singles=2_000,
    threads=8_000,
    latencies=200,
    rate=500.0,
    rate_seconds=4.0,
    claims=100,
    backlogs=(1_000, 10_000, 100_000, 1_000_000),
    consumed=1_000_000,
    memory=1_000_000,
    idle_seconds=20.0,
    idle_processes=10,
    thin=False,
)
QUICK = Size(
    rounds=3,
    bulk=50_000,
    singles=1_000,
    threads=2_000,
    latencies=50,
    rate=500.0,
    rate_seconds=1.0,
    claims=40,
    backlogs=(1_000, 10_000, 100_000),
    consumed=100_000,
    memory=200_000,
    idle_seconds=5.0,
    idle_processes=10,
    thin=True,
)
TINY = Size(
    rounds=1,
    bulk=400,
    singles=20,
    threads=64,
    latencies=3,
    rate=50.0,
    rate_seconds=0.2,
    claims=2,
    backlogs=(1_000, 2_000),
    consumed=1_000,
    memory=2_000,
    idle_seconds=0.2,
    idle_processes=2,
    thin=True,
)
