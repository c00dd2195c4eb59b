"""Kafka as a work queue: one consumer group, and an ack is a commit of the offset up to which it has read.

So a message cannot be acked without those before it, nor be given to another consumer while they are worked on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..peer import AT_ONCE, JOINED, SILENCE, PeerMissing

try:
    from confluent_kafka import Consumer, Message, Producer
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError as error:
    raise PeerMissing("confluent-kafka is not installed") from error

VARIABLE = "SHARDQ_TEST_KAFKA_URL"
PATIENCE = 30.0
LINGER_MS = 5  # in bulk, which is the client's default


class KafkaFlushed:
    name = "Kafka, flush.messages=1"
    durability = "fsync"
    sends = (
        "acks=all of one broker, the log flushed for each request (flush.messages=1); in bulk, linger 5 ms"
    )
    receives = "a consumer group; a commit of the offset for each batch"
    share = 0.5
    wakes = "fetches that wait"
    threads = JOINED
    takes_one = True
    wins = "it is a log: one offset acks all that was read before it"
    topic = "flushed"
    settings: ClassVar[dict[str, str]] = {"flush.messages": "1"}

    def open(self, folder: Path) -> None:
        if VARIABLE not in os.environ:
            raise PeerMissing(f"{VARIABLE} is not set: run it with tools/servers/kafka.py run")
        self.place = os.environ[VARIABLE]
        new = NewTopic(self.topic, 1, 1, config=self.settings)
        admin = AdminClient({"bootstrap.servers": self.place})
        admin.create_topics([new])[self.topic].result(PATIENCE)
        self.join(self.place)

    def join(self, place: str) -> None:
        self.place = place
        self._producers: dict[int, Any] = {}
        self._consumer: Any = None

    def send_bulk(self, bodies: Sequence[bytes]) -> None:
        producer = self._producer(LINGER_MS)
        for body in bodies:
            producer.produce(self.topic, body, on_delivery=_check)
        _flush(producer)

    def send_singles(self, bodies: Sequence[bytes]) -> None:
        producer = self._producer(0)
        for body in bodies:
            producer.produce(self.topic, body, on_delivery=_check)
            _flush(producer)

    def receive(self, count: int, batch: int) -> int:
        size, deadline = 0, time.monotonic() + PATIENCE
        while count > 0:
            messages = self._take(min(count, batch), 1.0)
            if not messages and time.monotonic() > deadline:
                raise RuntimeError(f"{count} messages did not come")
            size += sum(len(message.value()) for message in messages)
            self._ack(messages)
            count -= len(messages)
        return size

    def receiving(self) -> Iterator[Sequence[bytes]]:
        while True:
            messages = self._take(1, SILENCE)  # for more it would wait
            messages += self._take(AT_ONCE, 0) if messages else []
            yield [message.value() for message in messages]
            self._ack(messages)

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        for producer in self._producers.values():
            producer.flush()

    close = leave

    def _take(self, count: int, wait: float) -> list[Message]:
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self.place,
                    "group.id": f"workers-{self.topic}",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 500,
                }
            )
            self._consumer.subscribe([self.topic])
        messages: list[Message] = self._consumer.consume(count, wait)
        for message in messages:
            if message.error():
                raise RuntimeError(str(message.error()))
        return messages

    def _ack(self, messages: Sequence[Message]) -> None:
        if messages:
            self._consumer.commit(message=messages[-1], asynchronous=False)

    def _producer(self, linger: int) -> Any:
        if linger not in self._producers:
            settings = {"acks": "all", "linger.ms": linger, "queue.buffering.max.messages": 1_000_000}
            self._producers[linger] = Producer({"bootstrap.servers": self.place, **settings})
        return self._producers[linger]


def _check(error: object, _: Message) -> None:
    if error is not None:
        raise RuntimeError(str(error))


def _flush(producer: Any) -> None:
    if producer.flush(PATIENCE):
        raise RuntimeError("messages were not stored")
