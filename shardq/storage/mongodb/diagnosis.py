"""Facts about the database for ``shardq doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from pymongo.errors import OperationFailure

from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.mongodb import collections, guarantees, schema
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import Finding

__all__ = ["diagnose"]


def diagnose(session: Session) -> tuple[Finding, ...]:
    """What the servers are and whether the schema is this client's; changes nothing."""
    try:
        return tuple(_findings(session))
    except ShardqError as error:
        return (Finding("reachable", ok=False, value=str(error), remedy="do what the error says"),)


def _findings(session: Session) -> Iterator[Finding]:
    with session.translated(writing=False):
        release = session.client.server_info()["version"]
        hello = session.client.admin.command("hello")
    yield Finding(
        "reachable", ok=True, value=f"{hello.get('setName', 'standalone')}, {hello.get('me', 'one server')}"
    )
    yield Finding("release", ok=True, value=release)
    shards = collections.number(session)
    members = len(hello.get("hosts", ())) or 1
    yield Finding("members", ok=members != 2, value=str(members), remedy="use three, so that one may fail")
    yield from guarantees.findings(session.write_concern, hello, session.read_preference, _status(session))
    many = "delete queues, or give some a server of their own"
    yield Finding(
        "shards", ok=shards <= collections.MOST, value=f"{shards} of {collections.MOST}", remedy=many
    )
    yield _open_files(session)
    yield _schema(session)


def _status(session: Session) -> Document:
    """What the server tells of itself; nothing when this user may not ask."""
    with session.translated(writing=False), suppress(OperationFailure):
        return session.client.admin.command("serverStatus")
    return {}


def _open_files(session: Session) -> Finding:
    allowed = collections.open_files_limit(session)
    enough = allowed is None or allowed >= collections.MOST * collections.OF_A_SHARD
    value = "no low limit is known" if allowed is None else f"{allowed} allowed"
    remedy = f"let it open {collections.RECOMMENDED} (ulimit -n): a shard takes {collections.OF_A_SHARD}"
    return Finding("open files", ok=enough, value=value, remedy=remedy)


def _schema(session: Session) -> Finding:
    try:
        schema.require_current(session)
    except SchemaMismatch as error:
        return Finding("schema", ok=False, value=str(error), remedy="run `shardq create`")
    return Finding("schema", ok=True, value=f"version {schema.version(session)}")
