"""The consumers of a queue. The server deletes those that have been gone for long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from pymongo import UpdateOne

from shardq.storage.mongodb import directory, queues, schema
from shardq.storage.mongodb.documents import CONSUMER, DELETED_AFTER, QUEUE, UNTIL, Document
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Session
from shardq.storage.presence import REMEMBERED, SeenConsumer
from shardq.storage.requests import Enlisted

__all__ = ["CONSUMERS", "drop", "enlist", "expire", "resign", "seen"]

CONSUMERS = "shardq.consumer"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def enlist(
    session: Session, incarnations: Incarnations, names: Sequence[str], consumer: str, lifetime: int, now: int
) -> tuple[Enlisted | None, ...]:
    """Count the consumer among the live ones of each queue; None for one that does not exist."""
    schema.require_current(session)
    records = queues.load_all(session, names)
    if not records:
        return (None,) * len(names)
    for queue, (_, called) in records.items():
        incarnations.saw(queue, called)
    called_so = [called for _, called in records.values()]
    _count(session, called_so, consumer, now + lifetime)
    live = _live(session, called_so, now)
    listed = directory.listings(session, called_so)
    told = {
        queue: Enlisted(record, live[called], tuple(replace(shard, queue=queue) for shard in listed[called]))
        for queue, (record, called) in records.items()
    }
    return tuple(told.get(name) for name in names)


def _count(session: Session, queues: Sequence[str], consumer: str, until: int) -> None:
    change = {"$set": {UNTIL: until, DELETED_AFTER: _EPOCH + timedelta(microseconds=until + REMEMBERED)}}
    with session.translated(writing=True):
        session.collection(CONSUMERS).bulk_write(
            [UpdateOne({"_id": _id(queue, consumer)}, change, upsert=True) for queue in queues], ordered=False
        )


def _live(session: Session, queues: Sequence[str], now: int) -> dict[str, tuple[str, ...]]:
    """Return the live consumers of each queue, sorted."""
    found: dict[str, list[str]] = {queue: [] for queue in queues}
    wanted = {"$or": [_of(queue) for queue in queues], UNTIL: {"$gt": now}}
    with session.translated(writing=False):
        for each in session.read({"find": CONSUMERS, "filter": wanted, "projection": {"_id": 1}}):
            found[each["_id"][QUEUE]].append(each["_id"][CONSUMER])
    return {queue: tuple(sorted(live)) for queue, live in found.items()}


def resign(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    with session.translated(writing=True):
        session.collection(CONSUMERS).delete_one({"_id": _id(queue, name)})


def seen(session: Session, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are enlisted, and those that were until not long ago."""
    wanted = _of(queue) | {UNTIL: {"$gt": now - REMEMBERED}}
    with session.translated(writing=False):
        found = list(session.collection(CONSUMERS).find(wanted, {UNTIL: 1}))
    return tuple(sorted(SeenConsumer(each["_id"][CONSUMER], each[UNTIL]) for each in found))


def expire(session: Session, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime has been over for long; returns how many."""
    over = _of(queue) | {UNTIL: {"$lte": now - REMEMBERED}}
    with session.translated(writing=True):
        return session.collection(CONSUMERS).delete_many(over).deleted_count


def drop(session: Session, queue: str) -> int:
    """Forget all consumers of the queue; returns how many."""
    with session.translated(writing=True):
        return session.collection(CONSUMERS).delete_many(_of(queue)).deleted_count


def _id(queue: str, name: str) -> Document:
    return {QUEUE: queue, CONSUMER: name}


def _of(queue: str) -> Document:
    return {"_id": {"$gte": _id(queue, ""), "$lt": {QUEUE: queue, CONSUMER: {}}}}
