"""The offers of shards, many in one command, out of the claim index alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from shardq.base.shard import Shard
from shardq.storage.mongodb import directory, queues, read_cursors
from shardq.storage.mongodb.client import Client
from shardq.storage.mongodb.documents import BEHIND, DUE, EVERY_PRIORITY, PRIORITY, Document
from shardq.storage.mongodb.forwarding import sweep_intents
from shardq.storage.mongodb.read_cursors import LowWatermarks, ReadCursor
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import one_after_the_other
from shardq.storage.read_cursors import OLDEST
from shardq.storage.requests import Probe

__all__ = ["DeepProbe", "probe", "probe_deep"]

_AT_ONCE = 50
_MOST_ANSWERS = 20 * _AT_ONCE + 1  # due messages and those ahead of ten priorities
_INDEX = "index"  # of the shard among those that are asked for


class Probed(msgspec.Struct, frozen=True):
    """The offers of shards, and the names of their queues right after the probe, if they were read."""

    probes: tuple[Probe, ...]
    called: dict[str, str] | None = None


class DeepProbe(msgspec.Struct, frozen=True):
    """The result of a deep probe, and how many shards were not found, or not with all of their messages."""

    probed: Probed
    put_right: int


class _Found(msgspec.Struct):
    """The answer of one command, in this order."""

    due: dict[int, dict[int, int]]  # by the place of the shard and by priority: the first moment
    ahead: dict[int, dict[int, int]]
    watermarks: dict[Shard, LowWatermarks]
    called: dict[str, str]


def probe(
    client: Client,
    shards: Sequence[Shard],
    now: int,
    names: Collection[str] = (),
    *,
    glance: bool,
    deep: bool = False,
) -> Probed:
    """Return the offer of each of the shards, in their order.

    With ``glance`` without messages ahead, with ``deep`` without any hint. ``names`` are the queues to read after
    their shards, in the same request; they are asked for only where a shard seems empty.
    """
    if deep:
        if not client.session.has_transactions:  # else nobody writes intents
            sweep_intents(client.session, client.collections, {shard.queue for shard in shards}, now)
        return probe_deep(client, shards, now, names).probed
    chunks = _chunks(shards)
    probes: list[Probe] = []
    called: dict[str, str] | None = None
    for chunk in chunks:
        asked = names if chunk is chunks[-1] else ()
        seen = _glance(client, chunk, now) if glance else _probe(client, chunk, now, asked)
        probes += seen.probes
        called = seen.called
    return Probed(tuple(probes), called)


def probe_deep(client: Client, shards: Sequence[Shard], now: int, names: Collection[str] = ()) -> DeepProbe:
    """Probe all that the shards' indexes have, fifty in one command, and after them these queues.

    Those that hold something are listed, and low watermarks that hide something are lowered, for every client. It
    crosses consumed messages that the server keeps for some minutes.
    """
    probes: list[Probe] = []
    put_right = 0
    called: dict[str, str] | None = None
    for chunk in (chunks := _chunks(shards)):
        asked = names if chunk is chunks[-1] else ()
        firsts = [
            _firsts(index, shard, moments)
            for index, shard in enumerate(chunk)
            for moments in ({"$lte": now}, _ahead(now))
        ]
        found = _read(client.session, [*firsts, read_cursors.listed(chunk), *_names(asked)], now)
        for index, shard in enumerate(chunk):
            there = found.ahead.get(index, {}) | found.due.get(index, {})
            put_right += _put_right(client, shard, there, found.watermarks.get(shard))
        seen = _probed(chunk, found, asked)
        probes += seen.probes
        called = seen.called
    return DeepProbe(Probed(tuple(probes), called), put_right)


def _glance(client: Client, shards: Sequence[Shard], now: int) -> Probed:
    starts = client.cursors.of(shards, now)
    return _probed(shards, _read(client.session, _dues(shards, starts, now), now))


def _probe(client: Client, shards: Sequence[Shard], now: int, names: Collection[str]) -> Probed:
    cursors = client.cursors

    def read(starts: Sequence[ReadCursor]) -> _Found:
        stages = _dues(shards, starts, now)
        stages += [_firsts(index, shard, _ahead(now)) for index, shard in enumerate(shards)]
        return _read(client.session, [*stages, read_cursors.listed(shards), *_names(names)], now)

    starts = cursors.remembered(shards, now)
    found = read(starts) if starts else None
    if found is None or not cursors.confirm(shards, starts, found.watermarks):
        starts = cursors.checked(shards, now)
        found = read(starts)
    for index, (shard, cursor) in enumerate(zip(shards, starts, strict=True)):
        if index not in found.due:
            cursor.consumed(None, now, OLDEST)
            cursors.moved(shard, cursor, now)
    return _probed(shards, found, names)


def _put_right(client: Client, shard: Shard, found: dict[int, int], known: LowWatermarks | None) -> bool:
    """List the shard and lower its low watermarks if it needs that; True then."""
    if not found:
        return False
    if known is None:
        directory.enter_again(client.session, shard)
        client.cursors.forget(shard)
        return True
    hidden = {priority: due for priority, due in found.items() if due < known.moments[priority]}
    if hidden:
        client.cursors.lower(shard, hidden)
    return bool(hidden)


def _chunks(shards: Sequence[Shard]) -> list[Sequence[Shard]]:
    return [shards[start : start + _AT_ONCE] for start in range(0, len(shards), _AT_ONCE)]


def _read(session: Session, stages: Sequence[Document], now: int) -> _Found:
    command = {
        "aggregate": 1,
        "pipeline": [{"$documents": []}, *stages],
        "cursor": {"batchSize": _MOST_ANSWERS},
    }
    found = _Found({}, {}, {}, {})
    with session.translated(writing=False):
        for each in session.read(command):
            if _INDEX in each:
                firsts = found.due if each[DUE] <= now else found.ahead
                firsts.setdefault(each[_INDEX], {})[each[PRIORITY]] = each[DUE]
            elif read_cursors.LISTED in each:
                found.watermarks |= read_cursors.decode([each[read_cursors.LISTED]])
            else:
                found.called[each["_id"]] = queues.called(each)
    return found


def _probed(shards: Sequence[Shard], found: _Found, names: Collection[str] = ()) -> Probed:
    probes = []
    for index, shard in enumerate(shards):
        due, ahead = found.due.get(index, {}), found.ahead.get(index, {})
        priority = min(due, default=None)
        moment = None if priority is None else due[priority]
        probes.append(Probe(shard, priority, moment, min(ahead.values(), default=None)))
    return Probed(tuple(probes), found.called if names else None)


def _dues(shards: Sequence[Shard], starts: Sequence[ReadCursor], now: int) -> list[Document]:
    """Find for each shard the first that is due, by one seek for each priority."""
    return [
        _of_shard(index, shard, one_after_the_other(str(shard), start.due(now), 1), PRIORITY)
        for index, (shard, start) in enumerate(zip(shards, starts, strict=True))
    ]


def _ahead(now: int) -> Document:
    """Filter messages that are due later, and are the first of their groups."""
    return {"$gt": now, "$lt": BEHIND}


def _firsts(index: int, shard: Shard, moments: Document) -> Document:
    """Find for each priority the first that is due within some moments."""
    stages: list[Document] = [
        {"$match": {PRIORITY: EVERY_PRIORITY, DUE: moments}},
        {"$sort": {PRIORITY: 1, DUE: 1}},
        {"$group": {"_id": f"${PRIORITY}", DUE: {"$first": f"${DUE}"}}},
    ]
    return _of_shard(index, shard, stages, "_id")


def _of_shard(index: int, shard: Shard, stages: Sequence[Document], priority: str) -> Document:
    shown = {"_id": 0, _INDEX: {"$literal": index}, PRIORITY: f"${priority}", DUE: 1}
    return {"$unionWith": {"coll": str(shard), "pipeline": [*stages, {"$project": shown}]}}


def _names(names: Collection[str]) -> list[Document]:
    """Read the names of the queues."""
    if not names:
        return []
    stages = [{"$match": queues.among(names)}, {"$project": {"settings": 0}}]
    return [{"$unionWith": {"coll": queues.QUEUES, "pipeline": stages}}]
