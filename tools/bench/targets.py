"""What is asked of shardq and what the run measured, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from .asked import ASKED, Limit, Times
from .cells import times
from .comparison import Comparison
from .rounds import UNITS
from .stores.load import Load
from .stores.result import Result
from .stores.wording import FIXED_RATE, figure

MORE_CONSUMERS = 4
GROWN = 1.3  # times as long a claim may take with much more waiting


class Target(msgspec.Struct, frozen=True):
    """One line: what, how much is asked, how much it is, out of which figures, and whether that is enough."""

    store: str
    what: str
    asked: str
    measured: str
    figures: str
    met: bool


def targets(comparison: Comparison) -> Iterator[Target]:
    """Those of which the run has figures, store by store."""
    for store, asked in ASKED.items():
        own = f"shardq ({store})"
        for each in asked.times:
            yield from _compared(comparison, store, own, each)
        yield from _latency(comparison, store, own, {"p50": asked.p50, "p99": asked.p99})
        results = _of_store(comparison, store)
        for limit in asked.limits:
            yield from _limited(store, results, limit)
        if store != "SQLite":  # where a server does the work
            yield from _consumers(store, results)
        yield from _claims(store, results)


def _compared(comparison: Comparison, store: str, own: str, asked: Times) -> Iterator[Target]:
    peer, other = asked.peer or own, asked.other or asked.kind
    ratio = comparison.ratio(peer, asked.kind, own=own, other_kind=other)
    if ratio is None:
        return
    whose = asked.peer + (f", {other}" if asked.other and asked.peer else other if asked.other else "")
    mine, theirs = comparison.peer(own, asked.kind), comparison.peer(peer, other)
    unit = f" {UNITS[asked.kind]}" if asked.kind in UNITS else "/s"
    shown = " and ".join(figure(result.median) for result in (mine, theirs) if result) + unit
    met = ratio <= asked.wanted if asked.most else ratio >= asked.wanted
    sign = "<=" if asked.most else ">="
    yield Target(store, f"{asked.kind} / {whose}", f"{sign} {asked.wanted:g}x", times(ratio), shown, met)


def _latency(comparison: Comparison, store: str, own: str, most: dict[str, float]) -> Iterator[Target]:
    result = comparison.peer(own, FIXED_RATE)
    for mark, limit in most.items() if result else ():
        assert result is not None
        value = result.figure(mark)
        yield Target(
            store,
            f"latency between processes, {mark}",
            f"<= {limit:g} ms",
            f"{figure(value)} ms",
            f"{result.load.rate:g}/s, an open loop",
            value <= limit,
        )


def _of_store(comparison: Comparison, store: str) -> list[Result]:
    subject = store if comparison.store == "all" else "shardq"
    if comparison.store not in ("all", store.lower()):
        return []
    return [result for result in comparison.report.results if result.subject == subject]


def _limited(store: str, results: list[Result], limit: Limit) -> Iterator[Target]:
    for result in results:
        if result.name == limit.name:
            value = figure(result.median) + limit.unit
            yield Target(
                store, limit.name, f"<= {limit.most:g}{limit.unit}", value, "", result.median <= limit.most
            )


def _consumers(store: str, results: list[Result]) -> Iterator[Target]:
    """More consumers get no less through."""
    received = [result for result in results if result.name == "receive and ack"]
    found = {
        result.load.processes: result
        for result in received
        if msgspec.structs.replace(result.load, processes=1, messages=received[0].load.messages)
        == received[0].load
    }
    if MORE_CONSUMERS in found:
        few, many = found[1], found[MORE_CONSUMERS]
        ratio = many.median / few.median
        shown = f"{figure(many.median)} and {figure(few.median)}/s"
        yield Target(
            store, f"{MORE_CONSUMERS} consumer processes / 1", ">= 1x", times(ratio), shown, ratio >= 1
        )


def _claims(store: str, results: list[Result]) -> Iterator[Target]:
    claims = [result for result in results if result.name == "claim"]
    for batch in sorted({result.load.batch for result in claims}):
        of_batch = [result for result in claims if result.load.batch == batch]
        few, many = of_batch[1], of_batch[-1]
        yield _growth(store, f"claim of {batch}, {_waiting(many)} / {_waiting(few)}", few, many)
    for few, many in pairwise(result for result in results if result.name == "claim of singles"):
        what = f"claim of {many.load.batch} singles, {_waiting(many)} / {_waiting(few)}"
        yield _growth(store, what, few, many)
    after = [result for result in results if result.name == "claim after consumption"]
    for result in after[1:]:
        yield _growth(store, f"claim after {_past(result.load)} / none", after[0], result)


def _growth(store: str, what: str, few: Result, many: Result) -> Target:
    ratio = many.median / few.median
    shown = f"{figure(many.median)} and {figure(few.median)} ms"
    return Target(store, what, f"<= {GROWN}x", f"{ratio:.2f}x", shown, ratio <= GROWN)


def _waiting(result: Result) -> str:
    return f"{result.load.backlog:,} waiting"


def _past(load: Load) -> str:
    return f"{load.consumed:,} consumed{' and kept' if load.history else ''}"
