"""litequeue. It sets synchronous NORMAL by itself: a power failure may undo what it confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..peer import PeerMissing

try:
    from litequeue import LiteQueue
except ImportError as error:
    raise PeerMissing("litequeue is not installed") from error


class LitequeueSqlite:
    name = "litequeue"
    durability = "no fsync"
    sends = "not fsynced (synchronous NORMAL); one transaction, in bulk; one for each, singly"
    receives = "a commit for each pop and for each done, not fsynced; pruned at the end"
    share = 0.1

    def open(self, folder: Path) -> None:
        self._queue = LiteQueue(folder / "queue.db")

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        with self._queue.transaction():
            self.send_singles(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        for _ in range(count):
            message = self._queue.pop()
            size += len(message.data)
            self._queue.done(message.message_id)
        self._queue.prune()
        return size

    def close(self) -> None:
        self._queue.close()
