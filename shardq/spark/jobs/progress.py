"""How far a job is, for whoever watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Say", "follow", "watch"]

Say = Callable[[str], None]

INTERVAL = 2.0


@contextmanager
def watch(say: Say, look: Callable[[], str]) -> Iterator[None]:
    """Say every two seconds how far it is, while the block runs."""
    stopped = threading.Event()

    def run() -> None:
        begun = time.monotonic()
        while not stopped.wait(INTERVAL):
            say(f"{time.monotonic() - begun:.0f} s: {look()}")

    thread = threading.Thread(target=run, name="shardq-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def follow(query: StreamingQuery, say: Say) -> int:
    """Wait for the end of a stream, saying how far it is; returns how many rows it read."""
    rows: dict[int, int] = {}
    try:
        while not query.awaitTermination(1):
            _take_note(query, rows, say)
    finally:
        query.stop()
    _take_note(query, rows, say)
    return sum(rows.values())


def _take_note(query: StreamingQuery, rows: dict[int, int], say: Say) -> None:
    """Spark keeps the progress of the last hundred batches."""
    before = sum(rows.values())
    for progress in query.recentProgress:
        rows[progress.batchId] = max(rows.get(progress.batchId, 0), progress.numInputRows)
    if sum(rows.values()) != before:
        say(f"{sum(rows.values()):,} messages")
