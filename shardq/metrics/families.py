"""The names, labels and texts of the metrics, for Prometheus. They are listed in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from shardq.metrics.measures import BOUNDS, Durations, Measures

__all__ = ["counter", "families", "gauge", "info"]

_COUNTERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "sent": ("messages_sent", "Messages that were stored.", ("queue",)),
    "deduplicated": (
        "messages_deduplicated", "Messages that were not stored because their key was taken.", ("queue",)
    ),
    "received": ("messages_received", "Messages that were received.", ("queue",)),
    "redelivered": ("messages_redelivered", "Of those received: not for the first time.", ("queue",)),
    "acked": ("messages_acked", "Messages that were acked.", ("queue",)),
    "released": ("messages_released", "Messages that were released before their lease ended.", ("queue",)),
    "forwarded": ("messages_forwarded", "Messages that were moved to another queue.", ("queue",)),
    "dead_lettered": ("messages_dead_lettered", "Messages that became dead letters.", ("queue",)),
    "redriven": ("messages_redriven", "Dead letters that were sent back to this queue.", ("queue",)),
    "expired": ("messages_expired", "Messages dropped because their ttl or retention ended.", ("queue",)),
    "dropped": ("messages_dropped", "The oldest messages of a full queue, dropped for others.", ("queue",)),
    "worked": ("messages_worked", "Messages whose handler returned.", ("queue",)),
    "failed": ("messages_failed", "Messages whose handler failed, each time.", ("queue",)),
    "snoozed": ("messages_snoozed", "Messages that a handler put off.", ("queue",)),
    "discarded": ("messages_discarded", "Messages that a handler discarded.", ("queue",)),
    "lease_lost": ("lease_lost", "Messages whose settlement was refused because their lease was lost.", ("queue",)),
    "claims": ("claims", "Claims that were tried.", ("queue",)),
    "lock_contention": ("lock_contention", "Claims that found the shard locked by another.", ("queue",)),
    "empty_reads": ("empty_receives", "Receives that found no message.", ("queue",)),
    "events_lost": ("events_lost", "Events that could not be written to the log of their queue.", ("queue",)),
    "errors": (
        "store_errors", "Requests to the store that failed.", ("store", "operation", "reason")
    ),
    "tasks": ("tasks", "Attempts at tasks that have ended.", ("task", "outcome")),
}  # fmt: skip

_HISTOGRAMS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "wait": (
        "message_wait_seconds", "From when a message is due until it is received for the first time.", ("queue",)
    ),
    "processing": ("processing_duration_seconds", "Calls of handlers.", ("queue",)),
    "operation": ("operation_duration_seconds", "Requests to the store.", ("store", "operation")),
    "task": ("task_duration_seconds", "Calls of the functions of tasks.", ("task",)),
}  # fmt: skip


def families(measures: Measures) -> Iterator[Metric]:
    """Yield what was measured, with the version of shardq."""
    yield info()
    for kind, (name, text, labels) in _COUNTERS.items():
        counter = CounterMetricFamily(f"shardq_{name}", text, labels=labels)
        for key, number in measures.numbers.items():
            if key[0] == kind and key[1]:
                counter.add_metric(key[1:], number)
        yield counter
    retries = sum(number for key, number in measures.numbers.items() if key[0] == "retries")
    yield CounterMetricFamily(
        "shardq_store_retries", "Requests to the store that were repeated.", value=retries
    )
    for kind, (name, text, labels) in _HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"shardq_{name}", text, labels=labels)
        for key, durations in measures.durations.items():
            if key[0] == kind:
                bounds = BOUNDS.get(kind, BOUNDS["processing"])
                histogram.add_metric(key[1:], _buckets(bounds, durations), durations.seconds)
        yield histogram


def _buckets(bounds: Sequence[float], durations: Durations) -> list[tuple[str, float]]:
    names = [*(f"{float(bound)}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(durations.counts), strict=True))


def info() -> Metric:
    """Return the version of shardq."""
    return InfoMetricFamily("shardq_build", "The version of shardq.", value={"version": version("shardq")})


def gauge(name: str, text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
    """Return a gauge with its values by labels."""
    family = GaugeMetricFamily(f"shardq_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter without labels."""
    return CounterMetricFamily(f"shardq_{name}", text, value=value)
