"""What must not grow: each line of the samples, and by how much it may at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from .plan import Plan
from .sample import Sample

__all__ = ["Series", "all_series"]

MEGABYTE = 1_000_000
FILES_SHARE = 0.1  # of the bodies sent: tombstones and logs are kept for a while


class Bound(msgspec.Struct, frozen=True):
    """What it may grow by over the last two thirds: a share of its median there, or ``least`` where that is more."""

    share: float
    least: float


class Series(msgspec.Struct, frozen=True):
    """Points (seconds, value), in the unit, and their bound; None for what is shown only."""

    name: str
    unit: str
    bound: Bound | None
    points: tuple[tuple[float, float], ...]


def all_series(samples: Sequence[Sample], plan: Plan) -> Iterator[Series]:
    """Those of which there are points."""
    for name in dict.fromkeys(name for sample in samples for name in sample.client_bytes):
        yield _memory(f"memory of {name}", samples, partial(_client_bytes, name), 5)
    yield _memory("memory of the server", samples, lambda each: each.server_bytes, 50)
    sent = plan.rate * plan.body_bytes * plan.seconds * 2 / 3 / MEGABYTE
    yield _series(
        "files", "MB", Bound(0, max(64, FILES_SHARE * sent)), samples, lambda each: _mb(each.file_bytes)
    )
    yield _series("tombstones of a read, p99", "", Bound(0, 100), samples, lambda each: each.tombstones)
    yield _series(
        "latency, p50",
        "ms",
        Bound(0.25, 10),
        samples,
        lambda each: each.latency.p50 if each.latency else None,
    )
    yield _series(
        "latency, p99", "ms", Bound(0.5, 50), samples, lambda each: each.latency.p99 if each.latency else None
    )
    yield _series("backlog", "messages", Bound(0, plan.rate), samples, lambda each: each.backlog)
    yield _series("load of the machine", "", None, samples, lambda each: each.machine_load)


def _client_bytes(name: str, sample: Sample) -> int | None:
    return sample.client_bytes.get(name)


def _memory(
    name: str, samples: Sequence[Sample], value: Callable[[Sample], int | None], least: float
) -> Series:
    return _series(name, "MB", Bound(0.05, least), samples, lambda each: _mb(value(each)))


def _series(
    name: str,
    unit: str,
    bound: Bound | None,
    samples: Sequence[Sample],
    value: Callable[[Sample], float | None],
) -> Series:
    points = ((each.at, value(each)) for each in samples)
    return Series(name, unit, bound, tuple((at, float(y)) for at, y in points if y is not None))


def _mb(size: int | None) -> float | None:
    return None if size is None else size / MEGABYTE
