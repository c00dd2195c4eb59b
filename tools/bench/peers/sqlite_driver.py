"""SQLite alone: the same bytes in the same bundles, without a queue. It is what shardq could reach at most."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ..peer import SHARED

BUNDLE = 500
SETTINGS = ("journal_mode = WAL", "synchronous = FULL")


class SqliteDriver:
    name = "sqlite3 alone"
    durability = "fsync"
    sends = "a row of 500 messages and a commit in bulk, a row and a commit for each singly (WAL, synchronous FULL)"
    receives = (
        "reads by key, then deletes by key, a commit for each batch, as much at a time as the others; "
        "no queue, no lease, no condition"
    )
    share = 1.0
    wakes = ""
    threads = SHARED
    takes_one = True
    wins = "it is no queue: no lease, no condition, no order"
    place = None

    def open(self, folder: Path) -> None:
        self._sql = sqlite3.connect(folder / "alone.db", isolation_level=None, check_same_thread=False)
        for setting in SETTINGS:
            self._sql.execute(f"PRAGMA {setting}")
        self._sql.execute("CREATE TABLE bundle (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._one_at_a_time = threading.Lock()
        self._keys: deque[int] = deque()

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
            these = f"id IN ({', '.join('?' * len(keys))})"
            found = self._sql.execute(f"SELECT data FROM bundle WHERE {these}", keys)
            size += sum(len(data) for (data,) in found)
            self._sql.execute(f"DELETE FROM bundle WHERE {these}", keys)
        return size

    def close(self) -> None:
        self._sql.close()

    def _insert(self, data: bytes) -> None:
        with self._one_at_a_time:
            key = self._sql.execute("INSERT INTO bundle (data) VALUES (?)", [data]).lastrowid
        assert key is not None
        self._keys.append(key)
