"""The driver alone: the same bytes in the same bundles, without a queue. It is what shardq could reach at most."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from pymongo import MongoClient, WriteConcern

from ..mongodb_server import clear, url
from ..peer import SHARED

BUNDLE = 500


class MongodbDriver:
    name = "pymongo alone"
    durability = "majority of one, journal fsync"
    sends = "answered by the server, majority and journal; documents of 500 messages, one after the other"
    receives = (
        "reads by id, then deletes by id, as much at a time as the others; no queue, no lease, no condition"
    )
    share = 1.0
    wakes = ""
    threads = SHARED
    takes_one = True
    wins = "it is no queue: no lease, no condition, no order"
    place = None

    def open(self, folder: Path) -> None:
        clear("bench_driver")
        self._client: MongoClient[dict[str, object]] = MongoClient(url())
        database = self._client.get_database("bench_driver", write_concern=WriteConcern("majority", j=True))
        self._bundles = database["bundle"]
        self._keys: deque[bytes] = deque()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._bundle = BUNDLE
        for start in range(0, len(bodies), BUNDLE):
            self._insert(b"".join(bodies[start : start + BUNDLE]))

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        self._bundle = 1
        for body in bodies:
            self._insert(body)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while self._keys:
            keys = [self._keys.popleft() for _ in range(min(len(self._keys), max(1, batch // self._bundle)))]
            size += sum(len(found["b"]) for found in self._bundles.find({"_id": {"$in": keys}}))  # type: ignore[arg-type, misc]
            self._bundles.delete_many({"_id": {"$in": keys}})
        return size

    def close(self) -> None:
        self._client.close()
        clear("bench_driver")

    def _insert(self, data: bytes) -> None:
        key = os.urandom(16)
        self._bundles.insert_one({"_id": key, "b": data})
        self._keys.append(key)
