"""shardq, on any store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import shardq

from ..peer import AT_ONCE, SHARED, SILENCE

PATIENCE = 5.0  # seconds


class ShardqQueue:
    name: str
    durability: str
    sends: str
    receives: str
    share = 1.0
    queue = "bench"
    settings: Mapping[str, Any] = {}
    prefetch = 0
    wakes = "signals"
    threads = SHARED
    takes_one = True
    wins = ""

    def url(self, folder: Path) -> str:
        """Where its queue is to be; raises PeerMissing."""
        raise NotImplementedError

    def open(self, folder: Path) -> None:
        self.place = self.url(folder)
        with shardq.connect(self.place) as client:
            client.create_schema()
            client.create_queue(self.queue, **self.settings)
        self.join(self.place)

    def join(self, place: str) -> None:
        self._client = shardq.connect(place)
        self._queue = self._client.queue(self.queue)
        self._producer, self._consumer = self._queue.producer(), self._queue.consumer()

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        self._producer.send_many(bodies)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._producer.send(body)

    def receive(self, count: int, batch: int) -> int:
        if not self.prefetch:
            return self._receive(self._consumer, count, batch)
        with self._queue.consumer(prefetch=self.prefetch) as consumer:
            return self._receive(consumer, count, batch)

    def pop(self, count: int) -> None:
        for _ in range(count):
            if self._consumer.pop(wait=PATIENCE) is None:
                raise RuntimeError("a message did not come")

    def hold(self, count: int) -> list[Callable[[], object]]:
        held: list[shardq.Message] = []
        while len(held) < count:
            held += self._consumer.receive(count - len(held), wait=PATIENCE)
        return [message.ack for message in held]

    def receiving(self) -> Iterator[Sequence[bytes]]:
        with self._queue.consumer(prefetch=self.prefetch) as consumer:
            while True:
                batch = consumer.receive(AT_ONCE, wait=SILENCE)
                yield batch.bodies
                batch.ack()

    def leave(self) -> None:
        self._consumer.close()
        self._client.close()

    def close(self) -> None:
        self._client.delete_queue(self.queue)
        self.leave()

    def _receive(self, consumer: shardq.Consumer, count: int, batch: int) -> int:
        """Batch after batch; one message at a time is asked for as an application does that needs one."""
        size = 0
        if batch > 1:
            for received in consumer.batches(batch, wait=PATIENCE):
                size += sum(map(len, received.bodies))
                received.ack()
                count -= len(received)
                if count <= 0:
                    break
            return size
        for _ in range(count):
            received = consumer.receive(1, wait=PATIENCE)
            size += sum(map(len, received.bodies))
            received.ack()
        return size
