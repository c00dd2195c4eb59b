"""The connection of a process of Spark to a store.

Spark has a Python process for each task that runs at a time, and keeps it for later tasks. So a process opens a store
once. A process that only had tasks closes the store when none has used it for a while. So a cluster has connections
for the tasks that run, and not for all that could.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Timer

from shardq.client import Client, connect
from shardq.core.context.queue_context import QueueContext
from shardq.spark.options import QueueOptions

__all__ = ["IDLE_SECONDS", "SharedConnection", "context_of", "shared_connection", "task_context"]

IDLE_SECONDS = 30.0
"""After so long without a task the connection is closed."""


def context_of(options: QueueOptions, queue: str | None = None) -> QueueContext:
    """Open the queue, as the policies see it, for the rest of the process. It is for plans. Raises QueueNotFound."""
    shared = shared_connection(options.url, options.retry_seconds, os.getpid())
    return _context(shared.keep(), queue or options.queue)


@contextmanager
def task_context(options: QueueOptions, queue: str | None = None) -> Iterator[QueueContext]:
    """Open the queue for the time of a task; raises QueueNotFound."""
    shared = shared_connection(options.url, options.retry_seconds, os.getpid())
    client = shared.enter()
    try:
        yield _context(client, queue or options.queue)
    finally:
        shared.leave()


def _context(client: Client, queue: str) -> QueueContext:
    return client.queue(queue)._context  # noqa: SLF001 - a source is a part of the client's own


@lru_cache(maxsize=8)
def shared_connection(url: str, retry_seconds: float, _process: int) -> SharedConnection:
    """Return the connection of this process: Spark forks its workers."""
    return SharedConnection(url, retry_seconds)


class SharedConnection:
    """A client that is open while it is used, and for a while after that. Safe for threads."""

    def __init__(self, url: str, retry_seconds: float) -> None:
        self._url, self._retry_seconds = url, retry_seconds
        self._lock = threading.Lock()
        self.client: Client | None = None
        self._users = 0
        self._kept = False
        self._closing: Timer | None = None

    def keep(self) -> Client:
        """Return the client, which stays open now."""
        with self._lock:
            self._kept = True
            return self._opened()

    def enter(self) -> Client:
        """Return the client, which stays open until ``leave``."""
        with self._lock:
            opened = self._opened()
            self._users += 1
            return opened

    def leave(self) -> None:
        """Close the client after a while, unless it is used then."""
        closing = None
        with self._lock:
            self._users -= 1
            if not self._users and not self._kept:
                closing = self._closing = Timer(IDLE_SECONDS, self._close)
                closing.daemon = True
        if closing is not None:
            closing.start()

    def _opened(self) -> Client:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self.client is None:
            self.client = connect(self._url, retry_seconds=self._retry_seconds)
        return self.client

    def _close(self) -> None:
        with self._lock:
            unused = threading.current_thread() is self._closing
            if unused and self.client is not None:
                self.client.close()
                self.client = self._closing = None
