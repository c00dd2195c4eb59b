"""persist-queue's queue with acks: every get and every ack is a transaction of its own.

What was acked is cleared now and then, as every get walks past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..peer import PeerMissing, look_again
from .persist_queue import PersistQueue

try:
    from persistqueue import Empty, SQLiteAckQueue
except ImportError as error:
    raise PeerMissing("persist-queue is not installed") from error

CLEAR = 100


class PersistQueueAck(PersistQueue):
    name = "persist-queue, SQLiteAckQueue"
    receives = "a commit for each get and for each ack; what is acked cleared by 100"
    share = 0.03

    def join(self, place: Path) -> None:
        self._queue = SQLiteAckQueue(str(place), multithreading=True, auto_commit=True)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        for number in range(1, count + 1):
            item = self._queue.get(raw=True)
            size += len(item["data"])
            self._queue.ack(id=item["pqid"])
            if number % CLEAR == 0 or number == count:
                self._clear()
        return size

    def hold(self, count: int) -> list[Callable[[], object]]:
        self._clear()
        found = [self._queue.get(raw=True)["pqid"] for _ in range(count)]
        return [partial(self._queue.ack, id=identity) for identity in found]

    def receiving(self) -> Iterator[Sequence[bytes]]:
        for item in look_again(self._next):
            yield [item["data"]] if item else []
            if item:
                self._queue.ack(id=item["pqid"])
                self._clear()

    def _next(self) -> dict[str, Any] | None:
        try:
            item: dict[str, Any] = self._queue.get(block=False, raw=True)
        except Empty:
            return None
        return item

    def _clear(self) -> None:
        self._queue.clear_acked_data(max_delete=CLEAR, keep_latest=0)
