"""The shard directory, and the collections of the shards.

A collection is open for appends or closed. Whoever forgets a shard takes it out of the directory, closes its
collection and then looks whether something is in it; whoever appends to a closed one lists it, opens it, and lists it
again. An append names the collection's uuid, so it fails when the collection was dropped meanwhile.
"""

from __future__ import annotations

from bson.binary import Binary

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import collections, queues, schema
from shardq.storage.mongodb.session import Document, Session

__all__ = ["SHARDS", "Open", "drop", "enter", "key", "leave", "listing", "shard_of"]

SHARDS = "shardq.shard"


class Open:
    """The collections that this client has seen open: their uuids."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._uuids: dict[Shard, Binary] = {}

    def uuid(self, shard: Shard) -> Binary:
        """Return the uuid of the shard's collection; list, make and open it when it is not known. QueueNotFound."""
        found = self._uuids.get(shard)
        if found is None:
            found = self._uuids[shard] = enter(self._session, shard)
        return found

    def is_not(self, shard: Shard) -> None:
        """The collection was not open after all."""
        self._uuids.pop(shard, None)


def enter(session: Session, shard: Shard) -> Binary:
    """List the shard and open its collection, made if need be; return its uuid. Raises QueueNotFound."""
    queues.require(session, shard.queue)
    _list(session, shard)
    found = collections.find(session, shard)
    if found is None:
        collections.make(session, shard)
        found = collections.find(session, shard)
    elif found["options"].get("validator") != schema.shard_collection().validator:
        collections.open_again(session, shard)
    _list(session, shard)
    queues.require(session, shard.queue)
    if found is None:
        raise queues.not_found(shard.queue)
    return collections.uuid_of(found)


def leave(session: Session, shard: Shard) -> None:
    """Take the shard out of the directory."""
    with session.translated(writing=True):
        session.collection(SHARDS).delete_one({"_id": key(shard)})


def listing(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the queue's shards, sorted."""
    between = {"$gt": {"q": queue}, "$lt": {"q": queue, "t": 2**62}}
    with session.translated(writing=False):
        found = session.collection(SHARDS).find({"_id": between}, {"_id": 1})
        return tuple(sorted(map(shard_of, found)))


def drop(session: Session, queue: str) -> None:
    """Take all shards of the queue out of the directory."""
    between = {"$gt": {"q": queue}, "$lt": {"q": queue, "t": 2**62}}
    with session.translated(writing=True):
        session.collection(SHARDS).delete_many({"_id": between})


def _list(session: Session, shard: Shard) -> None:
    with session.translated(writing=True):
        session.collection(SHARDS).update_one({"_id": key(shard)}, {"$set": {}}, upsert=True)


def key(shard: Shard) -> Document:
    """Return the id of the shard in the directory."""
    return {"q": shard.queue, "t": shard.time_shard, "n": shard.number}


def shard_of(listed: Document) -> Shard:
    """Return the shard of an entry of the directory."""
    found = listed["_id"]
    return Shard(found["q"], found["t"], found["n"])
