"""The threads of a worker, in which its tasks run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from shardq.storage.per_process import forks

__all__ = ["Threads"]

T = TypeVar("T")


class Threads(Generic[T]):
    """Calls a function with each of what it is given, in up to ``most`` threads, in the order in which they come.

    The function MUST NOT raise. It is a pool of threads without futures, which cost a short task a tenth of its time.
    """

    def __init__(self, most: int, function: Callable[[T], None]) -> None:
        self._most, self._function = most, function
        self._waiting = SimpleQueue[T | None]()
        self._threads: list[threading.Thread] = []

    def put(self, item: T) -> None:
        """Call the function with it, as soon as a thread is free. For one thread."""
        self._waiting.put(item)
        if len(self._threads) < self._most:
            name = f"shardq-task_{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Wait until the function has been called with everything, and end the threads."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        here = forks.count
        while (item := self._waiting.get()) is not None:
            self._function(item)
            if forks.count != here:  # a child that the function has forked ends with it
                return
