"""shardq, on any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import shardq


class ShardqQueue:
    name: str
    sends: str
    receives: str
    share = 1.0
    queue = "bench"
    prefetch = 0

    def url(self, folder: Path) -> str:
        """Where its queue is to be; raises PeerMissing."""
        raise NotImplementedError

    def open(self, folder: Path) -> None:
        self._client = shardq.connect(self.url(folder))
        self._client.create_schema()
        queue = self._client.create_queue(self.queue)
        self._producer, self._consumer = queue.producer(), queue.consumer(prefetch=self.prefetch)

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._producer.send_many(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._producer.send(body)

    def receive(self, count: int, batch: int) -> int:
        size = 0
        while count > 0:
            received = self._consumer.receive(min(count, batch), wait=5)
            size += sum(len(message.body) for message in received)
            received.ack()
            count -= len(received)
        return size

    def close(self) -> None:
        self._consumer.close()
        self._client.delete_queue(self.queue)
        self._client.close()
