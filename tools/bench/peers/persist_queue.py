"""persist-queue on SQLite: every put is a transaction of its own; there is no other way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PersistQueue:
    durability = "fsync"
    sends = "a commit for each message, fsync (WAL, synchronous FULL)"
    _queue: Any

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self.send_singles(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def close(self) -> None:
        self._queue.close()
