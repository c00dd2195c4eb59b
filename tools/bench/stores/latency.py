"""The measurements of latency. Messages carry the moment of their sending, by the clock that all processes share.

At a fixed rate (an open loop) every message has a moment at which it is to be sent, and its latency counts from then,
also when the sender was late because an earlier send took long. So a stall is seen in all the messages that it held
up, not in one: no coordinated omission.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import shardq

from .load import Load
from .processes import BenchmarkFailed, Job, Ready, run_alone, run_together
from .result import Figure, Sample
from .stage import Place, Stage

__all__ = [
    "LONGEST_SILENCE",
    "collect",
    "count_at_rate",
    "latencies",
    "latency_fixed_rate",
    "latency_process",
    "latency_processes",
    "moment_of",
    "send_at_rate",
    "stamped",
]

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
GAPS_WITHIN, GAPS_BETWEEN = (0.005, 0.02), (0.02, 0.12)  # seconds between two messages, at least and at most
LONGEST_SILENCE = 30.0
_STAMP = struct.Struct(">d")


def latency_process(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the call of ``send`` to the return of ``receive`` in another thread of the process."""
    with stage.queue() as place:
        return latencies(run_alone(_sending_and_collecting, place, load))


def latency_processes(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the call of ``send`` to the return of ``receive`` in another process."""
    with stage.queue() as place:
        jobs = [Job(_sending_now_and_then, (place, load)), Job(_collecting, (place, load.messages))]
        return latencies(run_together(jobs)[1])


def latency_fixed_rate(stage: Stage, load: Load) -> Sample:
    """Milliseconds from the moment at which a message is to be sent to its receipt in another process."""
    with stage.queue() as place:
        jobs = [Job(_sending_at_rate, (place, load)), Job(_collecting, (place, count_at_rate(load)))]
        return latencies(run_together(jobs)[1])


def latencies(seconds: Sequence[float]) -> Sample:
    """A sample in milliseconds: the median, and the percentiles as figures ``p50`` .. ``p100``."""
    ordered = sorted(seconds)
    figures = tuple(Figure(f"p{share:g}", _at(ordered, share) * 1_000) for share in PERCENTILES)
    return Sample(figures[0].value, figures)


def _at(ordered: Sequence[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    place = -(-len(ordered) * share // 100)
    return ordered[max(0, int(place) - 1)]


def stamped(moment: float, size: int) -> bytes:
    """A body of so many bytes (8 at least) that starts with a moment in seconds."""
    return _STAMP.pack(moment).ljust(size, b"\0")


def moment_of(body: bytes) -> float:
    """The moment that such a body starts with."""
    (moment,) = _STAMP.unpack_from(body)
    return float(moment)


def count_at_rate(load: Load) -> int:
    """How many messages are sent at the load's rate in its time."""
    return int(load.rate * load.seconds)


def send_at_rate(
    began: float, load: Load, send: Callable[[bytes], object], *, first: int = 0, every: int = 1
) -> None:
    """Send a message at each of the moments that the load's rate gives; those that are late at once.

    Each is stamped with the moment at which it was to be sent. Several senders share them: ``every`` so many-th.
    """
    for number in range(first, count_at_rate(load), every):
        moment = began + number / load.rate
        if (left := moment - time.monotonic()) > 0:
            time.sleep(left)
        send(stamped(moment, load.body_bytes))


def send_now_and_then(queue: shardq.Queue, load: Load, gaps: tuple[float, float]) -> None:
    """Send the load's messages with random pauses between two lengths, so that they fall in step with nothing."""
    source = random.Random(load.messages)
    with queue.producer() as producer:
        for _ in range(load.messages):
            time.sleep(source.uniform(*gaps))
            producer.send(stamped(time.monotonic(), load.body_bytes))


def collect(queue: shardq.Queue, count: int) -> list[float]:
    """Receive so many stamped messages; the seconds that each of them took. Raises BenchmarkFailed."""
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


def _sending_and_collecting(ready: Ready, place: Place, load: Load) -> list[float]:
    with place.open() as queue, ThreadPoolExecutor(1) as thread:
        ready()
        receiver = thread.submit(collect, queue, load.messages)
        send_now_and_then(queue, load, GAPS_WITHIN)
        return receiver.result()


def _sending_now_and_then(ready: Ready, place: Place, load: Load) -> None:
    with place.open() as queue:
        ready()
        send_now_and_then(queue, load, GAPS_BETWEEN)


def _sending_at_rate(ready: Ready, place: Place, load: Load) -> None:
    with place.open() as queue, queue.producer() as producer:
        send_at_rate(ready(), load, producer.send)


def _collecting(ready: Ready, place: Place, count: int) -> list[float]:
    with place.open() as queue:
        ready()
        return collect(queue, count)
