"""Clients of one shard: what they do, what there is at first, how the time goes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from shardq.base.shard import Shard
from shardq.storage.cassandra.bundles import _statements
from shardq.storage.cassandra.changing import CONTROL_KEY, CQL_REPLACE, CQL_TAKE, CQL_TURN
from shardq.storage.cassandra.read_cursors import GUARD
from shardq.storage.cassandra.rows import Control, encode
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Claimed, Extend, Release, Span
from tests.model.exploration import START, Scenario, Script
from tests.model.modelled_client import Run
from tests.model.modelled_table import Database
from tests.model.promises import Call

SHARD, DEAD = Shard("q", 0, 0), Shard("q.dead", 0, 0)
LEASE = 30_000_000
SECOND = 1_000_000
_TRIES = 3

Calls: TypeAlias = Generator[Call, Run, Any]


def script(calls: Callable[[], Calls], *, skew: int = 0, coordinator_skew: int = 0) -> Script:
    """A script out of a generator of calls: it is run again with the results so far."""

    def next_call(results: Sequence[Run]) -> Call | None:
        generator = calls()
        try:
            call = next(generator)
            for result in results:
                call = generator.send(result)
        except StopIteration:
            return None
        return call

    return Script(next_call, skew, coordinator_skew)


def persist(call: Call) -> Generator[Call, Run, Any]:
    """Repeat a call that failed, as every caller of a store does; None when it is given up."""
    for _ in range(_TRIES):
        went = yield call
        if not went.error:
            return went.result
    return None


def bundle(number: int, count: int = 1, *, made: int = START, due: int | None = None) -> Bundle:
    """The bundle of this number; its body is its id."""
    bundle_id = (made // 1000).to_bytes(6, "big") + bytes(9) + bytes([number])
    return Bundle(bundle_id, 0, made if due is None else due, made, count, bundle_id)


def stored(*bundles: Bundle) -> Database:
    """Rows as appends left them, in a shard that was never claimed from."""
    return Database().write(list(_statements(str(SHARD), bundles, 0, ())), START)


def used(*bundles: Bundle, shard: Shard = SHARD) -> Database:
    """The same in a shard whose low watermarks are so high that a claim has no reason to raise them."""
    control = encode(Control((START - GUARD,) * 10 + (START - 60 * SECOND, 0)))
    statements = [
        (CQL_REPLACE, (control, str(shard), *CONTROL_KEY, None)),
        (CQL_TURN, (b"before", str(shard), *CONTROL_KEY)),
    ]
    return stored(*bundles).apply(statements, START)[0]


def taken() -> Database:
    """An empty shard of which something was taken a moment ago, so that a probe may raise its low watermarks."""
    return Database().apply([(CQL_TAKE, (b"before", str(SHARD), *CONTROL_KEY, None))], START)[0]


def take(name: str, token: int, limit: int = 10, *, lease: int = LEASE, shard: Shard = SHARD) -> Calls:
    """Claim; return spans."""
    key = bytes([token]) * 16
    claimed: Claimed | None = yield from persist(
        Call(f"{name} claims", "claim", Claim(shard, key, limit, lease))
    )
    return tuple(Span(s.bundle.id, s.first, s.count, key) for s in claimed.slices) if claimed else ()


def ack(name: str, spans: tuple[Span, ...], shard: Shard = SHARD) -> Calls:
    if spans:
        yield from persist(Call(f"{name} acks", "acknowledge", Acknowledge(shard, spans)))


def extend(name: str, spans: tuple[Span, ...], shard: Shard = SHARD) -> Calls:
    if not spans:
        return ()
    fenced = yield from persist(Call(f"{name} extends", "extend", Extend(shard, spans, LEASE)))
    return spans if fenced is not None and not fenced.lost and not fenced.gone else ()


def release(name: str, spans: tuple[Span, ...], shard: Shard = SHARD) -> Calls:
    if spans:
        yield from persist(Call(f"{name} releases", "release", Release(shard, spans)))


def append(name: str, *bundles: Bundle, shard: Shard = SHARD) -> Calls:
    yield from persist(Call(f"{name} appends", "append", Append(shard, bundles)))


def probe(name: str) -> Calls:
    yield from persist(Call(f"{name} probes", "probe", (SHARD,)))


def consumer(
    name: str, token: int, limit: int = 10, *, lease: int = LEASE, shard: Shard = SHARD
) -> Callable[[], Calls]:
    """Claims and acks."""

    def calls() -> Calls:
        spans = yield from take(name, token, limit, lease=lease, shard=shard)
        yield from ack(name, spans, shard)

    return calls


def renewing(name: str, token: int, limit: int = 10, *, shard: Shard = SHARD) -> Callable[[], Calls]:
    """Claims, extends, acks a part, gives the rest back."""

    def calls() -> Calls:
        spans = yield from take(name, token, limit, shard=shard)
        spans = yield from extend(name, spans, shard)
        yield from ack(name, spans[:1], shard)
        yield from release(name, spans[1:], shard)

    return calls


def returning(name: str, token: int, *, shard: Shard = SHARD) -> Callable[[], Calls]:
    """Claims and gives back."""

    def calls() -> Calls:
        spans = yield from take(name, token, shard=shard)
        yield from release(name, spans, shard)

    return calls


def partly(name: str, token: int) -> Callable[[], Calls]:
    """Claims, acks the first message of each slice, gives the rest back."""

    def calls() -> Calls:
        spans = yield from take(name, token)
        first = tuple(Span(s.bundle_id, s.first, 1, s.token) for s in spans)
        rest = tuple(Span(s.bundle_id, s.first + 1, s.count - 1, s.token) for s in spans if s.count > 1)
        yield from ack(name, first)
        yield from release(name, rest)

    return calls


def producer(name: str, *bundles: Bundle, shard: Shard = SHARD) -> Callable[[], Calls]:
    def calls() -> Calls:
        for each in bundles:
            yield from append(name, each, shard=shard)

    return calls


def burying(name: str, token: int, dead: Bundle) -> Callable[[], Calls]:
    """Claims and dead-letters: extends, appends under an id that follows from the message's, acks."""

    def calls() -> Calls:
        spans = yield from take(name, token)
        spans = yield from extend(name, spans)
        if spans:
            yield from append(name, dead, shard=DEAD)
            yield from ack(name, spans)

    return calls


def prober(name: str) -> Callable[[], Calls]:
    def calls() -> Calls:
        yield from probe(name)

    return calls


SCENARIOS: dict[str, Scenario] = {
    "two consumers of a bundle and a single": Scenario(
        (script(consumer("A", 1, 2)), script(consumer("B", 2))),
        used(bundle(1, 3), bundle(2)),
    ),
    "a lease that runs out, an answer that is lost": Scenario(
        (script(consumer("A", 1)), script(consumer("B", 2))),
        used(bundle(1, 2)),
        ticks=(LEASE + SECOND,),
        faults=1,
    ),
    "a producer that repeats itself": Scenario(
        (script(producer("P", bundle(1), bundle(2, 2))), script(consumer("A", 1))),
        ticks=(6 * SECOND,),
        faults=1,
    ),
    "an append that comes late": Scenario(
        (script(producer("P", bundle(1))), script(consumer("A", 1))),
        used(),
        ticks=(6 * SECOND,),
        faults=1,
    ),
    "renewals and parts": Scenario(
        (script(renewing("A", 1)), script(partly("B", 2))),
        used(bundle(1, 2), bundle(2)),
        ticks=(LEASE + SECOND,),
    ),
    "a lost lease that goes on changing hands": Scenario(
        (script(returning("A", 3)), script(consumer("B", 2))),
        used(bundle(1)),
        ticks=(LEASE + SECOND,),
    ),
    "one claim under one name by two processes": Scenario(
        (script(consumer("A", 1)), script(consumer("A'", 1))),
        used(bundle(1), bundle(2)),
        faults=1,
    ),
    "dead letters": Scenario(
        (script(burying("A", 1, bundle(9))), script(burying("B", 2, bundle(9)))),
        used(bundle(1)),
        ticks=(LEASE + SECOND,),
        faults=1,
        shards=(str(SHARD), str(DEAD)),
    ),
    "low watermarks that rise": Scenario(
        (script(producer("P", bundle(1))), script(consumer("A", 1)), script(prober("B"))),
        stored(bundle(2)),
        ticks=(2 * SECOND, 6 * SECOND),
        longest_pause=30 * SECOND,
    ),
    "an append while low watermarks rise": Scenario(
        (script(producer("P", bundle(1))), script(prober("B"))),
        taken(),
        ticks=(SECOND // 2, 6 * SECOND),
        faults=1,
        longest_pause=30 * SECOND,
    ),
    "clocks that differ": Scenario(
        (
            script(consumer("A", 1), skew=SECOND, coordinator_skew=-4 * SECOND),
            script(consumer("B", 2), skew=-SECOND, coordinator_skew=4 * SECOND),
        ),
        stored(bundle(1, 2, made=START + 8 * SECOND, due=START), bundle(2, made=START - 300 * SECOND)),
        ticks=(LEASE + SECOND,),
    ),
}

# A client stands still for longer than the minute that the due index's low watermark is behind: what it claims is
# hidden until somebody looks without hints.
STANDSTILL = Scenario(
    (script(consumer("A", 1, lease=5 * SECOND)), script(consumer("B", 2, 1)), script(prober("C"))),
    used(bundle(1), bundle(2)),
    ticks=(70 * SECOND,),
    lease=5 * SECOND,
    misled=(False,),
)
