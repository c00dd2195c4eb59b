"""What is left of a queue's earlier incarnations: by a drop that stopped half way, or by clients that went on."""

from __future__ import annotations

from collections.abc import Iterator

from shardq.storage.mongodb import collections, consumers, dedupe, directory, intents, queues
from shardq.storage.mongodb.session import Session

__all__ = ["remove"]

_KEPT_BY_QUEUE = (directory.SHARDS, dedupe.KEYS, consumers.CONSUMERS)


def remove(session: Session, queue: str) -> int:
    """Remove all that there is of the queue but of its present incarnation; returns how much.

    Names are collected first. One that is not the present one after that never will be.
    """
    shards = collections.of_every_incarnation(session, queue)
    names = {shard.queue for shard in shards} | intents.names(session, queue)
    for kind in _KEPT_BY_QUEUE:
        names.update(_names_in(session, kind, queue))
    names.discard(queues.current_name(session, queue) or "")
    over = [shard for shard in shards if shard.queue in names]
    for shard in over:
        collections.drop(session, shard)
    rest = (directory.drop, dedupe.drop, consumers.drop, intents.drop)
    return len(over) + sum(drop(session, name) for name in names for drop in rest)


def _names_in(session: Session, collection: str, queue: str) -> Iterator[str]:
    """Return what the queue was called in the ids of a collection, by one seek for each name."""
    for first, end in queues.names_between(queue):
        while True:
            between = {"_id": {"$gte": {"q": first}, "$lt": {"q": end}}}
            with session.translated(writing=False):
                found = session.collection(collection).find_one(between, {"_id": 1}, sort=[("_id", 1)])
            if found is None:
                break
            yield found["_id"]["q"]
            first = f"{found['_id']['q']} "  # noqa: PLW2901 -- what comes after all ids of that name
