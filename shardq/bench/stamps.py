"""Messages that carry the moment of their sending, by the clock that all processes of a machine share."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

import shardq
from shardq.bench.failure import BenchmarkFailed
from shardq.bench.load import Load
from shardq.bench.stage import Place

__all__ = [
    "collect",
    "collecting",
    "count_at_rate",
    "moment_of",
    "send_at_rate",
    "send_now_and_then",
    "stamped",
]

_STAMP = struct.Struct(">d")
LONGEST_SILENCE = 30.0


def stamped(moment: float, size: int) -> bytes:
    """A body of so many bytes (8 at least) that starts with a moment in seconds."""
    return _STAMP.pack(moment).ljust(size, b"\0")


def moment_of(body: bytes) -> float:
    """The moment that such a body starts with."""
    (moment,) = _STAMP.unpack_from(body)
    return float(moment)


def send_now_and_then(queue: shardq.Queue, load: Load, least_gap: float, longest_gap: float) -> None:
    """Send the load's messages with random pauses, so that they fall in step with nothing."""
    gaps = random.Random(load.messages)
    with queue.producer() as producer:
        for _ in range(load.messages):
            time.sleep(gaps.uniform(least_gap, longest_gap))
            producer.send(stamped(time.monotonic(), load.body_bytes))


def count_at_rate(load: Load) -> int:
    """How many messages are sent at the load's rate in its time."""
    return int(load.rate * load.seconds)


def send_at_rate(began: float, load: Load, send: Callable[[bytes], object]) -> None:
    """Send a message at each of the moments that the load's rate gives; those that are late at once.

    Each is stamped with the moment at which it was to be sent.
    """
    for number in range(count_at_rate(load)):
        moment = began + number / load.rate
        if (left := moment - time.monotonic()) > 0:
            time.sleep(left)
        send(stamped(moment, load.body_bytes))


def collect(queue: shardq.Queue, count: int) -> list[float]:
    """Receive so many stamped messages; the seconds that each of them took."""
    seconds: list[float] = []
    with queue.consumer() as consumer:
        while len(seconds) < count:
            batch = consumer.receive(100, wait=LONGEST_SILENCE)
            now = time.monotonic()
            if not batch:
                raise BenchmarkFailed(f"{count - len(seconds)} of {count} messages did not come")
            seconds += [now - moment_of(message.body) for message in batch]
            batch.ack()
    return seconds


def collecting(ready: Callable[[], float], place: Place, count: int) -> list[float]:
    """Collect in a process of its own."""
    with place.open() as queue:
        ready()
        return collect(queue, count)
