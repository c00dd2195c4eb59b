"""The queues whose names match a pattern."""

from __future__ import annotations

from functools import cached_property

from shardq.base.patterns import NamePattern
from shardq.client.queue import Queue
from shardq.client.semaphore import Semaphore, open_semaphore
from shardq.core.context.catalogue import CATALOGUE, MatchedQueues, create_catalogue
from shardq.core.context.queue_context import QueueContext, QueueContexts

__all__ = ["QueuePattern"]


class QueuePattern:
    """The queues whose names match a pattern, as they come and go. Made by :meth:`shardq.Client.pattern`.

    ``*`` stands for any characters but ``/``, and ``**`` for any characters. No pattern matches a queue that shardq
    makes for itself, nor a dead-letter queue. That is one whose name ends with ``.dead``, or to which the dead letters
    of another queue go. To receive from such a queue, name it.

    >>> client = shardq.connect(url)
    >>> for name in ("mail/fast", "mail/slow", "mail/slow/old", "orders"):
    ...     queue = client.create_queue(name)
    >>> client.pattern("mail/*").names()
    ('mail/fast', 'mail/slow')
    >>> client.pattern("**").names()
    ('mail/fast', 'mail/slow', 'mail/slow/old', 'orders')
    """

    def __init__(self, contexts: QueueContexts, pattern: str) -> None:
        self._contexts, self.pattern = contexts, NamePattern.parse(pattern)
        self._matched = MatchedQueues(contexts.store, contexts.retry)

    @property
    def name(self) -> str:
        """The pattern."""
        return self.pattern.text

    def names(self) -> tuple[str, ...]:
        """Return the names of the queues that match now, sorted.

        It lists all queues of the store, and reads the settings of each: they say where dead letters go. While somebody
        receives by patterns, the next call reads those of new queues only.
        """
        return tuple(self._matched.find([self.pattern]))

    def queue(self, name: str) -> Queue:
        """Return one of the queues. Raises InvalidName or QueueNotFound."""
        return Queue(self._contexts.of(name))

    def semaphore(self, name: str) -> Semaphore:
        """Return a semaphore of the store, as :meth:`shardq.Queue.semaphore` does. Raises QueueNotFound."""
        return open_semaphore(self._contexts.of, name)

    @cached_property
    def _context(self) -> QueueContext:
        """The catalogue, which is created if it is missing."""
        if not self._contexts.exists(CATALOGUE):
            create_catalogue(self._contexts.store, self._contexts.retry)
        return self._contexts.of(CATALOGUE)

    def __repr__(self) -> str:
        return f"<QueuePattern {self.name}>"
