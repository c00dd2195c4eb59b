"""Whose turn it is, among the queues that one consumer receives from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from shardq.base.shard import check_queue_name
from shardq.base.wording import shown
from shardq.errors import InvalidSetting
from shardq.settings import check_number

__all__ = ["InOrder", "Turns", "Weighted", "check_queues", "turns_of"]

LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1_000_000.0


class Turns(Protocol):
    """Decides from which queue a consumer receives next."""

    def order(self) -> Sequence[str]:
        """All queues, the one whose turn it is first. The first of them that has messages is received from."""
        ...

    def took(self, queue: str, messages: int) -> None:
        """So many messages of the queue were received."""
        ...


class InOrder:
    """The first queue that has messages, always."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Sequence[str]:
        """The queues as they were given."""
        return self._queues

    def took(self, queue: str, messages: int) -> None:
        """Nothing changes."""


class Weighted:
    """Queues that have messages share the receiving in proportion to their weights, counted in messages.

    This is start-time fair queueing (Goyal, Vin and Cheng, 1996). Each queue has a moment up to which it has had its
    share. What is received moves that on, the further the smaller the weight, and the queue with the earliest moment is
    next. A queue that was empty begins at the present moment: it saves up nothing, and owes nothing.

    >>> turns = Weighted({"a": 3, "b": 1})
    >>> taken = ""
    >>> for _ in range(8):
    ...     queue = turns.order()[0]
    ...     turns.took(queue, 1)
    ...     taken += queue
    >>> taken
    'abaaabaa'
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)
        self._until = dict.fromkeys(weights, 0.0)
        self._present = 0.0

    def order(self) -> Sequence[str]:
        """The queues, the one with the earliest moment first."""
        return sorted(self._until, key=lambda queue: (self._begin(queue), self._until[queue]))

    def took(self, queue: str, messages: int) -> None:
        """Move the queue's moment on."""
        self._present = self._begin(queue)
        self._until[queue] = self._present + messages / self._weights[queue]

    def _begin(self, queue: str) -> float:
        return max(self._present, self._until[queue])


def check_queues(queues: Sequence[str]) -> Sequence[str]:
    """Return the names of several queues, or raise InvalidSetting or InvalidName."""
    if isinstance(queues, str) or not isinstance(queues, Sequence) or not queues:
        raise InvalidSetting(f"queues={shown(queues)}: give a list of names, such as ['orders', 'letters']")
    for place, queue in enumerate(queues):
        if check_queue_name(queue) in queues[:place]:
            raise InvalidSetting(f"queue {queue!r} is named twice: name each once, and give it a weight")
    return queues


def turns_of(queues: Sequence[str], weights: Mapping[str, float] | None, order: str) -> Turns:
    """Return the turns of queues, or raise InvalidSetting."""
    if order not in ("fair", "strict"):
        raise InvalidSetting(f"order={shown(order)} is unknown: use 'fair' or 'strict'")
    if order == "strict" and weights is not None:
        raise InvalidSetting("order='strict' knows no weights: leave them out, or use order='fair'")
    if order == "strict":
        return InOrder(queues)
    if not isinstance(weights, Mapping | None):
        raise InvalidSetting(
            f"weights={shown(weights)}: give a weight by the name of its queue, such as {{'orders': 3}}"
        )
    for queue, weight in (weights or {}).items():
        if queue not in queues:
            raise InvalidSetting(
                f"weights name {shown(queue)}, which is not among the queues: add it to them"
            )
        check_number(f"weight of queue {queue!r}", weight, LEAST_WEIGHT, MOST_WEIGHT)
    return Weighted({queue: (weights or {}).get(queue, 1.0) for queue in queues})
