"""The measurements of shardq's own stores within a run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shardq.errors import ShardqError

from .axis import axes
from .database import Running
from .field import Field
from .growing import counted, grow
from .growth import Growth, measure_growth
from .idling import measure_idle
from .peer import last_words
from .starting import Servers
from .stores.cases import cases_of, run_cases
from .stores.load import FULL, QUICK
from .stores.report import Report, this_machine
from .stores.result import Result
from .stores.stage import Stage
from .stores.wording import IDLE, IDLE_WITH_SERVER


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
    for store, running in servers.stores.items():
        try:
            found, grown = _measure(field, running, quick=quick, say=say)
        except (ShardqError, OSError) as reason:  # must not cost the figures of the others
            missing.append(f"the measurements of {store} ({last_words(str(reason))})")
            continue
        subject = store if field.several else "shardq"
        results += (msgspec.structs.replace(result, subject=subject) for result in (*found, *grown.results))
        left_out += (f"{store}, {reason}" for reason in grown.left_out)
    report = Report(machine=this_machine(), store=field.store, quick=quick, results=tuple(results))
    return Measured(report, tuple(missing), tuple(left_out))


def _measure(
    field: Field, running: Running | None, *, quick: bool, say: Callable[[str], None]
) -> tuple[list[Result], Growth]:
    url = running.url if running else None
    results = _idle(field, running, quick=quick and not field.short, say=say)
    if field.short:
        return results, Growth((), ())
    size = QUICK if quick else FULL
    results += run_cases(cases_of(size, field.measured), Stage(url), size.rounds, say)
    measure_one = counted(grow, running.counts) if running is not None else grow
    return results, measure_growth(Stage(url), axes(quick=quick), measure_one, say)


def _idle(field: Field, running: Running | None, *, quick: bool, say: Callable[[str], None]) -> list[Result]:
    """With what a server does for them; without one, where the other measurements leave it out."""
    if running is not None:
        if running.usage is None:
            return []
        say(IDLE_WITH_SERVER)
        return [measure_idle(Stage(running.url), running.usage, quick=quick)]
    if field.measured or field.short:
        case = next(case for case in cases_of(QUICK if quick else FULL, ("scaling",)) if case.name == IDLE)
        return run_cases([case], Stage(), 1, say)
    return []
