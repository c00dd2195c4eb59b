from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import shardq


class ShardqSqlite:
    name = "shardq (SQLite)"
    sends = "fsync before the send returns"
    receives = "bulk reads of 500 under a lease, acked together, fsync for each ack"
    share = 1.0

    def open(self, folder: Path) -> None:
        self._client = shardq.connect(f"sqlite:///{folder}/queue.db")
        queue = self._client.create_queue("bench")
        self._producer, self._consumer = queue.producer(), queue.consumer()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._producer.send_many(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._producer.send(body)

    def receive(self, count: int) -> int:
        size = 0
        while count > 0:
            batch = self._consumer.receive(min(count, 500), wait=5)
            size += sum(len(message.body) for message in batch)
            batch.ack()
            count -= len(batch)
        return size

    def close(self) -> None:
        self._consumer.close()
        self._client.close()
