"""The measurements of latency."""

from __future__ import annotations

from collections.abc import Iterator

from shardq.bench.case import Case
from shardq.bench.load import Load
from shardq.bench.measurements.latency_fixed_rate import latency_fixed_rate
from shardq.bench.measurements.latency_process import latency_process
from shardq.bench.measurements.latency_processes import latency_processes
from shardq.bench.size import Size
from shardq.bench.throughput_cases import LARGE, SMALL, USUAL
from shardq.bench.wording import FIXED_RATE

__all__ = ["latency_cases"]

ROUNDS = 3


def latency_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown."""
    closed = Load(messages=size.latencies, batch=1)
    yield Case(
        name="latency within a process", unit="ms", measure=latency_process, load=closed, rounds=ROUNDS
    )
    yield Case(
        name="latency between processes", unit="ms", measure=latency_processes, load=closed, rounds=ROUNDS
    )
    for body_bytes in (USUAL,) if size.thin else (SMALL, USUAL, LARGE):
        load = Load(body_bytes=body_bytes, rate=size.rate, seconds=size.rate_seconds, batch=100)
        yield Case(name=FIXED_RATE, unit="ms", measure=latency_fixed_rate, load=load, rounds=ROUNDS)
