"""The collections of shards: made when a shard is first written, dropped when nothing is in it for a while.

The first write of a client to a collection makes the indexes that it lacks, and the first one with history makes the
index of that.

To drop one that may be written at any moment, it is barred first: by a unique index on a field that no document has.
The server makes that index only if there is one document at most, which is the end of the claim index. It lets no
other in from then on. The index is never removed, and a drop names the collection by its uuid. So a dropped collection
is always empty, however late the drop is. A client that wants to write to a barred collection drops it, too, and makes
another. The index has the name of that of the history, so that the server lets a collection have one of them. A
collection in which history was kept stays, as clients rely on having seen its index.

The number of collections that a database may have is bounded, and so are the files that its server may open: one for
each collection and each index. Existing ones count. A queue is refused that could not have all its shards beside that,
and a collection when it is made. A server that may open no more files ends itself. It keeps the files of what was
dropped for five minutes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
from bson.binary import Binary
from pymongo.errors import ExecutionTimeout, OperationFailure

from shardq.base.shard import Shard
from shardq.errors import InvalidSetting, OutcomeUnknown, StoreUnavailable
from shardq.storage.clocks import Moment
from shardq.storage.mongodb import queues, schema
from shardq.storage.mongodb.changing import attempts
from shardq.storage.mongodb.documents import END, Document
from shardq.storage.mongodb.faults import confirmed
from shardq.storage.mongodb.session import Session
from shardq.storage.mongodb.shard_rows import OTHER_COLLECTION, ShardRows

__all__ = [
    "MOST",
    "OF_A_SHARD",
    "RECOMMENDED",
    "CollectionLimit",
    "all_shards",
    "close",
    "drop",
    "drop_unused",
    "find",
    "index",
    "make",
    "names",
    "number",
    "of_every_incarnation",
    "open_again",
    "open_files_limit",
    "reserve",
    "shards",
    "uuid_of",
]

MOST = 3_000  # of five files each: as many files as 7,500 collections with one index have
OF_A_SHARD = 5  # itself and its indexes, with that of the history
RECOMMENDED = 64_000
_OTHERS = 1_000  # connections, the journal, the server's own collections
_TOO_FEW = 22184  # the warning at the start of a server that may open fewer than recommended
_MEMORY = 5.0  # seconds

_CLOSED: Document = {"closed": True}
_NO_SUCH = 26
_LONGEST_CLOSE = 1_000  # milliseconds, for which who reads and writes the collection waits behind it
_OTHER_INDEX = 86  # of the same name


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


def reserve(session: Session, collection_limit: CollectionLimit, queue: str, wanted: Sequence[Shard]) -> None:
    """Reserve these shards for the queue of this name; none is made before it is written.

    Raises InvalidSetting for too many beside those that there are, or StoreUnavailable when the server cannot open them
    yet.
    """
    try:
        collection_limit.check(len(wanted))
    except InvalidSetting:
        collection_limit.check(len(set(wanted).difference(shards(session, queue))))
    queues.plan(session, queue, len(wanted))


def make(session: Session, collection_limit: CollectionLimit, shard: Shard) -> Document | None:
    """Make the collection of a shard, without its end; return the answer of `find` about it.

    Raises InvalidSetting for one too many, or StoreUnavailable when the server cannot open it yet. A write that follows
    and waits has to make sure of it.
    """
    collection_limit.check(1)
    with session.translated(writing=True):
        schema.make(session.unsynced, schema.shard_collection(grouped=shard.is_grouped), str(shard))
    collection_limit.made()
    return find(session, shard)


def end(session: Session, shard: Shard, uuid: Binary, *, synced: bool = True) -> bool:
    """Let its claim index have an end; False when it is another collection by now."""
    return ShardRows(session, shard).insert([END], uuid, any_shape=True, synced=synced)


def index(session: Session, shard: Shard, uuid: Binary, *, history: bool = False) -> bool:
    """Make the indexes that its collection lacks; what lets inserts in stays as it is.

    One that is barred is dropped. Returns False when it was, or when it is another one by now.
    """
    made = schema.shard_collection(grouped=shard.is_grouped)
    for _ in attempts(shard):
        with session.translated(writing=True):
            try:
                if not schema.index(session.database, made, str(shard), history=history, uuid=uuid):
                    return True
            except OperationFailure as error:
                if error.code == OTHER_COLLECTION:
                    return False
                if error.code != _OTHER_INDEX:
                    raise
        if _bar_and_drop(session, shard, uuid):
            return False
    raise AssertionError("attempts have no other end")


def drop_unused(session: Session, shard: Shard) -> bool:
    """Drop the collection of a shard in which nothing is, nor the memory of anything that was finished.

    One with the index of the history stays, and one of groups.
    """
    if shard.is_grouped or not _is_unused(session, shard) or (found := find(session, shard)) is None:
        return False
    return _bar_and_drop(session, shard, uuid_of(found))


def _bar_and_drop(session: Session, shard: Shard, uuid: Binary) -> bool:
    """Drop it if nothing but its end is in it; False when it is another one, or something was.

    Its end is there first, which is never removed. An index that is seen may be one that the server gives up. So it is
    dropped only by the client that was answered that it is made.
    """
    if not end(session, shard, uuid):
        return False
    with session.translated(writing=True):
        if not schema.bar(session.database, str(shard), uuid, in_set=session.has_transactions):
            return False
    drop(session, shard, uuid)
    return True


def _is_unused(session: Session, shard: Shard) -> bool:
    with session.translated(writing=False):
        return session.collection(str(shard)).find_one({"_id": {"$ne": END["_id"]}}, {"_id": 1}) is None


def shards(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the shards that have one, of a queue by what it is called."""
    return tuple(map(_shard_of, names(session, re.escape(queue))))


def of_every_incarnation(session: Session, queue: str) -> tuple[Shard, ...]:
    """Return the shards that have one, whatever the queue is or was called."""
    return tuple(
        map(_shard_of, names(session, f"{re.escape(queues.name_of(queue))}({queues.SIGN}[0-9a-f]+)?"))
    )


def all_shards(session: Session) -> tuple[Shard, ...]:
    """Return the shards that have one, of all queues by what they are called."""
    return tuple(map(_shard_of, names(session, ".*")))


def find(session: Session, shard: Shard) -> Document | None:
    """Return the server's description of the shard's collection."""
    with session.translated(writing=False):
        found = next(iter(session.database.list_collections(filter={"name": str(shard)})), None)
    return None if found is None else dict(found)


def uuid_of(found: Document) -> Binary:
    """Return the uuid of a collection that was found."""
    return Binary(found["info"]["uuid"], 4)


def open_again(session: Session, shard: Shard) -> None:
    """Let bundles be inserted. A write that follows and waits has to make sure of it."""
    _validate(session, shard, schema.shard_collection().validator, writeConcern={"w": 1})


def close(session: Session, shard: Shard) -> bool:
    """Let nothing be inserted any more; False when a transaction that has written there prevents it.

    Also when too few members have confirmed it: the next primary may not know of it.
    """
    try:
        return _validate(session, shard, _CLOSED, maxTimeMS=_LONGEST_CLOSE)
    except OutcomeUnknown as error:
        if isinstance(error.__cause__, ExecutionTimeout):
            return False
        raise


def drop(session: Session, shard: Shard, uuid: Binary | None = None) -> None:
    """Drop the collection of the shard; with ``uuid`` only that one."""
    command: Document = {"drop": str(shard), "writeConcern": session.write_concern}
    if uuid is not None:
        command["collectionUUID"] = uuid
    with session.translated(writing=True):
        try:
            confirmed(session.database.command(command))
        except OperationFailure as error:
            if error.code not in (_NO_SUCH, OTHER_COLLECTION):
                raise


def _shard_of(name: str) -> Shard:
    queue, time_shard, number = name.rsplit(":", 2)
    return Shard(queue, int(time_shard), int(number))


def _validate(session: Session, shard: Shard, validator: Document, **options: object) -> bool:
    """Set what may be inserted; False when not as many members have confirmed it as asked."""
    with session.translated(writing=True):
        try:
            answer = session.database.command(
                {
                    "collMod": str(shard),
                    "validator": validator,
                    "validationLevel": "moderate",
                    "writeConcern": session.write_concern,
                    **options,
                }
            )
        except OperationFailure as error:
            if error.code != _NO_SUCH:
                raise
            return True
    return "writeConcernError" not in answer
