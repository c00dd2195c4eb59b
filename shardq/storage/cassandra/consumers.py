"""The consumers of a queue, under its name in the tables. Their rows expire automatically when they are long gone."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.storage.cassandra import directory, queues
from shardq.storage.cassandra.queues import Incarnations
from shardq.storage.cassandra.session import Session
from shardq.storage.records import REMEMBERED, Registration, Registrations, SeenConsumer, latest_end

__all__ = ["deregister", "drop", "register", "seen"]

_REGISTER = "INSERT INTO consumer (queue, name, expires_at) VALUES (?, ?, ?) USING TTL ?"
_LIVE = "SELECT queue, name, expires_at FROM consumer WHERE queue IN ?"
_RESIGN = "DELETE FROM consumer WHERE queue = ? AND name = ?"
_DROP = "DELETE FROM consumer USING TIMESTAMP ? WHERE queue = ?"
_GRACE = 60


def register(
    session: Session, incarnations: Incarnations, names: Sequence[str], consumer: str, lifetime: int, now: int
) -> Registrations:
    """Count the consumer among the live ones of each queue; None for one that does not exist.

    Three reads give everything of all queues, and one write enters the consumer in ten of them.
    """
    records = queues.load_all(session, names)
    for queue, (_, incarnation) in records.items():
        incarnations.saw(queue, incarnation)
    called = {queue: queues.name_of(queue, incarnation) for queue, (_, incarnation) in records.items()}
    values = (consumer, now + lifetime, (lifetime + REMEMBERED) // 1_000_000 + _GRACE)
    session.write_all([(_REGISTER, (name, *values)) for name in called.values()])
    live_rows = session.start_read(_LIVE, (list(called.values()),))
    listed = directory.listings(session, list(called.values()))
    live: dict[str, list[str]] = {name: [] for name in called.values()}
    for name, each, expires_at in live_rows():
        if now < expires_at <= latest_end(now, lifetime):
            live[name].append(each)
    known = {
        queue: Registration(
            record,
            tuple(sorted(live[called[queue]])),
            tuple(replace(shard, queue=queue) for shard in listed[called[queue]]),
        )
        for queue, (record, _) in records.items()
    }
    return tuple(known.get(name) for name in names)


def deregister(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    session.write([(_RESIGN, (queue, name))])


def seen(session: Session, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are registered, and those that were until not long ago."""
    found = session.start_read(_LIVE, ([queue],))()
    known = (SeenConsumer(name, until) for _, name, until in found if until > now - REMEMBERED)
    return tuple(sorted(known))


def drop(session: Session, queue: str, written: int) -> None:
    """Forget all consumers of the queue, and those that are written until the moment."""
    session.write([(_DROP, (written, queue))])
