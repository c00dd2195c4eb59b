"""The measurements of shardq's own stores within a run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shardq.bench.command import measure
from shardq.bench.machine import this_machine
from shardq.bench.report import Report
from shardq.bench.result import Result
from shardq.bench.stage import Stage
from shardq.errors import ShardqError

from .axis import axes
from .field import Field
from .growing import grow
from .growth import measure_growth
from .peer import last_words
from .starting import Servers


class Measured(msgspec.Struct, frozen=True):
    """The results of all stores in one report, which store's failed, and which loads would have taken too long."""

    report: Report
    missing: tuple[str, ...]
    left_out: tuple[str, ...]


def measure_stores(field: Field, servers: Servers, *, quick: bool, say: Callable[[str], None]) -> Measured:
    """Measure each store that runs; where there are several, its results name it."""
    results: list[Result] = []
    missing: list[str] = []
    left_out: list[str] = []
    for store, url in servers.stores.items():
        try:
            found = measure(url, field.measured, None, quick=quick).results
            grown = measure_growth(Stage(url), axes(quick=quick), grow, say)
        except (ShardqError, OSError) as reason:  # must not cost the figures of the others
            missing.append(f"the measurements of {store} ({last_words(str(reason))})")
            continue
        subject = store if field.several else "shardq"
        results += (msgspec.structs.replace(result, subject=subject) for result in (*found, *grown.results))
        left_out += (f"{store}, {reason}" for reason in grown.left_out)
    report = Report(machine=this_machine(), store=field.store, quick=quick, results=tuple(results))
    return Measured(report, tuple(missing), tuple(left_out))
