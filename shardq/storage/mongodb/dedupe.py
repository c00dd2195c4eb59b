"""Dedupe keys: which message a key stands for, for a time. The server deletes them after that.

Unique keys are stored in the same collection, without a moment after which the server would delete them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pymongo import DeleteOne, UpdateOne
from pymongo.errors import BulkWriteError

from shardq.storage.keys import UNIQUE_END, UNIQUE_PREFIX, KeyChange, KeyEntry
from shardq.storage.mongodb.documents import CONFIRMED, DELETED_AFTER, KEY, MESSAGE, QUEUE, UNTIL, Document
from shardq.storage.mongodb.faults import write_error
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import DedupeEntry

__all__ = ["KEYS", "KeyMethods", "confirm", "drop", "exchange", "exchange_within", "expire", "reserve_within"]

KEYS = "shardq.dedupe"
_DUPLICATE = 11000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
_NEVER = 2**62


class KeyMethods(ABC):
    """The methods of the store that are about keys."""

    session: Session
    incarnations: Incarnations

    @abstractmethod
    def now(self) -> int:
        """Return the primary's time."""

    def reserve_keys(
        self, queue: str, entries: Sequence[DedupeEntry], window: int
    ) -> tuple[DedupeEntry, ...]:
        """Reserve the keys that are free; raises QueueNotFound."""
        return _reserve(self.session, self.incarnations.require(queue), entries, window, self.now())

    def confirm_keys(self, queue: str, entries: Sequence[DedupeEntry]) -> None:
        """Mark the entries' messages as stored."""
        confirm(self.session, self.incarnations.of(queue), entries)

    def compare_and_set_keys(self, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
        """Change the keys that stand as the caller saw them; raises QueueNotFound where one may be new."""
        if any(change.before is None and change.after is not None for change in changes):
            return exchange(self.session, self.incarnations.require(queue), changes)
        return self.incarnations.within(
            queue,
            lambda name: exchange(self.session, name, changes),
            in_vain=lambda current: any(map(_finds_nothing, changes, current)),
        )

    def list_keys(self, queue: str, after: str = "", limit: int = 1000) -> tuple[KeyEntry, ...]:
        """Return the next entries, by key."""
        return _list(self.session, self.incarnations.of(queue), after, limit)


def _reserve(
    session: Session, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve the free keys; returns the present entry of each."""
    wanted = {entry.key: entry for entry in reversed(entries)}
    # A key that is taken is not found by the filter, so it is inserted, which its id forbids.
    _write(session, [_reservation(queue, entry, window, now) for entry in wanted.values()])
    current = {key: entry for key, (entry, _) in _reserved(session, queue, wanted).items()}
    return tuple(current.get(entry.key, entry) for entry in entries)


def reserve_within(
    session: Session, queue: str, entries: Sequence[DedupeEntry], window: int, now: int
) -> tuple[DedupeEntry, ...]:
    """Reserve the keys that the transaction sees as free; returns the present entry of each.

    The server ends a transaction that inserts a key which is taken, so only those are written that are free. Where
    another client has taken one meanwhile, the server calls that a conflict, after which all of it is done again.
    """
    wanted = {entry.key: entry for entry in reversed(entries)}
    found = _reserved(session, queue, wanted)
    current = {key: entry for key, (entry, until) in found.items() if until > now}
    free = [entry for key, entry in wanted.items() if key not in current]
    _write(session, [_reservation(queue, entry, window, now) for entry in free])
    return tuple(current.get(entry.key, wanted[entry.key]) for entry in entries)


def _reservation(queue: str, entry: DedupeEntry, window: int, now: int) -> UpdateOne:
    until = now + window
    reserved = {MESSAGE: entry.message_id, CONFIRMED: False, UNTIL: until, DELETED_AFTER: _date(until)}
    return UpdateOne({"_id": _id(queue, entry.key), UNTIL: {"$lte": now}}, {"$set": reserved}, upsert=True)


def _reserved(session: Session, queue: str, keys: Iterable[str]) -> dict[str, tuple[DedupeEntry, int]]:
    """Return the entries of dedupe keys, and until when they hold."""
    with session.translated(writing=session.transaction is None):
        ids = {"$in": [_id(queue, key) for key in keys]}
        found = session.collection(KEYS).find({"_id": ids}, session=session.transaction)
        return {
            each["_id"][KEY]: (DedupeEntry(each["_id"][KEY], each[MESSAGE], each[CONFIRMED]), each[UNTIL])
            for each in found
        }


def confirm(session: Session, queue: str, entries: Sequence[DedupeEntry]) -> None:
    """Mark the messages of the entries as stored."""
    _write(
        session,
        [
            UpdateOne({"_id": _id(queue, entry.key), MESSAGE: entry.message_id}, {"$set": {CONFIRMED: True}})
            for entry in entries
        ],
    )


def exchange(session: Session, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Change the keys that are as the caller saw them, and read them, unless all were found and changed."""
    wanted = [_change(queue, each) for each in changes if each.before != each.after]
    if _write(session, wanted) == len(changes):
        return tuple(each.after for each in changes)
    current = _current(session, queue, changes)
    return tuple(current.get(each.key) for each in changes)


def exchange_within(session: Session, queue: str, changes: Sequence[KeyChange]) -> tuple[str | None, ...]:
    """Change the keys that stand as the caller saw them, as the transaction sees them; return what stands.

    As in `reserve_within`, nothing is written that the server would refuse.
    """
    current = _current(session, queue, changes)
    wanted = [each for each in changes if each.before != each.after and current.get(each.key) == each.before]
    _write(session, [_change(queue, each) for each in wanted])
    current |= {each.key: each.after for each in wanted if each.after is not None}
    for each in wanted:
        if each.after is None:
            del current[each.key]
    return tuple(current.get(each.key) for each in changes)


def _finds_nothing(change: KeyChange, current: str | None) -> bool:
    """Return whether no value is stored, and the change has not removed it."""
    return current is None and (change.before is None or change.after is not None)


def _change(queue: str, change: KeyChange) -> UpdateOne | DeleteOne:
    """Make the write, which is not done where another value is stored: a key that is taken cannot be inserted."""
    identity = _id(queue, UNIQUE_PREFIX + change.key)
    if change.after is None:
        return DeleteOne({"_id": identity, MESSAGE: change.before})
    if change.before is None:
        rest = {"$setOnInsert": {CONFIRMED: True, UNTIL: _NEVER}}
        return UpdateOne({"_id": identity, MESSAGE: change.after}, rest, upsert=True)
    return UpdateOne({"_id": identity, MESSAGE: change.before}, {"$set": {MESSAGE: change.after}})


def _current(session: Session, queue: str, changes: Sequence[KeyChange]) -> dict[str, str]:
    ids = [_id(queue, UNIQUE_PREFIX + change.key) for change in changes]
    with session.translated(writing=False):
        found = session.collection(KEYS).find({"_id": {"$in": ids}}, session=session.transaction)
        return {each["_id"][KEY].removeprefix(UNIQUE_PREFIX): each[MESSAGE] for each in found}


def _list(session: Session, queue: str, after: str, limit: int) -> tuple[KeyEntry, ...]:
    between = {"$gt": _id(queue, UNIQUE_PREFIX + after), "$lt": _id(queue, UNIQUE_END)}
    with session.translated(writing=False):
        found = session.collection(KEYS).find({"_id": between}, sort=[("_id", 1)], limit=limit)
        return tuple(KeyEntry(each["_id"][KEY].removeprefix(UNIQUE_PREFIX), each[MESSAGE]) for each in found)


def expire(session: Session, queue: str, now: int, limit: int) -> int:
    """Remove up to ``limit`` keys whose window has ended; returns how many."""
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


def _write(session: Session, operations: Sequence[UpdateOne | DeleteOne]) -> int:
    """Carry out those that find their key as they want it; returns how many were found, or entered."""
    if not operations:
        return 0
    with session.translated(writing=True):
        try:
            done = session.collection(KEYS).bulk_write(operations, ordered=False, session=session.transaction)
        except BulkWriteError as error:
            failed = [each for each in error.details["writeErrors"] if each["code"] != _DUPLICATE]
            if failed:
                raise write_error(failed[0], str(session.address)) from error
            if error.details["writeConcernErrors"]:
                raise
            return 0
    return done.matched_count + done.upserted_count + done.deleted_count


def _id(queue: str, key: str) -> Document:
    return {QUEUE: queue, KEY: key}


def _of(queue: str) -> Document:
    return {"_id": {"$gte": _id(queue, ""), "$lt": {QUEUE: queue, KEY: {}}}}


def _date(moment: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=moment)
    except OverflowError:
        return _FOREVER
