"""The consumers of a queue. The server deletes those that have been gone for long."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace
from pymongo import DeleteOne, UpdateOne

from shardq.base.shard import Shard
from shardq.errors import SchemaMismatch
from shardq.storage.mongodb import directory, queues, schema
from shardq.storage.mongodb.documents import CONSUMER, DELETED_AFTER, QUEUE, UNTIL, Document
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Session
from shardq.storage.records import REMEMBERED, Registration, Registrations, SeenConsumer, latest_end
from shardq.storage.requests import QueueRecord

__all__ = ["CONSUMERS", "deregister", "drop", "expire", "register", "seen"]

CONSUMERS = "shardq.consumer"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The reads that go together, by their kind; and how much of them comes in the first answer.
_RECORD, _VERSION, _CONSUMER, _SHARD = "record", "version", "consumer", "shard"
_MOST = 1_000


def register(
    session: Session, incarnations: Incarnations, names: Sequence[str], consumer: str, lifetime: int, now: int
) -> Registrations:
    """Count the consumer among the live ones of each queue; None for one that does not exist.

    These are two requests, a write and a read, where this client knows what the queues are called in the database.
    Where one is called otherwise by now, what was written of it is removed, and it is done again.
    """
    known = incarnations.last(names)
    while (registrations := _counted(session, names, known, consumer, now, lifetime)).called != known:
        _uncount(
            session,
            [name for queue, name in known.items() if registrations.called.get(queue) != name],
            consumer,
        )
        known = registrations.called
    incarnations.learn(names, registrations.called)
    return tuple(registrations.of(name) for name in names)


class _Registrations(msgspec.Struct, frozen=True):
    """The result of a read of queues; consumers and shards by the name that the queue has in the collections."""

    records: dict[str, QueueRecord]
    called: dict[str, str]
    live: dict[str, list[str]]
    shards: dict[str, list[Shard]]

    def of(self, queue: str) -> Registration | None:
        """Return the known facts about the queue; None if it does not exist."""
        if (record := self.records.get(queue)) is None:
            return None
        name = self.called[queue]
        shards = tuple(replace(shard, queue=queue) for shard in sorted(self.shards.get(name, ())))
        return Registration(record, tuple(sorted(self.live.get(name, ()))), shards)


def _counted(
    session: Session, queues: Sequence[str], known: Mapping[str, str], consumer: str, now: int, lifetime: int
) -> _Registrations:
    """Count the consumer in the queues that are known to be called so, and read all of its answer.

    Raises SchemaMismatch; then it is counted no longer.
    """
    if known:
        _count(session, known.values(), consumer, now + lifetime)
    try:
        return _read(session, queues, known.values(), {"$gt": now, "$lte": latest_end(now, lifetime)})
    except SchemaMismatch:
        _uncount(session, known.values(), consumer)
        raise


def _count(session: Session, names: Collection[str], consumer: str, until: int) -> None:
    change = {"$set": {UNTIL: until, DELETED_AFTER: _EPOCH + timedelta(microseconds=until + REMEMBERED)}}
    with session.translated(writing=True):
        session.collection(CONSUMERS).bulk_write(
            [UpdateOne({"_id": _id(name, consumer)}, change, upsert=True) for name in names], ordered=False
        )


def _read(session: Session, names: Sequence[str], called: Collection[str], live: Document) -> _Registrations:
    """Read the records of the queues, and consumers and shards of those that are called so, in one request.

    ``live`` is the filter for the ends of registrations. Raises SchemaMismatch.
    """
    pipeline: list[Document] = [
        {"$match": queues.among(names)},
        {"$project": {"_id": 0, _RECORD: "$$ROOT"}},
        _beside(schema.VERSIONS, {"_id": "shardq"}, {_VERSION: "$version"}),
    ]
    if called:
        counted = {"$or": [_of(name) for name in called], UNTIL: live}
        pipeline.append(_beside(CONSUMERS, counted, {_CONSUMER: "$_id"}))
        listed = {"$or": [directory.of_queue(name) for name in called]}
        pipeline.append(_beside(directory.SHARDS, listed, {_SHARD: "$_id"}))
    with session.translated(writing=False):
        found = session.read(
            {"aggregate": queues.QUEUES, "pipeline": pipeline, "cursor": {"batchSize": _MOST}}
        )
    schema.check_version(session, max((int(each[_VERSION]) for each in found if _VERSION in each), default=0))
    registrations = _Registrations({}, {}, {}, {})
    for each in found:
        if record := each.get(_RECORD):
            registrations.records[record["_id"]] = queues.record_of(record)
            registrations.called[record["_id"]] = queues.called(record)
        elif key := each.get(_CONSUMER):
            registrations.live.setdefault(key[QUEUE], []).append(key[CONSUMER])
        elif key := each.get(_SHARD):
            registrations.shards.setdefault(key[QUEUE], []).append(directory.shard_of({"_id": key}))
    return registrations


def _beside(collection: str, wanted: Document, shown: Document) -> Document:
    stages = [{"$match": wanted}, {"$project": {"_id": 0} | shown}]
    return {"$unionWith": {"coll": collection, "pipeline": stages}}


def deregister(session: Session, queue: str, name: str) -> None:
    """Count the consumer no longer."""
    _uncount(session, [queue], name)


def _uncount(session: Session, names: Collection[str], consumer: str) -> None:
    if not names:
        return
    with session.translated(writing=True):
        session.collection(CONSUMERS).bulk_write([DeleteOne({"_id": _id(name, consumer)}) for name in names])


def seen(session: Session, queue: str, now: int) -> tuple[SeenConsumer, ...]:
    """Return the consumers that are registered, and those that were until not long ago."""
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
