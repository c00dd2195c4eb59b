"""Kafka as it comes: what is answered is in the memory of its one broker's machine, and written to the disk later."""

from __future__ import annotations

from typing import ClassVar

from .kafka_flushed import KafkaFlushed


class KafkaUnflushed(KafkaFlushed):
    name = "Kafka, as it comes"
    durability = "no fsync"
    sends = "acks=all of one broker, which flushes its log when the system likes; in bulk, linger 5 ms"
    wins = "it is a log that waits for no disk: one offset acks all that was read before it"
    topic = "unflushed"
    settings: ClassVar[dict[str, str]] = {}
