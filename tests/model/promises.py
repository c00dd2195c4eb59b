"""What must hold after every request, after every call, and when everybody has gone.

The rows are read as the messages that they say: each ready, held under a token, given back, or finished. A write may
only move messages as the call behind it is allowed to; so one that vanishes, appears twice, comes back after it
was finished, or changes hands while a lease runs, is seen at the request that does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shardq.base.shard import Shard
from shardq.storage.cassandra.changing import CONTROL_KEY, CQL_DELETE, CQL_REPLACE
from shardq.storage.cassandra.lease_rows import decode_lease
from shardq.storage.cassandra.rows import (
    BUNDLE,
    CONTROL,
    DUE_INDEX,
    LEASE,
    READY,
    Control,
    decode_control,
    decode_ready,
    encode,
)
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Claimed, Fenced, Span
from tests.model import grouped_promises
from tests.model.modelled_client import READ, SERIAL, WRITE, Memory, Run, deterministic, run
from tests.model.modelled_table import Database, Row, Statement
from tests.model.places import Message, Place, Violation, replace

SCAN = 1_000_000  # a client reads its shards from the beginning once in this time
SLACK = 2_000_000  # clocks agree within this
HIDDEN = 120_000_000  # after this even a low watermark that is just believed hides what is due


class Call(NamedTuple):
    """A call of the store."""

    name: str
    method: str
    request: Any

    def do(self, store: CassandraStore) -> Any:
        return getattr(store, self.method)(self.request)

    def __str__(self) -> str:
        return self.name


class Ghost(NamedTuple):
    """What happened so far, as nobody within the system knows it."""

    places: frozenset[tuple[Message, Place]] = frozenset()
    finished: frozenset[tuple[Message, bytes]] = frozenset()  # with the token that did it
    held: frozenset[tuple[bytes, Message, int]] = frozenset()  # ever, until when
    confirmed: frozenset[bytes] = frozenset()  # bundles whose append returned

    def seeing(self, database: Database, shards: Sequence[str]) -> Ghost:
        """Take the rows as the beginning."""
        places = located(database, shards)
        return replace(
            self, places=frozenset(places.items()), confirmed=frozenset(bundle for bundle, _ in places)
        )


def located(database: Database, shards: Sequence[str]) -> dict[Message, Place]:
    """Where each message is; raises Violation when one is in two places."""
    places: dict[Message, Place] = {}
    for message, place in (found for shard in shards for found in _messages(database, shard)):
        if message in places:
            raise Violation(f"{_named(message)} is in two places: {places[message]} and {place}")
        places[message] = place
    return places


def after_step(ghost: Ghost, database: Database, call: Call, latest: int, shards: Sequence[str]) -> Ghost:
    """Check what a write did; ``latest`` is the latest moment that any clock shows."""
    before, after = dict(ghost.places), located(database, shards)
    for shard in shards:
        if Shard(*_parts(shard)).is_grouped:
            grouped_promises.check(database.rows.get(("entry", (shard,)), {}))
    finished, held = set(ghost.finished), set(ghost.held)
    for message in before.keys() | after.keys():
        was, now = before.get(message), after.get(message)
        if was == now:
            continue
        _check_move(ghost, call, message, was, now, latest)
        if now is None:
            assert was is not None
            finished.add((message, was.holder))
        elif now.state == "held":
            held.add((now.holder, message, now.due))
    return replace(ghost, places=frozenset(after.items()), finished=frozenset(finished), held=frozenset(held))


def after_call(ghost: Ghost, call: Call, went: Run, began_with: frozenset[Message]) -> Ghost:
    """Check what a call returned, or what it raised."""
    if went.error:
        if went.error not in ("OutcomeUnknown", "StoreUnavailable"):
            raise Violation(f"{call} raised {went.error}")
        return ghost
    if isinstance(call.request, Append):
        stored = {message for message, _ in (*ghost.places, *ghost.finished)}
        for bundle in call.request.bundles:
            if any((bundle.id, position) not in stored for position in range(bundle.count)):
                raise Violation(f"{call} returned, and {bundle.id.hex()} is not stored")
        ids = frozenset(bundle.id for bundle in call.request.bundles)
        return replace(ghost, confirmed=ghost.confirmed | ids)
    if isinstance(went.result, Claimed):
        _check_claimed(ghost, call, went.result, began_with)
    elif isinstance(went.result, Fenced):
        _check_fenced(ghost, call, went.result)
    return ghost


def at_rest(
    database: Database,
    ghost: Ghost,
    memory: Memory,
    clock: int,
    lease: int,
    shards: Sequence[str],
    *,
    misled: bool = False,
) -> None:
    """When nobody else does anything any more, one client must get all that is left, and leave no row behind.

    Where it is ``misled``, every low watermark and due row is wrong, and it makes one deep probe first.
    """
    latest = max((place.due for _, place in ghost.places), default=clock)
    clock = max(clock, latest) + (HIDDEN if misled else SCAN + SLACK)
    expected = {message for message, _ in ghost.places if message[0] in ghost.confirmed}
    got: set[Message] = set()
    for number, shard in enumerate(shards):
        if misled:
            database = mislead(database, shard, clock)
        alone = _Alone(database, memory, clock, number, Shard(*_parts(shard)))
        if misled:
            alone.look_deep()
        got |= alone.drain(lease)
        database = alone.database
    if expected - got:
        raise Violation(f"{_named(min(expected - got))} is not delivered any more, to {_who(memory)}")
    if not {message for message, _ in ghost.places} - got:
        for shard in shards:
            _check_empty(database, shard)


def sent(before: Database, shard: Shard, clock: int, *bundles: Bundle) -> Database:
    """Rows as one append leaves them."""
    with deterministic():
        alone = _Alone(before, Memory(), clock, 0, shard)
        alone.append(*bundles)
    return alone.database


def mislead(database: Database, shard: str, clock: int) -> Database:
    """Raise every low watermark as high as it is believed, and take the due rows of lease rows away."""
    partition = database.rows.get(("entry", (shard,)), {})
    control = partition.get(CONTROL_KEY, Row()).value("value")
    late = decode_control(control).late if control else 0
    raised = encode(Control((2**61,) * 12, late))
    statements: list[Statement] = [(CQL_REPLACE, (raised, shard, *CONTROL_KEY, control))]
    statements += [(CQL_DELETE, (shard, *key)) for key, row in partition.items() if key[:2] == (DUE_INDEX, 0)]
    return database.apply(statements, clock)[0]


class _Alone:
    """One client, with nobody beside it."""

    def __init__(self, database: Database, memory: Memory, clock: int, number: int, shard: Shard) -> None:
        self.database, self._memory, self._clock, self._shard = database, memory, clock, shard
        self._seed = bytes([0xFE, number])

    def append(self, *bundles: Bundle) -> None:
        self._call(Call("append", "append", Append(self._shard, bundles)), 201)

    def look_deep(self) -> None:
        self._call(Call("looks deep", "look_deep", (self._shard,)), 200)

    def drain(self, lease: int) -> set[Message]:
        got: set[Message] = set()
        for number in range(20):
            token = (self._seed + bytes([number])).ljust(16, b"\xfe")
            claimed = self._call(Call("claim", "claim", Claim(self._shard, token, 100, lease)), number)
            if not claimed.slices:
                return got
            spans = tuple(Span(s.bundle.id, s.first, s.count, token) for s in claimed.slices)
            got |= set(_of_spans(spans))
            fenced = self._call(Call("ack", "acknowledge", Acknowledge(self._shard, spans)), number + 100)
            if fenced != Fenced():
                raise Violation(f"an ack that nobody disturbs was refused: {fenced}")
        raise Violation("messages are delivered for ever")

    def _call(self, call: Call, number: int) -> Any:
        answers: dict[int, Any] = {}
        while True:
            seed = self._seed + bytes([number])
            went = run(call.do, self._memory, tuple(answers.items()), self._clock, seed)
            if went.ended:
                if went.error:
                    raise Violation(f"{call} raised {went.error} though nothing was lost")
                self._memory = went.memory
                return went.result
            answers.update(went.answers)
            for request in went.waiting:
                answers[request.number] = self._answer(request.kind, request.statements)

    def _answer(self, kind: str, statements: Any) -> Any:
        if kind in (READ, SERIAL):
            return tuple(self.database.select(statements[0]))
        if kind == WRITE:
            self.database = self.database.write(statements, self._clock)
            return None
        self.database, applied = self.database.apply(statements, self._clock)
        return applied


def _check_move(
    ghost: Ghost, call: Call, message: Message, was: Place | None, now: Place | None, latest: int
) -> None:
    if was is None and message in {each for each, _ in ghost.finished}:
        raise Violation(f"{call} brought {_named(message)} back after it was finished")
    if not _allowed(ghost, call, message, was, now, latest):
        raise Violation(f"{call} moved {_named(message)} from {was} to {now}")


def _allowed(
    ghost: Ghost, call: Call, message: Message, was: Place | None, now: Place | None, latest: int
) -> bool:
    request = call.request
    if was is None:
        return call.method == "append" and now is not None and now.state == "ready"
    if request.shard.is_grouped:
        return grouped_promises.allows(call.method, request, dict(ghost.places), message, now, latest)
    if call.method == "claim":
        if now is None or now.state != "held" or now.holder != request.token:
            return False
        own = was.holder == request.token
        return (own or was.due <= latest) and now.deliveries == was.deliveries + (not own)
    if call.method not in ("acknowledge", "extend", "release") or was.state != "held":
        return False
    if (message, was.holder) not in {
        (each, span.token) for span in request.spans for each in _of_spans((span,))
    }:
        return False
    if call.method == "acknowledge":
        return now is None
    if now is None or now.deliveries != was.deliveries:
        return False
    return (
        (now.state, now.holder) == ("held", was.holder)
        if call.method == "extend"
        else now.state == "given back"
    )


def _check_claimed(ghost: Ghost, call: Call, claimed: Claimed, began_with: frozenset[Message]) -> None:
    for each in claimed.slices:
        if each.bundle.data != each.bundle.id:  # as the scenarios make them
            raise Violation(f"{call} has the wrong body for {each.bundle.id.hex()}")
        for message in _of_spans((Span(each.bundle.id, each.first, each.count, b""),)):
            until = [due for token, one, due in ghost.held if (token, one) == (call.request.token, message)]
            if not until:
                raise Violation(f"{call} returned {_named(message)}, which it never held")
            if claimed.lease_until > max(until):
                raise Violation(f"{call} promised {_named(message)} for longer than it is held")
            if message in began_with:
                raise Violation(f"{call} delivered {_named(message)} after it was finished")


def _check_fenced(ghost: Ghost, call: Call, fenced: Fenced) -> None:
    finished = {message for message, _ in ghost.finished}
    for message in _of_spans(fenced.gone):
        if message not in finished:
            raise Violation(f"{call} says that {_named(message)} is gone, and it is stored")
    refused = {(m, span.token) for span in (*fenced.lost, *fenced.gone) for m in _of_spans((span,))}
    for span in call.request.spans:
        for message in _of_spans((span,)):
            if call.method == "acknowledge" and (message, span.token) not in refused | ghost.finished:
                raise Violation(f"{call} said that it finished {_named(message)}, and did not")


def _check_empty(database: Database, shard: str) -> None:
    for key, row in database.rows.get(("entry", (shard,)), {}).items():
        finished = key[0] == BUNDLE and row.value("value") == b""  # which ends by itself
        if row.exists and key[0] != CONTROL and not finished:
            raise Violation(f"a row is left behind: {key}")


def _messages(database: Database, shard: str) -> Iterator[tuple[Message, Place]]:
    partition = database.rows.get(("entry", (shard,)), {})
    if Shard(*_parts(shard)).is_grouped:
        yield from grouped_promises.messages(partition)
        return
    for key, row in partition.items():
        if key[0] == READY and row.exists:
            value = decode_ready(row.value("value"))
            for position in range(key[4], key[4] + value.count):
                yield (key[3], position), Place("ready", b"", key[2], 0)
        elif key[0] == LEASE and row.exists:
            if row.value("value") is None:
                raise Violation(f"a lease row without a value is left: {key}")
            lease = decode_lease(row.value("value"))
            for each in lease.slices:
                bundle = partition.get((BUNDLE, 0, 0, each.bundle_id, 0))
                if not each.inline and not (bundle and bundle.exists):
                    raise Violation(f"the bundle {each.bundle_id.hex()} is lost")
                place = Place("held" if lease.held else "given back", key[3], lease.due, each.deliveries)
                for position in range(each.first, each.end):
                    yield (each.bundle_id, position), place


def _of_spans(spans: Sequence[Span]) -> Iterator[Message]:
    for span in spans:
        for position in range(span.first, span.first + span.count):
            yield span.bundle_id, position


def _named(message: Message) -> str:
    return f"message {message[1]} of bundle {message[0][-1]}"


def _who(memory: Memory) -> str:
    return "a client that was here before" if memory.cursors else "a new client"


def _parts(shard: str) -> tuple[str, int, int]:
    queue, time_shard, number = shard.split(":")
    return queue, int(time_shard), int(number)
