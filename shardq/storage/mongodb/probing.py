"""What shards have to offer, many in one command, out of the claim index alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardq.sharding.shard import Shard
from shardq.storage.mongodb.session import Document, Session
from shardq.storage.requests import Probe

__all__ = ["probe"]

_AT_ONCE = 50
_PRIORITIES = {"$gte": 0, "$lte": 9}


def probe(session: Session, shards: Sequence[Shard], now: int) -> tuple[Probe, ...]:
    """Return what each of the shards has to offer, in their order."""
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    return tuple(probe for chunk in chunks for probe in _probe(session, chunk, now))


def _probe(session: Session, shards: Sequence[Shard], now: int) -> Iterator[Probe]:
    first: dict[int, tuple[int, int]] = {}
    ahead: dict[int, int] = {}
    pipeline = [{"$documents": []}, *(stage for each in enumerate(shards) for stage in _stages(*each, now))]
    with session.translated(writing=False):
        for found in session.database.aggregate(pipeline):
            if found["d"] <= now:
                first[found["i"]] = (found["p"], found["d"])
            else:
                ahead[found["i"]] = min(found["d"], ahead.get(found["i"], found["d"]))
    for index, shard in enumerate(shards):
        priority, due = first.get(index, (None, None))
        yield Probe(shard, priority, due, ahead.get(index))


def _stages(index: int, shard: Shard, now: int) -> Iterator[Document]:
    """The first that is due, by one seek for each priority; then for each priority the first that is not."""
    order = {"p": 1, "d": 1}
    shown = {"_id": 0, "i": {"$literal": index}, "p": 1, "d": 1}
    due = [
        {"$match": {"p": _PRIORITIES, "d": {"$lte": now}}},
        {"$sort": order},
        {"$limit": 1},
        {"$project": shown},
    ]
    group = {"_id": "$p", "d": {"$first": "$d"}}
    later = [
        {"$match": {"p": _PRIORITIES, "d": {"$gt": now}}},
        {"$sort": order},
        {"$group": group},
        {"$project": {"_id": 0, "i": {"$literal": index}, "p": "$_id", "d": 1}},
    ]
    yield {"$unionWith": {"coll": str(shard), "pipeline": due}}
    yield {"$unionWith": {"coll": str(shard), "pipeline": later}}
