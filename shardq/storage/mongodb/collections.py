"""The collections of shards, made when a shard is first written.

Whoever is the first of a client to write to one makes the indexes that it lacks, and whoever keeps history there the
index of that. The server opens a file for each collection and each index. A server that may open no more ends itself.
It keeps the files of what was dropped for five minutes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from bson.binary import Binary
from pymongo.errors import OperationFailure

from shardq.errors import InvalidSetting, StoreUnavailable
from shardq.sharding.shard import Shard
from shardq.storage.mongodb import queues, schema
from shardq.storage.mongodb.documents import END, Document
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import ShardRows

__all__ = [
    "MOST",
    "OF_A_SHARD",
    "RECOMMENDED",
    "check_open_files",
    "close",
    "drop",
    "find",
    "index",
    "make",
    "number",
    "of_every_incarnation",
    "open_again",
    "open_files_limit",
    "reserve",
    "shards",
    "uuid_of",
]

MOST = 3_000  # of five files each: as many files as 7,500 collections with one index have

_CLOSED: Document = {"closed": True}
_NO_SUCH = 26

OF_A_SHARD = 5  # itself and its indexes, with that of the history
RECOMMENDED = 64_000
_OTHERS = 1_000  # connections, the journal, the server's own collections
_TOO_FEW = 22184  # the warning at the start of a server that may open fewer than recommended


def reserve(session: Session, shards: Sequence[Shard]) -> None:
    """Let queues, each by what it is called, come to have these shards; none is made before it is written.

    Raises InvalidSetting for too many, beside those that there are and that other queues may come to have, or
    StoreUnavailable when the server cannot open them yet.
    """
    wanted, there = _by_queue(shards), _by_queue(map(_shard_of, _names(session, ".*")))
    planned = queues.planned(session)
    needed = sum(
        len(wanted[queue] | there[queue])
        if queue in wanted
        else max(len(there[queue]), planned.get(queue, 0))
        for queue in {*wanted, *there, *planned}
    )
    _check_number(session, needed)
    if any(wanted[queue] - there[queue] for queue in list(wanted)):
        check_open_files(session, needed)
    for queue, its in wanted.items():
        queues.plan(session, queue, len(its))


def make(session: Session, shard: Shard) -> Document | None:
    """Make the collection of a shard; return what `find` tells of it. Raises InvalidSetting for one too many.

    Raises StoreUnavailable when the server cannot open it yet.
    """
    wanted = number(session) + 1
    _check_number(session, wanted)
    check_open_files(session, wanted)
    with session.translated(writing=True):
        schema.make(session.database, schema.shard_collection(grouped=shard.is_grouped), str(shard))
    if (made := find(session, shard)) is not None:
        ShardRows(session, shard).insert([END], uuid_of(made), any_shape=True)
    return made


def _by_queue(shards: Iterable[Shard]) -> dict[str, set[Shard]]:
    found: dict[str, set[Shard]] = defaultdict(set)
    for shard in shards:
        found[shard.queue].add(shard)
    return found


def index(session: Session, shard: Shard, *, history: bool = False) -> None:
    """Make the indexes that its collection lacks, which has to be there; what lets inserts in stays as it is."""
    with session.translated(writing=True):
        made = schema.shard_collection(grouped=shard.is_grouped)
        schema.index(session.database, made, str(shard), history=history)


def number(session: Session) -> int:
    """Return how many there are in the database."""
    return len(_names(session, ".*"))


def shards(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the shards that have one, of a queue by what it is called."""
    return tuple(map(_shard_of, _names(session, re.escape(queue))))


def of_every_incarnation(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the shards that have one, whatever the queue is or was called."""
    return tuple(
        map(_shard_of, _names(session, f"{re.escape(queues.name_of(queue))}({queues.SIGN}[0-9a-f]+)?"))
    )


def find(session: Session, shard: Shard) -> Document | None:
    """Return what the server tells of the shard's collection."""
    with session.translated(writing=False):
        found = next(iter(session.database.list_collections(filter={"name": str(shard)})), None)
    return None if found is None else dict(found)


def uuid_of(found: Document) -> Binary:
    """Return the uuid of a collection that was found."""
    return Binary(found["info"]["uuid"], 4)


def open_again(session: Session, shard: Shard) -> None:
    """Let bundles be inserted."""
    _validate(session, shard, schema.shard_collection().validator)


def close(session: Session, shard: Shard) -> None:
    """Let nothing be inserted any more."""
    _validate(session, shard, _CLOSED)


def drop(session: Session, shard: Shard) -> None:
    """Drop the collection of the shard."""
    with session.translated(writing=True):
        session.database.drop_collection(str(shard))


def _names(session: Session, queue: str) -> list[str]:
    with session.translated(writing=False):
        pattern = f"^{queue}{schema.SHARD_NAMES}"
        return session.database.list_collection_names(filter={"name": {"$regex": pattern}})


def _shard_of(name: str) -> Shard:
    queue, time_shard, number = name.rsplit(":", 2)
    return Shard(queue, int(time_shard), int(number))


def _check_number(session: Session, wanted: int) -> None:
    if wanted > MOST:
        raise InvalidSetting(
            f"{session.address} would have {wanted} shards, each a collection, and {MOST} are the most: "
            "lower shards or time_shards, delete queues, or give some a server of their own"
        )


def _validate(session: Session, shard: Shard, validator: Document) -> None:
    with session.translated(writing=True):
        try:
            session.database.command(
                "collMod",
                str(shard),
                validator=validator,
                validationLevel="moderate",
                writeConcern=session.write_concern,
            )
        except OperationFailure as error:
            if error.code != _NO_SUCH:
                raise


def open_files_limit(session: Session) -> int | None:
    """Return how many files the server may open; None when that is enough, or this user may not know it."""
    log = _ask(session, {"getLog": "startupWarnings"}).get("log", ())
    warnings = (msgspec.json.decode(line) for line in log)
    return next((int(each["attr"]["currentValue"]) for each in warnings if each.get("id") == _TOO_FEW), None)


def check_open_files(session: Session, shards: int) -> None:
    """Raise StoreUnavailable when the server cannot open the files of so many shards, and of what was dropped."""
    if (allowed := open_files_limit(session)) is None:
        return
    dropped = int(_ask(session, {"serverStatus": 1}).get("storageEngine", {}).get("dropPendingIdents", 0))
    needed = shards * OF_A_SHARD + dropped + _OTHERS
    if needed > allowed:
        raise StoreUnavailable(
            f"{session.address} would need {needed} open files, {dropped} of them of queues that were deleted, and may "
            f"open {allowed}: try again in five minutes, or let it open {RECOMMENDED} (ulimit -n)"
        )


def _ask(session: Session, command: dict[str, Any]) -> dict[str, Any]:
    """The answer to a command; nothing when this user may not ask."""
    with session.translated(writing=False), suppress(OperationFailure):
        return session.client.admin.command(command)
    return {}
