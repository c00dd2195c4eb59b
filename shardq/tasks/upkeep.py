"""Removing results whose time is over, beside the tasks: none waits for it, however slow the store is."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from shardq.base.waits import Flag
from shardq.errors import ShardqError
from shardq.tasks.results import ResultLog

__all__ = ["UPKEEP_SECONDS", "Upkeep"]

_log = logging.getLogger(__name__)

UPKEEP_SECONDS = 60.0


class Upkeep:
    """The upkeep of one worker: once a minute, ``beside`` its tasks in a thread of its own, or between them.

    It ends soon when its worker is ``stopping``, and asks the store nothing more when the worker has no time left for
    that: every request is within ``leaving()``. What fails is left to the next time. For one thread.
    """

    def __init__(
        self,
        results: ResultLog,
        *,
        beside: bool,
        stopping: Callable[[], bool],
        leaving: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._results, self._beside = results, beside
        self._stopping, self._leaving = stopping, leaving
        self._closed = Flag()
        self._thread: threading.Thread | None = None
        self._due = time.monotonic() + random.uniform(0.5, 1.0) * UPKEEP_SECONDS

    def look(self) -> None:
        """Begin if it is time, unless the one before is still at it."""
        if time.monotonic() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = time.monotonic() + UPKEEP_SECONDS
        if self._beside:
            self._thread = threading.Thread(target=self._remove, name="shardq-tasks-upkeep", daemon=True)
            self._thread.start()
        else:
            self._remove()

    def finish(self) -> None:
        """Remove all that is over now, unless the worker is stopping."""
        self._wait()
        self._remove()

    def close(self) -> None:
        """End the thread, after the entries that it removes just now."""
        self._closed.set()
        self._wait()

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _remove(self) -> None:
        try:
            with self._leaving():
                self._results.remove_old(lambda: self._closed.is_set() or self._stopping())
        except ShardqError as error:
            _log.warning("results whose time is over were not removed: %s", error)
