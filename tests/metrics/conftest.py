from __future__ import annotations

from collections.abc import Iterator

import prometheus_client
import pytest

import shardq
from shardq.metrics import Metrics
from tests.quick_store import url

__all__ = ["url"]


class Scraped:
    """The values that a registry shows, by name and labels."""

    def __init__(self, *collectors: object) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        for collector in collectors:
            self.registry.register(collector)  # type: ignore[arg-type]

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"shardq_{name}", labels)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def value(metrics: Metrics) -> Scraped:
    return Scraped(metrics)


@pytest.fixture
def client(url: str, metrics: Metrics) -> Iterator[shardq.Client]:
    with shardq.connect(url, observer=metrics) as client:
        yield client


@pytest.fixture
def queue(client: shardq.Client) -> shardq.Queue:
    return client.create_queue("orders", max_deliveries=2, retry_delay=0)
