"""Sending processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import shardq
from shardq.bench.load import Load, bodies
from shardq.bench.processes import Job, Span, rate, run_together
from shardq.bench.result import Sample
from shardq.bench.stage import Place

__all__ = ["Sender", "send_bulk", "send_from", "send_one_by_one", "sending"]

Sender = Callable[[shardq.Queue, list[bytes], Load], None]


def send_bulk(queue: shardq.Queue, items: Iterable[bytes], _: Load) -> None:
    """All of them with one call."""
    with queue.producer() as producer:
        producer.send_many(items)


def send_one_by_one(queue: shardq.Queue, items: Iterable[bytes], _: Load) -> None:
    """Each with a call of its own, after the one before is stored."""
    with queue.producer() as producer:
        for body in items:
            producer.send(body)


def sending(ready: Callable[[], float], place: Place, load: Load, send: Sender) -> Span:
    """One process's share of the messages."""
    count = load.messages // load.processes
    items = list(bodies(count, load.body_bytes))
    with place.open() as queue:
        began = ready()
        send(queue, items, load)
        return Span(began, time.monotonic(), count)


def send_from(place: Place, load: Load, send: Sender) -> Sample:
    """Messages per second that the load's processes store together."""
    jobs = [Job(sending, (place, load, send))] * load.processes
    return Sample(rate(run_together(jobs)))
