"""The measurements of shardq's own stores within a run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shardq.bench.command import measure
from shardq.bench.failure import BenchmarkFailed
from shardq.bench.machine import this_machine
from shardq.bench.report import Report
from shardq.bench.result import Result

from .field import Field
from .starting import Servers


class Measured(msgspec.Struct, frozen=True):
    """The results of all stores in one report, and which store's measurements failed."""

    report: Report
    missing: tuple[str, ...]


def measure_stores(field: Field, servers: Servers, *, quick: bool) -> Measured:
    """Measure each store that runs; where there are several, its results name it."""
    results: list[Result] = []
    missing: list[str] = []
    for store, url in servers.stores.items():
        try:
            results += _of_store(field, store, url, quick=quick)
        except BenchmarkFailed as reason:
            missing.append(f"the measurements of {store} ({reason})")
    report = Report(machine=this_machine(), store=field.store, quick=quick, results=tuple(results))
    return Measured(report, tuple(missing))


def _of_store(field: Field, store: str, url: str | None, *, quick: bool) -> Iterator[Result]:
    for result in measure(url, field.measured, None, quick=quick).results:
        yield msgspec.structs.replace(result, subject=store) if field.several else result
