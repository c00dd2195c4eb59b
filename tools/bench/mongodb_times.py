"""Where the time goes on MongoDB: how long the server takes for each command, beside the driver's plain inserts.

    python tools/servers/mongodb.py run --cache 1 -- .venv-bench/bin/python -m tools.bench.mongodb_times {url}

Three rounds; a line for each step on stdout.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import mean
from typing import Any

from pymongo import MongoClient, WriteConcern, monitoring

import shardq

from .stores.stage import Stage

BODY = b"x" * 512
MESSAGES, SINGLES, ROUNDS = 200_000, 3_000, 3


class Times(monitoring.CommandListener):
    """Milliseconds from request to answer, by command."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = defaultdict(list)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Nothing to do."""

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        self.taken[event.command_name].append(event.duration_micros / 1_000)

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Not expected here."""

    def most(self) -> Iterator[str]:
        """The three commands that took the most time together."""
        totals = Counter({name: sum(taken) for name, taken in self.taken.items()})
        for name, _ in totals.most_common(3):
            yield f"{len(self.taken[name])} {name} of {mean(self.taken[name]):.2f} ms"


def main(url: str) -> None:
    times = Times()
    monitoring.register(times)
    with Stage(url).queue() as place, place.open() as queue, plain(url) as insert:
        for _ in range(ROUNDS):
            _step(times, "bulk send", MESSAGES, lambda: queue.producer().send_many([BODY] * MESSAGES))
            _step(times, "receive and ack by 1,000", MESSAGES, lambda: _receive(queue, MESSAGES, 0))
            queue.producer().send_many([BODY] * MESSAGES)
            _step(times, "the same, prefetch=4000", MESSAGES, lambda: _receive(queue, MESSAGES, 4_000))
            _step(times, "single sends", SINGLES, lambda: _send(queue))
            _step(times, "receive and ack of singles", SINGLES, lambda: _receive(queue, SINGLES, 0))
            _step(times, "plain inserts", SINGLES, insert)


@contextmanager
def plain(url: str) -> Iterator[Callable[[], None]]:
    """What inserts documents one by one, as durably as shardq does."""
    server: MongoClient[dict[str, Any]] = MongoClient(url)
    with server as client:
        durable = WriteConcern(w="majority", j=True)
        documents = client.get_default_database().get_collection("plain", write_concern=durable)

        def insert() -> None:
            for _ in range(SINGLES):
                documents.insert_one({"b": BODY})

        yield insert
        documents.drop()


def _step(times: Times, name: str, count: int, work: Callable[[], object]) -> None:
    times.taken.clear()
    began, used = time.perf_counter(), time.process_time()
    work()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    share = f"{100 * used / seconds:.0f} % of the time in Python"
    print(f"{name}: {count / seconds:,.0f}/s, {share}; {', '.join(times.most())}", flush=True)


def _send(queue: shardq.Queue) -> None:
    with queue.producer() as producer:
        for _ in range(SINGLES):
            producer.send(BODY)


def _receive(queue: shardq.Queue, count: int, prefetch: int) -> None:
    with queue.consumer(prefetch=prefetch) as consumer:
        while count > 0:
            batch = consumer.receive(min(count, 1_000), wait=5)
            batch.ack()
            count -= len(batch)


if __name__ == "__main__":
    main(sys.argv[1])
