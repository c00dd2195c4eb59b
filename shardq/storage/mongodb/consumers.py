"""The live consumers of a queue. The server deletes those that are gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shardq.storage.mongodb.documents import CONSUMER, DELETED_AFTER, QUEUE, UNTIL, Document
from shardq.storage.mongodb.session import Session

__all__ = ["CONSUMERS", "drop", "enlist", "expire", "resign"]

CONSUMERS = "shardq.consumer"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def enlist(session: Session, queue: str, name: str, lifetime: int, now: int) -> tuple[str, ...]:
    """Count the consumer among the live ones and return them all, sorted."""
    until = now + lifetime
    values = {UNTIL: until, DELETED_AFTER: _EPOCH + timedelta(microseconds=until)}
    with session.translated(writing=True):
        consumers = session.collection(CONSUMERS)
        consumers.update_one({"_id": _id(queue, name)}, {"$set": values}, upsert=True)
        live = consumers.find(_of(queue) | {UNTIL: {"$gt": now}}, {"_id": 1})
        return tuple(sorted(each["_id"][CONSUMER] for each in live))


def resign(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    with session.translated(writing=True):
        session.collection(CONSUMERS).delete_one({"_id": _id(queue, name)})


def expire(session: Session, queue: str, now: int) -> int:
    """Remove the consumers whose lifetime is over; returns how many."""
    with session.translated(writing=True):
        return session.collection(CONSUMERS).delete_many(_of(queue) | {UNTIL: {"$lte": now}}).deleted_count


def drop(session: Session, queue: str) -> int:
    """Forget all consumers of the queue; returns how many."""
    with session.translated(writing=True):
        return session.collection(CONSUMERS).delete_many(_of(queue)).deleted_count


def _id(queue: str, name: str) -> Document:
    return {QUEUE: queue, CONSUMER: name}


def _of(queue: str) -> Document:
    return {"_id": {"$gte": _id(queue, ""), "$lt": {QUEUE: queue, CONSUMER: {}}}}
