"""persist-queue without acks and with auto_commit=False, which its documentation names as the faster way.

Puts are transactions all the same. Gets are undone by a crash until ``task_done``; there are no leases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..peer import PeerMissing, look_again
from .persist_queue import PersistQueue

try:
    from persistqueue import Empty, FIFOSQLiteQueue
except ImportError as error:
    raise PeerMissing("persist-queue is not installed") from error


class PersistQueueFifo(PersistQueue):
    name = "persist-queue, FIFOSQLiteQueue"
    receives = "no leases, no acks; task_done for every 500 messages"
    share = 0.05

    def join(self, place: Path) -> None:
        self._queue = FIFOSQLiteQueue(str(place), multithreading=True, auto_commit=False)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        for number in range(1, count + 1):
            size += len(self._queue.get())
            if number % batch == 0 or number == count:
                self._queue.task_done()
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for body in look_again(self._next):
            yield [body] if body else []
            if body:
                self._queue.task_done()

    def _next(self) -> bytes | None:
        try:
            body: bytes = self._queue.get(block=False)
        except Empty:
            return None
        return body
