"""MongoDB does what a store has to do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

pymongo = pytest.importorskip("pymongo", reason="the extra `mongodb` is not installed")

from shardq.base.shard import Shard  # noqa: E402
from shardq.storage.clocks import ServerClock  # noqa: E402
from shardq.storage.mongodb.session import Session, clock_leads  # noqa: E402
from shardq.storage.mongodb.store import MongoStore  # noqa: E402
from shardq.storage.mongodb.url import parse  # noqa: E402
from shardq.testing import ApplicationTransaction, RawEntry, RawQueue, RawState, StoreHarness  # noqa: E402
from shardq.testing.conformance import StoreConformance  # noqa: E402
from tools.audit.mongodb_documents import called_now, collections_of, is_of, read_mongodb  # noqa: E402


class MongoTransaction(ApplicationTransaction):
    def __init__(self, database: Any) -> None:
        self.rows, self.row = database["application"], os.urandom(8)
        if "application" not in database.list_collection_names():
            database.create_collection("application")
        self.connection = database.client.start_session()
        self.begin()

    def begin(self) -> None:
        self.connection.start_transaction()

    def write(self) -> None:
        self.rows.insert_one({"_id": self.row}, session=self.connection)

    @property
    def written(self) -> bool:
        return self.rows.find_one({"_id": self.row}) is not None

    def commit(self) -> None:
        self.connection.commit_transaction()

    def roll_back(self) -> None:
        self.connection.abort_transaction()

    def close(self) -> None:
        self.connection.end_session()


class MongoHarness(StoreHarness):
    real_time = True
    time_scale = 0.05
    examples = 7  # on each of a single server and a replica set

    def __init__(self, url: str) -> None:
        self.address = parse(url)
        self.client = pymongo.MongoClient(url)
        self.database = self.client[self.address.database]
        self.idle: list[MongoStore] = []
        # What two clients measure may differ by more than a request takes. A test may close any store.
        self.session = Session(self.address)
        self.clock = ServerClock(partial(clock_leads, self.session))
        self.empty = f"{self.address.database}_empty"

    def open(self) -> MongoStore:
        return self.idle.pop() if self.idle else MongoStore(self.address, clock=self.clock)

    def finish(self, store: Any) -> None:
        self.idle.append(store)  # connecting costs as much as most tests do

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)

    def begin(self) -> MongoTransaction:
        return MongoTransaction(self.database)

    def raw_entries(self, shard: Shard) -> list[RawEntry]:
        entries: list[RawEntry] = []
        for found in self._documents(shard):
            for first, count, token in self._slices(found):
                state = RawState.HELD if token else RawState.WAITING
                entries.append(RawEntry(found["_id"], first, count, state))
            kept = found.get("h", ())
            entries += [RawEntry(found["_id"], each["f"], each["c"], RawState.PROCESSED) for each in kept]
        return entries

    def _slices(self, found: dict) -> list[tuple[int, int, bytes | None]]:
        if "s" in found:
            return [(each["f"], each["c"], each.get("t")) for each in found["s"]]
        return [(0, found["n"], found.get("t"))] if "d" in found else []

    def raw_bundles(self, shard: Shard) -> int:
        return sum("b" in found for found in self._documents(shard))

    def _documents(self, shard: Shard) -> list[dict]:
        names = collections_of(self.database, shard.queue)
        return [
            found
            for name, place in names
            if place == shard
            for found in self.database[name].find({"p": {"$ne": 10}})
        ]

    def raw_leftovers(self, queue: str) -> dict[str, int]:
        found = {"entry": 0, "bundle": 0, "finished": 0}
        for name, _ in collections_of(self.database, queue):
            for document in self.database[name].find({"p": {"$ne": 10}}):
                finished = set(document) - {"z", "g"} == {"_id", "x", "y"}
                found["finished"] += finished
                found["entry"] += not finished
                found["bundle"] += "b" in document
        for kind in ("shard", "dedupe", "consumer"):
            documents = self.database[f"shardq.{kind}"].find()
            found[kind] = sum(is_of(each["_id"]["q"], queue) for each in documents)
        found["intent"] = sum(is_of(each["queue"], queue) for each in self.database["shardq.intent"].find())
        return found

    def raw_queue(self, queue: str) -> RawQueue:
        return read_mongodb(self.database, queue)

    def raw_mislead(self, shard: Shard) -> bool:
        """Raise every low watermark to the end of time. They stand in the shard's listing, so that stays."""
        place = {"q": called_now(self.database, shard.queue), "t": shard.time_shard, "n": shard.number}
        watermarks = {f"f.{priority}": 2**61 for priority in range(10)}
        self.database["shardq.shard"].update_one({"_id": place}, {"$set": watermarks})
        return True

    def open_empty(self) -> MongoStore:
        self.client.drop_database(self.empty)
        return MongoStore(msgspec.structs.replace(self.address, database=self.empty))

    def raw_newer_schema(self) -> bool:
        self.client[self.empty]["shardq.schema"].update_one({"_id": "shardq"}, {"$set": {"version": 999}})
        return True

    def close(self) -> None:
        for store in self.idle:
            store.close()
        self.session.close()
        self.client.drop_database(self.empty)
        self.client.close()


pytestmark = pytest.mark.server


@pytest.fixture(scope="session")
def harness(mongodb_url: str) -> Iterator[MongoHarness]:
    harness = MongoHarness(mongodb_url)
    yield harness
    harness.close()


class TestMongo(StoreConformance):
    """Every contract, on MongoDB."""
