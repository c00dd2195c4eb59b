"""The live consumers of a queue, under its name in the tables. Their rows end by themselves after their lifetime."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shardq.storage.cassandra import directory, queues
from shardq.storage.cassandra.queues import Incarnations
from shardq.storage.cassandra.session import Session
from shardq.storage.requests import Enlisted

__all__ = ["drop", "enlist", "resign"]

_ENLIST = "INSERT INTO consumer (queue, name, expires_at) VALUES (?, ?, ?) USING TTL ?"
_LIVE = "SELECT name, expires_at FROM consumer WHERE queue = ?"
_RESIGN = "DELETE FROM consumer WHERE queue = ? AND name = ?"
_DROP = "DELETE FROM consumer USING TIMESTAMP ? WHERE queue = ?"
_GRACE = 60


def enlist(
    session: Session, incarnations: Incarnations, names: Sequence[str], consumer: str, lifetime: int, now: int
) -> tuple[Enlisted | None, ...]:
    """Count the consumer among the live ones of each queue; None for one that does not exist.

    What is asked of several queues is asked at the same time.
    """
    records = queues.load_all(session, names)
    for queue, (_, incarnation) in records.items():
        incarnations.saw(queue, incarnation)
    called = {queue: queues.name_of(queue, incarnation) for queue, (_, incarnation) in records.items()}
    values = (consumer, now + lifetime, lifetime // 1_000_000 + _GRACE)
    session.write_all([(_ENLIST, (name, *values)) for name in called.values()])
    live = {queue: session.start_read(_LIVE, (name,)) for queue, name in called.items()}
    listed = {queue: directory.start_listing(session, name) for queue, name in called.items()}
    told = {
        queue: Enlisted(
            record,
            tuple(sorted(each for each, expires_at in live[queue]() if expires_at > now)),
            tuple(replace(shard, queue=queue) for shard in listed[queue]()),
        )
        for queue, (record, _) in records.items()
    }
    return tuple(told.get(name) for name in names)


def resign(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    session.write([(_RESIGN, (queue, name))])


def drop(session: Session, queue: str, written: int) -> None:
    """Forget all consumers of the queue, and those that are written until the moment."""
    session.write([(_DROP, (written, queue))])
