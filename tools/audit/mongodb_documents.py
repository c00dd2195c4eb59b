"""The documents of a queue in a MongoDB database."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from shardq.base.shard import Shard
from shardq.testing import RawEntry, RawQueue, RawState

__all__ = ["called_now", "collections_of", "is_of", "read_mongodb"]

_END_OF_INDEX = 10  # the priority of the document that marks it
_FINISHED = {"_id", "x", "y", "z", "g"}
_INDEXES = {"claim", "finished"}


def read_mongodb(database: Any, queue: str) -> RawQueue:
    """Read everything of the queue, by the names of the collections. Nobody may be at work meanwhile."""
    entries: dict[Shard, list[RawEntry]] = defaultdict(list)
    bodies: dict[Shard, list[bytes]] = defaultdict(list)
    strays: list[str] = []
    called = called_now(database, queue)
    for name, shard in collections_of(database, queue):
        if not name.startswith(f"{called}:"):
            strays.append(f"collection {name} of no queue")
            continue
        needed = _INDEXES | ({"history"} if database[name].find_one({"h": {"$exists": True}}) else set())
        needed = needed | ({"group"} if shard.is_grouped else set())
        if missing := needed - {each["name"] for each in database[name].list_indexes()}:
            strays.append(f"collection {name} without the indexes {sorted(missing)}")
        groups, named = set(), set()
        for found in database[name].find({"p": {"$ne": _END_OF_INDEX}}):
            if set(found) <= _FINISHED:
                continue
            if "j" in found:
                named.add(found["r"])
                continue
            if "k" in found:
                groups.add(found["r"])
            entries[shard] += _entries(found)
            if "b" in found:
                bodies[shard].append(found["_id"])
            elif not _entries(found):
                strays.append(f"document {found['_id'].hex()} in {name} that says nothing: {sorted(found)}")
        strays += [f"group {group!r} without messages in {name}" for group in named - groups]
        strays += [f"group {group!r} without a document in {name}" for group in groups - named]
    strays += [
        f"intent {each['_id'].hex()}"
        for each in database["shardq.intent"].find()
        if is_of(each["queue"], queue)
    ]
    directory = list(database["shardq.shard"].find())
    for kind in ("shard", "dedupe", "consumer"):
        names = {each["_id"]["q"] for each in database[f"shardq.{kind}"].find()}
        strays += [f"{kind} of {name}" for name in sorted(names) if is_of(name, queue) and name != called]
    return RawQueue(
        entries,
        bodies,
        frozenset(
            Shard(queue, each["_id"]["t"], each["_id"]["n"])
            for each in directory
            if each["_id"]["q"] == called
        ),
        strays,
    )


def called_now(database: Any, queue: str) -> str | None:
    """Return what the queue is called in ids and names; None when it does not exist."""
    record = database["shardq.queue"].find_one({"_id": queue, "version": {"$ne": -1}})
    if record is None:
        return None
    incarnation = record.get("incarnation")
    return f"{_plain(queue)}@{incarnation}" if incarnation else _plain(queue)


def _plain(queue: str) -> str:
    return re.sub(r"(?<=\.)\.", "~d", queue.replace("@", "~a"))


def is_of(name: str, queue: str) -> bool:
    """Tell whether the queue is or was called so: its name, and that of an incarnation."""
    return name.partition("@")[0] == _plain(queue)


def collections_of(database: Any, queue: str) -> Iterator[tuple[str, Shard]]:
    """Return the collections of the queue's shards, of all its incarnations."""
    pattern = re.compile(rf"{re.escape(_plain(queue))}(?:@[0-9a-f]+)?:(\d+):(\d+)")
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
