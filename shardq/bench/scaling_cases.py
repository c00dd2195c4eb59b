"""The measurements of how costs grow: with the backlog, with the past, with time."""

from __future__ import annotations

from collections.abc import Iterator

from shardq.bench.accounting import is_accounted
from shardq.bench.case import Case
from shardq.bench.load import Load
from shardq.bench.measurements.claim_backlog import claim_backlog
from shardq.bench.measurements.claim_history import claim_history
from shardq.bench.measurements.idle import idle
from shardq.bench.measurements.memory import memory
from shardq.bench.size import Size

__all__ = ["scaling_cases"]

CLAIM_SIZES = (100, 500)
HISTORY_BACKLOG = 10_000
BACKLOG_ROUNDS, HISTORY_ROUNDS = 5, 3


def scaling_cases(size: Size) -> Iterator[Case]:
    """In the order in which they are shown."""
    yield from _backlog_cases(size)
    yield from _history_cases(size)
    if is_accounted():
        load = Load(messages=size.memory)
        yield Case(name="memory of a consumer", unit="x of start", measure=memory, load=load, rounds=1)
    load = Load(processes=size.idle_processes, seconds=size.idle_seconds)
    yield Case(name="idle consumers", unit="% of a core", measure=idle, load=load, rounds=1)


def _backlog_cases(size: Size) -> Iterator[Case]:
    for batch in CLAIM_SIZES:
        for backlog in size.backlogs:
            load = Load(batch=batch, backlog=backlog, claims=size.claims)
            yield Case(name="claim", unit="ms", measure=claim_backlog, load=load, rounds=BACKLOG_ROUNDS)
    for backlog in (size.backlogs[1], size.backlogs[-1]):
        load = Load(batch=CLAIM_SIZES[0], backlog=backlog, claims=size.claims, singles=True)
        yield Case(name="claim of singles", unit="ms", measure=claim_backlog, load=load, rounds=1)


def _history_cases(size: Size) -> Iterator[Case]:
    backlog = min(HISTORY_BACKLOG, size.backlogs[1])
    for consumed, history in ((0, False), (size.consumed, False), (size.consumed, True)):
        load = Load(backlog=backlog, consumed=consumed, history=history, claims=size.claims)
        yield Case(
            name="claim after consumption", unit="ms", measure=claim_history, load=load, rounds=HISTORY_ROUNDS
        )
