"""How large a run of the benchmarks is."""

from __future__ import annotations

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "Size"]


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
