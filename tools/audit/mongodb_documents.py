"""The documents of a queue in a MongoDB database."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from shardq.sharding.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["read_mongodb"]

_END_OF_INDEX = 10  # the priority of the document that marks it
_FINISHED = {"_id", "x", "y"}
_INDEXES = {"claim", "token", "history", "finished"}


def read_mongodb(database: Any, queue: str) -> RawQueue:
    """Read everything of the queue, by the names of the collections. Nobody may be at work meanwhile."""
    entries: dict[Shard, list[RawEntry]] = defaultdict(list)
    bodies: dict[Shard, list[bytes]] = defaultdict(list)
    strays: list[str] = []
    known = database["shardq.queue"].find_one({"_id": queue, "version": {"$ne": -1}})
    for name, shard in _collections(database, queue):
        if known is None:
            strays.append(f"collection {name} of no queue")
        if missing := _INDEXES - {each["name"] for each in database[name].list_indexes()}:
            strays.append(f"collection {name} without the indexes {sorted(missing)}")
        for found in database[name].find({"p": {"$ne": _END_OF_INDEX}}):
            if set(found) <= _FINISHED:
                continue
            entries[shard] += _entries(found)
            if "b" in found:
                bodies[shard].append(found["_id"])
            elif not _entries(found):
                strays.append(f"document {found['_id'].hex()} in {name} that says nothing: {sorted(found)}")
    strays += [f"intent {each['_id'].hex()}" for each in database["shardq.intent"].find({"queue": queue})]
    directory = database["shardq.shard"].find({"_id.q": queue})
    return RawQueue(
        entries,
        bodies,
        frozenset(Shard(queue, each["_id"]["t"], each["_id"]["n"]) for each in directory),
        strays,
    )


def _collections(database: Any, queue: str) -> Iterator[tuple[str, Shard]]:
    pattern = re.compile(rf"{re.escape(queue)}:(\d+):(\d+)")
    for name in sorted(database.list_collection_names()):
        if place := pattern.fullmatch(name):
            yield name, Shard(queue, int(place[1]), int(place[2]))


def _entries(found: dict[str, Any]) -> list[RawEntry]:
    if "s" in found:
        slices = [(each["f"], each["c"], each.get("t")) for each in found["s"]]
    else:
        slices = [(0, found["n"], found.get("t"))] if "d" in found else []
    return [
        RawEntry(found["_id"], first, count, RawState.HELD if token else RawState.WAITING)
        for first, count, token in slices
    ] + [RawEntry(found["_id"], each["f"], each["c"], RawState.PROCESSED) for each in found.get("h", ())]
