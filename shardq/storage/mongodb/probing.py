"""What shards have to offer, many in one command, out of the claim index alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import directory, read_cursors
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.read_cursors import OLDEST, Floors, Lookout, Sight
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import one_after_the_other
from shardq.storage.requests import Probe

__all__ = ["DeepLook", "look", "probe"]

_AT_ONCE = 50
_PRIORITIES = {"$gte": 0, "$lte": 9}


def probe(
    session: Session, lookout: Lookout, shards: Sequence[Shard], now: int, *, glance: bool
) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order; at a glance, without what lies ahead."""
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    return tuple(probe for chunk in chunks for probe in _probe(session, lookout, chunk, now, glance))


def _probe(
    session: Session, lookout: Lookout, shards: Sequence[Shard], now: int, glance: bool
) -> Iterator[Probe]:
    first: dict[int, tuple[int, int]] = {}
    ahead: dict[int, int] = {}
    sights = lookout.sights(shards, now) if glance else lookout.checked_sights(shards, now)
    pipeline: list[Document] = [{"$documents": []}]
    for index, (shard, sight) in enumerate(zip(shards, sights, strict=True)):
        pipeline.append(_due(index, shard, sight, now))
        pipeline += [] if glance else [_later(index, shard, now)]
    with session.translated(writing=False):
        for found in session.database.aggregate(pipeline):
            if found["d"] <= now:
                first[found["i"]] = (found["p"], found["d"])
            else:
                ahead[found["i"]] = min(found["d"], ahead.get(found["i"], found["d"]))
    for index, (shard, sight) in enumerate(zip(shards, sights, strict=True)):
        if index not in first and not glance:
            sight.consumed(None, now, OLDEST)
            lookout.moved(shard, sight, now)
        priority, due = first.get(index, (None, None))
        yield Probe(shard, priority, due, ahead.get(index))


def _due(index: int, shard: Shard, sight: Sight, now: int) -> Document:
    """The first that is due, by one seek for each priority."""
    shown = {"_id": 0, "i": {"$literal": index}, "p": 1, "d": 1}
    stages = [*one_after_the_other(str(shard), sight.due(now), 1), {"$project": shown}]
    return {"$unionWith": {"coll": str(shard), "pipeline": stages}}


def _later(index: int, shard: Shard, now: int) -> Document:
    """For each priority the first that is not due."""
    stages: list[Document] = [
        {"$match": {"p": _PRIORITIES, "d": {"$gt": now}}},
        {"$sort": {"p": 1, "d": 1}},
        {"$group": {"_id": "$p", "d": {"$first": "$d"}}},
        {"$project": {"_id": 0, "i": {"$literal": index}, "p": "$_id", "d": 1}},
    ]
    return {"$unionWith": {"coll": str(shard), "pipeline": stages}}


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
        known = read_cursors.read(session, chunk)
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
