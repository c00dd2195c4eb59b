"""Facts about the database for ``shardq doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pymongo.errors import OperationFailure

from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.mongodb import guarantees, queues, room, schema
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import Finding

__all__ = ["diagnose"]

_NEARLY = 0.9  # of the room there is


def diagnose(session: Session) -> tuple[Finding, ...]:
    """What the servers are and whether the schema is this client's; changes nothing."""
    try:
        return tuple(_findings(session))
    except ShardqError as error:
        return (Finding("reachable", ok=False, value=str(error)),)


def _findings(session: Session) -> Iterator[Finding]:
    with session.translated(writing=False):
        release = session.client.server_info()["version"]
        hello = session.client.admin.command("hello")
    yield Finding(
        "reachable", ok=True, value=f"{hello.get('setName', 'standalone')}, {hello.get('me', 'one server')}"
    )
    yield Finding("release", ok=True, value=release)
    members = len(hello.get("hosts", ())) or 1
    yield Finding("members", ok=members != 2, value=str(members), remedy="use three, so that one may fail")
    yield from guarantees.findings(session.write_concern, hello, session.read_preference, _status(session))
    yield _shards(session)
    yield _open_files(session)
    yield _schema(session)


def _status(session: Session) -> Document:
    """What the server tells of itself; nothing when this user may not ask."""
    with session.translated(writing=False), suppress(OperationFailure):
        return session.client.admin.command("serverStatus")
    return {}


def _shards(session: Session) -> Finding:
    """How many there are, and how many there would be if every queue were written to in all of its own."""
    there, planned = room.number(session), sum(queues.planned(session).values())
    value = f"{there:,} of {room.MOST:,} collections"
    if planned > room.MOST:
        value += f"; queues may come to have {planned:,}"
    return Finding(
        "shards",
        ok=there <= _NEARLY * room.MOST,
        value=value,
        remedy="lower shards or time_shards, delete queues, or give some a server of their own; "
        "`shardq sweep` drops the empty collections of a queue that is idle",
    )


def _open_files(session: Session) -> Finding:
    allowed = room.open_files_limit(session)
    enough = allowed is None or allowed >= room.MOST * room.OF_A_SHARD
    value = "no low limit is known" if allowed is None else f"{allowed} allowed"
    remedy = f"let it open {room.RECOMMENDED} (ulimit -n): a shard takes {room.OF_A_SHARD}"
    return Finding("open files", ok=enough, value=value, remedy=remedy)


def _schema(session: Session) -> Finding:
    try:
        schema.require_current(session)
    except SchemaMismatch as error:
        return Finding("schema", ok=False, value=str(error), remedy="run `shardq create`")
    return Finding("schema", ok=True, value=f"version {schema.version(session)}")
