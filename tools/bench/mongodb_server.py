"""The MongoDB that the comparison runs on."""

from __future__ import annotations

import os
from typing import Any

from .peer import PeerMissing

try:
    from pymongo import MongoClient
except ImportError as error:
    raise PeerMissing("pymongo is not installed") from error

VARIABLE = "SHARDQ_TEST_MONGODB_URL"


def _connected() -> MongoClient[dict[str, Any]]:
    return MongoClient(url())


def url() -> str:
    """Its address; raises PeerMissing."""
    if VARIABLE not in os.environ:
        raise PeerMissing(f"{VARIABLE} is not set: run it with tools/servers/mongodb.py run")
    return os.environ[VARIABLE]


def checkpoint() -> None:
    """Write everything to the files of the collections, from where it is in the journal only."""
    with _connected() as client:
        client.admin.command("fsync")


def write_conflicts() -> int:
    """How many writes were repeated so far, because another one had changed the same document."""
    with _connected() as client:
        return int(client.admin.command("serverStatus")["metrics"]["operation"]["writeConflicts"])


def clear(database: str) -> None:
    """Drop what another run has left."""
    with _connected() as client:
        client.drop_database(database)
