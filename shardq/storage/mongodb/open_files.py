"""Files that the server may open, and those that it has to: one for each collection and each index.

A server that may open no more ends itself. It keeps the files of what was dropped for five minutes.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from pymongo.errors import OperationFailure

from shardq.errors import StoreUnavailable
from shardq.storage.mongodb.session import Session

__all__ = ["OF_A_SHARD", "RECOMMENDED", "check", "limit"]

OF_A_SHARD = 6
RECOMMENDED = 64_000
_OTHERS = 1_000  # connections, the journal, the server's own collections
_TOO_FEW = 22184  # the warning at the start of a server that may open fewer than recommended


def limit(session: Session) -> int | None:
    """Return how many files the server may open; None when that is enough, or this user may not know it."""
    log = _ask(session, {"getLog": "startupWarnings"}).get("log", ())
    warnings = (msgspec.json.decode(line) for line in log)
    return next((int(each["attr"]["currentValue"]) for each in warnings if each.get("id") == _TOO_FEW), None)


def check(session: Session, shards: int) -> None:
    """Raise StoreUnavailable when so many shards are more than the server can open beside what was dropped."""
    if (allowed := limit(session)) is None:
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
