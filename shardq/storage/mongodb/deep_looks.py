"""Looks at shards that go by nothing that is kept to make looks cheap, and put that right."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import directory, floors
from shardq.storage.mongodb.lookout import Lookout
from shardq.storage.mongodb.session import Document, Session
from shardq.storage.mongodb.sight import Floors
from shardq.storage.requests import Probe

__all__ = ["DeepLook", "look"]

_AT_ONCE = 50
_PRIORITIES = {"$gte": 0, "$lte": 9}


class DeepLook(msgspec.Struct, frozen=True):
    """What shards have to offer, and how many of them were not to be found, or not all of it."""

    probes: tuple[Probe, ...]
    put_right: int


def look(session: Session, lookout: Lookout, shards: Sequence[Shard], now: int) -> DeepLook:
    """Look at all that the shards' indexes have, fifty in one command.

    Those that hold something are listed, and floors that hide something are lowered, for every client. It crosses
    what was consumed and is kept by the server for some minutes.
    """
    probes: list[Probe] = []
    put_right = 0
    for start in range(0, len(shards), _AT_ONCE):
        chunk = shards[start : start + _AT_ONCE]
        firsts = _firsts(session, chunk, now)
        known = floors.read(session, chunk)
        for index, shard in enumerate(chunk):
            due, ahead = firsts.get((index, True), {}), firsts.get((index, False), {})
            put_right += _put_right(session, lookout, shard, ahead | due, known.get(shard))
            priority = min(due, default=None)
            probes.append(
                Probe(
                    shard,
                    priority,
                    None if priority is None else due[priority],
                    min(ahead.values(), default=None),
                )
            )
    return DeepLook(tuple(probes), put_right)


def _put_right(
    session: Session, lookout: Lookout, shard: Shard, found: dict[int, int], known: Floors | None
) -> bool:
    """List the shard and lower its floors if it needs that; True then."""
    if not found:
        return False
    if known is None:
        directory.enter_again(session, shard)
        lookout.forget(shard)
        return True
    hidden = {priority: due for priority, due in found.items() if due < known.moments[priority]}
    if hidden:
        lookout.lower(shard, hidden)
    return bool(hidden)


def _firsts(session: Session, shards: Sequence[Shard], now: int) -> dict[tuple[int, bool], dict[int, int]]:
    """Return for each shard, by its place, what is due and what is not: the first moment of each priority."""
    pipeline: list[Document] = [{"$documents": []}]
    pipeline += [
        _first(index, shard, moments)
        for index, shard in enumerate(shards)
        for moments in ({"$lte": now}, {"$gt": now})
    ]
    found: dict[tuple[int, bool], dict[int, int]] = {}
    with session.translated(writing=False):
        for each in session.database.aggregate(pipeline):
            found.setdefault((each["i"], each["d"] <= now), {})[each["_id"]] = each["d"]
    return found


def _first(index: int, shard: Shard, moments: Document) -> Document:
    stages: list[Document] = [
        {"$match": {"p": _PRIORITIES, "d": moments}},
        {"$sort": {"p": 1, "d": 1}},
        {"$group": {"_id": "$p", "d": {"$first": "$d"}}},
        {"$addFields": {"i": {"$literal": index}}},
    ]
    return {"$unionWith": {"coll": str(shard), "pipeline": stages}}
