"""The ground of every contract: a bench for each test, whose books are checked at the end.

Functions run at the same moment in threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from shardq.testing.conformance.bench import Bench
from shardq.testing.harness import StoreHarness

__all__ = ["Contract", "exact_time", "run_together"]

exact_time = pytest.mark.usefixtures("exact")


class Contract:
    """Tests of one feature. The store's author provides the ``harness`` fixture."""

    @pytest.fixture
    def bench(self, harness: StoreHarness) -> Iterator[Bench]:
        """Make a new queue on the store; when the test has ended, check and audit its shards."""
        bench = Bench(harness)
        yield bench
        try:
            bench.check_books()
            bench.audit()
        finally:
            bench.close()

    @pytest.fixture
    def exact(self, harness: StoreHarness) -> None:
        """Skip a test of exact moments, or of long ones, on a store whose time is real."""
        if harness.real_time:
            pytest.skip("the store's time is real")


T = TypeVar("T")


def run_together(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Start all functions together, each in a thread; return their results, or raise what one raised."""
    barrier = threading.Barrier(len(functions))

    def start(function: Callable[[], T]) -> T:
        barrier.wait(timeout=60)
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(start, function) for function in functions]]
