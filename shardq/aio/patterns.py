"""The queues whose names match a pattern, with asyncio."""

from __future__ import annotations

import shardq.client.patterns
from shardq.aio.consumer import Consumer
from shardq.aio.queue import Queue
from shardq.aio.threads import Wraps, awaited, passed
from shardq.base.codec import Codec
from shardq.client.queue_internals import consumer_of

__all__ = ["QueuePattern", "working_consumer"]


class QueuePattern(Wraps[shardq.client.patterns.QueuePattern]):
    """The queues whose names match a pattern, as they come and go. Made by :meth:`shardq.aio.Client.pattern`.

    :func:`shardq.aio.work` works their messages. The rules of patterns are those of :class:`shardq.QueuePattern`.
    """

    name = passed[str]()
    """The pattern."""

    names = awaited(shardq.client.patterns.QueuePattern.names)

    async def queue(self, name: str) -> Queue:
        """Return one of the queues. Raises InvalidName or QueueNotFound."""
        return Queue(await self._run(self._sync.queue, name), self._threads)


async def working_consumer(
    queue: Queue | QueuePattern, *, codec: Codec, name: str | None, visibility_timeout: float | None
) -> Consumer:
    """Return a consumer of a queue, or of all that a pattern matches, which extends the leases of its messages."""
    if isinstance(queue, Queue):
        return queue.consumer(codec=codec, name=name, visibility_timeout=visibility_timeout, keep_leases=True)
    sync = await queue._run(  # noqa: SLF001 - of its own package
        consumer_of,
        [queue._sync],  # noqa: SLF001 - of its own package
        weights=None,
        order="fair",
        codec=codec,
        name=name,
        visibility_timeout=visibility_timeout,
        keep_leases=True,
    )
    return Consumer(sync, queue._threads)  # noqa: SLF001 - of its own package
