"""What queues cost in the database of an application: beside a file of their own, and for the application's commits.

``python -m tools.bench.floors.sqlite_shared`` prints a table for each; rounds alternate, and medians count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import shardq

BODY = b"x" * 512
PLACES = {
    "a file of the queues": None,
    "an application's, WAL": "wal",
    "an application's, rollback journal": "delete",
}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    commits: dict[str, list[float]] = defaultdict(list)
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, journal in PLACES.items():
                url = _made(Path(folder) / f"{journal}.db", journal)
                for what, rate in _rates(url, given.messages).items():
                    rates[name][what].append(rate)
            for name, beside in (
                ("alone", None),
                ("a worker in another file", "own"),
                ("a worker in it", "it"),
            ):
                commits[name] += _commits(Path(folder) / f"{name}.db", beside, given.seconds)
    for name, found in rates.items():
        print(name, {what: round(statistics.median(each)) for what, each in found.items()})
    for name, seconds in commits.items():
        p50, p99 = (statistics.quantiles(seconds, n=100)[at] * 1e3 for at in (49, 98))
        print(f"a commit of the application, {name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(seconds)}")


def _made(path: Path, journal: str | None) -> str:
    if journal is None:
        return f"sqlite:///{path}"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("CREATE TABLE rows (value)")
    return f"sqlite:///{path}?tables=shardq_"


def _rates(url: str, messages: int) -> dict[str, float]:
    with shardq.connect(url) as client:
        queue = client.create_queue("orders")
        producer, consumer = queue.producer(), queue.consumer()
        rates = {"sends/s": _rate(messages, lambda: producer.send(BODY))}
        rates["receive(1) + ack /s"] = _rate(messages, lambda: consumer.receive(1).ack())
        rates["bulk sends/s"] = 20_000 / _seconds(lambda: producer.send_many([BODY] * 20_000))
        return rates


def _rate(count: int, step: Callable[[], object]) -> float:
    return count / _seconds(lambda: [step() for _ in range(count)])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _commits(path: Path, beside: str | None, seconds: float) -> list[float]:
    """Return how long each commit of a row took, a hundred times a second, maybe beside a worker that never rests."""
    url = _made(path, "wal")
    if beside == "own":
        url = f"sqlite:///{path.with_suffix('.queues')}"
    over, begun = multiprocessing.Event(), multiprocessing.Event()
    worker = multiprocessing.Process(target=_work, args=(url, over, begun))
    if beside:
        worker.start()
        begun.wait(30)
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    found: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows VALUES (?)", (BODY,))
        db.execute("COMMIT")
        found.append(time.perf_counter() - began)
        time.sleep(0.01)
    db.close()
    if beside:
        over.set()
        worker.join()
    return found


def _work(url: str, over: Event, begun: Event) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("orders")
        producer, consumer = queue.producer(), queue.consumer()
        begun.set()
        while not over.is_set():
            producer.send(BODY)
            consumer.receive(1).ack()


if __name__ == "__main__":
    main()
