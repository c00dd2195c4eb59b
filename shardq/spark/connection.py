"""The connection of a process of Spark to a store."""

from __future__ import annotations

import os
from functools import lru_cache

from shardq.clock import SystemClock
from shardq.context.queue_context import QueueContext, QueueContexts
from shardq.logs.event_log import write_entries
from shardq.receiving.trimming import drop_oldest
from shardq.spark.options import QueueOptions
from shardq.storage.opening import open_store

__all__ = ["context_of"]


def context_of(options: QueueOptions, queue: str | None = None) -> QueueContext:
    """The queue, as the policies see it; raises QueueNotFound.

    A process opens a store once, as Spark uses its Python workers again and forks them.
    """
    contexts = _contexts(options.url, options.retry_seconds, os.getpid())
    return contexts.of(queue or options.queue)


@lru_cache(maxsize=8)
def _contexts(url: str, retry_seconds: float, _process: int) -> QueueContexts:
    store = open_store(url, SystemClock())
    return QueueContexts(store, drop_oldest, write_entries, retry_seconds=retry_seconds)
