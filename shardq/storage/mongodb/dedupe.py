"""Dedupe keys: which message a key stands for, for a time. The server deletes them after that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from shardq.storage.mongodb.documents import CONFIRMED, DELETED_AFTER, KEY, MESSAGE, QUEUE, UNTIL, Document
from shardq.storage.mongodb.faults import write_error
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import DedupeEntry

__all__ = ["KEYS", "confirm", "drop", "expire", "reserve"]

KEYS = "shardq.dedupe"
_DUPLICATE = 11000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


def reserve(
    session: Session, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve what is free; returns what now stands for each key."""
    until = now + window
    wanted = {entry.key: entry for entry in reversed(entries)}
    # A key that is taken is not found by the filter, so it is inserted, which its id forbids.
    _write(
        session,
        [
            UpdateOne(
                {"_id": _id(queue, entry.key), UNTIL: {"$lte": now}},
                {
                    "$set": {
                        MESSAGE: entry.message_id,
                        CONFIRMED: False,
                        UNTIL: until,
                        DELETED_AFTER: _date(until),
                    }
                },
                upsert=True,
            )
            for entry in wanted.values()
        ],
    )
    with session.translated(writing=True):
        found = session.collection(KEYS).find({"_id": {"$in": [_id(queue, key) for key in wanted]}})
        standing = {
            each["_id"][KEY]: DedupeEntry(each["_id"][KEY], each[MESSAGE], each[CONFIRMED]) for each in found
        }
    return tuple(standing.get(entry.key, entry) for entry in entries)


def confirm(session: Session, queue: str, entries: Sequence[DedupeEntry]) -> None:
    """Mark the messages of the entries as stored."""
    _write(
        session,
        [
            UpdateOne({"_id": _id(queue, entry.key), MESSAGE: entry.message_id}, {"$set": {CONFIRMED: True}})
            for entry in entries
        ],
    )


def expire(session: Session, queue: str, now: int, limit: int) -> int:
    """Remove up to ``limit`` keys whose window is over; returns how many."""
    with session.translated(writing=True):
        keys = session.collection(KEYS)
        over = [
            each["_id"] for each in keys.find(_of(queue) | {UNTIL: {"$lte": now}}, {"_id": 1}, limit=limit)
        ]
        return keys.delete_many({"_id": {"$in": over}, UNTIL: {"$lte": now}}).deleted_count if over else 0


def drop(session: Session, queue: str) -> int:
    """Delete the keys of the queue; returns how many."""
    with session.translated(writing=True):
        return session.collection(KEYS).delete_many(_of(queue)).deleted_count


def _write(session: Session, operations: Sequence[UpdateOne]) -> None:
    """Carry out those that find their key free."""
    if not operations:
        return
    with session.translated(writing=True):
        try:
            session.collection(KEYS).bulk_write(operations, ordered=False)
        except BulkWriteError as error:
            failed = [each for each in error.details["writeErrors"] if each["code"] != _DUPLICATE]
            if failed:
                raise write_error(failed[0], str(session.address)) from error
            if error.details["writeConcernErrors"]:
                raise


def _id(queue: str, key: str) -> Document:
    return {QUEUE: queue, KEY: key}


def _of(queue: str) -> Document:
    return {"_id": {"$gte": _id(queue, ""), "$lt": {QUEUE: queue, KEY: {}}}}


def _date(moment: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=moment)
    except OverflowError:
        return _FOREVER
