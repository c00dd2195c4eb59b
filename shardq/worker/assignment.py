"""Which handler works on the messages of which queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from shardq.core.receiving.turns import check_queues, turns_of
from shardq.errors import InvalidSetting
from shardq.worker.options import WorkerOptions

__all__ = ["assign"]

H = TypeVar("H")


def assign(queues: Sequence[str], handler: H | Mapping[str, H], options: WorkerOptions) -> dict[str, H]:
    """Return the handler of each queue: one for all, or those that are given by queue.

    Raises InvalidSetting, or InvalidName, for what a worker cannot receive from with these options.
    """
    turns_of(check_queues(queues), options.weights, options.order)
    if not isinstance(handler, Mapping):
        return dict.fromkeys(queues, handler)
    if unknown := [name for name in handler if name not in queues]:
        raise InvalidSetting(
            f"there is a handler for {unknown[0]!r}, which is not among the queues: add it to them"
        )
    if missing := [name for name in queues if name not in handler]:
        raise InvalidSetting(f"queue {missing[0]!r} has no handler: name one for each queue, or one for all")
    return {name: handler[name] for name in queues}
