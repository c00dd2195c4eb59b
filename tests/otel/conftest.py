from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.testing import ManualClock
from tests.otel.traced import Traced
from tests.quick_store import url

__all__ = ["url"]


@pytest.fixture
def traced() -> Traced:
    """A tracer, and what it has traced."""
    return Traced()


@pytest.fixture
def client(url: str, clock: ManualClock, traced: Traced) -> Iterator[shardq.Client]:
    """A client whose calls are traced, on the manual clock."""
    with shardq.connect(url, hooks=traced.hooks, clock=clock, retry_seconds=0.5) as client:
        yield client
