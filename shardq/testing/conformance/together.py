"""Runs functions at the same moment in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run_together"]

T = TypeVar("T")


def run_together(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Start all functions together, each in a thread; return their results, or raise what one raised."""
    barrier = threading.Barrier(len(functions))

    def start(function: Callable[[], T]) -> T:
        barrier.wait(timeout=60)
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(start, function) for function in functions]]
