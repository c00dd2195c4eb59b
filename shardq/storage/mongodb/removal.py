"""Removing messages whatever their state, shards and queues, and what is left of a queue's earlier incarnations.

A sweep removes all that no operation needs any more, and finds what hints hide.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.mongodb import (
    collections,
    consumers,
    dedupe,
    directory,
    forwarding,
    group_changes,
    peeking,
    probing,
    queues,
)
from shardq.storage.mongodb.changing import Change, change, new_stamp
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import QUEUE, WAITING, Row, processed
from shardq.storage.mongodb.queues import Incarnations
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import HISTORY_INDEX, ShardRows
from shardq.storage.mongodb.slicing import cut, without
from shardq.storage.requests import QueueRecord, Span, Sweep
from shardq.storage.writing import after_a_write

__all__ = ["drop", "expire", "finish_drop", "purge", "remove", "remove_remains", "sweep"]

_AT_ONCE = 1000

_KEPT_BY_QUEUE = (directory.SHARDS, dedupe.KEYS, consumers.CONSUMERS)


def remove(client: Client, shard: Shard, bundle_id: bytes, position: int) -> bool:
    """Remove one message, out of the history too; False when it is not stored."""

    def decide(row: Row) -> Change | None:
        named = [Span(row.id, position, 1, each.token) for each in row.slices]  # type: ignore[arg-type]
        held, rest = cut(row, named)
        keeping = without(row.kept, position)
        if not held and keeping == row.kept:
            return None
        return Change(tuple(rest), keeping)

    if shard.is_grouped:
        return group_changes.end(client, shard, bundle_id, decide)
    seen, _ = change(ShardRows(client.session, shard), [bundle_id], decide, new_stamp())
    return any(decide(row) is not None for row in seen.values())


def purge(client: Client, shard: Shard) -> int:
    """Remove pending messages and held ones, a thousand bundles at a time; returns how many messages they were.

    Raises OutcomeUnknown when it fails after some of them.
    """
    messages = 0
    with after_a_write(lambda: messages):
        for count in group_changes.purge(client, shard) if shard.is_grouped else _purge(client, shard):
            messages += count
    return messages


def _purge(client: Client, shard: Shard) -> Iterator[int]:
    rows = ShardRows(client.session, shard)
    while found := rows.find(WAITING, limit=_AT_ONCE):
        seen, _ = change(rows, [row.id for row in found], _without_slices, new_stamp())
        yield sum(each.count for row in seen.values() for each in row.slices)


def expire(session: Session, shard: Shard, before: int, limit: int) -> int:
    """Give up to ``limit`` bundles' slices up that were processed before a moment; returns how many slices."""
    rows = ShardRows(session, shard)

    def decide(row: Row) -> Change | None:
        keeping = tuple(each for each in row.kept if each.at >= before)
        return None if keeping == row.kept else Change(row.slices, keeping)

    found = rows.find(processed(lt=before), hint=HISTORY_INDEX, limit=limit)
    seen, _ = change(rows, [row.id for row in found], decide, new_stamp())
    return sum(each.at < before for row in seen.values() for each in row.kept)


def drop(session: Session, queue: str, seen: QueueRecord | None = None) -> bool:
    """Remove the queue with all that it holds; continues where a crashed attempt stopped. False when there is none.

    Nor is there one when its record is not the one that was ``seen``.
    """
    if not queues.condemn(session, queue, seen):
        return False
    try:
        finish_drop(session, queue)
    except StoreUnavailable as error:
        raise OutcomeUnknown(f"queue {queue!r} is deleted, but not all that it held: {error}") from error
    return True


def finish_drop(session: Session, queue: str) -> None:
    """Remove what is left of a queue that was condemned, and nothing of one that was created again meanwhile."""
    remove_remains(session, queue)
    queues.remove(session, queue)


def _without_slices(row: Row) -> Change | None:
    return Change((), row.kept) if row.slices else None


def remove_remains(session: Session, queue: str) -> int:
    """Remove all that there is of the queue but of its present incarnation; returns how much.

    Names are collected first. One that is not the present one after that never will be.
    """
    shards = collections.of_every_incarnation(session, queue)
    names = {shard.queue for shard in shards} | forwarding.names_in_intents(session, queue)
    for kind in _KEPT_BY_QUEUE:
        names.update(_names_in(session, kind, queue))
    names.discard(queues.current_name(session, queue) or "")
    over = [shard for shard in shards if shard.queue in names]
    for shard in over:
        collections.drop(session, shard)
    rest = (directory.drop, dedupe.drop, consumers.drop, forwarding.drop_intents)
    return len(over) + sum(drop(session, name) for name in names for drop in rest)


def _names_in(session: Session, collection: str, queue: str) -> Iterator[str]:
    """Return the name of the queue in the ids of a collection, by one seek for each name."""
    for first, end in queues.names_between(queue):
        while True:
            between = {"_id": {"$gte": {QUEUE: first}, "$lt": {QUEUE: end}}}
            with session.translated(writing=False):
                found = session.collection(collection).find_one(between, {"_id": 1}, sort=[("_id", 1)])
            if found is None:
                break
            yield found["_id"][QUEUE]
            first = f"{found['_id'][QUEUE]} "  # noqa: PLW2901 -- what comes after all ids of that name


_LIMIT = 1000
_HISTORY = 1_000_000  # microseconds; a queue that keeps any keeps it for longer


def sweep(client: Client, incarnations: Incarnations, request: Sweep) -> int:
    """Remove leftovers of earlier incarnations, then expired parts of the present one; returns how many things.

    Drops that stopped half way are finished, of any queue, as its name may never be used again.
    """
    dropped = queues.condemned(client.session)
    for queue in dropped:
        finish_drop(client.session, queue)
    removed = len(dropped) + remove_remains(client.session, request.queue)
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
    processed = sum(expire(session, shard, request.history_before, _LIMIT) for shard in shards)
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
