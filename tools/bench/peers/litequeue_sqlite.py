"""litequeue. It sets synchronous NORMAL by itself: a power failure may undo what it confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..peer import JOINED, POLLED, PeerMissing, look_again

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
    wakes = POLLED
    threads = JOINED
    takes_one = True
    wins = "it does not wait for the disk"

    def open(self, folder: Path) -> None:
        self.place = folder / "queue.db"
        self.join(self.place)

    def join(self, place: Path) -> None:
        self._queue = LiteQueue(place)

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

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for message in look_again(self._queue.pop):
            yield [message.data] if message else []
            if message:
                self._queue.done(message.message_id)

    def leave(self) -> None:
        self._queue.close()

    close = leave
