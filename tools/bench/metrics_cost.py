"""What metrics cost: the processor time of the same work with an observer and without one, in pairs.

    python -m tools.bench.metrics_cost --pairs 200

Two clients work on an SQLite file each, one of them with an observer. A pair is a short run of each, in alternating
order, so that both meet the same machine. The observed client also adds up its measures every second, as a process of a
pool does for its parent. The figures are medians over the pairs.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping

import shardq
from shardq.metrics import Metrics
from shardq.worker import Worker

BODY = bytes(512)
REPORT_SECONDS = 1.0
BOUND = 0.03

Work = Callable[[shardq.Queue, int, Callable[[], None]], None]


def in_bulk(queue: shardq.Queue, messages: int, report: Callable[[], None]) -> None:
    with queue.producer() as producer, queue.consumer() as consumer:
        for _ in range(messages // 500):
            producer.send_many([BODY] * 500)
            report()
        while batch := consumer.receive(500):
            batch.ack()
            report()


def one_by_one(queue: shardq.Queue, messages: int, report: Callable[[], None]) -> None:
    with queue.producer() as producer, queue.consumer() as consumer:
        for _ in range(messages):
            producer.send(BODY)
            report()
        while batch := consumer.receive(1):
            batch.ack()
            report()


def singles_in_bulk(queue: shardq.Queue, messages: int, report: Callable[[], None]) -> None:
    """Sent one by one, received and acked together."""
    with queue.producer() as producer, queue.consumer() as consumer:
        for _ in range(messages):
            producer.send(BODY)
            report()
        while batch := consumer.receive(500):
            batch.ack()
            report()


def by_worker(queue: shardq.Queue, messages: int, report: Callable[[], None]) -> None:
    with queue.producer() as producer:
        producer.send_many([BODY] * messages)
    Worker(queue, lambda _: report(), idle_exit=0).run()


WORKS: Mapping[str, tuple[Work, int]] = {
    "in bulk": (in_bulk, 5_000),
    "one by one": (one_by_one, 100),
    "sent alone, received in bulk": (singles_in_bulk, 200),
    "a worker, message by message": (by_worker, 1_000),
}
"""Each with the messages of a run."""


def runs(work: Work, messages: int, folder: str, metrics: Metrics | None) -> Generator[float, None, None]:
    """Yield the processor time of run after run."""
    due = time.monotonic() + REPORT_SECONDS

    def report() -> None:
        nonlocal due
        if time.monotonic() >= due:
            due += REPORT_SECONDS
            if metrics is not None:
                pickle.dumps(metrics.measures())

    name = "plain" if metrics is None else "observed"
    with shardq.connect(f"sqlite:///{folder}/{name}.db?synchronous=normal", observer=metrics) as client:
        queue = client.create_queue(
            f"cost-{os.urandom(4).hex()}", shards=2, time_shards=4, max_deliveries=None
        )
        while True:
            began = time.process_time()
            work(queue, messages, report)
            yield time.process_time() - began


def pairs(work: Work, messages: int, count: int, folder: str) -> list[tuple[float, float]]:
    """Return the seconds of each pair: without an observer, and with one."""
    plain, observed = runs(work, messages, folder, None), runs(work, messages, folder, Metrics())
    found = []
    for number in range(count + 2):
        if number % 2:
            second, first = next(observed), next(plain)
        else:
            first, second = next(plain), next(observed)
        found.append((first, second))
    plain.close()
    observed.close()
    return found[2:]  # connections and caches are made in the first ones


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, (work, messages) in WORKS.items():
            found = pairs(work, messages, options.pairs, folder)
            ratios = sorted(observed / plain - 1 for plain, observed in found)
            quarter = len(ratios) // 4
            cost = statistics.median(ratios)
            micros = statistics.median(plain for plain, _ in found) / messages * 1e6
            print(
                f"{name}: {cost:+.1%} (middle half {ratios[quarter]:+.1%} to {ratios[-1 - quarter]:+.1%}) of "
                f"{micros:.1f} us per message, {len(found)} pairs{'' if cost <= BOUND else '  ABOVE 3 %'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
