"""The shard directory, and the collections of the shards.

A collection is open for appends or closed. Whoever forgets a shard takes it out of the directory, closes its
collection and then looks whether something is in it; whoever appends to a closed one lists it, opens it, and lists it
again. An append names the collection's uuid, so it fails when the collection was dropped meanwhile.
"""

from __future__ import annotations

import re

from bson.binary import Binary
from pymongo.errors import OperationFailure

from shardq.errors import InvalidSetting
from shardq.sharding.shard import Shard
from shardq.storage.mongodb import queues, schema
from shardq.storage.mongodb.session import Document, Session

__all__ = [
    "MOST_COLLECTIONS",
    "SHARDS",
    "Open",
    "close",
    "drop_collections",
    "enter",
    "key",
    "leave",
    "listing",
    "shard_of",
]

SHARDS = "shardq.shard"
MOST_COLLECTIONS = 3_000  # of six files each: as many files as 9,000 collections with one index have
_CLOSED: Document = {"closed": True}
_NO_SUCH = 26


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
    found = _find(session, shard)
    if found is None:
        _check_number(session)
        with session.translated(writing=True):
            schema.make(session.database, schema.shard_collection(), str(shard))
        found = _find(session, shard)
    elif found["options"].get("validator") != schema.shard_collection().validator:
        _validate(session, shard, schema.shard_collection().validator)
    _list(session, shard)
    queues.require(session, shard.queue)
    if found is None:
        raise queues.not_found(shard.queue)
    return Binary(found["info"]["uuid"], 4)


def close(session: Session, shard: Shard) -> None:
    """Let nothing be appended any more."""
    _validate(session, shard, _CLOSED)


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


def drop_collections(session: Session, queue: str) -> None:
    """Drop the collections of all shards of the queue and take them out of the directory."""
    with session.translated(writing=True):
        for name in session.database.list_collection_names(
            filter={"name": {"$regex": f"^{re.escape(queue)}:"}}
        ):
            session.database.drop_collection(name)
        between = {"$gt": {"q": queue}, "$lt": {"q": queue, "t": 2**62}}
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


def _find(session: Session, shard: Shard) -> Document | None:
    """Return what the server tells of the shard's collection."""
    with session.translated(writing=False):
        found = next(iter(session.database.list_collections(filter={"name": str(shard)})), None)
    return None if found is None else dict(found)


def _check_number(session: Session) -> None:
    with session.translated(writing=False):
        number = session.collection(SHARDS).estimated_document_count()
    if number > MOST_COLLECTIONS:
        raise InvalidSetting(
            f"{session.address} has {number} shards, each a collection with five indexes: delete queues, lower "
            f"shards or time_shards of some, or give them a server of their own; {MOST_COLLECTIONS} are the most"
        )


def _validate(session: Session, shard: Shard, validator: Document) -> None:
    with session.translated(writing=True):
        try:
            session.database.command("collMod", str(shard), validator=validator, validationLevel="moderate")
        except OperationFailure as error:
            if error.code != _NO_SUCH:
                raise
