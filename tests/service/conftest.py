"""What the tests of the HTTP service share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

import shardq
from shardq.service import KeyFile, Service, ServiceOptions

BASE = "http://localhost"


@pytest.fixture
def serve(url: str) -> Iterator[Callable[..., TestClient]]:
    """Starts a service on a fresh store, with options of its own, and returns a client of it."""
    with ExitStack() as stack:

        def start(*, at: str = url, mask: Any = None, doctor: Any = None, **options: Any) -> TestClient:
            service = Service(at, ServiceOptions(**options), mask=mask, doctor=doctor)
            return stack.enter_context(TestClient(service, base_url=BASE))

        yield start


@pytest.fixture
def web(serve) -> TestClient:
    return serve()


@pytest.fixture
def ui(serve) -> TestClient:
    return serve(ui=True)


@pytest.fixture
def orders(url: str) -> Iterator[shardq.Queue]:
    with shardq.connect(url) as client:
        yield client.create_queue("orders", shards=2, time_shards=2)


@pytest.fixture
def keys(tmp_path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


@pytest.fixture
def dead(orders, url: str) -> Iterator[shardq.Queue]:
    """The dead-letter queue of orders."""
    with shardq.connect(url) as client:
        yield client.queue("orders.dead")


@pytest.fixture
def make_letters(orders, dead) -> Callable[[int, str], list[str]]:
    """Makes dead letters of the queue orders with a reason, and returns their ids."""

    def make(count: int, reason: str) -> list[str]:
        before = {each.id for each in dead.peek(1_000)}
        with orders.producer() as producer, orders.consumer() as consumer:
            producer.send_many([b'{"n": 1}'] * count)
            left = count
            while left:
                batch = consumer.receive(left, wait=5)
                left -= len(batch)
                batch.dead_letter(reason)
        return [each.id for each in dead.peek(1_000) if each.id not in before]

    return make
