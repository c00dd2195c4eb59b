"""Removing what no operation needs any more, and finding what hints hide."""

from __future__ import annotations

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.storage.mongodb import (
    collections,
    consumers,
    dedupe,
    directory,
    forwarding,
    peeking,
    probing,
    queues,
    removal,
)
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.requests import Sweep

__all__ = ["sweep"]

_LIMIT = 1000
_HISTORY = 1_000_000  # microseconds; a queue that keeps any keeps it for longer


def sweep(client: Client, incarnations: Incarnations, request: Sweep) -> int:
    """Remove leftovers of earlier incarnations, then expired parts of the present one; returns how many things.

    Drops that stopped half way are finished, of any queue, as its name may never be used again.
    """
    dropped = queues.condemned(client.session)
    for queue in dropped:
        removal.finish_drop(client.session, queue)
    removed = len(dropped) + removal.remove_remains(client.session, request.queue)
    name = incarnations.look(request.queue)
    return removed if name is None else removed + _sweep(client, replace(request, queue=name))


def _sweep(client: Client, request: Sweep) -> int:
    """Give up history, keys and consumers, up to 1,000 of each kind and shard; returns how many.

    It reads every collection of the queue, listed or not, by no hint. The ids of finished bundles are deleted by the
    server. Of crashed clients only forwards are left, on a standalone server: a bundle is one document.
    """
    session, now = client.session, client.clock.now()
    listed = directory.listing(session, request.queue)
    shards = sorted({*listed, *collections.shards(session, request.queue)})
    for shard in shards:
        client.collections.index(shard, history=request.history_before < now - _HISTORY)
    processed = sum(removal.expire(session, shard, request.history_before, _LIMIT) for shard in shards)
    dropped = sum(collections.drop_unused(session, shard) for shard in shards)
    completed = forwarding.sweep_intents(session, client.collections, (request.queue,), now)
    return (
        processed
        + dropped
        + completed
        + probing.probe_deep(client, shards, now).put_right
        + sum(_list(session, shard) for shard in set(shards).difference(listed))
        + dedupe.expire(session, request.queue, now, _LIMIT)
        + consumers.expire(session, request.queue, now)
    )


def _list(session: Session, shard: Shard) -> bool:
    """List a shard that holds history."""
    if peeking.is_empty(ShardRows(session, shard)) or shard in directory.listing(session, shard.queue):
        return False
    directory.enter_again(session, shard)
    return True
