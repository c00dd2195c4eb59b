"""The connection of a process of Spark to a store."""

from __future__ import annotations

import os
from functools import lru_cache

from shardq.client import Client, connect
from shardq.context.queue_context import QueueContext
from shardq.spark.options import QueueOptions

__all__ = ["context_of"]


def context_of(options: QueueOptions, queue: str | None = None) -> QueueContext:
    """The queue, as the policies see it; raises QueueNotFound.

    A process opens a store once, as Spark uses its Python workers again and forks them.
    """
    client = _client(options.url, options.retry_seconds, os.getpid())
    return client.queue(queue or options.queue)._context  # noqa: SLF001 - a source is a part of the client's own


@lru_cache(maxsize=8)
def _client(url: str, retry_seconds: float, _process: int) -> Client:
    return connect(url, retry_seconds=retry_seconds)
