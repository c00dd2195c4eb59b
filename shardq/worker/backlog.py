"""Counting what is due in the queues of a pool, beside the pool."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from shardq.base.waits import Flag
from shardq.client import Client, connect
from shardq.errors import QueueNotFound, ShardqError

__all__ = ["Backlog"]

_log = logging.getLogger(__name__)


class Backlog:
    """Counts the messages that are due every so many seconds, in a thread: the store may be slow, or away.

    A count asks for the shards of each queue, and for the counts of each shard. What waits in a queue whose deliveries
    are paused is not due.
    """

    def __init__(self, url: str, queues: Sequence[str], seconds: float) -> None:
        self._client = connect(url, retry_seconds=0)
        self._queues, self._seconds = queues, seconds
        self._due: int | None = None
        self._over = Flag()
        self._thread = threading.Thread(target=self._run, name="shardq-backlog", daemon=True)

    def start(self) -> None:
        """Count from now on."""
        self._thread.start()

    def take(self) -> int | None:
        """The last count; None when there is none since it was taken."""
        due, self._due = self._due, None
        return due

    def close(self) -> None:
        """Count no more. A count that is under way ends by itself."""
        self._over.set()

    def _run(self) -> None:
        with self._client:
            while not self._over.wait(self._seconds):
                try:
                    self._due = self._count()
                except ShardqError as error:
                    _log.warning("what is due was not counted, so the pool stays as it is: %s", error)

    def _count(self) -> int:
        """What is due in all queues. Those that are not there are left out, as the workers do, unless all are."""
        counts: list[int] = []
        missing: QueueNotFound | None = None
        for queue in self._queues:
            try:
                counts.append(_due(self._client, queue))
            except QueueNotFound as error:
                missing = error
        if missing is not None and not counts:
            raise missing
        return sum(counts)


def _due(client: Client, name: str) -> int:
    queue = client.queue(name)
    return 0 if queue.settings.delivery_paused else queue.counts().ready
