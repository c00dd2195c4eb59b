"""The floors of shards, kept in the shard directory: raised by who has consumed, lowered by who is late."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pymongo import WriteConcern

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import directory
from shardq.storage.mongodb.session import Document, Session
from shardq.storage.mongodb.sight import OLDEST, PRIORITIES, Floors

__all__ = ["lower", "raise_to", "read"]

_UNACKNOWLEDGED = WriteConcern(w=0)


def read(session: Session, shards: Sequence[Shard]) -> dict[Shard, Floors]:
    """Return the floors of the shards; none for those that are not listed."""
    keys = {"_id": {"$in": [directory.key(shard) for shard in shards]}}
    with session.translated(writing=False):
        found = list(session.collection(directory.SHARDS).find(keys))
    return {directory.shard_of(each): _decode(each) for each in found}


def raise_to(session: Session, shard: Shard, floors: Floors) -> None:
    """Raise the floors unless something came late since they were read. Nobody waits for it."""
    unchanged = {"_id": directory.key(shard), "late": floors.late}
    moments = {f"f.{priority}": moment for priority, moment in enumerate(floors.moments)}
    with session.translated(writing=True):
        shards = session.collection(directory.SHARDS).with_options(write_concern=_UNACKNOWLEDGED)
        shards.update_one(unchanged, {"$max": moments})


def lower(session: Session, shard: Shard, moments: Mapping[int, int]) -> None:
    """Lower the floors of some priorities, so that what came late is found."""
    lowered = {f"f.{priority}": _lower_of(priority, moment) for priority, moment in moments.items()}
    change: Document = {"$set": lowered | {"late": os.urandom(8)}}
    with session.translated(writing=True):
        session.collection(directory.SHARDS).update_one({"_id": directory.key(shard)}, [change])


def _lower_of(priority: int, moment: int) -> Document:
    return {"$min": [{"$ifNull": [f"$f.{priority}", OLDEST]}, {"$literal": moment}]}


def _decode(found: Document) -> Floors:
    moments: Document = found.get("f", {})
    return Floors(
        tuple(int(moments.get(str(priority), OLDEST)) for priority in PRIORITIES), found.get("late")
    )
