"""persist-queue on SQLite: every put is a transaction of its own; there is no other way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..peer import POLLED, SHARED


class PersistQueue:
    durability = "fsync"
    wakes = POLLED
    threads = SHARED
    takes_one = True
    wins = "a plain row and a commit for each message: no lease, no time at which it is due"
    sends = "a commit for each message, fsync (WAL, synchronous FULL)"
    place: Path
    _queue: Any

    def open(self, folder: Path) -> None:
        self.place = folder
        self.join(folder)

    def join(self, place: Path) -> None:
        raise NotImplementedError

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self.send_singles(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def leave(self) -> None:
        self._queue.close()

    close = leave
