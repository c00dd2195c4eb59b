"""The shard directory, and the collections of the shards.

A collection is open for appends or closed. To forget a shard, a client marks it as leaving, closes its collection, and
checks whether anything is in it. It removes the shard from the directory if the mark is still there. So stored
messages stay listed, wherever that stops. An append to a closed collection lists it, which removes the mark, opens it,
and lists it again. Nothing else opens one. An append names the collection's uuid, which is known only to clients that
listed it. So it fails when the collection was dropped meanwhile, whether the queue was or nothing was in it for a
while.
"""

from __future__ import annotations

import os
from contextlib import suppress

from bson.binary import Binary
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound, ShardqError
from shardq.storage.mongodb import collections, queues, schema
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.collections import CollectionLimit
from shardq.storage.mongodb.documents import NUMBER, QUEUE, TIME_SHARD, Document
from shardq.storage.mongodb.peeking import is_empty
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import SHARDS, ShardRows
from shardq.storage.mongodb.shard_rows import directory_key as key

__all__ = [
    "SHARDS",
    "Open",
    "drop",
    "drop_empty",
    "enter",
    "enter_again",
    "key",
    "listing",
    "of_queue",
    "shard_of",
]

_MOST = 10_000  # shards that are remembered: those of queues that were deleted by others are among them


class Open:
    """The uuids of the collections that this client has seen open, or seen at all."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.collection_limit = CollectionLimit(session)
        self._uuids: dict[Shard, Binary] = {}
        self._seen: dict[Shard, Binary] = {}
        self._indexed: dict[Shard, bool] = {}

    def remembered(self) -> int:
        """Return how many shards are remembered at most, of the three kinds of memory."""
        return max(len(known) for known in (self._uuids, self._seen, self._indexed))

    def uuid(self, shard: Shard) -> Binary:
        """Return the uuid of the shard's collection; list, make and open it when it is not known. QueueNotFound."""
        found = self._uuids.get(shard)
        if found is None:
            self._evict()
            found = self._uuids[shard] = enter(self._session, self.collection_limit, shard)
        return found

    def seen(self, shard: Shard) -> Binary | None:
        """Return the uuid of the shard's collection, open or not; None when there is none."""
        found = self._uuids.get(shard) or self._seen.get(shard)
        if found is None and (stored := collections.find(self._session, shard)) is not None:
            self._evict()
            found = self._seen[shard] = collections.uuid_of(stored)
        return found

    def is_not(self, shard: Shard) -> None:
        """Forget that the collection was open: it is not, or it is another one."""
        self._uuids.pop(shard, None)
        self._seen.pop(shard, None)
        self._indexed.pop(shard, None)

    def index(self, shard: Shard, *, history: bool) -> None:
        """Make the indexes that its collection lacks, if there is one, once.

        With ``history`` that of the history too, which has to be there before something is kept.
        """
        known = self._indexed.get(shard)
        if known is not None and known >= history:
            return
        self._evict()
        while (found := collections.find(self._session, shard)) is not None:
            if collections.index(self._session, shard, collections.uuid_of(found), history=history):
                self._indexed[shard] = history
                return

    def _evict(self) -> None:
        """Forget what is too much: it is asked for again."""
        for known in (self._uuids, self._seen, self._indexed):
            if len(known) >= _MOST:
                known.clear()


def enter(session: Session, collection_limit: CollectionLimit, shard: Shard) -> Binary:
    """List the shard and open its collection, made if need be; return its uuid. Raises QueueNotFound.

    Only the last write waits for disks: on one primary it confirms those before it. Where another one took over in
    between, an append finds no open collection with that uuid. An index that is missing then is made by the client
    that needs it.
    """
    queues.require(session, shard.queue)
    for _ in attempts(shard):
        with session.translated(writing=True):
            _list(session.unsynced, shard)
        found = collections.find(session, shard)
        if found is None or not collections.index(session, shard, collections.uuid_of(found)):
            found = collections.make(session, collection_limit, shard)
        if found is not None:  # who made it may have died before it had its end
            collections.end(session, shard, collections.uuid_of(found), synced=False)
            if found["options"].get("validator") != schema.shard_collection().validator:
                collections.open_again(session, shard)
        enter_again(session, shard)
        uuid = None if found is None else collections.uuid_of(found)
        try:
            queues.require(session, shard.queue)
        except QueueNotFound:
            with suppress(ShardqError):  # a sweep removes it else
                _leave(session, shard, uuid)
            raise
        if uuid is not None:
            return uuid
    raise AssertionError("attempts have no other end")


def _leave(session: Session, shard: Shard, uuid: Binary | None) -> None:
    """Remove what was made of a shard while its queue was deleted."""
    if uuid is not None:
        collections.drop(session, shard, uuid)
    drop(session, shard.queue)


def enter_again(session: Session, shard: Shard) -> None:
    """List the shard; a client that was about to remove it leaves it listed."""
    with session.translated(writing=True):
        _list(session.database, shard)


def _list(database: Database[Document], shard: Shard) -> None:
    database[SHARDS].update_one({"_id": key(shard)}, {"$unset": {"leaving": 1}}, upsert=True)


def drop_empty(session: Session, opened: Open, shard: Shard) -> bool:
    """Take the shard out of the directory if it holds nothing; True when it is no longer listed.

    One that holds something stays closed until the next append to it.
    """
    opened.is_not(shard)
    rows, mark = ShardRows(session, shard), os.urandom(8)
    if not is_empty(rows):
        return False
    with session.translated(writing=True):
        session.collection(SHARDS).update_one({"_id": key(shard)}, {"$set": {"leaving": mark}})
    if not collections.close(session, shard) or not is_empty(rows):
        return False
    with session.translated(writing=True):
        session.collection(SHARDS).delete_one({"_id": key(shard), "leaving": mark})
        return session.collection(SHARDS).find_one({"_id": key(shard)}) is None


def listing(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    with session.translated(writing=False):
        found = session.collection(SHARDS).find(of_queue(queue), {"_id": 1})
        return tuple(sorted(map(shard_of, found)))


def drop(session: Session, queue: str) -> int:
    """Take all shards of the queue out of the directory; returns how many."""
    with session.translated(writing=True):
        return session.collection(SHARDS).delete_many(of_queue(queue)).deleted_count


def shard_of(listed: Document) -> Shard:
    """Return the shard of an entry of the directory."""
    found = listed["_id"]
    return Shard(found[QUEUE], found[TIME_SHARD], found[NUMBER])


def of_queue(queue: str) -> Document:
    """Return a filter for the shards of a queue."""
    return {"_id": {"$gt": {QUEUE: queue}, "$lt": {QUEUE: queue, TIME_SHARD: 2**62}}}
