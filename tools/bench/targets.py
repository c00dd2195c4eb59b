"""What shardq is to reach on each store, and what it reached."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from shardq.bench.load import Load
from shardq.bench.result import Result
from shardq.bench.wording import IDLE_WITH_SERVER, figure

from .cells import times
from .comparison import Comparison
from .rounds import BULK_SEND, RECEIVE, RECEIVE_SINGLES, SINGLE_SEND

# By store: peer, kind, how many times as fast as the peer.
RATIOS = {
    "sqlite": (
        ("RabbitMQ, confirms", BULK_SEND, 10),
        ("RabbitMQ, confirms", RECEIVE, 8),
        ("RabbitMQ, no confirms", BULK_SEND, 10),
        ("Redis streams, hiredis", BULK_SEND, 3),
        ("Redis streams, hiredis", RECEIVE, 3),
        ("Redis streams, without hiredis", BULK_SEND, 3),
        ("Redis streams, without hiredis", RECEIVE, 3),
        ("persist-queue, SQLiteAckQueue", BULK_SEND, 20),
        ("persist-queue, SQLiteAckQueue", RECEIVE, 20),
    ),
    "cassandra": (
        ("wide-row recipe, one row a message", BULK_SEND, 4),
        ("cassandra-driver alone", BULK_SEND, 0.7),
        ("wide-row recipe, one row a message", RECEIVE, 8),
        ("cassandra-driver alone", RECEIVE, 0.4),
        ("wide-row recipe, one row a message", RECEIVE_SINGLES, 1.5),
    ),
    "mongodb": (
        ("Keuss 2.0.6, bucket-mongo-safe", BULK_SEND, 2),
        ("Keuss 2.0.6, mongo", BULK_SEND, 40),
        ("kombu, mongodb transport", BULK_SEND, 100),
        ("Keuss 2.0.6, bucket-mongo-safe", RECEIVE, 3),
        ("Keuss 2.0.6, mongo", RECEIVE, 60),
        ("kombu, mongodb transport", RECEIVE, 60),
        ("Keuss 2.0.6, mongo", SINGLE_SEND, 1),
        ("Keuss 2.0.6, mongo", RECEIVE_SINGLES, 5),
    ),
}
LIMITS = {
    "sqlite": (
        ("memory of a consumer", "x", 1.2),
        ("idle consumers", " % of a core", 2.0),
        ("latency within a process", " ms", 10.0),
        ("latency between processes", " ms", 50.0),
    ),
    "cassandra": (("memory of a consumer", "x", 1.2), ("latency between processes", " ms", 150.0)),
    "mongodb": (
        ("memory of a consumer", "x", 1.2),
        (IDLE_WITH_SERVER, " % of a core", 2.0),
        ("latency between processes", " ms", 15.0),
    ),
}
MORE_CONSUMERS = 4


class Target(msgspec.Struct, frozen=True):
    """One line: what, how much is wanted, how much it is, and whether that is enough."""

    what: str
    wanted: str
    reached: str
    met: bool


def targets(comparison: Comparison) -> Iterator[Target]:
    """Those of which the run has figures."""
    for peer, kind, wanted in RATIOS.get(comparison.store, ()):
        for own in comparison.ours[: 1 if kind == BULK_SEND else None]:
            if (ratio := comparison.ratio(peer, kind, own=own)) is not None:
                _, comma, variant = own.partition(", ")
                what = f"{kind}{comma}{variant} / {peer}"
                yield Target(what, f">= {wanted}x", times(ratio), ratio >= wanted)
    yield from _consumers(comparison)
    yield from _claims(comparison)
    yield from _limits(comparison)


def _consumers(comparison: Comparison) -> Iterator[Target]:
    """More consumers get no less through, where a server does the work."""
    results = comparison.report.of("receive and ack")
    if not results:
        return
    one = results[0].load
    found = {
        result.load.processes: result
        for result in results
        if msgspec.structs.replace(result.load, processes=1, messages=one.messages) == one
    }
    if comparison.store == "sqlite" or MORE_CONSUMERS not in found:
        return
    ratio = found[MORE_CONSUMERS].median / found[1].median
    yield Target(f"{MORE_CONSUMERS} consumer processes / 1", ">= 1x", times(ratio), ratio >= 1)


def _claims(comparison: Comparison) -> Iterator[Target]:
    claims = comparison.report.of("claim")
    for batch in sorted({result.load.batch for result in claims}):
        of_batch = [result for result in claims if result.load.batch == batch]
        few, many = of_batch[1], of_batch[-1]
        yield _growth(f"claim of {batch}, {_waiting(many)} / {_waiting(few)}", few, many)
    singles = comparison.report.of("claim of singles")
    for few, many in pairwise(singles):
        yield _growth(f"claim of {many.load.batch} singles, {_waiting(many)} / {_waiting(few)}", few, many)
    after = comparison.report.of("claim after consumption")
    for result in after[1:]:
        yield _growth(f"claim after {_past(result.load)} / none", after[0], result)


def _growth(what: str, few: Result, many: Result) -> Target:
    ratio = many.median / few.median
    return Target(what, "<= 1.3x", f"{ratio:.2f}x", ratio <= 1.3)


def _limits(comparison: Comparison) -> Iterator[Target]:
    for name, unit, limit in LIMITS.get(comparison.store, ()):
        for result in comparison.report.of(name):
            value = result.median
            yield Target(name, f"< {limit:g}{unit}", f"{figure(value)}{unit}", value < limit)


def _waiting(result: Result) -> str:
    return f"{result.load.backlog:,} waiting"


def _past(load: Load) -> str:
    return f"{load.consumed:,} consumed{' and kept' if load.history else ''}"
