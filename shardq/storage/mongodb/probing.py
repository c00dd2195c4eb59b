"""What shards have to offer, many in one command, out of the claim index alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardq.sharding.shard import Shard
from shardq.storage.mongodb.lookout import Lookout
from shardq.storage.mongodb.session import Document, Session
from shardq.storage.mongodb.shard_rows import one_after_the_other
from shardq.storage.mongodb.sight import OLDEST, Sight
from shardq.storage.requests import Probe

__all__ = ["probe"]

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
