"""What shards have to offer, many in one command, out of the claim index alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from shardq.sharding.shard import Shard
from shardq.storage.mongodb import directory, queues, read_cursors
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import BEHIND, DUE, EVERY_PRIORITY, PRIORITY, Document
from shardq.storage.mongodb.forwarding import sweep_intents
from shardq.storage.mongodb.read_cursors import LowWatermarks, ReadCursor, ReadCursors
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import one_after_the_other
from shardq.storage.read_cursors import OLDEST
from shardq.storage.requests import Probe

__all__ = ["DeepLook", "Probed", "look", "probe"]

_AT_ONCE = 50
_MOST_ANSWERS = 20 * _AT_ONCE + 1  # what is due and what lies ahead of ten priorities
_INDEX = "index"  # of the shard among those that are asked for


class Probed(msgspec.Struct, frozen=True):
    """What shards have to offer, and what their queues were called right after the look, if that was looked at."""

    probes: tuple[Probe, ...]
    called: dict[str, str] | None = None


def probe(
    client: Client,
    shards: Sequence[Shard],
    now: int,
    names: Collection[str] = (),
    *,
    glance: bool,
    deep: bool = False,
) -> Probed:
    """Return what each of the shards has to offer, in their order.

    With ``glance`` without what lies ahead, with ``deep`` whatever hides it. ``names`` are the queues to look at after
    their shards, in the same request; only where something is said to be empty that is asked for.
    """
    if deep:
        if not client.session.has_transactions:  # else nobody writes intents
            sweep_intents(client.session, client.collections, {shard.queue for shard in shards}, now)
        return Probed(look(client, shards, now).probes)
    chunks = [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]
    probes: list[Probe] = []
    called: dict[str, str] | None = None
    for chunk in chunks:
        asked = () if glance or chunk is not chunks[-1] else names
        seen = _probe(client, chunk, now, asked, glance)
        probes += seen.probes
        called = seen.called
    return Probed(tuple(probes), called)


def _probe(client: Client, shards: Sequence[Shard], now: int, names: Collection[str], glance: bool) -> Probed:
    session, cursors = client.session, client.cursors
    first: dict[int, tuple[int, int]] = {}
    ahead: dict[int, int] = {}
    called: dict[str, str] = {}
    starts = cursors.of(shards, now) if glance else cursors.checked(shards, now)
    pipeline: list[Document] = [{"$documents": []}]
    for index, (shard, cursor) in enumerate(zip(shards, starts, strict=True)):
        pipeline.append(_due(index, shard, cursor, now))
        pipeline += [] if glance else [_firsts(index, shard, _ahead(now))]
    if names:
        stages = [{"$match": queues.among(names)}, {"$project": {"settings": 0}}]
        pipeline.append({"$unionWith": {"coll": queues.QUEUES, "pipeline": stages}})
    with session.translated(writing=False):
        for found in session.read(_together(pipeline)):
            if _INDEX not in found:
                called[found["_id"]] = queues.called(found)
                continue
            index, due = found[_INDEX], found[DUE]
            if due <= now:
                first[index] = (found[PRIORITY], due)
            else:
                ahead[index] = min(due, ahead.get(index, due))
    probes: list[Probe] = []
    for index, (shard, cursor) in enumerate(zip(shards, starts, strict=True)):
        if index not in first and not glance:
            cursor.consumed(None, now, OLDEST)
            cursors.moved(shard, cursor, now)
        priority, due = first.get(index, (None, None))
        probes.append(Probe(shard, priority, due, ahead.get(index)))
    return Probed(tuple(probes), called if names else None)


def _together(pipeline: list[Document]) -> Document:
    return {"aggregate": 1, "pipeline": pipeline, "cursor": {"batchSize": _MOST_ANSWERS}}


def _due(index: int, shard: Shard, cursor: ReadCursor, now: int) -> Document:
    """The first that is due, by one seek for each priority."""
    shown = {"_id": 0, _INDEX: {"$literal": index}, PRIORITY: 1, DUE: 1}
    stages = [*one_after_the_other(str(shard), cursor.due(now), 1), {"$project": shown}]
    return {"$unionWith": {"coll": str(shard), "pipeline": stages}}


def _ahead(now: int) -> Document:
    """What is due later, and has nothing of its group before it."""
    return {"$gt": now, "$lt": BEHIND}


def _firsts(index: int, shard: Shard, moments: Document) -> Document:
    """For each priority the first that is due within some moments."""
    stages: list[Document] = [
        {"$match": {PRIORITY: EVERY_PRIORITY, DUE: moments}},
        {"$sort": {PRIORITY: 1, DUE: 1}},
        {"$group": {"_id": f"${PRIORITY}", DUE: {"$first": f"${DUE}"}}},
        {"$project": {"_id": 0, _INDEX: {"$literal": index}, PRIORITY: "$_id", DUE: 1}},
    ]
    return {"$unionWith": {"coll": str(shard), "pipeline": stages}}


class DeepLook(msgspec.Struct, frozen=True):
    """What shards have to offer, and how many of them were not to be found, or not all of it."""

    probes: tuple[Probe, ...]
    put_right: int


def look(client: Client, shards: Sequence[Shard], now: int) -> DeepLook:
    """Look at all that the shards' indexes have, fifty in one command.

    Those that hold something are listed, and low watermarks that hide something are lowered, for every client. It
    crosses what was consumed and is kept by the server for some minutes.
    """
    session, cursors = client.session, client.cursors
    probes: list[Probe] = []
    put_right = 0
    for start in range(0, len(shards), _AT_ONCE):
        chunk = shards[start : start + _AT_ONCE]
        firsts = _all_firsts(session, chunk, now)
        known = read_cursors.read(session, chunk)
        for index, shard in enumerate(chunk):
            due, ahead = firsts.get((index, True), {}), firsts.get((index, False), {})
            put_right += _put_right(session, cursors, shard, ahead | due, known.get(shard))
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
    session: Session, cursors: ReadCursors, shard: Shard, found: dict[int, int], known: LowWatermarks | None
) -> bool:
    """List the shard and lower its low watermarks if it needs that; True then."""
    if not found:
        return False
    if known is None:
        directory.enter_again(session, shard)
        cursors.forget(shard)
        return True
    hidden = {priority: due for priority, due in found.items() if due < known.moments[priority]}
    if hidden:
        cursors.lower(shard, hidden)
    return bool(hidden)


def _all_firsts(
    session: Session, shards: Sequence[Shard], now: int
) -> dict[tuple[int, bool], dict[int, int]]:
    """Return for each shard, by its place, what is due and what is not: the first moment of each priority."""
    pipeline: list[Document] = [{"$documents": []}]
    pipeline += [
        _firsts(index, shard, moments)
        for index, shard in enumerate(shards)
        for moments in ({"$lte": now}, _ahead(now))
    ]
    found: dict[tuple[int, bool], dict[int, int]] = {}
    with session.translated(writing=False):
        for each in session.read(_together(pipeline)):
            found.setdefault((each[_INDEX], each[DUE] <= now), {})[each[PRIORITY]] = each[DUE]
    return found
