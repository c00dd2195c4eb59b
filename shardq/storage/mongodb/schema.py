"""The collections of the database: which version they have, and how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
from bson.binary import Binary
from msgspec.structs import replace
from pymongo import ReturnDocument
from pymongo.database import Database
from pymongo.errors import OperationFailure

from shardq.errors import SchemaMismatch, UnsupportedByStore
from shardq.storage.migrations import migrations
from shardq.storage.mongodb.documents import QUEUE, Document
from shardq.storage.mongodb.faults import confirmed
from shardq.storage.mongodb.session import Session

__all__ = [
    "BAR",
    "SHARD_NAMES",
    "Collection",
    "apply",
    "bar",
    "index",
    "make",
    "own_collections",
    "require_current",
    "seed",
    "shard_collection",
    "version",
]

_STORE = "mongodb"
VERSIONS = "shardq.schema"
_SHARD = "{shard}"
_EXISTS = 48
_NO_COLLECTION, _NO_INDEX = 26, 27
SHARD_NAMES = ":[0-9]+:[0-9]+$"
_OLDEST = (6, 0)
_IN_USE = frozenset((11000, 86, 361))  # something else is in it, or history was; or it is another one
# A transaction prevents it, maybe of a client that crashed.
_NOT_NOW = frozenset((24, 50, 112, 262, 276))
_LONGEST_BAR = 2_000  # milliseconds, for as long as nobody writes to it
BAR: Document = {"key": {"dropping": 1}, "name": "history", "unique": True}
"""The index of a collection that is being dropped. No document has that field, so there can be one document."""


class Collection(msgspec.Struct, frozen=True):
    """A collection as the schema describes it."""

    name: str
    about: str
    validator: Document = {}
    options: Document = {}
    indexes: list[Document] = []
    group_indexes: list[Document] = []  # of shards of groups
    history_indexes: list[Document] = []  # made where something is kept
    dropped_indexes: list[str] = []  # of earlier versions


class _File(msgspec.Struct, frozen=True):
    about: str
    collections: list[Collection]


_decoder = msgspec.json.Decoder(_File)


def version(session: Session) -> int:
    """Return the number of the last migration that was applied; 0 when none was."""
    with session.translated(writing=False):
        found = session.read({"find": VERSIONS, "filter": {"_id": "shardq"}, "limit": 1})
    return int(found[0]["version"]) if found else 0


def require_current(session: Session) -> None:
    """Raise SchemaMismatch unless the database has this client's schema."""
    check_version(session, version(session))


def check_version(session: Session, found: int) -> None:
    """Raise SchemaMismatch unless that is the version of this client's schema; 0: none was applied."""
    known = len(migrations(_STORE))
    if found > known:
        raise SchemaMismatch(
            f"{session.address} has schema version {found}, this shardq knows up to {known}: upgrade shardq"
        )
    if not found:
        raise SchemaMismatch(
            f"{session.address} has no schema of shardq yet: create a queue, or run `shardq schema apply`",
            missing=True,
        )
    if found < known:
        raise SchemaMismatch(
            f"{session.address} has schema version {found}, this shardq needs {known}: "
            "run `shardq schema apply` to apply the rest"
        )


def apply(session: Session) -> None:
    """Make what is missing; raises SchemaMismatch when the database is newer.

    The version is written when all of it is made: who looks meanwhile finds the one before, or none. Every step can be
    repeated.
    """
    done, known = version(session), len(migrations(_STORE))
    if done == known:
        return
    if done > known:
        require_current(session)
    _check_release(session)
    with session.translated(writing=True):
        for migration in migrations(_STORE)[done:]:
            for collection in _described(migration.text):
                if collection.name != _SHARD:
                    make(session.database, collection, collection.name)
                elif collection.dropped_indexes:
                    _drop_indexes(session.database, collection.dropped_indexes)
        seed(session)
        _set_version(session, known)


def _set_version(session: Session, number: int) -> None:
    session.collection(VERSIONS).find_one_and_update(
        {"_id": "shardq"}, {"$max": {"version": number}}, upsert=True, return_document=ReturnDocument.AFTER
    )


def make(database: Database[Document], collection: Collection, name: str) -> None:
    """Make what is missing of the collection: itself with its validator in one step, then its indexes.

    The validator of one that is there stays as it is.
    """
    options = dict(collection.options)
    if collection.validator:
        options |= {"validator": collection.validator, "validationLevel": "moderate"}
    try:
        database.create_collection(name, check_exists=False, **options)
    except OperationFailure as error:
        if error.code != _EXISTS:
            raise
    index(database, collection, name)


def index(
    database: Database[Document],
    collection: Collection,
    name: str,
    *,
    history: bool = False,
    uuid: Binary | None = None,
) -> bool:
    """Make those of its indexes that are missing; with ``history`` that of the history too.

    With ``uuid`` only if that is the collection, and none is made. Returns whether it is barred, or is being barred.
    """
    indexes = collection.indexes + (collection.history_indexes if history else [])
    if not indexes:
        return False
    done = _create_indexes(database, name, indexes, uuid)
    there = done.get("numIndexesBefore", 0)
    return bool(there > 1 + len(collection.indexes)) and _is_barred(database, name)


def bar(database: Database[Document], name: str, uuid: Binary, *, in_set: bool) -> bool:
    """Let nothing into the collection any more, for ever; False if something is in it, or it is not known."""
    options: Document = {"maxTimeMS": _LONGEST_BAR} | ({"commitQuorum": "majority"} if in_set else {})
    try:
        _create_indexes(database, name, [BAR], uuid, options)
    except OperationFailure as error:
        if error.code not in _IN_USE | _NOT_NOW:
            raise
        return False
    return True


def _create_indexes(
    database: Database[Document],
    name: str,
    indexes: Sequence[Document],
    uuid: Binary | None,
    options: Document | None = None,
) -> Document:
    command: Document = {"createIndexes": name, "indexes": list(indexes)} | (options or {})
    command["writeConcern"] = database.write_concern.document
    if uuid is not None:
        command["collectionUUID"] = uuid
    return confirmed(database.command(command))


def _is_barred(database: Database[Document], name: str) -> bool:
    return any(each["key"] == BAR["key"] for each in database[name].list_indexes())


def own_collections() -> list[Collection]:
    """Return the collections that every database has, by the last description of each."""
    described = (each for file in migrations(_STORE) for each in _described(file.text) if each.name != _SHARD)
    return list({each.name: each for each in described}.values())


@cache
def shard_collection(*, grouped: bool = False) -> Collection:
    """Return the collection of a shard; that of a shard of groups has their index too."""
    found = [each for file in migrations(_STORE) for each in _described(file.text) if each.name == _SHARD]
    last = found[-1]
    return replace(last, indexes=last.indexes + last.group_indexes) if grouped else last


def _drop_indexes(database: Database[Document], names: list[str]) -> None:
    """Take indexes from the shards that have them; a client of an earlier version that needs one makes it again."""
    for name in database.list_collection_names(filter={"name": {"$regex": SHARD_NAMES}}):
        for each in names:
            try:
                database.command("dropIndexes", name, index=each)
            except OperationFailure as error:
                if error.code not in (_NO_COLLECTION, _NO_INDEX):
                    raise


def _described(text: str) -> list[Collection]:
    return _decoder.decode(text).collections


def seed(session: Session) -> None:
    """Give the signals a first document: a client cannot wait at the end of an empty collection."""
    signals = session.collection("shardq.signal")
    if signals.find_one() is None:
        signals.insert_one({QUEUE: ""})


def _check_release(session: Session) -> None:
    with session.translated(writing=False):
        release = session.client.server_info()["version"]
    if tuple(int(part) for part in release.split(".")[:2]) < _OLDEST:
        raise UnsupportedByStore(f"{session.address} is MongoDB {release}: use 6.0 or newer")
