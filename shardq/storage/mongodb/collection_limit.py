"""How many collections of shards a database may have, and how many files its server may open.

Existing ones count. A queue is refused that could not have all its shards beside that, and a collection when it is
made. The server opens a file for each collection and each index. A server that may open no more ends itself. It keeps
the files of what was dropped for five minutes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from pymongo.errors import OperationFailure

from shardq.errors import InvalidSetting, StoreUnavailable
from shardq.storage.clocks import Moment
from shardq.storage.mongodb import schema
from shardq.storage.mongodb.session import Session

__all__ = ["MOST", "OF_A_SHARD", "RECOMMENDED", "CollectionLimit", "names", "number", "open_files_limit"]

MOST = 3_000  # of five files each: as many files as 7,500 collections with one index have
OF_A_SHARD = 5  # itself and its indexes, with that of the history
RECOMMENDED = 64_000
_OTHERS = 1_000  # connections, the journal, the server's own collections
_TOO_FEW = 22184  # the warning at the start of a server that may open fewer than recommended
_MEMORY = 5.0  # seconds


class _Use(msgspec.Struct):
    """The number at the last read, and how many this client made since."""

    collections: int
    open_files: int | None  # that the server may have; None: enough
    dropped: int  # collections and indexes whose files are open still
    seen: Moment


class CollectionLimit:
    """How many collections the database may still get, as this client knows it: by its reads in the last five seconds.

    It reads again before it refuses anything. So making many collections costs little more than making them. Several
    clients at once may exceed the number by the collections that they make in five seconds.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._use: _Use | None = None

    def check(self, more: int) -> None:
        """Raise InvalidSetting, or StoreUnavailable when files are too few now, unless ``more`` collections fit in."""
        use = self._use
        if use is None or use.seen.passed() >= _MEMORY or _refusal(self._session, use, more) is not None:
            use = self._use = _read_use(self._session)
        if (refusal := _refusal(self._session, use, more)) is not None:
            raise refusal

    def made(self) -> None:
        """Count one that was made."""
        if self._use is not None:
            self._use.collections += 1


def names(session: Session, queue: str) -> list[str]:
    """Return the names of the collections of shards, of queues whose name matches a pattern."""
    with session.translated(writing=False):
        pattern = f"^{queue}{schema.SHARD_NAMES}"
        return session.database.list_collection_names(filter={"name": {"$regex": pattern}})


def number(session: Session) -> int:
    """Return how many collections of shards there are in the database."""
    return len(names(session, ".*"))


def open_files_limit(session: Session) -> int | None:
    """Return how many files the server may open; None when that is enough, or this user may not know it."""
    log = _ask(session, {"getLog": "startupWarnings"}).get("log", ())
    warnings = (msgspec.json.decode(line) for line in log)
    return next((int(each["attr"]["currentValue"]) for each in warnings if each.get("id") == _TOO_FEW), None)


def _read_use(session: Session) -> _Use:
    allowed = open_files_limit(session)
    pending = 0
    if allowed is not None:
        pending = _ask(session, {"serverStatus": 1}).get("storageEngine", {}).get("dropPendingIdents", 0)
    return _Use(number(session), allowed, int(pending), Moment.now())


def _refusal(session: Session, use: _Use, more: int) -> InvalidSetting | StoreUnavailable | None:
    shards = use.collections + more
    if shards > MOST:
        return InvalidSetting(
            f"{session.address} would have {shards} shards, each a collection, and {MOST} are the most: "
            "lower shards or time_shards, delete queues, run `shardq sweep` on those that are idle, which drops what "
            "is empty, or give some a server of their own"
        )
    needed = shards * OF_A_SHARD + use.dropped + _OTHERS
    if use.open_files is None or needed <= use.open_files:
        return None
    return StoreUnavailable(
        f"{session.address} would need {needed} open files, {use.dropped} of them of what was dropped, and may "
        f"open {use.open_files}: try again in five minutes, or let it open {RECOMMENDED} (ulimit -n)"
    )


def _ask(session: Session, command: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a command; nothing when this user may not ask."""
    with session.translated(writing=False), suppress(OperationFailure):
        return session.client.admin.command(command)
    return {}
