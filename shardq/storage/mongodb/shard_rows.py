"""Reading and changing the documents of one shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from bson.binary import Binary
from pymongo.client_session import ClientSession
from pymongo.read_concern import ReadConcern

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, ShardqError, StoreUnavailable
from shardq.storage.mongodb import schema
from shardq.storage.mongodb.documents import (
    CLAIM_ORDER,
    NUMBER,
    QUEUE,
    TIME_SHARD,
    WITHOUT_BODIES,
    Document,
    Row,
    decode,
)
from shardq.storage.mongodb.faults import confirmed, write_error
from shardq.storage.mongodb.session import Session

__all__ = [
    "BY_ID",
    "CLAIM_INDEX",
    "GROUP_INDEX",
    "HISTORY_INDEX",
    "OTHER_COLLECTION",
    "SHARDS",
    "CollectionGone",
    "Page",
    "ShardRows",
    "Statement",
    "chunks",
    "directory_key",
    "one_after_the_other",
]

SHARDS = "shardq.shard"
CLAIM_INDEX = "claim"
HISTORY_INDEX = "history"  # which a collection has once something was kept in it
GROUP_INDEX = "group"  # of shards of groups
BY_ID = "_id_"
_NO_INDEX = "hint provided does not correspond to an existing index"
_DUPLICATE = 11000
OTHER_COLLECTION = 361  # or none, of that name
_NOT_OPEN = frozenset((OTHER_COLLECTION, 121))  # or closed by its validator
_AT_ONCE = 1000
_LONGEST_WRITE = 10_000  # milliseconds; a transaction of a client that crashed may delay it


class CollectionGone(Exception):
    """Raised when the collection of a shard is not the one that was meant, or none is there."""


class Statement(msgspec.Struct, frozen=True):
    """A change of the documents that a filter finds by their ids."""

    filter: Document
    change: Document | list[Document]

    def encoded(self, **options: object) -> Document:
        """Return it as the server's command ``update`` wants it."""
        return {"q": self.filter, "u": self.change} | options


class Page(msgspec.Struct, frozen=True):
    """The first documents in some ranges."""

    rows: list[Row]
    complete: bool  # there are no more
    late: bytes | None  # what changes when something came late


class ShardRows:
    """The documents of one shard. Within a transaction of ``session`` when one is given."""

    def __init__(self, session: Session, shard: Shard, transaction: ClientSession | None = None) -> None:
        self.session = session
        self.shard = shard
        self.transaction = transaction or session.transaction
        self.name = str(shard)
        self.has_changed = False
        """True once a change stands, whatever comes after it; never in a transaction."""

    def read(self, ids: Iterable[bytes], *, bodies: bool = False) -> dict[bytes, Row]:
        """Read the documents with these ids, finished ones too."""
        return {row.id: row for chunk in chunks(ids) for row in self._read(chunk, bodies)}

    def read_from_primary(self, bundle_id: bytes) -> dict[bytes, Row]:
        """Read the document with this id, after every confirmed write; none on a single server.

        A single server is always the only one, so an ordinary read has shown it.
        """
        if not self.session.has_transactions:
            return {}
        with self.session.translated(writing=False):
            rows = self.session.collection(self.name).with_options(read_concern=ReadConcern("linearizable"))
            raw = rows.find_one({"_id": bundle_id}, max_time_ms=_LONGEST_WRITE)
        return {} if raw is None else {bundle_id: decode(raw)}

    def find(
        self,
        filter: Document,  # noqa: A002 -- what the driver calls it
        *,
        hint: str = CLAIM_INDEX,
        limit: int = 0,
        bodies: bool = False,
    ) -> list[Row]:
        """Return the documents that a filter finds in an index."""
        command: Document = {"find": self.name, "filter": filter, "hint": hint, "batchSize": _AT_ONCE + 1}
        if limit:
            command["limit"] = limit
        if not bodies:
            command["projection"] = WITHOUT_BODIES
        return [decode(raw) for raw in self._by_index(hint, command)]

    def first(self, ranges: Sequence[Document], limit: int) -> Page:
        """Return the first documents in these ranges of the claim index, which follow each other.

        The ranges are read separately, one after the other. A query of several at once holds the first key of each,
        and may pause. It leaves out a document whose key is another one by then. One that others move on meanwhile may
        come twice: the last one counts.
        """
        found = self.aggregate([*one_after_the_other(self.name, ranges, limit), _listed(self.shard)])
        late = found.pop().get("late") if found and isinstance(found[-1]["_id"], dict) else None
        rows = {raw["_id"]: decode(raw) for raw in found}
        ordered = sorted(rows.values(), key=attrgetter("order"))
        return Page(ordered, len(found) < limit, late)

    def stream(self, filter: Document, *, hint: str, bodies: bool) -> Iterator[Row]:  # noqa: A002
        """Yield the documents that a filter finds, in the order of the index."""
        shown = None if bodies else WITHOUT_BODIES
        if not self.find(filter, hint=hint, limit=1):  # by an index that is there from now on
            return
        with (
            self.session.translated(writing=False),
            self.session.collection(self.name).find(filter, shown, hint=hint, batch_size=50) as cursor,
        ):
            for raw in cursor:
                yield decode(raw)

    def aggregate(self, pipeline: list[Document], *, hint: str = CLAIM_INDEX) -> list[Document]:
        """Return the results of a pipeline on an index."""
        most = {"batchSize": _AT_ONCE + 2}
        return self._by_index(
            hint, {"aggregate": self.name, "pipeline": pipeline, "hint": hint, "cursor": most}
        )

    def change(self, statements: Sequence[Statement], *, ordered: bool = False) -> int:
        """Carry out the statements in one command; return how many documents they found.

        With ``ordered`` none is carried out after one that fails.
        """
        if not statements:
            return 0
        answer = self.update([_update(each) for each in statements], ordered=ordered)
        for detail in answer.get("writeErrors", ()):
            raise self._failed(detail, answer)
        return int(answer["n"])

    def delete(self, ids: Sequence[bytes]) -> None:
        """Delete documents, in a transaction."""
        if ids:
            deletes = [{"q": {"_id": {"$in": list(ids)}}, "limit": 0}]
            self._write({"delete": self.name, "deletes": deletes})

    def take(self, begin: Statement, statements: Sequence[Statement], uuid: Binary) -> int | None:
        """Carry out a claim's statements; None, and nothing is done, when it was begun before, as the first one shows.

        Raises CollectionGone when the shard's collection is not the one with this uuid; none is made.
        """
        updates = [begin.encoded(upsert=True), *map(_update, statements)]
        answer = self.update(updates, ordered=True, collectionUUID=uuid)
        for detail in answer.get("writeErrors", ()):
            if detail["code"] == OTHER_COLLECTION or _is_barred(detail):
                raise CollectionGone
            if detail["index"] == 0 and detail["code"] == _DUPLICATE:
                return None
            raise self._failed(detail, answer)
        return int(answer["n"]) - 1

    def insert(
        self, documents: Sequence[Document], uuid: Binary, *, any_shape: bool = False, synced: bool = True
    ) -> bool:
        """Insert those whose ids are free; False when this collection is not open for it any more.

        ``any_shape``: whatever the validator says. Without ``synced`` a later write has to make sure of it.

        The collection is named by its uuid, so that an insert never makes one.
        """
        command: Document = {"insert": self.name, "documents": list(documents), "collectionUUID": uuid}
        if any_shape:
            command["bypassDocumentValidation"] = True
        if not synced:
            command["writeConcern"] = {"w": 1}
        answer = self._write(command)
        details = answer.get("writeErrors", ())
        if any(detail["code"] in _NOT_OPEN or _is_barred(detail) for detail in details):
            return False
        failed = [detail for detail in details if detail["code"] != _DUPLICATE]
        for detail in failed:
            raise self._failed(detail, answer)
        return True

    def _failed(self, detail: Document, answer: Document) -> ShardqError:
        """Return the error to raise for one of the documents of a write; of others something may be stored."""
        error = write_error(detail, str(self.session.address))
        if answer["n"] and isinstance(error, StoreUnavailable):
            return OutcomeUnknown(f"a part of a write to shard {self.shard} is done: repeat it ({error})")
        return error

    def _by_index(self, hint: str, command: Document) -> list[Document]:
        """Read by an index that is named; make those that the collection lacks when it is not there.

        Where there is none for the history, nothing was ever kept.
        """
        try:
            with self.session.translated(writing=False):
                return self.session.read(command, self.transaction)
        except StoreUnavailable as error:
            if _NO_INDEX not in str(error.__cause__):
                raise
        if hint == HISTORY_INDEX:
            return []
        with self.session.translated(writing=True):
            made = schema.shard_collection(grouped=self.shard.is_grouped)
            schema.index(self.session.database, made, self.name)
            return self.session.read(command, self.transaction)

    def update(self, updates: Sequence[Document], **options: object) -> dict[str, Any]:
        """Change documents, whatever the validator says: it is there for inserts, and the shard may be closed."""
        command = {"update": self.name, "updates": list(updates), "bypassDocumentValidation": True}
        return self._write(command | options)

    def _write(self, command: Document) -> dict[str, Any]:
        command.setdefault("ordered", False)
        if self.transaction is None:
            command["maxTimeMS"] = _LONGEST_WRITE
        with self.session.translated(writing=True):
            if self.transaction is None:
                command.setdefault("writeConcern", self.session.write_concern)
            answer = confirmed(self.session.database.command(command, session=self.transaction))
        self.has_changed = self.has_changed or (self.transaction is None and answer["n"] > 0)
        return answer

    def _read(self, ids: Sequence[bytes], bodies: bool) -> list[Row]:
        return self.find({"_id": {"$in": ids}}, hint=BY_ID, bodies=bodies)


def directory_key(shard: Shard) -> Document:
    """Return the id of the shard in the directory."""
    return {QUEUE: shard.queue, TIME_SHARD: shard.time_shard, NUMBER: shard.number}


def one_after_the_other(name: str, ranges: Sequence[Document], limit: int) -> list[Document]:
    """Return the stages that read ranges of the claim index until there are enough documents."""
    stages: list[Document] = []
    for each in ranges:
        scan: list[Document] = [{"$match": each}, {"$sort": CLAIM_ORDER}, {"$limit": limit}]
        stages += [{"$unionWith": {"coll": name, "pipeline": scan}}] if stages else scan
    return [*stages, {"$limit": limit}]


def _listed(shard: Shard) -> Document:
    """Return the stage that adds what the directory says of late bundles."""
    entry = [{"$match": {"_id": directory_key(shard)}}, {"$project": {"late": 1}}]
    return {"$unionWith": {"coll": SHARDS, "pipeline": entry}}


def _is_barred(detail: Document) -> bool:
    """Return whether a document was not let in because the collection is being dropped."""
    return bool(detail["code"] == _DUPLICATE and detail.get("keyPattern") == schema.BAR["key"])


def _update(statement: Statement) -> Document:
    return statement.encoded(multi=True, hint=BY_ID)


def chunks(ids: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut ids into as many as one request asks for."""
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), _AT_ONCE):
        yield wanted[start : start + _AT_ONCE]
