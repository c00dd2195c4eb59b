"""What a process of a pool is told to do."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from shardq.codec import codec_named
from shardq.errors import InvalidSetting
from shardq.queue import Queue
from shardq.worker.worker import Worker

__all__ = ["WorkerPlan", "load_handler"]

Handler = Callable[[Any], object]


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker needs, in a form that can be sent to another process."""

    url: str
    queue: str
    handler: str | Handler
    by_batch: bool = False
    batch: int = 100
    codec: str = "bytes"
    retry_delay: float = 1.0
    max_retry_delay: float = 300.0
    keep_leases: bool = True
    idle_exit: float | None = None
    prefetch: int = 0

    def worker(self, queue: Queue) -> Worker:
        """A worker as planned; raises InvalidSetting."""
        return Worker(
            queue,
            load_handler(self.handler),
            by_batch=self.by_batch,
            batch=self.batch,
            codec=codec_named(self.codec),
            retry_delay=self.retry_delay,
            max_retry_delay=self.max_retry_delay,
            keep_leases=self.keep_leases,
            idle_exit=self.idle_exit,
            prefetch=self.prefetch,
        )


def load_handler(handler: str | Handler) -> Handler:
    """The function that ``package.module:function`` names; raises InvalidSetting when there is none."""
    if not isinstance(handler, str):
        return handler
    module, separator, path = handler.partition(":")
    if not module or not separator or not path:
        raise InvalidSetting(f"handler {handler!r} names no function: give it as 'package.module:function'")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise InvalidSetting(
            f"handler {handler!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise InvalidSetting(f"handler {handler!r} is a {type(found).__name__}: name a function")
    return found  # type: ignore[no-any-return]
