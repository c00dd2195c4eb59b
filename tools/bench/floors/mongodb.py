"""MongoDB: the server's commands, as shardq sends them; every write waits for a majority and its journal.

A collection has either the indexes of a shard or none but that of the ids, in whose order it is read then. A read
begins after the last document that was taken, so that it crosses nothing of what was acked.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import MongoClient
from pymongo.database import Database

from shardq.storage.mongodb.documents import CLAIM_ORDER
from shardq.storage.mongodb.schema import shard_collection

from ..mongodb_server import clear, url
from ..rounds import RECEIVE, RECEIVE_SINGLES, SINGLE_SEND
from ..singles import ONE_AT_A_TIME, SEND_THREADS, SENDERS
from .floor import BODY, JOINED, LEASE, Size, Work, by_threads, check, in_turn, meanwhile, repeated

DATABASE = "bench_floors"
DURABLE = {"w": "majority", "j": True}
CONTENT = dict.fromkeys(("p", "d", "o", "e", "n", "m", "v", "b", "t"), 1)
INDEXED, PLAIN = "with the indexes of a shard", "without indexes"


class Held(NamedTuple):
    """What was taken, and its token."""

    ids: list[bytes]
    token: bytes


class Documents:
    """One collection after the other, each for one work; documents look like shardq's."""

    def __init__(self, database: Database[dict[str, Any]], *, indexed: bool) -> None:
        self._database, self._indexed = database, indexed
        self._name, self._names, self._ids = "", itertools.count(), itertools.count(1)

    def begin(self) -> None:
        """Have a collection in which nothing is and was."""
        self.drop()
        self._name = f"{'indexed' if self._indexed else 'plain'}{next(self._names)}"
        self._database.create_collection(self._name, check_exists=False)
        if self._indexed:
            self._database.command({"createIndexes": self._name, "indexes": shard_collection().indexes})
        self._after, self._since = b"", 0

    def drop(self) -> None:
        """Drop it."""
        if self._name:
            self._database.drop_collection(self._name)

    def fill(self, data: bytes, count: int) -> None:
        """Have one with so many documents."""
        self.begin()
        documents = [self._document(data) for _ in range(count)]
        self._database[self._name].insert_many(documents)

    def insert(self, messages: int = 1) -> None:
        """One document of so many messages."""
        self._write({"insert": self._name, "documents": [self._document(BODY * messages)]})

    def claim(self, batch: int) -> Held:
        """Read and take so many, if they are still to be had, and note the token in each."""
        token, now = os.urandom(16), _now()
        found = self._database.command(
            {
                "find": self._name,
                **self._first(now),
                "limit": batch,
                "batchSize": batch + 1,
                "singleBatch": True,
            }
        )["cursor"]["firstBatch"]
        self._pass(found[-1])
        ids = [each["_id"] for each in found]
        self._update({"_id": _any_of(ids), "d": {"$lte": now}}, self._take(token, now), batch)
        return Held(ids, token)

    def claim_at_once(self) -> Held:
        """The same of one, in one command."""
        token, now = os.urandom(16), _now()
        first = self._first(now)
        first = {"query": first.pop("filter"), **first}
        found = self._write({"findAndModify": self._name, **first, "update": self._take(token, now)})["value"]
        self._pass(found)
        return Held([found["_id"]], token)

    def finish(self, held: Held) -> None:
        """Leave their ids and the moment, as shardq does: known to who sends them again."""
        change = {"$unset": CONTENT, "$currentDate": {"x": True}}
        self._update(self._held(held), change, len(held.ids))

    def delete(self, held: Held) -> None:
        """Leave nothing."""
        deletes = [{"q": self._held(held), "limit": 0, "hint": "_id_"}]
        check(self._write({"delete": self._name, "deletes": deletes})["n"], len(held.ids))

    def _first(self, now: int) -> dict[str, Any]:
        if self._indexed:
            waiting = {"p": 0, "d": {"$gt": self._since, "$lte": now}}
            return {"filter": waiting, "sort": CLAIM_ORDER, "hint": "claim"}
        waiting = {"_id": {"$gt": self._after}, "d": {"$lte": now}}
        return {"filter": waiting, "sort": {"_id": 1}, "hint": "_id_"}

    def _pass(self, last: Mapping[str, Any]) -> None:
        self._after, self._since = last["_id"], last["d"]

    def _take(self, token: bytes, now: int) -> dict[str, Any]:
        return {"$set": {"d": now + LEASE, "t": token}}

    def _held(self, held: Held) -> dict[str, Any]:
        return {"_id": _any_of(held.ids), "t": held.token}

    def _update(self, query: dict[str, Any], change: dict[str, Any], wanted: int) -> None:
        update = {"q": query, "u": change, "multi": wanted > 1, "hint": "_id_"}
        check(self._write({"update": self._name, "updates": [update]})["n"], wanted)

    def _write(self, command: dict[str, Any]) -> Any:
        return self._database.command(command | {"writeConcern": DURABLE})

    def _document(self, data: bytes) -> dict[str, Any]:
        number, count = next(self._ids), len(data) // len(BODY)
        sent = {"p": 0, "d": number, "o": number, "e": number, "n": count, "m": count, "v": 0}
        return {"_id": number.to_bytes(16), **sent, "b": data}


@contextmanager
def works(size: Size, _: Path) -> Iterator[Mapping[str, Mapping[str, Work]]]:
    """The statements by kind."""
    clear(DATABASE)
    server: MongoClient[dict[str, Any]] = MongoClient(url())
    with server as client:
        database = client.get_database(DATABASE)
        yield _works(size, Documents(database, indexed=False), Documents(database, indexed=True))
    clear(DATABASE)


def _works(size: Size, plain: Documents, indexed: Documents) -> Mapping[str, Mapping[str, Work]]:
    def sends(documents: Documents, run: Callable[[], None], messages: int = size.few) -> Work:
        return Work(messages, run, before=documents.begin, after=documents.drop)

    def receives(documents: Documents, data: bytes, count: int, run: Callable[[], None]) -> Work:
        messages = count * len(data) // len(BODY)
        return Work(messages, run, before=lambda: documents.fill(data, count), after=documents.drop)

    def ones(claim: Callable[[], Held]) -> Work:
        return receives(plain, BODY, size.few, in_turn(size.few, claim, plain.delete))

    def batches(documents: Documents, ack: Callable[[Held], None]) -> Work:
        run = in_turn(size.singles // size.batch, lambda: documents.claim(size.batch), ack)
        return receives(documents, BODY, size.singles, run)

    def bundles(
        how: Callable[..., Callable[[], None]], documents: Documents, ack: Callable[[Held], None]
    ) -> Work:
        run = how(size.bundles, lambda: documents.claim(1), ack)
        return receives(documents, BODY * size.batch, size.bundles, run)

    joined = size.few // SENDERS
    return {
        SINGLE_SEND: {
            f"an insert, {PLAIN}": sends(plain, repeated(size.few, plain.insert)),
            f"an insert, {INDEXED}": sends(indexed, repeated(size.few, indexed.insert)),
        },
        SEND_THREADS: {
            "an insert by each": sends(plain, by_threads(size.few, SENDERS, plain.insert)),
            JOINED: sends(plain, repeated(joined, lambda: plain.insert(SENDERS)), joined * SENDERS),
        },
        ONE_AT_A_TIME: {
            "a find, a conditional update, a delete": ones(lambda: plain.claim(1)),
            "a findAndModify, a delete": ones(plain.claim_at_once),
        },
        RECEIVE_SINGLES: {
            f"a find, two updates, {INDEXED}": batches(indexed, indexed.finish),
            f"a find, an update, a delete, {INDEXED}": batches(indexed, indexed.delete),
            f"a find, two updates, {PLAIN}": batches(plain, plain.finish),
            f"a find, an update, a delete, {PLAIN}": batches(plain, plain.delete),
        },
        RECEIVE: {
            f"a find, two updates, {INDEXED}": bundles(in_turn, indexed, indexed.finish),
            f"the same, {PLAIN}": bundles(in_turn, plain, plain.finish),
            f"the same, {PLAIN}, the next one claimed meanwhile": bundles(meanwhile, plain, plain.finish),
            f"a find, an update, a delete, {PLAIN}, the next one claimed meanwhile": bundles(
                meanwhile, plain, plain.delete
            ),
        },
    }


def _any_of(ids: list[bytes]) -> Any:
    return {"$in": ids} if len(ids) > 1 else ids[0]


def _now() -> int:
    return time.time_ns() // 1_000
