"""The queues of a worker, and the values that were given for each, where patterns stand for some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from shardq.base.patterns import NamePattern, is_pattern
from shardq.client import Client
from shardq.client.consumer import Consumer
from shardq.client.patterns import QueuePattern
from shardq.client.queue import Queue
from shardq.client.queue_internals import queue_of

__all__ = ["ByQueue", "WorkedQueues", "follows", "opened"]

T = TypeVar("T")


def opened(client: Client, name: str) -> Queue | QueuePattern:
    """Return a queue that exists, or the queues that a pattern matches. Raises InvalidName or QueueNotFound."""
    return client.pattern(name) if is_pattern(name) else client.queue(name)


def follows(queues: Mapping[str, object]) -> bool:
    """Return whether some of the queues are those that a pattern matches."""
    return any(map(is_pattern, queues))


class ByQueue(dict[str, T]):
    """Values that were given for queues and patterns.

    A queue that is not named has the value of the first pattern that matches.
    """

    def __missing__(self, name: str) -> T:
        for text, each in list(self.items()):
            if is_pattern(text) and NamePattern.parse(text).matches(name):
                self[name] = each
                return each
        raise KeyError(name)


class WorkedQueues(dict[str, Queue]):
    """The queues of a worker by name; of those that a pattern matches, each that its consumer has received from.

    A pattern is in it under its text, as what knows the store.
    """

    def __init__(self, queues: Mapping[str, Queue | QueuePattern]) -> None:
        super().__init__(cast("Mapping[str, Queue]", queues))
        self._opened: Callable[[str], Queue] | None = None

    def receive_by(self, consumer: Consumer) -> Consumer:
        """Open further queues as this consumer has opened them, without a request; returns the consumer."""
        self._opened = lambda name: queue_of(consumer, name)
        return consumer

    def __missing__(self, name: str) -> Queue:
        if self._opened is None:
            raise KeyError(name)
        return self._opened(name)
