"""The consumers of a queue, the messages that each has in flight, and releasing those of a dead consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import msgspec

from shardq.base.clock import microseconds, to_datetime
from shardq.base.texts import shown
from shardq.core.browsing import PAGE_MESSAGES, held_stored, slices
from shardq.core.context.identity import REGISTRATION_LIFETIME, ConsumerIdentity, holder_id
from shardq.core.context.queue_context import QueueContext
from shardq.core.held import HeldSlice
from shardq.core.limits.permits import permits_queue
from shardq.core.limits.queue_limits import limit_names
from shardq.core.settling.events import EventDetails
from shardq.core.settling.operations import RELEASE, RETURN, share_returned
from shardq.core.settling.settle import SettleRun
from shardq.errors import ConsumerAlive, ConsumerNotFound, InvalidName, QueueNotFound
from shardq.storage.records import latest_end
from shardq.storage.requests import Peek
from shardq.storage.writing import reporting_done

__all__ = ["ConsumerState", "consumer_states", "evict"]


class ConsumerState(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of a queue, and how much of it it has in flight.

    Only the ``id`` is known of a holder that was closed, that is Spark, or that is an older client.
    """

    id: str
    name: str | None
    host: str | None
    pid: int | None
    since: datetime | None  # when it was made, by the clock of its host
    last_seen: datetime | None  # when it received or extended something, or up to 5 seconds before
    alive: bool  # it was seen not long ago, or may be at work: a lease is younger than half of its length
    held: int = 0  # messages in flight
    held_until: datetime | None = None  # the latest end of their leases; None: it holds nothing


class _Holdings(msgspec.Struct):
    """The messages in flight under one id."""

    messages: int = 0
    until: int = 0

    def add(self, held: HeldSlice) -> None:
        self.messages += held.count
        self.until = max(self.until, held.lease_until)


def consumer_states(context: QueueContext) -> tuple[ConsumerState, ...]:
    """List the consumers of a queue that live or were seen within 12 hours, and all other holders of messages.

    They are sorted by name. It reads the messages in flight in each shard.
    """
    held: dict[str, _Holdings] = {}
    for piece in _in_flight(context):
        held.setdefault(holder_id(piece.token), _Holdings()).add(piece)
    context.live.refresh()
    states = []
    for seen in context.retry(context.store.seen_consumers, context.name):
        identity = ConsumerIdentity.read(seen.consumer) or _known_as(seen.consumer)
        states.append(_state(context, identity, seen.until, held.pop(identity.id, _Holdings())))
    states += [_state(context, _known_as("", identity), 0, each) for identity, each in held.items()]
    return tuple(sorted(states, key=lambda state: (state.name is None, state.name or "", state.id)))


def evict(context: QueueContext, consumer: str, *, force: bool) -> int:
    """Release the messages of the dead consumers of this name or id; with ``force``, of all of them.

    Returns how many messages that were. The deliveries count, as at the end of a lease. Their permits of the limit of
    messages in flight come back too. Raises ConsumerNotFound, or ConsumerAlive when none of them is dead.
    """
    found = [state for state in consumer_states(context) if consumer and consumer in (state.name, state.id)]
    if not found:
        raise ConsumerNotFound(
            f"queue {context.name!r} has no consumer {shown(consumer)}: `shardq consumers list {context.name}` shows "
            "those that it has"
        )
    dead = [state for state in found if force or not state.alive]
    if not dead:
        raise _alive(context, found[0])
    ids = {state.id for state in dead}
    given = _return_uncounted(context, ids)
    with (
        reporting_done(
            lambda: f"{given} messages are released, and maybe not their permits" if given else ""
        ),
        suppress(QueueNotFound, InvalidName),  # it has never had such a limit, or cannot have one
    ):
        in_flight, _ = limit_names(context.name)
        _return_uncounted(context.sibling(permits_queue(in_flight)), ids)
    return given


def _return_uncounted(context: QueueContext, ids: set[str]) -> int:
    """Release the messages in flight under the ids, shard after shard as they are read. Returns how many messages."""
    held = [piece for piece in _in_flight(context) if holder_id(piece.token) in ids]
    share_returned(held)
    given = 0
    with reporting_done(lambda: f"{given} messages are released: repeat the call" if given else ""):
        for operation, started in ((RELEASE, True), (RETURN, False)):  # a delivery that started counts
            wanted = [piece.select() for piece in held if piece.started is started]
            settling = SettleRun(context, operation, details=EventDetails("evicted")).run(wanted)
            given += settling.done_count
            settling.raise_if_failed()
    return given


def _in_flight(context: QueueContext) -> Iterator[HeldSlice]:
    for shard in context.retry(context.store.shards, context.name):
        for piece in slices(context, Peek(shard, PAGE_MESSAGES, bodies=False, held=True)):
            if not piece.blocks:
                yield held_stored(shard, piece)


def _known_as(name: str, identity: str = "") -> ConsumerIdentity:
    """Describe a consumer of which no more is known: of an older client, or closed while it holds messages."""
    return ConsumerIdentity(name, identity, "", 0, 0)


def _state(
    context: QueueContext, identity: ConsumerIdentity, registered_until: int, held: _Holdings
) -> ConsumerState:
    lease = identity.lease or microseconds(context.settings.visibility_timeout)
    now = context.store.now()
    renewed = min(now, held.until - lease) if held.messages else 0
    last_seen = max(registered_until - REGISTRATION_LIFETIME, renewed)
    is_registered = now < registered_until <= latest_end(now, REGISTRATION_LIFETIME)
    alive = is_registered or (bool(held.messages) and now < renewed + max(lease // 2, 1))
    return ConsumerState(
        id=identity.id,
        name=identity.name or None,
        host=identity.host or None,
        pid=identity.pid or None,
        since=to_datetime(identity.since) if identity.since else None,
        last_seen=to_datetime(last_seen) if last_seen > 0 else None,
        alive=alive,
        held=held.messages,
        held_until=to_datetime(held.until) if held.messages else None,
    )


def _alive(context: QueueContext, state: ConsumerState) -> ConsumerAlive:
    assert state.last_seen is not None
    ago = (to_datetime(context.store.now()) - state.last_seen).total_seconds()
    holds = "1 message" if state.held == 1 else f"{state.held} messages"
    return ConsumerAlive(
        f"consumer {(state.name or state.id)!r} of queue {context.name!r} may be alive: it was last seen {ago:.1f} s "
        f"ago and holds {holds}; try again later, or use force=True (--force) if you know that it is dead"
    )
