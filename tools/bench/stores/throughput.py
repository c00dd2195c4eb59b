"""The measurements of throughput: sends, bulk reads with acks, and both together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import shardq

from .load import Load, bodies
from .processes import BenchmarkFailed, Job, Ready, Span, rate, run_together
from .result import Sample
from .stage import Place, Stage

__all__ = [
    "check_all_received",
    "end_to_end",
    "from_threads",
    "in_bulk",
    "one_by_one",
    "read_bodies",
    "receives",
    "receiving",
    "sending",
    "sends",
]

Sender = Callable[[shardq.Queue, Sequence[bytes], Load], None]

PATIENCE = 1.0  # seconds without a message after which a consumer has done its part; not in the figures


def sends(send: Sender, stage: Stage, load: Load) -> Sample:
    """Messages per second that ``processes`` store together, each of them its share."""
    with stage.queue() as place:
        return Sample(rate(run_together([Job(sending, (place, load, send))] * load.processes)))


def receives(send: Sender, stage: Stage, load: Load) -> Sample:
    """Messages per second that ``processes`` receive by ``batch`` and ack together; every body is looked at."""
    with stage.queue() as place:
        with place.open() as queue:
            send(queue, list(bodies(load.messages, load.body_bytes)), load)
        spans = run_together([Job(receiving, (place, load))] * load.processes)
    check_all_received(spans, load.messages)
    return Sample(rate(spans))


def end_to_end(stage: Stage, load: Load) -> Sample:
    """Messages per second through the queue, to the last ack; ``processes`` producers and as many consumers."""
    with stage.queue() as place:
        producers = [Job(sending, (place, load, in_bulk))] * load.processes
        consumers = [Job(receiving, (place, load))] * load.processes
        received = run_together(producers + consumers)[load.processes :]
    check_all_received(received, load.messages)
    return Sample(rate(received))


def in_bulk(queue: shardq.Queue, items: Iterable[bytes], _: Load) -> None:
    """Send all messages with one call."""
    with queue.producer() as producer:
        producer.send_many(items)


def one_by_one(queue: shardq.Queue, items: Iterable[bytes], _: Load) -> None:
    """Send each message with a call of its own, after the one before is stored."""
    with queue.producer() as producer:
        for body in items:
            producer.send(body)


def from_threads(queue: shardq.Queue, items: Sequence[bytes], load: Load) -> None:
    """Send each message with a call of its own from ``threads`` that share a producer with ``linger``."""
    shares = [items[start :: load.threads] for start in range(load.threads)]
    with queue.producer(linger=load.linger) as producer, ThreadPoolExecutor(load.threads) as threads:

        def send(share: Sequence[bytes]) -> None:
            for body in share:
                producer.send(body)

        list(threads.map(send, shares))


def sending(ready: Ready, place: Place, load: Load, send: Sender) -> Span:
    """Send one process's share of the messages."""
    count = load.messages // load.processes
    items = list(bodies(count, load.body_bytes))
    with place.open() as queue:
        began = ready()
        send(queue, items, load)
        return Span(began, time.monotonic(), count)


def receiving(ready: Ready, place: Place, load: Load) -> Span:
    """Receive and ack in one process, until no message comes any more."""
    with place.open() as queue, queue.consumer() as consumer:
        began = ended = ready()
        count = 0
        for batch in consumer.batches(load.batch, wait=PATIENCE):
            count += read_bodies(batch)
            batch.ack()
            ended = time.monotonic()
        return Span(began, ended, count)


def read_bodies(batch: shardq.Batch) -> int:
    """Look at every body, as an application does; returns how many there are."""
    return sum(1 for body in batch.bodies if body)


def check_all_received(spans: Sequence[Span], sent: int) -> None:
    """Raise BenchmarkFailed unless as many messages were received as were sent."""
    received = sum(span.messages for span in spans)
    if received != sent:
        raise BenchmarkFailed(f"{sent} messages were sent and {received} received")
