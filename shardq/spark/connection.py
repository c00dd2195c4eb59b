"""The connection of a process of Spark to a store."""

from __future__ import annotations

import os
from functools import lru_cache

import shardq
from shardq.context.queue_context import QueueContext
from shardq.spark.options import QueueOptions

__all__ = ["client_of", "context_of"]


def client_of(options: QueueOptions) -> shardq.Client:
    """The client of this process for the store; opened once, as Spark uses its Python workers again and forks them."""
    return _client(options.url, options.retry_seconds, os.getpid())


def context_of(options: QueueOptions, queue: str | None = None) -> QueueContext:
    """The queue, as the policies see it; raises QueueNotFound."""
    return client_of(options).queue(queue or options.queue)._context


@lru_cache(maxsize=8)
def _client(url: str, retry_seconds: float, _process: int) -> shardq.Client:
    return shardq.connect(url, retry_seconds=retry_seconds)
