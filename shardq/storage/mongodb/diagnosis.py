"""Facts about the database for ``shardq doctor``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from pymongo.errors import OperationFailure

from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.mongodb import collections, guarantees, queues, schema
from shardq.storage.mongodb.documents import Document
from shardq.storage.mongodb.session import Session
from shardq.storage.requests import Finding

__all__ = ["diagnose"]

_NEARLY = 0.9  # of the room there is
_NAMED = 3  # collections
_ALL = "all; those of the history are not checked, a sweep makes them"
_MOMENT = 1.0  # seconds between the two reads of indexes that are missing
_ACTIONS = frozenset((
    "collMod", "createCollection", "createIndex", "dropCollection", "dropIndex", "find", "insert", "listCollections",
    "listIndexes", "remove", "update",
))  # fmt: skip


def diagnose(session: Session) -> tuple[Finding, ...]:
    """Report on the servers, the rights of this user, and whether the schema is this client's; changes nothing."""
    found: list[Finding] = []
    try:
        found.extend(_findings(session))
    except ShardqError as error:
        found.append(Finding("requests" if found else "reachable", ok=False, value=str(error)))
    return tuple(found)


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
    yield from _rights(session)
    yield from guarantees.findings(session.write_concern, hello, session.read_preference, _status(session))
    yield _shards(session)
    yield _open_files(session)
    yield _schema(session)
    yield _indexes(session)


def _rights(session: Session) -> Iterator[Finding]:
    """Report the missing rights of this user in the database. Without a login there is nothing to report."""
    with session.translated(writing=False):
        answer = session.database.command({"connectionStatus": 1, "showPrivileges": True})["authInfo"]
    if not answer["authenticatedUsers"]:
        return
    held: set[str] = set()
    for privilege in answer["authenticatedUserPrivileges"]:
        if _covers(privilege["resource"], session.address.database):
            held.update(privilege["actions"])
    missing = [] if "anyAction" in held else sorted(_ACTIONS - held)
    yield Finding(
        "rights",
        ok=not missing,
        value=f"without {', '.join(missing)}" if missing else "all that are needed",
        remedy="give this user the roles readWrite and dbAdmin on the database",
    )


def _covers(resource: Document, database: str) -> bool:
    """Return whether a privilege is for every collection of the database."""
    everywhere = resource.get("db") in ("", database) and resource.get("collection") == ""
    return everywhere or bool(resource.get("anyResource"))


def _indexes(session: Session) -> Finding:
    """Report which indexes collections lack.

    That of the history is only where history is kept. To find a lost one, all of a collection would have to be read.
    """
    lacking = {
        name: found for name, wanted in _indexed(session) if (found := _lacking(session, name, wanted))
    }
    if lacking:
        time.sleep(_MOMENT)  # somebody may be making one
        lacking = {
            name: found for name, wanted in lacking.items() if (found := _lacking(session, name, wanted))
        }
    named = [f"{', '.join(sorted(names))} of {name}" for name, names in sorted(lacking.items())]
    more = f", and those of {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return Finding(
        "indexes",
        ok=not named,
        value=f"missing: {'; '.join(named[:_NAMED])}{more}" if named else _ALL,
        remedy="; ".join(_making(lacking)),
    )


def _making(lacking: dict[str, set[str]]) -> Iterator[str]:
    """Return how missing indexes are made: a sweep makes those of shards."""
    own = {each.name: each.indexes for each in schema.own_collections()}
    if lacking.keys() - own.keys():
        yield "run `shardq sweep --all`"
    for name in sorted(lacking.keys() & own.keys()):
        for each in own[name]:
            if each["name"] in lacking[name]:
                options = {option: value for option, value in each.items() if option != "key"}
                yield f"in mongosh run `db.getCollection('{name}').createIndex({_json(each['key'])}, {_json(options)})`"


def _json(document: Document) -> str:
    return msgspec.json.encode(document).decode()


def _indexed(session: Session) -> Iterator[tuple[str, set[str]]]:
    """Return the collections that have indexes, with the names of those: shards of queues, and shardq's own."""
    yield from ((each.name, _names(each)) for each in schema.own_collections() if each.indexes)
    plain, grouped = _names(schema.shard_collection()), _names(schema.shard_collection(grouped=True))
    existing = queues.planned(session)
    for shard in collections.all_shards(session):
        if shard.queue in existing:
            yield str(shard), grouped if shard.is_grouped else plain


def _names(collection: schema.Collection) -> set[str]:
    return {each["name"] for each in collection.indexes}


def _lacking(session: Session, name: str, wanted: set[str]) -> set[str]:
    """Return which of the indexes a collection lacks; none if there is no collection."""
    with session.translated(writing=False):
        there = {each["name"] for each in session.collection(name).list_indexes()}
    return wanted - there if there else set()


def _status(session: Session) -> Document:
    """Return the server's report on itself; nothing when this user may not ask."""
    with session.translated(writing=False), suppress(OperationFailure):
        return session.client.admin.command("serverStatus")
    return {}


def _shards(session: Session) -> Finding:
    """Count the collections, and those that there would be if every queue were written to in all of its shards."""
    there, planned = collections.number(session), sum(queues.planned(session).values())
    value = f"{there:,} of {collections.MOST:,} collections"
    if planned > collections.MOST:
        value += f"; queues may get {planned:,}"
    return Finding(
        "shards",
        ok=there <= _NEARLY * collections.MOST,
        value=value,
        remedy="lower shards or time_shards, delete queues, or give some a server of their own; "
        "`shardq sweep` drops the empty collections of a queue that is idle",
    )


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
