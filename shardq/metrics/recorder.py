"""The measures of one process."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from math import inf
from typing import Any

from shardq.core.context.counters import Counters
from shardq.core.hooks import Observer
from shardq.errors import ShardqError
from shardq.metrics.measures import BOUNDS, Durations, Key, Measures
from shardq.storage.per_process import OwnLock

__all__ = ["MOST_LABELS", "Metrics"]

OTHERS = "_others"
OUTCOMES = ("worked", "failed", "snoozed", "discarded")

MOST_NOTED = 512  # durations that are counted together

MOST_LABELS = 4096  # combinations of labels: whoever sends may have written anything into the name of a task


class _Histogram:
    """Durations that are being recorded. They are ``noted`` without a lock, which costs a third of counting them."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.seconds = (*bounds, inf), [0] * (len(bounds) + 1), 0.0
        self.noted: list[float] = []

    def count(self, seconds: Sequence[float]) -> None:
        """Count durations, those of a bucket at once: of many calls most are in one. The lock is held."""
        ordered, bounds, at = sorted(seconds), self.bounds, 0
        while at < len(ordered):
            bucket = bisect_left(bounds, ordered[at])
            end = bisect_right(ordered, bounds[bucket], at)
            self.counts[bucket] += end - at
            at = end
        self.seconds += sum(ordered)

    def count_noted(self) -> None:
        """Count the durations that were noted. The lock is held."""
        noted, bounds, counts = self.noted, self.bounds, self.counts
        with suppress(IndexError):  # none is left; a signal's handler may have taken the last one
            while True:
                seconds = noted.pop()
                counts[bisect_left(bounds, seconds)] += 1
                self.seconds += seconds

    def read(self) -> Durations:
        self.count_noted()
        return Durations(tuple(self.counts), self.seconds)


class Metrics(Observer):
    """Measures what the clients of this process do, for Prometheus. Safe for threads.

    It is a collector of ``prometheus_client``, which ``shardq[metrics]`` installs. One may serve several clients, those
    of asyncio too. Its counts stay when a client is closed, and never go down.

    >>> import prometheus_client, shardq.metrics
    >>> registry = prometheus_client.CollectorRegistry()
    >>> metrics = shardq.metrics.Metrics()
    >>> registry.register(metrics)
    >>> client = shardq.connect(url, observer=metrics)
    >>> id = client.create_queue("letters").producer().send(b"dear")
    >>> registry.get_sample_value("shardq_messages_sent_total", {"queue": "letters"})
    1
    """

    def __init__(self) -> None:
        self._lock = OwnLock()
        self._clients: dict[int, Callable[[], Mapping[str, Any]]] = {}
        self._ids = count()
        self._gone: list[int] = []
        self._past: dict[str, Counters] = {}  # of clients that are gone, by queue
        self._numbers: dict[Key, int] = {}
        self._durations: dict[Key, _Histogram] = {}

    def measures(self) -> Measures:
        """Return what was measured so far."""
        with self._lock.plain:
            self._drop_closed()
            numbers = dict(self._numbers)
            read = {key: each.read() for key, each in self._durations.items()}
            durations = {key: each for key, each in read.items() if any(each.counts)}
            for clients in (self._past, *(counted() for counted in self._clients.values())):
                for queue, counts in clients.items():
                    for name in counts.__struct_fields__:
                        key = (name, queue)
                        numbers[key] = numbers.get(key, 0) + getattr(counts, name)
        return Measures(numbers, durations)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of this process, as a registry of ``prometheus_client`` asks for them."""
        from shardq.metrics.families import families  # noqa: PLC0415 - measuring needs no prometheus_client

        return families(self.measures())

    def opened(self, counters: Callable[[], Mapping[str, Any]], client: object) -> None:
        """Count what a client does, for as long as there is something of it, and keep that."""
        with self._lock.plain:
            self._drop_closed()
            number = next(self._ids)
            self._clients[number] = counters
        weakref.finalize(client, self._gone.append, number).atexit = False

    def _drop_closed(self) -> None:
        """Keep the counts of clients that are gone. Not when they go: that may be within any line of this."""
        while self._gone:
            for queue, counts in self._clients.pop(self._gone.pop())().items():
                self._past[queue] = self._past.get(queue, Counters()) + counts

    def requests(self, store: str, operation: str) -> Callable[[float], None]:
        """Return what records the seconds of a request. It is called for each, so it looks for nothing."""
        own = self._lock
        with own.plain:
            histogram = self._histogram(("operation", store, operation))
        noted = histogram.noted
        note = noted.append

        def record(seconds: float) -> None:
            note(seconds)
            if len(noted) >= MOST_NOTED:
                with own.plain:
                    histogram.count_noted()

        return record

    def refused(self, store: str, operation: str, error: BaseException) -> None:
        """Count an error of the store by its code."""
        reason = error.code if isinstance(error, ShardqError) else type(error).__name__
        with self._lock.plain:
            self._count(("errors", store, operation, reason), 1)

    def received(self, queue: str, waits: Sequence[tuple[int, int]]) -> None:
        """Record for how long messages were due until they were received."""
        key = ("wait", queue)
        with self._lock.plain:
            histogram = self._durations.get(key) or self._histogram(key)
            bounds, counts, total = histogram.bounds, histogram.counts, 0.0
            for microseconds, messages in waits:
                seconds = microseconds / 1e6 if microseconds > 0 else 0.0  # a clock may be a little behind
                counts[bisect_left(bounds, seconds)] += messages
                total += seconds * messages
            histogram.seconds += total

    def handled(self, queue: str, outcomes: Mapping[str, int], seconds: Sequence[float]) -> None:
        """Record how long a handler ran, each time, and what became of its messages."""
        with self._lock.plain:
            if ("processing", queue) not in self._durations:
                for outcome in OUTCOMES:  # a rate needs the 0 before the first one
                    self._count((outcome, queue), 0)
            self._histogram(("processing", queue)).count(seconds)
            for outcome, messages in outcomes.items():
                if messages:
                    self._count((outcome, queue), messages)

    def ran(self, task: str, outcome: str, seconds: float | None) -> None:
        """Count an attempt at a task, and record how long it ran."""
        with self._lock.plain:
            self._count(("tasks", task, outcome), 1)
            if seconds is not None:
                self._histogram(("task", task)).count([seconds])

    def _histogram(self, key: Key) -> _Histogram:
        """Return the histogram of some labels, or beyond the bound that of all further ones."""
        if (known := self._durations.get(key)) is not None:
            return known
        if len(self._durations) >= MOST_LABELS:
            key = _others(key)
        return self._durations.setdefault(key, _Histogram(BOUNDS.get(key[0], BOUNDS["processing"])))

    def _count(self, key: Key, amount: int) -> None:
        if key not in self._numbers and len(self._numbers) >= MOST_LABELS:
            key = _others(key)
        self._numbers[key] = self._numbers.get(key, 0) + amount


def _others(key: Key) -> Key:
    return (key[0], *(OTHERS for _ in key[1:]))
